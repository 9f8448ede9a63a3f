package workload

import (
	"perfrun/node-go/internal/contract"
	"perfrun/node-go/internal/metrics"
	"perfrun/node-go/internal/observe"
	"perfrun/node-go/internal/peer"
)

// Setup of a side.
type Setup struct {
	Request  *contract.TrialRequest
	ListenIP string
	Observer *observe.Observer
	Metrics  *metrics.Trial
	Findings *Findings
	// Handover takes a server's end of an exchange to a client in the same process.
	Handover chan *handed
}

// NewHandover from a server to a client.
func NewHandover() chan *handed { return make(chan *handed) }

func (s *Setup) parameters() *contract.Parameters { return &s.Request.Parameters }

func (s *Setup) counters() *observe.Counters { return s.Observer.Counters }

// host has the configuration of all hosts of the side.
func (s *Setup) host(listenIP string) peer.Config {
	p := s.parameters()
	return peer.Config{
		Transport: s.Request.Transport,
		Protocol:  p.StreamProtocol(),
		Lazy:      p.Negotiation == "v1lazy",
		ListenIP:  listenIP,
		RSA:       p.Identity == "rsa2048",
		Relayed:   p.IsRelayed(),
		Metrics:   s.Metrics.Stack(),
	}
}

func (s *Setup) newDialler() (*peer.Host, error) { return peer.New(s.host("")) }

// dials is the number of dials for a connection that a workload needs but does not measure: on webrtc-direct
// some are lost. Each lost dial counts as a failure.
func (s *Setup) dials() int {
	if s.Request.Transport == "webrtc-direct" {
		return 3
	}
	return 1
}

// zeros to write from. Their number is the size of every write and read.
func (s *Setup) zeros() []byte {
	if chunk := s.parameters().ChunkBytes; chunk > 0 {
		return make([]byte, chunk)
	}
	return make([]byte, 1024)
}
