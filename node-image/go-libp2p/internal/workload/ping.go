package workload

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"perfrun/node-go/internal/contract"
	"perfrun/node-go/internal/wire"
)

// ping is round trips on one stream.
type ping struct{ common }

func (ping) protocol() string { return contract.Ping }

func (w ping) check() error {
	if w.Count < 0 || (w.IntervalSeconds != 0 && !isTime(w.IntervalSeconds)) {
		return fmt.Errorf("count and intervalSeconds must be 0 or more, and the interval at most a year")
	}
	return nil
}

func (ping) serve(_ context.Context, s *server, stream wire.Stream) (wire.Arrival, error) {
	return wire.Arrival{}, wire.ServePing(stream, s.setup.counters())
}

// run makes round trips with each peer, one after the other on one open stream.
func (w ping) run(ctx context.Context, c *Client) error {
	counters, interval := c.setup.counters(), contract.Seconds(w.IntervalSeconds)
	return c.each(func(_ int, d *dialler) error {
		stream, err := d.connection().Open(ctx)
		if err != nil {
			return err
		}
		defer stream.Close()
		counters.Streams.Add(1)
		var payload [wire.PingSize]byte
		// The first round trip also completes the negotiation on some stacks, and is not counted.
		if err := wire.RoundTrip(stream, payload, counters); err != nil {
			return err
		}
		for i := range w.Count {
			binary.BigEndian.PutUint32(payload[:], uint32(i))
			begun := time.Now()
			if err := wire.RoundTrip(stream, payload, counters); err != nil {
				return err
			}
			c.setup.Measurements.record(roundTrip, time.Since(begun))
			counters.Operations.Add(1)
			if interval > 0 && !sleep(ctx, interval) {
				return context.Cause(ctx)
			}
		}
		return nil
	})
}

// sleep says whether it was not cut short. For a moment that has passed, a timer would only cost time.
func sleep(ctx context.Context, pause time.Duration) bool {
	if pause <= 0 {
		return ctx.Err() == nil
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(pause):
		return true
	}
}
