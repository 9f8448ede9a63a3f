package metrics

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// maxAge of values that are kept for further readers: a second, less what a scraper that comes each second
// may be early.
const maxAge = 900 * time.Millisecond

// gathered values, so that many readers cost a measurement no more than one does.
type gathered struct {
	from     prometheus.Gatherer
	mutex    sync.Mutex
	at       time.Time
	families []*dto.MetricFamily
}

// Gather the values, unless they were gathered within maxAge.
func (g *gathered) Gather() ([]*dto.MetricFamily, error) {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	if time.Since(g.at) < maxAge {
		return g.families, nil
	}
	families, err := g.from.Gather()
	if err == nil {
		g.families, g.at = families, time.Now()
	}
	return families, err
}

// forget what was gathered: values have changed for the last time, as far as is known.
func (g *gathered) forget() {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	g.at = time.Time{}
}
