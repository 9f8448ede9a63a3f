package workload

import (
	"context"
	"sync/atomic"
	"time"

	"perfrun/node-go/internal/contract"
	"perfrun/node-go/internal/peer"
	"perfrun/node-go/internal/wire"
)

const (
	// mostFailures in a row, or this time of repeated failures, after which a slot gives up and ends the
	// trial: the server is gone.
	mostFailures   = 10
	longestFailure = 15 * time.Second
	// mostInStock is the most hosts to start before the trial. Each handshake is that of a new peer.
	mostInStock = 128
)

// stock is the number of hosts to start before a trial. Further hosts start during the trial.
func stock(amount contract.Amount) int {
	if amount.Count != nil {
		return int(min(*amount.Count, mostInStock))
	}
	return mostInStock
}

// work that all slots share.
type work struct {
	client   *Client
	used     atomic.Int64
	tickets  atomic.Int64
	deadline time.Time
}

// claim a handshake, if any is left.
func (w *work) claim(ctx context.Context) bool {
	if ctx.Err() != nil || !w.deadline.IsZero() && !time.Now().Before(w.deadline) {
		return false
	}
	return !w.deadline.IsZero() || w.tickets.Add(-1) >= 0
}

// handshakes opens connections one after the other in each slot, until all slots together have made enough.
func (c *Client) handshakes(ctx context.Context) error {
	p := c.setup.parameters()
	w := &work{client: c}
	if duration, timed := p.Amount.Duration(); timed {
		w.deadline = time.Now().Add(duration)
	} else {
		w.tickets.Store(int64(min(p.Amount.Number(), 1<<62)))
	}
	slots := make([]slot, p.Hosts(c.setup.Request.Side.Client.Peers))
	_ = parallel(len(slots), func(i int) error {
		slots[i].fill(ctx, w, c.servers[i%len(c.servers)])
		return nil
	})
	succeeded, gaveUp := false, false
	var last error
	for i := range slots {
		succeeded = succeeded || slots[i].succeeded
		gaveUp = gaveUp || slots[i].gaveUp
		if slots[i].last != nil {
			last = slots[i].last
		}
	}
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case last != nil && (gaveUp || !succeeded):
		return wire.Fail(last)
	case !succeeded:
		return contract.Failf(contract.Timeout, "no connection was established within the duration")
	default:
		return nil
	}
}

type slot struct {
	succeeded, gaveUp bool
	last              error
}

func (s *slot) fill(ctx context.Context, w *work, server string) {
	counters := w.client.setup.counters()
	inARow, since := 0, time.Time{}
	for !s.gaveUp && w.claim(ctx) {
		begun := time.Now()
		err := w.withNewHost(ctx, server)
		if err == nil {
			counters.Operations.Add(1)
			s.succeeded, inARow = true, 0
			continue
		}
		counters.Failed(wire.Fail(err).Reason)
		s.last = err
		if inARow == 0 {
			since = begun
		}
		inARow++
		s.gaveUp = inARow == mostFailures || inARow > 1 && time.Since(since) >= longestFailure
	}
}

func (w *work) withNewHost(ctx context.Context, server string) error {
	if i := int(w.used.Add(1) - 1); i < len(w.client.peers) {
		return w.handshake(ctx, w.client.peers[i].host, server)
	}
	host, err := w.client.setup.newDialler()
	if err != nil {
		return err
	}
	defer host.Close()
	return w.handshake(ctx, host, server)
}

func (w *work) handshake(ctx context.Context, host *peer.Host, server string) error {
	counters, measurements := w.client.setup.counters(), w.client.setup.Measurements
	begun := time.Now()
	connection, err := host.Dial(ctx, server)
	if err != nil {
		return err
	}
	defer connection.Close()
	counters.Connections.Add(1)
	stream, err := connection.Open(ctx)
	if err != nil {
		return err
	}
	counters.Streams.Add(1)
	payload := [wire.PingSize]byte{0: 0x55, wire.PingSize - 1: 0x55}
	if err := wire.RoundTrip(stream, payload, counters); err != nil {
		return err
	}
	measurements.record(firstByte, time.Since(begun))
	measurements.recordDial(connection)
	return nil
}
