package workload

import (
	"context"
	"errors"
	"sync"
	"time"

	"perfrun/node-go/internal/contract"
	"perfrun/node-go/internal/peer"
	"perfrun/node-go/internal/wire"
)

const (
	// drain is how long streams may take to end once the clients are done, drainCutOff those that were cut
	// off during their transfers: many of them, through a relay.
	drain       = 2 * time.Second
	drainCutOff = 10 * time.Second
	// mostServed streams at the same time; a server refuses more.
	mostServed = 65_536
)

// Serve listens, passes its addresses to ready, and serves until finish or ctx ends. A source has a place at
// a relay for each of its hosts; nil is a server that peers dial. A stream that fails does not disturb the
// others; the first failure is the result.
func Serve(ctx context.Context, setup *Setup, source *contract.Source, ready func([]string), finish <-chan struct{}) error {
	s := &served{setup: setup, begun: setup.parameters().Workload == "handshakes", zeros: setup.zeros()}
	if setup.parameters().Workload == "echo" {
		s.terms = newTerms(setup)
	}
	defer s.close()
	if err := checkFiles(setup.parameters().ServerFiles(source)); err != nil {
		return err
	}
	addresses, err := s.listen(ctx, source)
	if err != nil {
		return err
	}
	if err := until(ctx, addresses, ready, finish); err != nil {
		return err
	}
	return s.end(ctx)
}

// until finish or the end of ctx, a side that listens waits at these addresses.
func until(ctx context.Context, addresses []string, ready func([]string), finish <-chan struct{}) error {
	ready(addresses)
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-finish:
		return nil
	}
}

type served struct {
	setup   *Setup
	zeros   []byte
	hosts   []*peer.Host
	streams sync.WaitGroup
	// terms of an echo, nil for other workloads.
	terms *terms

	mutex   sync.Mutex
	begun   bool
	open    int
	arrival wire.Arrival
	failed  error
}

// listen with one host, or with those of a source.
func (s *served) listen(ctx context.Context, source *contract.Source) ([]string, error) {
	if source == nil {
		host, err := s.start(ctx)
		if err != nil {
			return nil, err
		}
		return host.Addresses()
	}
	var addresses []string
	findings := s.setup.Findings
	for range source.Peers {
		host, err := s.start(ctx)
		if err != nil {
			return nil, err
		}
		address, connected, granted, err := host.Reserve(ctx, source.Relay)
		var refused *peer.RefusedError
		switch {
		case err == nil:
			addresses = append(addresses, address)
			findings.record(relayConnected, connected)
			findings.record(reservation, granted)
		case errors.As(err, &refused) && s.setup.parameters().MayBeCutOff():
			// Such a load measures what a relay refuses, and continues with the hosts that have a place.
			findings.refusal(err)
			s.setup.counters().Failed(contract.Refused)
		default:
			findings.refusal(err)
			return nil, err
		}
	}
	return addresses, nil
}

func (s *served) start(ctx context.Context) (*peer.Host, error) {
	host, err := peer.New(s.setup.host(s.setup.ListenIP))
	if err != nil {
		return nil, err
	}
	s.hosts = append(s.hosts, host)
	host.Serve(s.connected, func(stream wire.Stream) { s.serve(ctx, stream) }, answer)
	return host, nil
}

func (s *served) close() {
	var all sync.WaitGroup
	for _, host := range s.hosts {
		all.Go(host.Close)
	}
	all.Wait()
}

// connected counts a connection. Clients connect before they start, so what was used until then is not
// charged to the workload, unless that is about connecting.
func (s *served) connected() {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if !s.begun {
		s.setup.Observer.Begin()
	}
	s.setup.counters().Connections.Add(1)
}

func (s *served) serve(ctx context.Context, stream wire.Stream) {
	s.mutex.Lock()
	if s.open == mostServed {
		s.keep(contract.Failf(contract.OpenFailed, "peers opened more than %d streams", mostServed))
		s.mutex.Unlock()
		_ = stream.Reset()
		return
	}
	s.open++
	s.begun = true
	s.streams.Add(1)
	s.mutex.Unlock()
	defer s.streams.Done()

	s.setup.counters().Streams.Add(1)
	arrival, err := s.exchange(ctx, stream)
	if err != nil {
		_ = stream.Reset()
		if s.setup.parameters().MayBeCutOff() && wire.Dropped(stream, err) {
			err = nil
		}
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.open--
	s.arrival.Merge(arrival)
	if err != nil {
		s.keep(wire.Fail(err))
	}
}

// keep the first failure. The caller holds the lock.
func (s *served) keep(failure error) {
	if s.failed == nil {
		s.failed = failure
	}
}

func (s *served) exchange(ctx context.Context, stream wire.Stream) (wire.Arrival, error) {
	p, counters := s.setup.parameters(), s.setup.counters()
	switch p.StreamProtocol() {
	case contract.Perf:
		return wire.ServePerf(stream, wire.NewBuffers(s.zeros), counters)
	case contract.Litep2pPerf:
		return wire.ServeLitep2pPerf(stream, wire.NewBuffers(s.zeros), counters)
	case contract.EchoLines:
		return wire.Arrival{}, s.terms.serve(stream)
	case contract.Framed:
		return s.exchangeMessages(ctx, stream)
	case contract.TestData:
		return wire.Arrival{}, wire.ServeTestData(stream, p.Bytes, wire.NewBuffers(s.zeros), counters)
	default:
		return wire.Arrival{}, wire.ServePing(stream, counters)
	}
}

// end waits until the streams have ended.
func (s *served) end(ctx context.Context) error {
	all := make(chan struct{})
	go func() { s.streams.Wait(); close(all) }()
	patience := drain
	if s.setup.parameters().MayBeCutOff() {
		patience = drainCutOff
	}
	select {
	case <-all:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(patience):
		s.left()
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.setup.Findings.keep(func() { s.setup.Findings.upload = s.arrival.Transfer() })
	return s.failed
}

// left records streams that did not end with their clients.
func (s *served) left() {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	switch request := s.setup.Request; {
	case s.terms != nil:
		// An echo only counts streams that fail. On webrtc-direct, ends get lost when their connection
		// closes.
		for range s.open {
			s.terms.failed(contract.Failf(contract.Timeout, "a stream did not end with its client"))
		}
	case request.Parameters.MayBeCutOff() && request.Transport == "webrtc-direct":
		// A sink ends its transfers by closing its connection with the relay. If that end is lost, the relay
		// holds the circuit for longer than a trial waits. The goodput has been measured by then.
		for range s.open {
			s.setup.counters().Failed(contract.Timeout)
		}
	default:
		s.keep(contract.Failf(contract.Timeout, "%d streams did not end with their clients", s.open))
	}
}
