// Package observe counts and samples what a trial does, and reads what the process uses.
package observe

import (
	"sync"
	"sync/atomic"

	"perfrun/node-go/internal/contract"
)

// Counters of a trial. The data path touches atomics only; the lock guards failures, which are rare, and the
// streams that only have to end.
type Counters struct {
	Sent, Received, Connections, Streams, Operations, Failures atomic.Uint64
	// Active streams of an echo.
	Active atomic.Int64
	// Echoing streams of an echo.
	Echoing Echoing
	// RoundTrips of an echo.
	RoundTrips Latencies
	// Circuits that are up at a relay.
	Circuits atomic.Int64

	mutex  sync.Mutex
	errors map[contract.Reason]uint64
	// over is set when a server waits no longer for streams that only have to end, which are in ending.
	over   bool
	ending map[*endingStream]struct{}
}

// endingStream is a stream on which nothing else is due than its end.
type endingStream struct{ stream Resetter }

// Resetter is a stream that can be reset.
type Resetter interface{ Reset() error }

// AwaitEnd waits for the end of a stream on which nothing else is due. If the server waits no longer, the end
// is lost, which is counted as a failure and takes nothing from what was exchanged.
func (c *Counters) AwaitEnd(s Resetter, end func() error) (lost bool, err error) {
	stream := &endingStream{s}
	if c.beginWait(stream) {
		err = end()
		if !c.endWait(stream) || err == nil {
			return false, err
		}
	}
	c.CountFailure(contract.Timeout)
	return true, nil
}

// beginWait adds a stream to those whose ends the server waits for. False if it waits no longer.
func (c *Counters) beginWait(stream *endingStream) bool {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.ending == nil {
		c.ending = map[*endingStream]struct{}{}
	}
	if !c.over {
		c.ending[stream] = struct{}{}
	}
	return !c.over
}

// endWait removes a stream from those whose ends the server waits for. True if it waits no longer.
func (c *Counters) endWait(stream *endingStream) bool {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	delete(c.ending, stream)
	return c.over
}

// EndWaits makes all calls of AwaitEnd return.
func (c *Counters) EndWaits() {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.over = true
	for stream := range c.ending {
		// Of a connection that is stuck, a reset may wait, too.
		go func() { _ = stream.stream.Reset() }()
	}
}

// CountFailure counts a failed operation of a trial that continues.
func (c *Counters) CountFailure(reason contract.Reason) {
	c.Failures.Add(1)
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.errors == nil {
		c.errors = map[contract.Reason]uint64{}
	}
	c.errors[reason]++
}

func (c *Counters) errorsUntilNow() map[contract.Reason]uint64 {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	errors := make(map[contract.Reason]uint64, len(c.errors))
	for reason, count := range c.errors {
		errors[reason] = count
	}
	return errors
}

// Echoing counts the streams that completed a round trip in the current window, each once.
type Echoing struct {
	window atomic.Uint32
	count  atomic.Uint64
}

// Count a stream. Last is the window in which the stream was counted last, plus one: zero at first.
func (e *Echoing) Count(last *uint32) {
	if window := e.window.Load() + 1; window != *last {
		*last = window
		e.count.Add(1)
	}
}

// take returns the count and starts the next window.
func (e *Echoing) take() uint64 {
	e.window.Add(1)
	return e.count.Swap(0)
}
