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
	// nextEndTimeout is how long a server whose clients are done waits for the next of its streams to end. The
	// time starts again with each stream that ends: the more streams there are and the busier the machine is,
	// the longer they take together, but not each after the one before it. QUIC sends the close of a connection
	// again only in answer to packets, and the server has none to send: to wait longer would not help.
	nextEndTimeout = 2 * time.Second
	// allEndsTimeout is how long all streams may take together, so that a trial ends whatever its peers do. It
	// is also the time for streams that are cut off during their transfers: many of them, through a relay,
	// whose queues may hold the first end back for long.
	allEndsTimeout = 10 * time.Second
	// mostServed streams at the same time; a server refuses more.
	mostServed = 65_536
)

// Serve listens, passes its addresses to ready, and serves until finish or ctx ends. A source has a place at
// a relay for each of its hosts; nil is a server that peers dial. A stream that fails does not disturb the
// others; the first failure is the result.
func Serve(ctx context.Context, setup *Setup, source *contract.Source, ready func([]string), finish <-chan struct{}) error {
	s := newServer(setup)
	defer s.close()
	if err := checkFiles(serverFiles(workloadOf(setup.parameters()), source)); err != nil {
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

// server is the serving side of a trial.
type server struct {
	setup    *Setup
	workload workload
	zeros    []byte
	hosts    []*peer.Host
	streams  sync.WaitGroup
	// ended gets a value when streams have ended since the last one was taken.
	ended chan struct{}
	// echo is nil for other workloads.
	echo *echoSide

	mutex   sync.Mutex
	begun   bool
	open    int
	arrival wire.Arrival
	failed  error
}

func newServer(setup *Setup) *server {
	s := &server{setup: setup, workload: workloadOf(setup.parameters()), zeros: setup.zeros(), ended: make(chan struct{}, 1)}
	s.workload.begin(s)
	return s
}

// listen with one host, or with those of a source.
func (s *server) listen(ctx context.Context, source *contract.Source) ([]string, error) {
	if source == nil {
		host, err := s.start(ctx)
		if err != nil {
			return nil, err
		}
		return host.Addresses()
	}
	var addresses []string
	measurements := s.setup.Measurements
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
			measurements.record(relayConnected, connected)
			measurements.record(reservation, granted)
		case errors.As(err, &refused) && s.workload.mayBeCutOff():
			// Such a load measures what a relay refuses, and continues with the hosts that have a place.
			measurements.countIfRefused(err)
			s.setup.counters().CountFailure(contract.Refused)
		default:
			measurements.countIfRefused(err)
			return nil, err
		}
	}
	return addresses, nil
}

func (s *server) start(ctx context.Context) (*peer.Host, error) {
	host, err := peer.New(s.setup.host(s.setup.ListenIP))
	if err != nil {
		return nil, err
	}
	s.hosts = append(s.hosts, host)
	host.Serve(s.countConnection, func(stream wire.Stream) { s.serve(ctx, stream) }, answer)
	return host, nil
}

func (s *server) close() {
	var all sync.WaitGroup
	for _, host := range s.hosts {
		all.Go(host.Close)
	}
	all.Wait()
}

// countConnection of a client. Clients connect before they start, so what was used until then is not charged
// to the workload, unless that is about connecting.
func (s *server) countConnection() {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if !s.begun {
		s.setup.Observer.Begin()
	}
	s.setup.counters().Connections.Add(1)
}

func (s *server) serve(ctx context.Context, stream wire.Stream) {
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
	arrival, err := s.workload.serve(ctx, s, stream)
	if err != nil {
		_ = stream.Reset()
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.open--
	s.arrival.Merge(arrival)
	if err != nil {
		s.keep(wire.Fail(err))
	}
	select {
	case s.ended <- struct{}{}:
	default:
	}
}

// keep the first failure. The caller holds the lock.
func (s *server) keep(failure error) {
	if s.failed == nil {
		s.failed = failure
	}
}

// end waits until the streams have ended. Then those end on which nothing else is due, and the others fail.
func (s *server) end(ctx context.Context) error {
	all := make(chan struct{})
	go func() { s.streams.Wait(); close(all) }()
	first := nextEndTimeout
	if s.workload.mayBeCutOff() {
		first = allEndsTimeout
	}
	if err := s.wait(ctx, all, first); err != nil {
		return err
	}
	s.setup.counters().EndWaits()
	if err := s.wait(ctx, all, nextEndTimeout); err != nil {
		return err
	}
	s.countUnended()
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.setup.Measurements.keep(func() { s.setup.Measurements.upload = s.arrival.Transfer() })
	return s.failed
}

// wait until all streams have ended, or none has for a time.
func (s *server) wait(ctx context.Context, all <-chan struct{}, next time.Duration) error {
	for latest := time.After(allEndsTimeout); ; {
		select {
		case <-all:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-latest:
			return nil
		case <-time.After(next):
			return nil
		case <-s.ended:
		}
	}
}

// countUnended records streams that did not end with their clients.
func (s *server) countUnended() {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	switch {
	case s.open == 0:
	case s.echo != nil:
		// An echo only counts streams that fail. On webrtc-direct, ends get lost when their connection
		// closes.
		for range s.open {
			s.echo.countFailure(contract.Failf(contract.Timeout, "a stream did not end with its client"))
		}
	default:
		s.keep(contract.Failf(contract.Timeout, "%d streams did not end with their clients", s.open))
	}
}
