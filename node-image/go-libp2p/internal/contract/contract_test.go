package contract

import (
	"encoding/json"
	"strings"
	"testing"
)

const valid = `{
	"stack": "go-libp2p", "transport": "tcp", "timeoutSeconds": 1, "side": "server",
	"parameters": {"workload": "bandwidth", "protocol": "/perf/1.0.0", "direction": "upload", "amount": {"count": 1},
		"streams": 1, "chunkBytes": "64Ki", "timing": "strict", "negotiation": "v1"}
}`

func check(text string) error {
	var request TrialRequest
	if err := json.Unmarshal([]byte(text), &request); err != nil {
		return err
	}
	return request.Check()
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
		{`"tcp"`, `"ws", "settings": {"yamuxWindow": "1Mi"}`, "settings.yamuxWindow must be absent"},
		{`"tcp"`, `"quic-v1", "settings": {"quicCongestion": "bbr"}`, "settings.quicCongestion must be absent"},
	} {
		text := strings.Replace(valid, wrong[0], wrong[1], 1)
		if err := check(text); err == nil || !strings.Contains(err.Error(), wrong[2]) {
			t.Errorf("%s: %v", wrong[1], err)
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

func TestByteSizesAreNumbersOrTextWithASuffix(t *testing.T) {
	for text, expected := range map[string]ByteSize{`1500`: 1500, `"64Ki"`: 65536, `"10M"`: 10_000_000, `"1Gi"`: 1 << 30} {
		var size ByteSize
		if err := json.Unmarshal([]byte(text), &size); err != nil || size != expected {
			t.Errorf("%s is %d: %v", text, size, err)
		}
	}
	for _, text := range []string{`""`, `"Ki"`, `"1.5Gi"`, `-1`, `"1 Ki"`, `"99999999999Ti"`} {
		if err := json.Unmarshal([]byte(text), new(ByteSize)); err == nil {
			t.Errorf("%s is not a byte size", text)
		}
	}
}

func TestStatesHaveAnOrder(t *testing.T) {
	if later, known := Later(Ready, Preparing); !later || !known {
		t.Error("ready is later than preparing")
	}
	if later, _ := Later(Ready, Ready); later {
		t.Error("ready is not later than itself")
	}
	if _, known := Later(Ready, "done"); known {
		t.Error("done is not a state")
	}
}
