package control

import (
	"math"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// Scrapes serves metrics, and knows who has scraped, so that a node can end after one more scrape: otherwise
// its last seconds would be in no Prometheus.
type Scrapes struct {
	handler http.Handler
	mutex   sync.Mutex
	// lastRead is the arrival of each scraper's last successful scrape.
	lastRead map[string]time.Time
}

// NewScrapes of a handler.
func NewScrapes(handler http.Handler) *Scrapes {
	return &Scrapes{handler: handler, lastRead: map[string]time.Time{}}
}

func (s *Scrapes) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	came := time.Now()
	scraper, _, _ := net.SplitHostPort(r.RemoteAddr)
	s.mutex.Lock()
	if _, known := s.lastRead[scraper]; !known {
		s.lastRead[scraper] = time.Time{} // It is waited for from now on, even if it gives up.
	}
	s.mutex.Unlock()
	s.handler.ServeHTTP(w, r)
	if time.Since(came) >= patienceOf(r.Header) {
		return
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if came.After(s.lastRead[scraper]) {
		s.lastRead[scraper] = came
	}
}

// patienceOf a scraper is how long it waits for the page. Prometheus drops what arrives after its timeout. It
// began to wait before its request arrived, and the answer has its way to go: a quarter is left for both.
func patienceOf(header http.Header) time.Duration {
	seconds, err := strconv.ParseFloat(header.Get("X-Prometheus-Scrape-Timeout-Seconds"), 64)
	if err != nil || !(seconds > 0 && seconds < 1e6) {
		return math.MaxInt64
	}
	return time.Duration(seconds * 0.75 * float64(time.Second))
}

// WaitForAnother scrape by everyone who has scraped before, at most for a limit.
func (s *Scrapes) WaitForAnother(limit time.Duration) {
	since := time.Now()
	for time.Since(since) < limit && s.isDue(since) {
		time.Sleep(20 * time.Millisecond)
	}
}

func (s *Scrapes) isDue(since time.Time) bool {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for _, last := range s.lastRead {
		if last.Before(since) {
			return true
		}
	}
	return false
}
