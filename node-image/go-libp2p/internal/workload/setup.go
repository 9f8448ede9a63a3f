package workload

import (
	"golang.org/x/sys/unix"

	"perfrun/node-go/internal/contract"
	"perfrun/node-go/internal/metrics"
	"perfrun/node-go/internal/observe"
	"perfrun/node-go/internal/peer"
)

// Setup of a side.
type Setup struct {
	Request      *contract.TrialRequest
	ListenIP     string
	Observer     *observe.Observer
	Metrics      *metrics.Trial
	Measurements *Measurements
	// Handover takes a server's end of an exchange to a client in the same process.
	Handover chan *serverEnd
}

// NewHandover from a server to a client.
func NewHandover() chan *serverEnd { return make(chan *serverEnd) }

func (s *Setup) parameters() *contract.Parameters { return &s.Request.Parameters }

func (s *Setup) counters() *observe.Counters { return s.Observer.Counters }

// host has the configuration of all hosts of the side.
func (s *Setup) host(listenIP string) peer.Config {
	p, w := s.parameters(), workloadOf(s.parameters())
	return peer.Config{
		Transport:    s.Request.Transport,
		Protocol:     w.protocol(),
		Lazy:         p.Negotiation == "v1lazy",
		ListenIP:     listenIP,
		RSA:          p.Identity == "rsa2048",
		Relayed:      w.isRelayed(),
		StreamWindow: streamWindow(s.Request),
		Metrics:      s.Metrics.Stack(),
		Sized:        s.Measurements.keepSmallest,
	}
}

func (s *Setup) newDialler() (*peer.Host, error) { return peer.New(s.host("")) }

// checkFiles says whether the system lets the node open the files that a side needs. Go's runtime raised the
// limit to the most that the system allows when the program started.
func checkFiles(needed uint64) error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil || limit.Cur >= needed {
		return nil
	}
	return contract.Failf(contract.LimitTooLow, "the load needs %d open files, and the system allows the node %d: raise "+
		"the limit (ulimit -Hn, or LimitNOFILE of the service that starts the node)", needed, limit.Cur)
}

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
