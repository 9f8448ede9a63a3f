package observe

import (
	"sync"
	"time"

	"perfrun/node-go/internal/contract"
)

const (
	sampleInterval = 100 * time.Millisecond
	mostSamples    = 128
)

// Deltas receives what was counted between two readings, for metrics.
type Deltas interface {
	Add(sent, received, connections, streams, operations, failures uint64)
}

// Observer of one trial: counters, samples, and what the process uses.
type Observer struct {
	Counters *Counters

	metrics    Deltas
	peakIsOurs bool
	mutex      sync.Mutex
	start      Usage
	series     series
	stop       chan struct{}
	finished   *Observations
}

// Observations at the end of a trial.
type Observations struct {
	At       time.Time
	Measured contract.Measured
}

// New begins to observe.
func New(metrics Deltas) *Observer {
	peakIsOurs := ResetPeak()
	o := &Observer{Counters: &Counters{}, metrics: metrics, peakIsOurs: peakIsOurs, start: Now()}
	o.series = newSeries(o.reading(), reading{})
	o.sample()
	return o
}

// Begin starts the samples and the usage from here: what was used before is not charged to the workload.
func (o *Observer) Begin() {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	if o.finished != nil {
		return
	}
	close(o.stop)
	now := o.reading()
	o.pass(now)
	o.series = newSeries(now, o.series.passed)
	o.start = Now()
	o.sample()
}

// Finish ends the observation. Later calls return the same.
func (o *Observer) Finish() Observations {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	if o.finished != nil {
		return *o.finished
	}
	close(o.stop)
	end, last := Now(), o.reading()
	o.pass(last)
	o.series.add(last, true)
	peak := o.series.rssPeak
	if o.peakIsOurs {
		peak = Peak()
	}
	o.finished = &Observations{
		At: last.at,
		Measured: contract.Measured{
			BytesSent:     last.sent,
			BytesReceived: last.received,
			Connections:   last.connections,
			Streams:       last.streams,
			Failures:      last.failures,
			Errors:        last.errors,
			Resources:     end.Since(o.start, peak, o.series.allocatedPeak),
			Samples:       o.series.samples,
		},
	}
	return *o.finished
}

// sample reads the counters beside the data path until stop is closed.
func (o *Observer) sample() {
	stop := make(chan struct{})
	o.stop = stop
	go func() {
		ticker := time.NewTicker(sampleInterval)
		defer ticker.Stop()
		for {
			select {
			case <-stop:
				return
			case <-ticker.C:
			}
			o.mutex.Lock()
			select {
			case <-stop:
			default:
				now := o.reading()
				o.pass(now)
				o.series.add(now, false)
			}
			o.mutex.Unlock()
		}
	}()
}

// pass hands what was counted since the last reading to the metrics.
func (o *Observer) pass(now reading) {
	before := o.series.passed
	o.metrics.Add(now.sent-before.sent, now.received-before.received, now.connections-before.connections,
		now.streams-before.streams, now.operations-before.operations, now.failures-before.failures)
	o.series.passed = now
}

func (o *Observer) reading() reading {
	c := o.Counters
	return reading{
		at: time.Now(), sent: c.Sent.Load(), received: c.Received.Load(), connections: c.Connections.Load(),
		streams: c.Streams.Load(), operations: c.Operations.Load(), failures: c.Failures.Load(),
		errors: c.errorsUntilNow(), cpu: CPU(), rss: Resident(), allocated: Allocated(),
	}
}

type reading struct {
	at                                                         time.Time
	sent, received, connections, streams, operations, failures uint64
	errors                                                     map[contract.Reason]uint64
	cpu                                                        float64
	rss, allocated                                             uint64
}

// series of samples. When it is full, two samples become one, so that its length is bounded.
type series struct {
	begun                  time.Time
	kept, passed           reading
	interval               time.Duration
	samples                []contract.Sample
	rssPeak, allocatedPeak uint64
}

func newSeries(first, passed reading) series {
	return series{begun: first.at, kept: first, passed: passed, interval: sampleInterval,
		rssPeak: first.rss, allocatedPeak: first.allocated}
}

func (s *series) add(now reading, last bool) {
	s.rssPeak, s.allocatedPeak = max(s.rssPeak, now.rss), max(s.allocatedPeak, now.allocated)
	took := now.at.Sub(s.kept.at)
	if !last && took+sampleInterval/2 < s.interval {
		return
	}
	s.samples = append(s.samples, sampleBetween(s.begun, s.kept, now))
	// A last sample that is much shorter than the others would have a rate of little meaning.
	if n := len(s.samples); took < s.interval/2 && n > 1 {
		s.samples = append(s.samples[:n-2], merged(s.samples[n-2], s.samples[n-1]))
	}
	s.kept = now
	if len(s.samples) == mostSamples {
		for i := range mostSamples / 2 {
			s.samples[i] = merged(s.samples[2*i], s.samples[2*i+1])
		}
		s.samples = s.samples[:mostSamples/2]
		s.interval *= 2
	}
}

func sampleBetween(begun time.Time, before, now reading) contract.Sample {
	errors := map[contract.Reason]uint64{}
	for reason, count := range now.errors {
		if more := count - before.errors[reason]; more > 0 {
			errors[reason] = more
		}
	}
	return contract.Sample{
		AtSeconds: now.at.Sub(begun).Seconds(), IntervalSeconds: now.at.Sub(before.at).Seconds(),
		BytesSent: now.sent - before.sent, BytesReceived: now.received - before.received,
		Operations: now.operations - before.operations, CPUSeconds: now.cpu - before.cpu,
		RSSBytes: now.rss, AllocatedBytes: &now.allocated, Errors: errors,
	}
}

func merged(a, b contract.Sample) contract.Sample {
	for reason, count := range a.Errors {
		b.Errors[reason] += count
	}
	b.IntervalSeconds += a.IntervalSeconds
	b.BytesSent += a.BytesSent
	b.BytesReceived += a.BytesReceived
	b.Operations += a.Operations
	b.CPUSeconds += a.CPUSeconds
	return b
}
