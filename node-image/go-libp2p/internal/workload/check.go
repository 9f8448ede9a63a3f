package workload

import (
	"fmt"

	"perfrun/node-go/internal/contract"
)

const (
	mostStreams  = 4096
	mostHosts    = 16_384
	largestChunk = 16 << 20
	longestLabel = 512
	// leastStreamWindow is what yamux grants on each new stream.
	leastStreamWindow = 256 << 10
	// mostWindowBytes fit into the 32 bits that a window of yamux has.
	mostWindowBytes = 1 << 30
)

// Check refuses requests that would make the node fail otherwise. The error says what must be true.
func Check(r *contract.TrialRequest) error {
	if r.Stack != contract.Stack {
		return fmt.Errorf("stack must be %s, not %.64q: this node does not speak another", contract.Stack, r.Stack)
	}
	if !isTime(r.TimeoutSeconds) {
		return fmt.Errorf("timeoutSeconds must be more than 0 and at most a year")
	}
	if len(r.Labels.Cell) > longestLabel || len(r.Labels.Network) > longestLabel {
		return fmt.Errorf("labels must have at most %d bytes", longestLabel)
	}
	if workloads[r.Parameters.Workload] == nil {
		return fmt.Errorf("workload must be one that /v1/info lists, not %.64q", r.Parameters.Workload)
	}
	w := workloadOf(&r.Parameters)
	if err := w.check(); err != nil {
		return err
	}
	if err := checkSettings(r, w); err != nil {
		return err
	}
	return checkSide(&r.Side, w, r.Parameters.Limits)
}

// checkSettings refuses settings that go-libp2p cannot apply, where they have an effect.
func checkSettings(r *contract.TrialRequest, w workload) error {
	name := ""
	switch {
	case r.IsTCP():
		if r.Settings.TCPCongestion != nil {
			name = "tcpCongestion"
		} else if window := r.Settings.YamuxWindow; window != nil {
			return checkWindow(*window, w.connectionStreams(&r.Side))
		}
	case r.Transport == "quic-v1" || r.Transport == "webtransport":
		if r.Settings.QUICCongestion != nil {
			name = "quicCongestion"
		}
	}
	if name != "" {
		return fmt.Errorf("settings.%s must be absent on %s: go-libp2p does not have this setting", name, r.Transport)
	}
	return nil
}

func checkWindow(window contract.ByteSize, streams int) error {
	if window > mostWindowBytes || uint64(window)/uint64(streams) < leastStreamWindow {
		return fmt.Errorf("settings.yamuxWindow must be at least %d bytes for each of %d streams, and at most %d bytes",
			leastStreamWindow, streams, mostWindowBytes)
	}
	return nil
}

// streamWindow is what each stream of a connection may receive before the application reads it: the requested
// window, divided by the most streams that one of the side's connections has. go-yamux limits streams and not
// connections, and all connections of a side have the same limit. Zero is go-libp2p's default.
func streamWindow(r *contract.TrialRequest) uint32 {
	window := r.Settings.YamuxWindow
	if window == nil || !r.IsTCP() {
		return 0
	}
	return uint32(uint64(*window) / uint64(workloadOf(&r.Parameters).connectionStreams(&r.Side)))
}

func checkSide(s *contract.Side, w workload, limits contract.RelayLimits) error {
	isBoth, peers := s.Both != nil, 1
	switch {
	case s.Server:
	case s.Relay:
		if limits.Circuits != nil {
			return fmt.Errorf("limits.circuits must be absent: this relay limits the circuits of each peer (circuitsPerPeer)")
		}
	case s.Source != nil:
		if s.Source.Peers < 1 || s.Source.Peers > mostHosts {
			return fmt.Errorf("peers must be 1 to %d, not %d", mostHosts, s.Source.Peers)
		}
	case s.Client != nil:
		peers = s.Client.Peers
		if len(s.Client.Servers) == 0 {
			return fmt.Errorf("servers must have at least one address to dial")
		}
	case isBoth:
		peers = s.Both.Peers
	default:
		return contract.ErrSide
	}
	// Peers times the largest factor fits into an integer: each was checked, or is checked here first.
	if peers < 1 || peers > mostHosts || w.hosts(peers) > mostHosts {
		return fmt.Errorf("peers, times inFlight or connections, must be 1 to %d", mostHosts)
	}
	if err := w.checkPeers(peers); err != nil {
		return err
	}
	if isBoth != w.isInProcess() {
		return fmt.Errorf("side must be both for peers of one process, which mode serial has, and for no others")
	}
	return nil
}

func checkChunk(bytes contract.ByteSize) error {
	if bytes < 1 || bytes > largestChunk {
		return fmt.Errorf("chunkBytes must be 1 to %d", largestChunk)
	}
	return nil
}

func checkAmount(a contract.Amount) error {
	if (a.Count == nil) == (a.Seconds == nil) {
		return fmt.Errorf("amount must be a count or seconds")
	}
	if a.Seconds != nil && !isTime(*a.Seconds) {
		return fmt.Errorf("amount.seconds must be more than 0 and at most a year")
	}
	return nil
}

func checkNegotiation(negotiation string) error {
	if negotiation != "v1" && negotiation != "v1lazy" {
		return fmt.Errorf("negotiation must be v1 or v1lazy, not %.64q", negotiation)
	}
	return nil
}

// isTime says whether a time is at least a nanosecond, less than which is 0 for a clock, and at most a year.
func isTime(seconds float64) bool {
	return seconds >= 1e-9 && seconds <= contract.LongestSeconds
}
