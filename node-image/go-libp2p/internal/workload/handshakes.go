package workload

import (
	"context"
	"fmt"
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
	// mostPrepared hosts start before the trial. Each handshake is that of a new peer.
	mostPrepared = 128
)

// handshakes of new connections, each with one ping.
type handshakes struct{ ping }

func (w handshakes) hosts(peers int) int     { return peers * w.InFlight }
func (handshakes) connectsBeforeStart() bool { return false }

func (w handshakes) check() error {
	if w.InFlight < 1 || w.InFlight > mostHosts {
		return fmt.Errorf("inFlight must be 1 to %d, not %d", mostHosts, w.InFlight)
	}
	return checkAmount(w.Amount)
}

// prepared hosts. Further ones start during the trial.
func (w handshakes) prepared(hosts int) int {
	if w.Amount.Count != nil {
		return max(hosts, int(min(*w.Amount.Count, mostPrepared)))
	}
	return max(hosts, mostPrepared)
}

// begin without waiting for streams: what connecting uses is charged to the workload.
func (handshakes) begin(s *server) { s.begun = true }

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

// run opens connections one after the other in each slot, until all slots together have made enough.
func (w handshakes) run(ctx context.Context, c *Client) error {
	shared := &work{client: c}
	if duration, timed := w.Amount.Duration(); timed {
		shared.deadline = time.Now().Add(duration)
	} else {
		shared.tickets.Store(int64(min(w.Amount.Number(), 1<<62)))
	}
	slots := make([]slot, w.hosts(c.setup.Request.Side.Client.Peers))
	_ = parallel(len(slots), func(i int) error {
		slots[i].fill(ctx, shared, c.servers[i%len(c.servers)])
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
		counters.CountFailure(wire.Fail(err).Reason)
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
