package workload

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"perfrun/node-go/internal/contract"
	"perfrun/node-go/internal/peer"
	"perfrun/node-go/internal/wire"
)

// longestLine of an echo.
const longestLine = 1 << 20

// echo on many streams, at their pace.
type echo struct{ common }

func (echo) protocol() string                       { return contract.EchoLines }
func (w echo) hosts(peers int) int                  { return peers * w.Connections }
func (w echo) hostsOfServer() int                   { return w.Connections }
func (w echo) connectionStreams(*contract.Side) int { return w.StreamsPerConnection }
func (w echo) sampleInterval() time.Duration        { return contract.Seconds(w.SampleIntervalSeconds) }
func (echo) connectsBeforeStart() bool              { return false }
func (echo) begin(s *server)                        { s.echo = newEchoSide(s.setup) }

func (w echo) check() error {
	if w.Connections < 1 || w.Connections > mostStreams {
		return fmt.Errorf("connections must be 1 to %d, not %d", mostStreams, w.Connections)
	}
	if w.StreamsPerConnection < 1 || w.StreamsPerConnection > mostStreams {
		return fmt.Errorf("streamsPerConnection must be 1 to %d, not %d", mostStreams, w.StreamsPerConnection)
	}
	if w.MessageBytes < 2 || w.MessageBytes > longestLine {
		return fmt.Errorf("messageBytes must be 2 to %d", longestLine)
	}
	if (w.PauseSeconds == nil) == (w.PeriodSeconds == nil) {
		return fmt.Errorf("set either pauseSeconds or periodSeconds, to more than 0")
	}
	silent := *cmp.Or(w.PauseSeconds, w.PeriodSeconds)
	if !isTime(w.DurationSeconds) || !isTime(silent) || !isTime(w.DeadlineSeconds) {
		return fmt.Errorf("durationSeconds, pauseSeconds or periodSeconds, and deadlineSeconds must be more than 0 and at most a year")
	}
	if silent >= w.DeadlineSeconds {
		return fmt.Errorf("pauseSeconds or periodSeconds must be less than deadlineSeconds")
	}
	for _, seconds := range []float64{w.ConnectionIntervalSeconds, w.StreamIntervalSeconds} {
		if !(seconds >= 0 && seconds <= 3600) {
			return fmt.Errorf("connectionIntervalSeconds and streamIntervalSeconds must be 0 to 3600")
		}
	}
	if !(w.SampleIntervalSeconds >= 0.01 && w.SampleIntervalSeconds <= 3600) {
		return fmt.Errorf("sampleIntervalSeconds must be 0.01 to 3600")
	}
	switch w.Identity {
	case "", "ed25519", "rsa2048":
		return nil
	default:
		return fmt.Errorf("identity must be ed25519 or rsa2048, not %.64q", w.Identity)
	}
}

func (echo) checkPeers(peers int) error {
	if peers != 1 {
		return fmt.Errorf("peers must be 1 in an echo: each of its connections is a peer")
	}
	return nil
}

func (echo) serve(_ context.Context, s *server, stream wire.Stream) (wire.Arrival, error) {
	return wire.Arrival{}, s.echo.serve(stream)
}

// echoSide is what all streams of one side of an echo share.
type echoSide struct {
	setup    *Setup
	line     []byte
	deadline time.Duration
	pacer    pacer
	// unsettled streams have neither completed a round trip nor failed.
	unsettled sync.WaitGroup
	settled   atomic.Int64

	mutex sync.Mutex
	first *contract.Failure
}

func newEchoSide(setup *Setup) *echoSide {
	p := setup.parameters()
	return &echoSide{
		setup: setup, line: wire.Line(uint64(p.MessageBytes)),
		deadline: contract.Seconds(p.DeadlineSeconds), pacer: newPacer(p, time.Now()),
	}
}

// countFailure of a stream or connection. The trial continues without it.
func (e *echoSide) countFailure(err error) {
	failure := wire.Fail(err)
	e.setup.counters().CountFailure(failure.Reason)
	e.mutex.Lock()
	defer e.mutex.Unlock()
	if e.first == nil {
		e.first = failure
	}
}

// settle streams: the ramp no longer waits for them.
func (e *echoSide) settle(streams int) {
	e.settled.Add(int64(streams))
	e.unsettled.Add(-streams)
}

func (e *echoSide) newEcho(s wire.Stream) *wire.Echo {
	return wire.NewEcho(s, e.line, e.deadline, e.setup.counters())
}

// serve one stream. Only wrong bytes fail the trial; other failures are counted.
func (e *echoSide) serve(s wire.Stream) error {
	counters := e.setup.counters()
	counters.Active.Add(1)
	defer counters.Active.Add(-1)
	echo, window := e.newEcho(s), uint32(0)
	for {
		echoed, err := echo.Serve()
		switch {
		case err != nil && wire.Fail(err).Reason == contract.UnexpectedBytes:
			return err
		case err != nil:
			e.countFailure(err)
			_ = s.Reset()
			return nil
		case !echoed:
			_ = s.Close()
			return nil
		}
		counters.Operations.Add(1)
		counters.Echoing.Count(&window)
	}
}

// run opens connections and streams on schedule, and makes them echo until the load's time is over.
func (w echo) run(ctx context.Context, c *Client) error {
	e, begun := newEchoSide(c.setup), time.Now()
	end := begun.Add(contract.Seconds(w.DurationSeconds))
	streams := len(c.peers) * w.StreamsPerConnection
	e.unsettled.Add(streams)
	var late atomic.Int64
	ended := make(chan error, 1)
	go func() {
		ended <- parallel(len(c.peers), func(i int) error {
			return c.peers[i].echo(ctx, e, i, begun, end, &late)
		})
	}()
	plateau, err := e.plateau(begun, end, streams, ended)
	if err != nil {
		return err
	}
	// A stream ends at most a deadline after the load.
	if err := <-ended; err != nil {
		return err
	}
	plateau.RampLatenessSeconds = time.Duration(late.Load()).Seconds()
	c.setup.Measurements.keep(func() { c.setup.Measurements.plateau = plateau })
	return nil
}

// plateau counts round trips from the moment at which all streams have settled.
func (e *echoSide) plateau(begun, end time.Time, streams int, ended chan error) (*contract.Plateau, error) {
	p := e.setup.parameters()
	gaps := func(count int) float64 { return float64(count - 1) }
	ramp := gaps(p.Connections)*p.ConnectionIntervalSeconds + gaps(p.StreamsPerConnection)*p.StreamIntervalSeconds
	// The first line of the last stream may be due that much later.
	ramp += e.pacer.period.Seconds()
	// At least half of the time after the scheduled ramp is for the plateau.
	latest := end.Add(-max(end.Sub(begun)-contract.Seconds(ramp), 0) / 2)
	all := make(chan struct{})
	go func() { e.unsettled.Wait(); close(all) }()
	select {
	case <-all:
	case <-time.After(time.Until(latest)):
		return nil, contract.Failf(contract.Timeout, "%d of %d streams had neither echoed nor failed %v after the start, "+
			"although the ramp should take %v s: make duration longer, or the load smaller",
			int64(streams)-e.settled.Load(), streams, latest.Sub(begun), ramp)
	}
	operations := &e.setup.counters().Operations
	from, before := time.Now(), operations.Load()
	select {
	case err := <-ended:
		if err == nil && time.Now().Before(end) {
			err = e.endedEarly()
		}
		if err != nil {
			return nil, err
		}
		ended <- nil
	case <-time.After(time.Until(end)):
	}
	return &contract.Plateau{
		RampSeconds: from.Sub(begun).Seconds(), Seconds: time.Since(from).Seconds(), RoundTrips: operations.Load() - before,
	}, nil
}

func (e *echoSide) endedEarly() error {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	if e.first == nil {
		return contract.Failf(contract.Internal, "all streams ended early")
	}
	return contract.Failf(e.first.Reason, "every stream failed, the first because: %s", e.first.Message)
}

// echo dials the connection of a number at its moment and runs its streams. Only wrong bytes are an error.
func (d *dialler) echo(ctx context.Context, e *echoSide, number int, begun, end time.Time, late *atomic.Int64) error {
	p := e.setup.parameters()
	awaited := func(at time.Time) bool {
		if !sleep(ctx, time.Until(at)) {
			return false
		}
		for by := int64(time.Since(at)); ; {
			if most := late.Load(); by <= most || late.CompareAndSwap(most, by) {
				return true
			}
		}
	}
	if !awaited(begun.Add(time.Duration(number) * contract.Seconds(p.ConnectionIntervalSeconds))) {
		e.settle(p.StreamsPerConnection)
		return context.Cause(ctx)
	}
	connection, err := d.dial(ctx, e.setup, d.server)
	if err != nil {
		e.countFailure(err)
		e.settle(p.StreamsPerConnection)
		return nil
	}
	// Counted from here, so that a slow dial does not turn the first streams into a burst.
	up := time.Now()
	e.setup.counters().Connections.Add(1)
	e.setup.Measurements.recordDial(connection)
	return parallel(p.StreamsPerConnection, func(i int) error {
		if !awaited(up.Add(time.Duration(i) * contract.Seconds(p.StreamIntervalSeconds))) {
			e.settle(1)
			return context.Cause(ctx)
		}
		// Streams that follow each other are on different connections, so that lines on each are spread, too.
		return e.stream(ctx, connection, i*p.Connections+number, end)
	})
}

// stream runs the stream of a number, of all those of a client.
func (e *echoSide) stream(ctx context.Context, connection *peer.Connection, number int, end time.Time) error {
	counters := e.setup.counters()
	counters.Active.Add(1)
	defer counters.Active.Add(-1)
	settle := sync.OnceFunc(func() { e.settle(1) })
	defer settle()
	s, err := connection.Open(ctx)
	if err == nil {
		counters.Streams.Add(1)
		if err = e.echoUntil(ctx, s, number, end, settle); err == nil {
			_ = s.Close()
			return nil
		}
		_ = s.Reset()
	}
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case wire.Fail(err).Reason == contract.WrongEcho:
		return err
	}
	e.countFailure(err)
	return nil
}

func (e *echoSide) echoUntil(ctx context.Context, s wire.Stream, number int, end time.Time, settle func()) error {
	counters, echo, window := e.setup.counters(), e.newEcho(s), uint32(0)
	now := time.Now()
	// What the timer added to the last line that waited for it, and so to the late lines behind that one.
	added := time.Duration(0)
	for due := e.pacer.first(number, now); ; due = e.pacer.next(due, now) {
		if !sleep(ctx, earlier(due, end).Sub(now)) {
			return context.Cause(ctx)
		}
		if due.After(now) {
			now = time.Now()
			added = addedByTimer(due, now)
		}
		if !now.Before(end) {
			return nil
		}
		begun := e.pacer.countsFrom(due, now, added)
		if err := echo.RoundTrip(); err != nil {
			return err
		}
		now = time.Now()
		counters.RoundTrips.Record(now.Sub(begun))
		counters.Operations.Add(1)
		counters.Echoing.Count(&window)
		settle()
	}
}
