package observe

import (
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"perfrun/node-go/internal/contract"
)

// Sampling is how samples of a trial are taken.
type Sampling struct {
	// interval is the first one. It doubles whenever most samples are kept, so that their number is bounded.
	interval time.Duration
	most     int
	// echo and interfaces say whether samples have these parts: a relay does not count its payload.
	echo, interfaces bool
}

// NewSampling of a load, through a relay or not. The interval is that of an echo, zero without one.
func NewSampling(isRelayed bool, interval time.Duration) Sampling {
	if interval > 0 {
		// A sample per second for an hour.
		return Sampling{interval: interval, most: 4096, echo: true}
	}
	return Sampling{interval: 100 * time.Millisecond, most: 128, interfaces: isRelayed}
}

// Deltas receives what was counted between two readings, for metrics.
type Deltas interface {
	Add(sent, received, connections, streams, operations, failures uint64)
	// SetEchoing streams of an interval.
	SetEchoing(streams uint64)
}

// Observer of one trial: counters, samples, and what the process uses.
type Observer struct {
	Counters *Counters

	metrics    Deltas
	sampling   Sampling
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
	// RoundTrips of an echo, nil for other workloads.
	RoundTrips *hdrhistogram.Histogram
}

// New begins to observe.
func New(metrics Deltas, sampling Sampling) *Observer {
	peakIsOurs := ResetPeak()
	o := &Observer{
		Counters: &Counters{}, metrics: metrics, sampling: sampling, peakIsOurs: peakIsOurs, start: Now(),
	}
	o.series = newSeries(o.reading(), reading{}, sampling)
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
	o.series = newSeries(now, o.series.passed, o.sampling)
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
	o.keep(last, true)
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
		RoundTrips: o.series.roundTrips,
	}
	return *o.finished
}

// sample reads the counters beside the data path until stop is closed.
func (o *Observer) sample() {
	stop := make(chan struct{})
	o.stop = stop
	go func() {
		ticker := time.NewTicker(o.sampling.interval)
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
				o.keep(now, false)
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

// keep a reading as a sample, if it is time for one.
func (o *Observer) keep(now reading, last bool) {
	s := &o.series
	if !s.isDue(now, last) {
		return
	}
	sample := sampleBetween(s.begun, s.kept, now)
	if o.sampling.echo {
		sample.Echo = o.echo(now)
	}
	if o.sampling.interfaces {
		received, sent := interfaces(Text("/proc/self/net/dev"))
		sample.InterfaceReceivedBytes = difference(received, s.received)
		sample.InterfaceSentBytes = difference(sent, s.sent)
		s.received, s.sent = received, sent
	}
	s.add(sample, now)
}

func (o *Observer) echo(now reading) *contract.EchoSample {
	sample := &contract.EchoSample{ActiveStreams: uint64(max(now.active, 0)), EchoingStreams: o.Counters.Echoing.take()}
	if p50, p99, found := o.Counters.RoundTrips.Take(o.series.roundTrips); found {
		p50, p99 := p50.Seconds(), p99.Seconds()
		sample.RoundTripP50Seconds, sample.RoundTripP99Seconds = &p50, &p99
	}
	o.metrics.SetEchoing(sample.EchoingStreams)
	return sample
}

func (o *Observer) reading() reading {
	c := o.Counters
	return reading{
		at: time.Now(), sent: c.Sent.Load(), received: c.Received.Load(), connections: c.Connections.Load(),
		streams: c.Streams.Load(), operations: c.Operations.Load(), failures: c.Failures.Load(),
		active: c.Active.Load(), circuits: c.Circuits.Load(),
		errors: c.errorsUntilNow(), cpu: CPU(), rss: Resident(), allocated: Allocated(),
	}
}

type reading struct {
	at                                                         time.Time
	sent, received, connections, streams, operations, failures uint64
	active, circuits                                           int64
	errors                                                     map[contract.Reason]uint64
	cpu                                                        float64
	rss, allocated                                             uint64
}

// series of samples. When it is full, two samples become one, so that its length is bounded.
type series struct {
	sampling               Sampling
	begun                  time.Time
	kept, passed           reading
	received, sent         *uint64
	interval               time.Duration
	samples                []contract.Sample
	roundTrips             *hdrhistogram.Histogram
	rssPeak, allocatedPeak uint64
}

func newSeries(first, passed reading, sampling Sampling) series {
	s := series{sampling: sampling, begun: first.at, kept: first, passed: passed, interval: sampling.interval,
		rssPeak: first.rss, allocatedPeak: first.allocated}
	if sampling.echo {
		s.roundTrips = NewHistogram()
	}
	if sampling.interfaces {
		s.received, s.sent = interfaces(Text("/proc/self/net/dev"))
	}
	return s
}

// isDue says whether a reading ends an interval. Half an interval of slack: ticks are not exact.
func (s *series) isDue(now reading, last bool) bool {
	s.rssPeak, s.allocatedPeak = max(s.rssPeak, now.rss), max(s.allocatedPeak, now.allocated)
	return last || now.at.Sub(s.kept.at)+s.sampling.interval/2 >= s.interval
}

func (s *series) add(sample contract.Sample, now reading) {
	s.samples = append(s.samples, sample)
	// A last sample that is much shorter than the others would have a rate of little meaning.
	if n := len(s.samples); now.at.Sub(s.kept.at) < s.interval/2 && n > 1 {
		s.samples = append(s.samples[:n-2], merged(s.samples[n-2], s.samples[n-1]))
	}
	s.kept = now
	if len(s.samples) == s.sampling.most {
		for i := range len(s.samples) / 2 {
			s.samples[i] = merged(s.samples[2*i], s.samples[2*i+1])
		}
		s.samples = s.samples[:len(s.samples)/2]
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
		RSSBytes: now.rss, Circuits: uint64(max(now.circuits, 0)), AllocatedBytes: &now.allocated, Errors: errors,
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
	b.InterfaceReceivedBytes = sum(a.InterfaceReceivedBytes, b.InterfaceReceivedBytes)
	b.InterfaceSentBytes = sum(a.InterfaceSentBytes, b.InterfaceSentBytes)
	if a.Echo != nil && b.Echo != nil {
		b.Echo = &contract.EchoSample{
			ActiveStreams: max(a.Echo.ActiveStreams, b.Echo.ActiveStreams),
			// At least the larger number echoed in the whole interval. Of percentiles, the worse one counts.
			EchoingStreams:      max(a.Echo.EchoingStreams, b.Echo.EchoingStreams),
			RoundTripP50Seconds: worse(a.Echo.RoundTripP50Seconds, b.Echo.RoundTripP50Seconds),
			RoundTripP99Seconds: worse(a.Echo.RoundTripP99Seconds, b.Echo.RoundTripP99Seconds),
		}
	}
	return b
}

func sum(a, b *uint64) *uint64 {
	if a == nil || b == nil {
		return nil
	}
	return plus(a, *b)
}

func worse(a, b *float64) *float64 {
	if a == nil || b != nil && *b > *a {
		return b
	}
	return a
}
