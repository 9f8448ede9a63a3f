package workload

import (
	"context"
	"sync"
	"time"

	"perfrun/node-go/internal/contract"
	"perfrun/node-go/internal/observe"
	"perfrun/node-go/internal/peer"
	"perfrun/node-go/internal/wire"
)

// retry is how long a sink waits after a failure before it connects again.
const retry = time.Second

// Relay what peers send each other until finish or ctx ends.
func Relay(ctx context.Context, setup *Setup, ready func([]string), finish <-chan struct{}) error {
	p, counters, findings := setup.parameters(), setup.counters(), setup.Findings
	var mutex sync.Mutex
	var begun, ended bool
	circuits := func(change int64) {
		mutex.Lock()
		defer mutex.Unlock()
		live := uint64(max(counters.Circuits.Add(change), 0))
		findings.keep(func() { findings.mostCircuits = max(findings.mostCircuits, live) })
		if !ended {
			setup.Metrics.Circuits(live)
		}
	}
	if err := checkFiles(p.RelayFiles()); err != nil {
		return err
	}
	config := setup.host(setup.ListenIP)
	config.Relayed = false
	config.Relay = &peer.Relaying{
		Limits: p.Limits,
		Opened: func() {
			// Where circuits are opened before the start, the workload begins after the last one. Otherwise
			// it begins with the first one.
			mutex.Lock()
			begins := !begun || p.ConnectsBeforeStart()
			begun = true
			mutex.Unlock()
			if begins {
				setup.Observer.Begin()
			}
			counters.Streams.Add(1)
			circuits(1)
		},
		Closed: func() { circuits(-1) },
		Refused: func(what, status string) {
			counters.Failed(contract.Refused)
			setup.Metrics.Refused(what, status)
			findings.countRefusal(what + ": " + status)
		},
	}
	host, err := peer.New(config)
	if err != nil {
		return err
	}
	// A close that takes longer continues in the background.
	defer func() { go host.Close() }()
	// No peer has a reason to open a stream of the workload to the relay itself.
	host.Serve(func() { counters.Connections.Add(1) }, func(s wire.Stream) { _ = s.Reset() }, answer)
	addresses, err := host.Addresses()
	if err != nil {
		return err
	}
	if err := until(ctx, addresses, ready, finish); err != nil {
		return err
	}
	setup.Observer.Finish()
	mutex.Lock()
	defer mutex.Unlock()
	ended = true
	setup.Metrics.Circuits(0)
	return nil
}

// answer pings beside a workload. Their bytes are not payload, and their end does not matter.
func answer(s wire.Stream) {
	if err := wire.ServePing(s, &observe.Counters{}); err != nil {
		_ = s.Reset()
	}
}

// fetch makes round trips of each peer, then one transfer.
func (c *Client) fetch(ctx context.Context) error {
	p, counters, findings := c.setup.parameters(), c.setup.counters(), c.setup.Findings
	for _, to := range []struct {
		relay        bool
		distribution string
	}{{true, relayRoundTrip}, {false, roundTrip}} {
		err := c.each(func(_ int, d *dialler) error { return c.roundTrips(ctx, d, to.relay, to.distribution) })
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
		arrival, end, err := wire.FetchTestData(s, p.Bytes, wire.NewBuffers(zeros), counters)
		if err != nil {
			_ = s.Reset()
			return err
		}
		counters.Operations.Add(1)
		findings.record(open, opened.Sub(requested))
		if !arrival.First.IsZero() {
			findings.record(transferFirstByte, arrival.First.Sub(requested))
		}
		findings.record(transfer, end.Sub(opened))
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
	findings.keep(func() { findings.download = download })
	return nil
}

// roundTrips with the peer or the relay. The first one also completes the negotiation on some stacks, and is
// not counted. Pings are not payload.
func (c *Client) roundTrips(ctx context.Context, d *dialler, toRelay bool, distribution string) error {
	count := c.setup.parameters().Pings
	if count == 0 {
		return nil
	}
	s, err := d.connection().Ping(ctx, toRelay)
	if s == nil || err != nil {
		return err
	}
	defer s.Close()
	for i := range count + 1 {
		begun := time.Now()
		if err := wire.RoundTrip(s, [wire.PingSize]byte{0: byte(i)}, &observe.Counters{}); err != nil {
			return err
		}
		if i > 0 {
			c.setup.Findings.record(distribution, time.Since(begun))
		}
	}
	return nil
}

// stress starts sinks one after the other, which fetch repeatedly until the time is over.
func (c *Client) stress(ctx context.Context) error {
	p := c.setup.parameters()
	begun := time.Now()
	plateau := begun.Add(contract.Seconds(p.RampSeconds))
	end := plateau.Add(contract.Seconds(p.PlateauSeconds))
	until, stop := context.WithDeadline(ctx, end)
	defer stop()
	sinks := make([]*sink, c.setup.Request.Side.Client.Peers)
	zeros := c.setup.zeros()
	for i := range sinks {
		sinks[i] = &sink{setup: c.setup, server: c.servers[i%len(c.servers)], plateau: plateau, buffers: wire.NewBuffers(zeros)}
		at := begun.Add(time.Duration(i) * contract.Seconds(p.StartIntervalSeconds))
		go func() {
			if sleep(until, time.Until(at)) {
				c.setup.Findings.record(lateness, time.Since(at))
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
		s.setup.counters().Failed(wire.Fail(failure).Reason)
		s.mutex.Lock()
		s.failed = wire.Fail(failure)
		s.mutex.Unlock()
		if !sleep(ctx, retry) {
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
		s.setup.Findings.refusal(err)
		return err
	}
	counters := s.setup.counters()
	counters.Connections.Add(1)
	s.setup.Findings.recordDial(connection)
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
			s.setup.Findings.record(transfer, ended.Sub(opened))
		}
	}
}
