package workload

import (
	"context"
	"fmt"
	"sync"
	"time"

	"perfrun/node-go/internal/contract"
	"perfrun/node-go/internal/wire"
)

// substreams are opened, many on one connection.
type substreams struct{ common }

func (substreams) protocol() string                       { return contract.Litep2pPerf }
func (w substreams) connectionStreams(*contract.Side) int { return w.Count }

func (w substreams) check() error {
	if w.Count < 1 || w.Count > mostStreams {
		return fmt.Errorf("count must be 1 to %d, not %d", mostStreams, w.Count)
	}
	if w.Rate != nil && *w.Rate < 1 {
		return fmt.Errorf("rate must be at least 1 substream per second")
	}
	return checkNegotiation(w.Negotiation)
}

func (substreams) serve(_ context.Context, s *server, stream wire.Stream) (wire.Arrival, error) {
	return wire.ServeLitep2pPerf(stream, wire.NewBuffers(s.zeros), s.setup.counters())
}

// opens of the substreams of all peers.
type opens struct {
	client *Client
	mutex  sync.Mutex
	held   []wire.Stream
	last   error
}

// run opens the substreams of all peers and holds them until all are open. Nothing is exchanged on them.
func (w substreams) run(ctx context.Context, c *Client) error {
	o := &opens{client: c}
	_ = c.each(func(_ int, d *dialler) error {
		if w.Rate == nil {
			o.burst(ctx, d, w.Count)
		} else {
			o.paced(ctx, d, w.Count, time.Second/time.Duration(*w.Rate))
		}
		return nil
	})
	defer func() {
		for _, stream := range o.held {
			_ = stream.Reset()
		}
	}()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if len(o.held) == 0 {
		return o.last
	}
	return nil
}

// burst requests all substreams immediately.
func (o *opens) burst(ctx context.Context, d *dialler, count int) {
	var requested, all sync.WaitGroup
	first := time.Now()
	var last time.Time
	known := make(chan struct{})
	requested.Add(count)
	for range count {
		all.Go(func() {
			requested.Done()
			stream, err := d.connection().Open(ctx)
			at := time.Now()
			<-known
			o.opened(stream, err, at.Sub(first), max(at.Sub(last), 0), true)
		})
	}
	requested.Wait()
	last = time.Now()
	close(known)
	all.Wait()
}

// paced requests a substream every pace. Each is timed from its own request.
func (o *opens) paced(ctx context.Context, d *dialler, count int, pace time.Duration) {
	var all sync.WaitGroup
	begun := time.Now()
	for i := range count {
		all.Go(func() {
			if !sleep(ctx, time.Until(begun.Add(time.Duration(i)*pace))) {
				return
			}
			requested := time.Now()
			stream, err := d.connection().Open(ctx)
			o.opened(stream, err, time.Since(requested), 0, false)
		})
	}
	all.Wait()
}

func (o *opens) opened(stream wire.Stream, err error, fromFirst, afterLast time.Duration, isBurst bool) {
	counters, measurements := o.client.setup.counters(), o.client.setup.Measurements
	if err != nil {
		counters.CountFailure(contract.OpenFailed)
	} else {
		measurements.record(open, fromFirst)
		if isBurst {
			measurements.record(openCompat, afterLast)
		}
		counters.Streams.Add(1)
		counters.Operations.Add(1)
	}
	o.mutex.Lock()
	defer o.mutex.Unlock()
	if err != nil {
		o.last = err
	} else {
		o.held = append(o.held, stream)
	}
}
