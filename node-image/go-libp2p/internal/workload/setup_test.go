package workload

import (
	"testing"

	"perfrun/node-go/internal/contract"
	"perfrun/node-go/internal/metrics"
)

func TestHostsHaveTheRequestedWindowOfYamux(t *testing.T) {
	window := contract.ByteSize(4 << 20)
	request := contract.TrialRequest{
		Transport:  "tcp",
		Settings:   contract.Settings{YamuxWindow: &window},
		Parameters: contract.Parameters{Workload: "bandwidth", Streams: 4},
	}
	setup := Setup{Request: &request, Metrics: metrics.New(nil).Trial(&request), Measurements: &Measurements{}}
	if got := setup.host("").StreamWindow; got != 1<<20 {
		t.Errorf("a stream has a window of %d bytes", got)
	}
}
