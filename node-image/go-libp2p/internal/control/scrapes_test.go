package control

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"
)

func TestAScraperThatHasGivenUpIsWaitedForAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		takes := time.Duration(0)
		scrapes := NewScrapes(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { time.Sleep(takes) }))
		scrape := func(timeout string) {
			request := httptest.NewRequest(http.MethodGet, "/metrics", nil)
			request.Header.Set("X-Prometheus-Scrape-Timeout-Seconds", timeout)
			scrapes.ServeHTTP(httptest.NewRecorder(), request)
		}
		waits := func() time.Duration {
			begun := time.Now()
			scrapes.WaitForAnother(time.Minute)
			return time.Since(begun)
		}
		if waited := waits(); waited != 0 {
			t.Errorf("nobody has come, and it waits for %v", waited)
		}
		scrape("1")
		time.Sleep(time.Second)
		go func() {
			time.Sleep(5 * time.Second)
			takes = 2 * time.Second
			scrape("1")
			takes = 0
			time.Sleep(5 * time.Second)
			scrape("1")
		}()
		if waited := waits(); waited < 12*time.Second || waited > 13*time.Second {
			t.Errorf("it waits for %v", waited)
		}
		takes = 2 * time.Second
		for _, timeout := range []string{"", "soon", "0", "-1", "NaN", "inf", "10"} {
			begun := time.Now()
			scrape(timeout)
			if scrapes.isDue(begun) {
				t.Errorf("a timeout of %q", timeout)
			}
		}
	})
}
