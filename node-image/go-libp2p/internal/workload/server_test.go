package workload

import (
	"testing"

	"perfrun/node-go/internal/contract"
	"perfrun/node-go/internal/observe"
)

func TestOnlyCutOffStreamsOfWebRTCMayBeLeftWithoutFailingATrial(t *testing.T) {
	for _, load := range []struct {
		workload, transport string
		fails               bool
	}{
		{"relayStress", "webrtc-direct", false},
		{"relayStress", "quic-v1", true},
		{"bandwidth", "webrtc-direct", true},
	} {
		request := contract.TrialRequest{
			Transport:  load.transport,
			Parameters: contract.Parameters{Workload: load.workload},
		}
		setup := Setup{Request: &request, Observer: &observe.Observer{Counters: &observe.Counters{}}}
		s := served{setup: &setup, open: 2}
		s.left()
		if counted := setup.counters().Failures.Load() == 2; (s.failed != nil) != load.fails || counted == load.fails {
			t.Errorf("%s over %s: %v, and counted: %v", load.workload, load.transport, s.failed, counted)
		}
	}
}
