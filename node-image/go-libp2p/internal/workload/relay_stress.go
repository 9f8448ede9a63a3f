package workload

import (
	"context"
	"fmt"
	"sync"
	"time"

	"perfrun/node-go/internal/contract"
	"perfrun/node-go/internal/wire"
)

// retryPause is how long a sink waits after a failure before it connects again.
const retryPause = time.Second

// relayStress is many sinks that fetch repeatedly through one relay.
type relayStress struct{ common }

func (relayStress) protocol() string             { return contract.TestData }
func (relayStress) isRelayed() bool              { return true }
func (relayStress) connectsBeforeStart() bool    { return false }
func (relayStress) mayBeCutOff() bool            { return true }
func (relayStress) clientFiles(hosts int) uint64 { return uint64(hosts) + filesBesides }
func (w relayStress) relayFiles() uint64         { return uint64(w.Sinks) + uint64(w.Sources) + filesBesides }

// prepared is none: its sinks start one after the other.
func (relayStress) prepared(int) int { return 0 }

func (w relayStress) connectionStreams(side *contract.Side) int {
	if side.Client != nil {
		// The connection of a sink with the relay carries one circuit, and the circuit one stream at a time.
		return 1
	}
	// The connection of a source with its relay carries a stream for each of its sinks. Rounded up.
	return (w.Sinks-1)/w.Sources + 1
}

func (w relayStress) check() error {
	if err := checkChunk(w.ChunkBytes); err != nil {
		return err
	}
	if w.Sources < 1 || w.Sinks < w.Sources {
		return fmt.Errorf("a stress test needs a source, and a sink for each source: it has %d and %d", w.Sources, w.Sinks)
	}
	isRamp := w.RampSeconds >= 0 && w.RampSeconds < contract.LongestSeconds
	if !isTime(w.StartIntervalSeconds) || !isTime(w.PlateauSeconds) || !isRamp {
		return fmt.Errorf("times of a stress test must be more than 0 and at most a year")
	}
	return nil
}

func (w relayStress) serve(_ context.Context, s *server, stream wire.Stream) (wire.Arrival, error) {
	counters := s.setup.counters()
	lost, err := counters.AwaitEnd(stream, func() error {
		return wire.ServeTestData(stream, w.Bytes, wire.NewBuffers(s.zeros), counters)
	})
	if lost || wire.Dropped(stream, err) {
		err = nil
	}
	return wire.Arrival{}, err
}

// run starts sinks one after the other, which fetch repeatedly until the time is over.
func (w relayStress) run(ctx context.Context, c *Client) error {
	begun := time.Now()
	plateau := begun.Add(contract.Seconds(w.RampSeconds))
	end := plateau.Add(contract.Seconds(w.PlateauSeconds))
	until, stop := context.WithDeadline(ctx, end)
	defer stop()
	sinks := make([]*sink, c.setup.Request.Side.Client.Peers)
	zeros := c.setup.zeros()
	for i := range sinks {
		sinks[i] = &sink{setup: c.setup, server: c.servers[i%len(c.servers)], plateau: plateau, buffers: wire.NewBuffers(zeros)}
		at := begun.Add(time.Duration(i) * contract.Seconds(w.StartIntervalSeconds))
		go func() {
			if sleep(until, time.Until(at)) {
				c.setup.Measurements.record(lateness, time.Since(at))
				sinks[i].fetchRepeatedly(until)
			}
		}()
	}
	<-until.Done()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	// The trial ends here, because closing a thousand connections takes a while.
	if c.setup.Observer.Finish().Measured.BytesReceived > 0 {
		return nil
	}
	for _, s := range sinks {
		if failure := s.lastFailure(); failure != nil {
			return failure
		}
	}
	return contract.Failf(contract.Timeout, "no transfer delivered a byte within the duration")
}

// sink of a stress test.
type sink struct {
	setup   *Setup
	server  string
	plateau time.Time
	buffers *wire.Buffers

	mutex  sync.Mutex
	failed error
}

func (s *sink) lastFailure() error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.failed
}

func (s *sink) fetchRepeatedly(ctx context.Context) {
	for ctx.Err() == nil {
		failure := s.connectAndFetch(ctx)
		if ctx.Err() != nil {
			return
		}
		s.setup.counters().CountFailure(wire.Fail(failure).Reason)
		s.mutex.Lock()
		s.failed = wire.Fail(failure)
		s.mutex.Unlock()
		if !sleep(ctx, retryPause) {
			return
		}
	}
}

// connectAndFetch fetches over one connection until something fails.
func (s *sink) connectAndFetch(ctx context.Context) error {
	host, err := s.setup.newDialler()
	if err != nil {
		return err
	}
	// The end of the time ends an exchange in progress by closing its host.
	unwatch := context.AfterFunc(ctx, host.Close)
	defer func() {
		if unwatch() {
			host.Close()
		}
	}()
	connection, err := host.Dial(ctx, s.server)
	if err != nil {
		s.setup.Measurements.countIfRefused(err)
		return err
	}
	counters := s.setup.counters()
	counters.Connections.Add(1)
	s.setup.Measurements.recordDial(connection)
	for {
		stream, err := connection.Open(ctx)
		if err != nil {
			return err
		}
		counters.Streams.Add(1)
		opened := time.Now()
		_, ended, err := wire.FetchTestData(stream, s.setup.parameters().Bytes, s.buffers, counters)
		if err != nil {
			return err
		}
		counters.Operations.Add(1)
		if !opened.Before(s.plateau) && ctx.Err() == nil {
			s.setup.Measurements.record(transfer, ended.Sub(opened))
		}
	}
}
