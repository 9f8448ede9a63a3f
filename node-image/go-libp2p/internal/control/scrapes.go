package control

import (
	"net"
	"net/http"
	"sync"
	"time"
)

// Scrapes serves metrics, and knows who has scraped, so that a node can end after one more scrape: otherwise
// its last seconds would be in no Prometheus.
type Scrapes struct {
	handler http.Handler
	mutex   sync.Mutex
	last    map[string]time.Time
}

// NewScrapes of a handler.
func NewScrapes(handler http.Handler) *Scrapes {
	return &Scrapes{handler: handler, last: map[string]time.Time{}}
}

func (s *Scrapes) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.handler.ServeHTTP(w, r)
	scraper, _, _ := net.SplitHostPort(r.RemoteAddr)
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.last[scraper] = time.Now()
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
	for _, last := range s.last {
		if last.Before(since) {
			return true
		}
	}
	return false
}
