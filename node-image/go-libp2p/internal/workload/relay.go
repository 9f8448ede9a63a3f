package workload

import (
	"context"
	"fmt"
	"sync"
	"time"

	"perfrun/node-go/internal/contract"
	"perfrun/node-go/internal/observe"
	"perfrun/node-go/internal/wire"
)

// relay is one transfer of each peer, through a relay or not.
type relay struct{ common }

func (relay) protocol() string  { return contract.TestData }
func (w relay) isRelayed() bool { return w.Path == "relayed" }

func (w relay) check() error {
	if err := checkChunk(w.ChunkBytes); err != nil {
		return err
	}
	if w.Path != "direct" && w.Path != "relayed" {
		return fmt.Errorf("path must be direct or relayed, not %.64q", w.Path)
	}
	if w.Pings < 0 {
		return fmt.Errorf("pings must be 0 or more")
	}
	return nil
}

func (w relay) serve(_ context.Context, s *server, stream wire.Stream) (wire.Arrival, error) {
	return wire.Arrival{}, wire.ServeTestData(stream, w.Bytes, wire.NewBuffers(s.zeros), s.setup.counters())
}

// run makes round trips of each peer, then one transfer.
func (w relay) run(ctx context.Context, c *Client) error {
	counters, measurements := c.setup.counters(), c.setup.Measurements
	for _, to := range []struct {
		relay        bool
		distribution string
	}{{true, relayRoundTrip}, {false, roundTrip}} {
		err := c.each(func(_ int, d *dialler) error { return w.roundTrips(ctx, c, d, to.relay, to.distribution) })
		if err != nil {
			return err
		}
	}
	zeros := c.setup.zeros()
	var mutex sync.Mutex
	var all wire.Arrival
	var longest time.Duration
	err := c.each(func(_ int, d *dialler) error {
		requested := time.Now()
		s, err := d.connection().Open(ctx)
		if err != nil {
			return err
		}
		opened := time.Now()
		counters.Streams.Add(1)
		arrival, end, err := wire.FetchTestData(s, w.Bytes, wire.NewBuffers(zeros), counters)
		if err != nil {
			_ = s.Reset()
			return err
		}
		counters.Operations.Add(1)
		measurements.record(open, opened.Sub(requested))
		if !arrival.First.IsZero() {
			measurements.record(transferFirstByte, arrival.First.Sub(requested))
		}
		measurements.record(transfer, end.Sub(opened))
		mutex.Lock()
		defer mutex.Unlock()
		all.Merge(arrival)
		longest = max(longest, end.Sub(opened))
		return nil
	})
	if err != nil {
		return err
	}
	download := all.Transfer()
	if download == nil {
		download = &contract.Transfer{}
	}
	download.Seconds = longest.Seconds()
	measurements.keep(func() { measurements.download = download })
	return nil
}

// roundTrips with the peer or the relay. The first one also completes the negotiation on some stacks, and is
// not counted. Pings are not payload.
func (w relay) roundTrips(ctx context.Context, c *Client, d *dialler, toRelay bool, distribution string) error {
	if w.Pings == 0 {
		return nil
	}
	s, err := d.connection().Ping(ctx, toRelay)
	if s == nil || err != nil {
		return err
	}
	defer s.Close()
	for i := range w.Pings + 1 {
		begun := time.Now()
		if err := wire.RoundTrip(s, [wire.PingSize]byte{0: byte(i)}, &observe.Counters{}); err != nil {
			return err
		}
		if i > 0 {
			c.setup.Measurements.record(distribution, time.Since(begun))
		}
	}
	return nil
}
