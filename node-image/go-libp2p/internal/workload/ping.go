package workload

import (
	"context"
	"encoding/binary"
	"time"

	"perfrun/node-go/internal/contract"
	"perfrun/node-go/internal/wire"
)

// ping makes round trips with each peer, one after the other on one open stream.
func (c *Client) ping(ctx context.Context) error {
	p, counters := c.setup.parameters(), c.setup.counters()
	interval := contract.Seconds(p.IntervalSeconds)
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
		for i := range p.Count {
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
