package workload

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"perfrun/node-go/internal/contract"
)

const valid = `{
	"stack": "go-libp2p", "transport": "tcp", "timeoutSeconds": 1, "side": "server",
	"parameters": {"workload": "bandwidth", "protocol": "/perf/1.0.0", "direction": "upload", "amount": {"count": 1},
		"streams": 1, "chunkBytes": "64Ki", "timing": "strict", "negotiation": "v1"}
}`

func check(text string) error {
	var request contract.TrialRequest
	if err := json.Unmarshal([]byte(text), &request); err != nil {
		return err
	}
	return Check(&request)
}

func TestAValidRequestIsAccepted(t *testing.T) {
	if err := check(valid); err != nil {
		t.Error(err)
	}
	client := strings.Replace(valid, `"server"`, `{"client": {"servers": ["/ip4/127.0.0.1/tcp/1"], "peers": 1}}`, 1)
	if err := check(client); err != nil {
		t.Error(err)
	}
	elsewhere := strings.Replace(valid, `"tcp"`, `"quic-v1", "settings": {"tcpCongestion": "bbr"}`, 1)
	if err := check(elsewhere); err != nil {
		t.Error(err)
	}
}

func TestInvalidRequestsAreRefusedInWordsThatNameTheFault(t *testing.T) {
	for _, wrong := range [][3]string{
		{`"go-libp2p"`, `"libp2p"`, "stack must be"},
		{`"timeoutSeconds": 1`, `"timeoutSeconds": 0`, "timeoutSeconds"},
		{`"timeoutSeconds": 1`, `"timeoutSeconds": 1e300`, "timeoutSeconds"},
		{`"side": "server"`, `"side": "spectator"`, "side"},
		{`"side": "server"`, `"side": {"both": {"peers": 1}}`, "side must be both"},
		{`"side": "server"`, `"side": {"source": {"relay": "a", "peers": 0}}`, "peers"},
		{`"side": "server"`, `"side": {"client": {"servers": [], "peers": 1}}`, "servers"},
		{`"side": "server"`, `"side": {"client": {"servers": ["a"], "peers": 0}}`, "peers"},
		{`"bandwidth"`, `"dance"`, "workload"},
		{`/perf/1.0.0`, `/ipfs/ping/1.0.0`, "no bulk transfer"},
		{`"streams": 1`, `"streams": 0`, "streams must be 1"},
		{`"64Ki"`, `0`, "chunkBytes"},
		{`"64Ki"`, `"1Ti"`, "chunkBytes"},
		{`"64Ki"`, `"many"`, "byte size"},
		{`{"count": 1}`, `{}`, "amount"},
		{`{"count": 1}`, `{"seconds": -1}`, "amount.seconds"},
		{`"upload"`, `"sideways"`, "direction"},
		{`"strict"`, `"loose"`, "timing"},
		{`"v1"`, `"v2"`, "negotiation"},
		{`"tcp"`, `"tcp", "settings": {"tcpCongestion": "bbr"}`, "settings.tcpCongestion must be absent"},
		{`"tcp"`, `"ws", "settings": {"yamuxWindow": "255Ki"}`, "settings.yamuxWindow must be at least 262144 bytes for each of 1 streams, and at most 1073741824 bytes"},
		{`"tcp"`, `"tcp", "settings": {"yamuxWindow": "2Gi"}`, "settings.yamuxWindow must be"},
		{`"tcp"`, `"tcp", "settings": {"yamuxWindow": "much"}`, "byte size"},
		{`"tcp"`, `"quic-v1", "settings": {"quicCongestion": "bbr"}`, "settings.quicCongestion must be absent"},
	} {
		text := strings.Replace(valid, wrong[0], wrong[1], 1)
		if err := check(text); err == nil || !strings.Contains(err.Error(), wrong[2]) {
			t.Errorf("%s: %v", wrong[1], err)
		}
	}
}

func TestTheStreamsOfAConnectionOverTCPShareTheWindowOfYamux(t *testing.T) {
	const oneStream = `"streams": 1`
	stress := `"workload": "relayStress", "sinks": 9, "sources": 4, "startIntervalSeconds": 1, "plateauSeconds": 1`
	for _, load := range []struct {
		transport, window, replaced, by string
		part                            uint32
	}{
		{"tcp", `"1Mi"`, oneStream, oneStream, 1 << 20},
		{"ws", `"1Mi"`, oneStream, `"streams": 4`, 256 << 10},
		{"tcp-tls", `"1Gi"`, oneStream, oneStream, 1 << 30},
		{"tcp", `"3Mi"`, `"workload": "bandwidth"`, stress, 1 << 20},
		{"tcp", `"1Mi"`, `"side": "server",
	"parameters": {"workload": "bandwidth"`, `"side": {"client": {"servers": ["a"], "peers": 9}},
	"parameters": {` + stress, 1 << 20},
		{"tcp", `null`, oneStream, oneStream, 0},
		{"quic-v1", `"1Mi"`, oneStream, oneStream, 0},
	} {
		text := strings.Replace(valid, load.replaced, load.by, 1)
		settings := fmt.Sprintf(`"transport": %q, "settings": {"yamuxWindow": %s}`, load.transport, load.window)
		var request contract.TrialRequest
		err := json.Unmarshal([]byte(strings.Replace(text, `"transport": "tcp"`, settings, 1)), &request)
		if err == nil {
			err = Check(&request)
		}
		if part := streamWindow(&request); err != nil || part != load.part {
			t.Errorf("%s of %s on %s: %d for each stream, %v", load.by, load.window, load.transport, part, err)
		}
	}
	fiveStreams := strings.Replace(valid, oneStream, `"streams": 5`, 1)
	err := check(strings.Replace(fiveStreams, `"tcp"`, `"tcp", "settings": {"yamuxWindow": "1Mi"}`, 1))
	if err == nil || !strings.Contains(err.Error(), "for each of 5 streams") {
		t.Error(err)
	}
}

func TestAnEchoPausesOrHasAPeriod(t *testing.T) {
	const echo = `{"stack": "go-libp2p", "transport": "tcp", "timeoutSeconds": 1, "side": "server", "parameters": {
		"workload": "echo", "connections": 1, "streamsPerConnection": 1, "messageBytes": 2, "pauseSeconds": 0.5,
		"deadlineSeconds": 5, "durationSeconds": 9, "sampleIntervalSeconds": 1}}`
	for pace, words := range map[string]string{
		`"pauseSeconds": 0.5`:                       "",
		`"periodSeconds": 0.5`:                      "",
		`"pauseSeconds": 0.5, "periodSeconds": 0.5`: "either pauseSeconds or periodSeconds",
		`"pauseSeconds": 0, "periodSeconds": 0.5`:   "either pauseSeconds or periodSeconds",
		`"colour": "blue"`:                          "either pauseSeconds or periodSeconds",
		`"pauseSeconds": 0`:                         "more than 0",
		`"periodSeconds": 0.9e-9`:                   "more than 0",
		`"periodSeconds": 1e-9`:                     "",
		`"periodSeconds": -1`:                       "more than 0",
		`"periodSeconds": 5`:                        "less than deadlineSeconds",
	} {
		err := check(strings.Replace(echo, `"pauseSeconds": 0.5`, pace, 1))
		if (err == nil) != (words == "") || err != nil && !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %v", pace, err)
		}
	}
}

func TestALimitThatTheRelayDoesNotHaveIsRefused(t *testing.T) {
	const relay = `{"stack": "go-libp2p", "transport": "tcp", "timeoutSeconds": 1, "side": "relay", "parameters": {
		"workload": "relay", "path": "relayed", "bytes": 1, "chunkBytes": 1, "pings": 0, "limits": {"circuits": 1}}}`
	if err := check(relay); err == nil || !strings.Contains(err.Error(), "limits.circuits") {
		t.Error(err)
	}
	if err := check(strings.Replace(relay, "circuits", "circuitsPerPeer", 1)); err != nil {
		t.Error(err)
	}
}
