package workload

import (
	"context"
	"sync"
	"time"

	"perfrun/node-go/internal/contract"
	"perfrun/node-go/internal/peer"
	"perfrun/node-go/internal/wire"
)

const (
	// drain is how long streams may take to end once the clients are done.
	drain = 2 * time.Second
	// mostServed streams at the same time; a server refuses more.
	mostServed = 65_536
)

// Serve listens, passes its addresses to ready, and serves until finish or ctx ends. A stream that fails does
// not disturb the others; the first failure is the result.
func Serve(ctx context.Context, setup *Setup, ready func([]string), finish <-chan struct{}) error {
	p := &setup.Request.Parameters
	host, err := peer.New(peer.Config{
		Transport: setup.Request.Transport,
		Protocol:  p.StreamProtocol(),
		ListenIP:  setup.ListenIP,
	})
	if err != nil {
		return err
	}
	defer host.Close()
	s := &served{setup: setup, begun: p.Workload == "handshakes", zeros: make([]byte, chunk(p))}
	host.Serve(s.connected, s.serve)
	addresses, err := host.Addresses()
	if err != nil {
		return err
	}
	ready(addresses)
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-finish:
	}
	return s.end(ctx)
}

type served struct {
	setup   *Setup
	zeros   []byte
	streams sync.WaitGroup

	mutex   sync.Mutex
	begun   bool
	open    int
	arrival wire.Arrival
	failed  error
}

// connected counts a connection. Clients connect before they start, so what was used until then is not
// charged to the workload, unless that is about connecting.
func (s *served) connected() {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if !s.begun {
		s.setup.Observer.Begin()
	}
	s.setup.Observer.Counters.Connections.Add(1)
}

func (s *served) serve(stream wire.Stream) {
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

	s.setup.Observer.Counters.Streams.Add(1)
	arrival, err := s.exchange(stream)
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
}

// keep the first failure. The caller holds the lock.
func (s *served) keep(failure error) {
	if s.failed == nil {
		s.failed = failure
	}
}

func (s *served) exchange(stream wire.Stream) (wire.Arrival, error) {
	counters := s.setup.Observer.Counters
	switch s.setup.Request.Parameters.StreamProtocol() {
	case contract.Perf:
		return wire.ServePerf(stream, wire.NewBuffers(s.zeros), counters)
	case contract.Litep2pPerf:
		return wire.ServeLitep2pPerf(stream, wire.NewBuffers(s.zeros), counters)
	default:
		return wire.Arrival{}, wire.ServePing(stream, counters)
	}
}

// end waits until the streams have ended.
func (s *served) end(ctx context.Context) error {
	all := make(chan struct{})
	go func() { s.streams.Wait(); close(all) }()
	select {
	case <-all:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(drain):
		s.mutex.Lock()
		s.keep(contract.Failf(contract.Timeout, "%d streams did not end with their clients", s.open))
		s.mutex.Unlock()
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.setup.Findings.Upload = s.arrival.Transfer()
	return s.failed
}

// chunk is the size of one write or read call, which workloads without one do not use for payload.
func chunk(p *contract.Parameters) uint64 {
	if p.ChunkBytes == 0 {
		return 1024
	}
	return uint64(p.ChunkBytes)
}
