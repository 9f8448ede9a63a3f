package contract

import "fmt"

const (
	longestSeconds = 366 * 86_400
	mostStreams    = 4096
	mostHosts      = 16_384
	largestChunk   = 16 << 20
	longestLabel   = 512
)

// Name of the stack that this node speaks.
const Stack = "go-libp2p"

// Protocols on streams.
const (
	Perf        = "/perf/1.0.0"
	Litep2pPerf = "/litep2p-perf/1.0.0"
	Ping        = "/ipfs/ping/1.0.0"
)

// StreamProtocol is the protocol on the streams of a workload.
func (p *Parameters) StreamProtocol() string {
	switch p.Workload {
	case "bandwidth":
		return p.Protocol
	case "substreams":
		return Litep2pPerf
	default:
		return Ping
	}
}

// Hosts that a client of a number of peers needs at the same time.
func (p *Parameters) Hosts(peers int) int {
	if p.Workload == "handshakes" {
		return peers * p.InFlight
	}
	return peers
}

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
	if r.Side.Client == nil && !r.Side.Server {
		return ErrSide
	}
	if err := p.check(); err != nil {
		return err
	}
	if client := r.Side.Client; client != nil {
		if len(client.Servers) == 0 {
			return fmt.Errorf("servers must have at least one address to dial")
		}
		hosts := int64(client.Peers) * int64(max(p.InFlight, 1))
		if client.Peers < 1 || hosts > mostHosts {
			return fmt.Errorf("peers, times inFlight, must be 1 to %d", mostHosts)
		}
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

func isTime(seconds float64) bool {
	return seconds > 0 && seconds <= longestSeconds
}
