package contract

import (
	"cmp"
	"fmt"
)

const (
	longestSeconds = 366 * 86_400
	mostStreams    = 4096
	mostHosts      = 16_384
	largestChunk   = 16 << 20
	longestLabel   = 512
	longestLine    = 1 << 20
	// LeastMessage and MostMessage are the bytes that a message may have.
	LeastMessage = 8
	MostMessage  = 1 << 20
	mostWindow   = 4096
	mostRate     = 10_000_000
	mostServers  = 100
	mostInFlight = 64 << 20
	// leastStreamWindow is what yamux grants on each new stream.
	leastStreamWindow = 256 << 10
	// mostWindowBytes fit into the 32 bits that a window of yamux has.
	mostWindowBytes = 1 << 30
)

// Name of the stack that this node speaks.
const Stack = "go-libp2p"

// Protocols on streams.
const (
	Perf        = "/perf/1.0.0"
	Litep2pPerf = "/litep2p-perf/1.0.0"
	Ping        = "/ipfs/ping/1.0.0"
	EchoLines   = "/echo/1.0.0"
	Framed      = "/perfrun/messages/1.0.0"
	TestData    = "/libp2p/test/data"
)

// Check refuses requests that would make the node fail otherwise. The error says what must be true.
func (r *TrialRequest) Check() error {
	p := &r.Parameters
	if r.Stack != Stack {
		return fmt.Errorf("stack must be %s, not %.64q: this node does not speak another", Stack, r.Stack)
	}
	if !isTime(r.TimeoutSeconds) {
		return fmt.Errorf("timeoutSeconds must be more than 0 and at most a year")
	}
	if len(r.Labels.Cell) > longestLabel || len(r.Labels.Network) > longestLabel {
		return fmt.Errorf("labels must have at most %d bytes", longestLabel)
	}
	if err := p.check(); err != nil {
		return err
	}
	if err := r.checkSettings(); err != nil {
		return err
	}
	return r.Side.check(p)
}

// checkSettings refuses settings that go-libp2p cannot apply, where they have an effect.
func (r *TrialRequest) checkSettings() error {
	name := ""
	switch {
	case r.isTCP():
		if r.Settings.TCPCongestion != nil {
			name = "tcpCongestion"
		} else if window := r.Settings.YamuxWindow; window != nil {
			return checkWindow(*window, r.connectionStreams())
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

func checkWindow(window ByteSize, streams int) error {
	if window > mostWindowBytes || uint64(window)/uint64(streams) < leastStreamWindow {
		return fmt.Errorf("settings.yamuxWindow must be at least %d bytes for each of %d streams, and at most %d bytes",
			leastStreamWindow, streams, mostWindowBytes)
	}
	return nil
}

func (s *Side) check(p *Parameters) error {
	isBoth, peers := s.Both != nil, 1
	switch {
	case s.Server:
	case s.Relay:
		if p.Limits.Circuits != nil {
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
		return ErrSide
	}
	// Peers times the largest factor fits into an integer: each was checked, or is checked here first.
	if peers < 1 || peers > mostHosts || p.Hosts(peers) > mostHosts {
		return fmt.Errorf("peers, times inFlight or connections, must be 1 to %d", mostHosts)
	}
	if p.Workload == "echo" && peers != 1 {
		return fmt.Errorf("peers must be 1 in an echo: each of its connections is a peer")
	}
	if isBoth != p.IsInProcess() {
		return fmt.Errorf("side must be both for peers of one process, which mode serial has, and for no others")
	}
	return nil
}

func (p *Parameters) check() error {
	switch p.Workload {
	case "bandwidth":
		return p.checkBandwidth()
	case "substreams":
		if p.Count < 1 || p.Count > mostStreams {
			return fmt.Errorf("count must be 1 to %d, not %d", mostStreams, p.Count)
		}
		if p.Rate != nil && *p.Rate < 1 {
			return fmt.Errorf("rate must be at least 1 substream per second")
		}
		return checkNegotiation(p.Negotiation)
	case "handshakes":
		if p.InFlight < 1 || p.InFlight > mostHosts {
			return fmt.Errorf("inFlight must be 1 to %d, not %d", mostHosts, p.InFlight)
		}
		return p.Amount.check()
	case "ping":
		if p.Count < 0 || (p.IntervalSeconds != 0 && !isTime(p.IntervalSeconds)) {
			return fmt.Errorf("count and intervalSeconds must be 0 or more, and the interval at most a year")
		}
		return nil
	case "echo":
		return p.checkEcho()
	case "messages":
		return p.checkMessages()
	case "relay", "relayStress":
		return p.checkRelay()
	default:
		return fmt.Errorf("workload must be one that /v1/info lists, not %.64q", p.Workload)
	}
}

func (p *Parameters) checkBandwidth() error {
	if p.Protocol != Perf && p.Protocol != Litep2pPerf {
		return fmt.Errorf("%.64q carries no bulk transfer", p.Protocol)
	}
	if p.Streams < 1 || p.Streams > mostStreams {
		return fmt.Errorf("streams must be 1 to %d, not %d", mostStreams, p.Streams)
	}
	if p.ChunkBytes < 1 || p.ChunkBytes > largestChunk {
		return fmt.Errorf("chunkBytes must be 1 to %d", largestChunk)
	}
	switch p.Direction {
	case "upload", "download", "both":
	default:
		return fmt.Errorf("direction must be upload, download or both, not %.64q", p.Direction)
	}
	if p.Timing != "strict" && p.Timing != "compat" {
		return fmt.Errorf("timing must be strict or compat, not %.64q", p.Timing)
	}
	if err := p.Amount.check(); err != nil {
		return err
	}
	if p.Amount.Seconds != nil {
		if p.Protocol != Perf {
			return fmt.Errorf("%s announces its bytes: it cannot run for a time", p.Protocol)
		}
		if p.Direction == "both" {
			return fmt.Errorf("a transfer for a time must have one direction")
		}
	}
	return checkNegotiation(p.Negotiation)
}

func (p *Parameters) checkEcho() error {
	if p.Connections < 1 || p.Connections > mostStreams {
		return fmt.Errorf("connections must be 1 to %d, not %d", mostStreams, p.Connections)
	}
	if p.StreamsPerConnection < 1 || p.StreamsPerConnection > mostStreams {
		return fmt.Errorf("streamsPerConnection must be 1 to %d, not %d", mostStreams, p.StreamsPerConnection)
	}
	if p.MessageBytes < 2 || p.MessageBytes > longestLine {
		return fmt.Errorf("messageBytes must be 2 to %d", longestLine)
	}
	if (p.PauseSeconds == nil) == (p.PeriodSeconds == nil) {
		return fmt.Errorf("set either pauseSeconds or periodSeconds, to more than 0")
	}
	silent := *cmp.Or(p.PauseSeconds, p.PeriodSeconds)
	if !isTime(p.DurationSeconds) || !isTime(silent) || !isTime(p.DeadlineSeconds) {
		return fmt.Errorf("durationSeconds, pauseSeconds or periodSeconds, and deadlineSeconds must be more than 0 and at most a year")
	}
	if silent >= p.DeadlineSeconds {
		return fmt.Errorf("pauseSeconds or periodSeconds must be less than deadlineSeconds")
	}
	for _, seconds := range []float64{p.ConnectionIntervalSeconds, p.StreamIntervalSeconds} {
		if !(seconds >= 0 && seconds <= 3600) {
			return fmt.Errorf("connectionIntervalSeconds and streamIntervalSeconds must be 0 to 3600")
		}
	}
	if !(p.SampleIntervalSeconds >= 0.01 && p.SampleIntervalSeconds <= 3600) {
		return fmt.Errorf("sampleIntervalSeconds must be 0.01 to 3600")
	}
	switch p.Identity {
	case "", "ed25519", "rsa2048":
		return nil
	default:
		return fmt.Errorf("identity must be ed25519 or rsa2048, not %.64q", p.Identity)
	}
}

func (p *Parameters) checkMessages() error {
	switch p.Mode {
	case "serial", "serialAck", "stream", "broadcast":
	default:
		return fmt.Errorf("mode must be serial, serialAck, stream or broadcast, not %.64q", p.Mode)
	}
	if p.MessageBytes < LeastMessage || p.MessageBytes > MostMessage {
		return fmt.Errorf("messageBytes must be %d to %d, not %d", LeastMessage, MostMessage, p.MessageBytes)
	}
	if p.Window < 1 || p.Window > mostWindow {
		return fmt.Errorf("window must be 1 to %d, not %d", mostWindow, p.Window)
	}
	if p.Window > 1 && p.Mode != "stream" {
		return fmt.Errorf("window must be 1 in mode %s", p.Mode)
	}
	if p.Rate != nil && (*p.Rate < 1 || *p.Rate > mostRate) {
		return fmt.Errorf("rate must be 1 to %d messages per second", mostRate)
	}
	if receivers := p.ServersOfPeer(); receivers < 1 || receivers > mostServers {
		return fmt.Errorf("receivers must be 1 to %d, not %d", mostServers, receivers)
	}
	if p.ServersOfPeer() > 1 && p.Mode != "broadcast" {
		return fmt.Errorf("receivers must be 1 in mode %s", p.Mode)
	}
	if uint64(p.Window)*uint64(p.MessageBytes) > mostInFlight {
		return fmt.Errorf("the messages of a window must have at most %d bytes together", mostInFlight)
	}
	if p.Amount.Count != nil && *p.Amount.Count == 0 {
		return fmt.Errorf("amount.count must be at least 1 message")
	}
	return p.Amount.check()
}

func (p *Parameters) checkRelay() error {
	if p.ChunkBytes < 1 || p.ChunkBytes > largestChunk {
		return fmt.Errorf("chunkBytes must be 1 to %d", largestChunk)
	}
	if p.Workload == "relay" {
		if p.Path != "direct" && p.Path != "relayed" {
			return fmt.Errorf("path must be direct or relayed, not %.64q", p.Path)
		}
		if p.Pings < 0 {
			return fmt.Errorf("pings must be 0 or more")
		}
		return nil
	}
	if p.Sources < 1 || p.Sinks < p.Sources {
		return fmt.Errorf("a stress test needs a source, and a sink for each source: it has %d and %d", p.Sources, p.Sinks)
	}
	isRamp := p.RampSeconds >= 0 && p.RampSeconds < longestSeconds
	if !isTime(p.StartIntervalSeconds) || !isTime(p.PlateauSeconds) || !isRamp {
		return fmt.Errorf("times of a stress test must be more than 0 and at most a year")
	}
	return nil
}

func (a Amount) check() error {
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
	return seconds >= 1e-9 && seconds <= longestSeconds
}
