package workload

import (
	"encoding/json"
	"testing"

	"perfrun/node-go/internal/contract"
	"perfrun/node-go/internal/corpus"
)

func FuzzRequest(f *testing.F) {
	corpus.Add(f, "request")
	f.Fuzz(func(t *testing.T, input []byte) {
		corpus.LimitMemory(t, func() {
			_ = json.Unmarshal(input, &contract.Start{})
			var request contract.TrialRequest
			if json.Unmarshal(input, &request) != nil {
				return
			}
			// Those of the Rust node have other stacks.
			request.Stack = contract.Stack
			if Check(&request) == nil {
				accepted(t, &request)
			}
		})
	})
}

// accepted requests are within the limits that a node relies on.
func accepted(t *testing.T, r *contract.TrialRequest) {
	t.Helper()
	p, peers := &r.Parameters, 1
	switch {
	case r.Side.Source != nil:
		peers = r.Side.Source.Peers
		if peers < 1 || peers > mostHosts {
			t.Errorf("%d hosts of a source", peers)
		}
	case r.Side.Client != nil:
		peers = r.Side.Client.Peers
	case r.Side.Both != nil:
		peers = r.Side.Both.Peers
	}
	if r.Side.Source == nil {
		if hosts := workloadOf(p).hosts(peers); hosts < 1 || hosts > mostHosts {
			t.Errorf("%d hosts", hosts)
		}
	}
	if limit := contract.Seconds(r.TimeoutSeconds); limit < 0 || limit > contract.Seconds(contract.LongestSeconds) {
		t.Errorf("ends after %v", limit)
	}
	if duration, timed := p.Amount.Duration(); timed && duration < 0 {
		t.Errorf("lasts %v", duration)
	}
	if p.Workload == "messages" && (p.MessageBytes > contract.MostMessage || uint64(p.Window)*uint64(p.MessageBytes) > mostInFlight) {
		t.Errorf("%d messages of %d bytes in flight", p.Window, p.MessageBytes)
	}
	if window := streamWindow(r); window != 0 && (window < leastStreamWindow || window > mostWindowBytes) {
		t.Errorf("a stream has a window of %d bytes", window)
	}
	switch p.Workload {
	case "bandwidth", "relay", "relayStress":
		if p.ChunkBytes < 1 || p.ChunkBytes > largestChunk {
			t.Errorf("chunks of %d bytes", p.ChunkBytes)
		}
	}
}
