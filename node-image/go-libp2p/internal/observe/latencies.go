package observe

import (
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Longest is the largest time that a histogram holds.
const Longest = time.Hour

// NewHistogram of times in nanoseconds.
func NewHistogram() *hdrhistogram.Histogram { return hdrhistogram.New(1, int64(Longest), 3) }

// Record a time. One that is out of range counts as the nearest in range.
func Record(histogram *hdrhistogram.Histogram, took time.Duration) {
	_ = histogram.RecordValue(int64(min(max(took, 1), Longest)))
}

// Latencies that many streams record at the same time.
type Latencies struct {
	mutex  sync.Mutex
	recent *hdrhistogram.Histogram
}

// Record a time.
func (l *Latencies) Record(took time.Duration) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if l.recent == nil {
		l.recent = NewHistogram()
	}
	Record(l.recent, took)
}

// Take adds what was recorded since the last call to all, and returns two of its quantiles; false without
// records.
func (l *Latencies) Take(all *hdrhistogram.Histogram) (p50, p99 time.Duration, found bool) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if l.recent == nil || l.recent.TotalCount() == 0 {
		return 0, 0, false
	}
	p50, p99 = time.Duration(l.recent.ValueAtQuantile(50)), time.Duration(l.recent.ValueAtQuantile(99))
	all.Merge(l.recent)
	l.recent.Reset()
	return p50, p99, true
}
