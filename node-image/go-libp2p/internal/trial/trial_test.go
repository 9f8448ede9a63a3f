package trial

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"perfrun/node-go/internal/contract"
	"perfrun/node-go/internal/metrics"
	"perfrun/node-go/internal/observe"
)

// node of a test.
type node struct {
	t      *testing.T
	trials *Trials
}

func newNode(t *testing.T) node {
	trials := New("127.0.0.1", metrics.New(nil))
	t.Cleanup(func() { trials.Stop(0) })
	return node{t, trials}
}

// put a trial.
func (n node) put(transport, parameters string, side any) *Trial {
	n.t.Helper()
	body, err := json.Marshal(map[string]any{
		"stack": "go-libp2p", "transport": transport, "parameters": json.RawMessage(parameters), "side": side,
		"timeoutSeconds": 80,
	})
	if err == nil {
		_, err = n.trials.Put("a", body)
	}
	if err != nil {
		n.t.Fatal(err)
	}
	return n.trials.Get("a")
}

// begin a trial, and return its addresses once it is ready.
func (n node) begin(transport, parameters string, side any) (*Trial, []string) {
	n.t.Helper()
	trial := n.put(transport, parameters, side)
	status := trial.Status(n.patient(), contract.Preparing)
	if status.Outcome != nil && status.Outcome.Failure != nil {
		n.t.Fatalf("%s: %+v", parameters, status.Outcome.Failure)
	}
	return trial, status.Addresses
}

func (n node) patient() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Second)
	n.t.Cleanup(cancel)
	return ctx
}

// end is the outcome of a trial that must complete.
func (n node) end(trial *Trial) *contract.Outcome {
	n.t.Helper()
	outcome := trial.Status(n.patient(), contract.Running).Outcome
	if outcome == nil || outcome.Failure != nil {
		n.t.Fatalf("%+v", outcome)
	}
	return outcome
}

func client(servers []string, peers int) any {
	return map[string]any{"client": map[string]any{"servers": servers, "peers": peers, "clocks": make([]int64, len(servers))}}
}

// run both sides of a trial.
func run(t *testing.T, transport, parameters string, peers int) (client_, server_ *contract.Measured) {
	t.Helper()
	server, dialler := newNode(t), newNode(t)
	serving, addresses := server.begin(transport, parameters, "server")
	running, _ := dialler.begin(transport, parameters, client(addresses, peers))
	running.Start(observe.Nanoseconds(time.Now()))
	of := dialler.end(running).Measured
	serving.Finish()
	served := server.end(serving).Measured
	if of.BytesSent != served.BytesReceived || of.BytesReceived != served.BytesSent {
		t.Errorf("%s: %d and %d bytes sent, %d and %d received", parameters, of.BytesSent, served.BytesSent,
			served.BytesReceived, of.BytesReceived)
	}
	return &of, &served
}

// Half of its time is for the ramp, in which a busy machine makes keys of RSA and dials.
const echo = `{"workload": "echo", "connections": 2, "streamsPerConnection": 5, "connectionIntervalSeconds": 0.05,
	"streamIntervalSeconds": 0.01, "messageBytes": 1024, "pauseSeconds": 0.05, "deadlineSeconds": 5,
	"durationSeconds": 16, "identity": "rsa2048", "sampleIntervalSeconds": 2}`

func TestAnEchoReportsItsPlateauAndItsStreams(t *testing.T) {
	period := strings.Replace(echo, "pauseSeconds", "periodSeconds", 1)
	for _, load := range [][2]string{{"tcp", echo}, {"tcp", period}, {"quic-v1", echo}, {"webtransport", echo}} {
		t.Run(load[0], func(t *testing.T) {
			t.Parallel()
			of, served := run(t, load[0], load[1], 1)
			if of.Plateau == nil || of.Plateau.RoundTrips < 10 || of.Plateau.RampSeconds < 0.09 {
				t.Fatalf("%+v", of.Plateau)
			}
			if of.Streams != 10 || of.Connections != 2 || served.Streams != 10 {
				t.Errorf("%d streams", of.Streams)
			}
			if len(of.Errors)+len(served.Errors) > 0 {
				t.Errorf("errors %v and %v", of.Errors, served.Errors)
			}
			var most, echoing uint64
			for _, sample := range of.Samples {
				most, echoing = max(most, sample.Echo.ActiveStreams), max(echoing, sample.Echo.EchoingStreams)
			}
			if most != 10 || echoing != 10 || of.Histograms["roundTrip"] == "" {
				t.Errorf("%d of 10 streams active, %d echo", most, echoing)
			}
		})
	}
}

func TestMessagesGoToOneServerOrToAll(t *testing.T) {
	const stream = `{"workload": "messages", "mode": "stream", "messageBytes": 1000, "amount": {"count": 500}, "window": 64}`
	of, served := run(t, "tcp", stream, 3)
	if of.BytesSent != 3*500*1000 || of.Histograms["roundTrip"] == "" || served.Histograms["oneWay"] == "" {
		t.Errorf("%d bytes sent", of.BytesSent)
	}
	const broadcast = `{"workload": "messages", "mode": "broadcast", "messageBytes": 100, "amount": {"count": 50},
		"window": 1, "receivers": 2}`
	dialler := newNode(t)
	var servers []node
	var serving []*Trial
	var addresses []string
	for range 2 {
		server := newNode(t)
		trial, at := server.begin("quic-v1", broadcast, "server")
		servers, serving, addresses = append(servers, server), append(serving, trial), append(addresses, at...)
	}
	running, _ := dialler.begin("quic-v1", broadcast, client(addresses, 1))
	running.Start(0)
	if sent := dialler.end(running).Measured.BytesSent; sent != 2*50*100 {
		t.Errorf("%d bytes sent", sent)
	}
	for i, server := range servers {
		serving[i].Finish()
		if received := server.end(serving[i]).Measured.BytesReceived; received != 50*100 {
			t.Errorf("%d bytes received", received)
		}
	}
}

func TestAServerWithoutTheProtocolFailsTheTrialWithTheReason(t *testing.T) {
	server, dialler := newNode(t), newNode(t)
	_, addresses := server.begin("tcp", `{"workload": "ping", "count": 1, "intervalSeconds": 0}`, "server")
	const stream = `{"workload": "messages", "mode": "stream", "messageBytes": 8, "amount": {"count": 1}, "window": 1}`
	running, _ := dialler.begin("tcp", stream, client(addresses, 2))
	running.Start(0)
	outcome := running.Status(dialler.patient(), contract.Running).Outcome
	if outcome.Failure == nil || outcome.Failure.Reason != contract.OpenFailed {
		t.Errorf("%+v", outcome.Failure)
	}
}

func TestTheNumberOfRecordsIsLimited(t *testing.T) {
	n := newNode(t)
	ended := n.put("tcp", `{"workload": "ping", "count": 1, "intervalSeconds": 0}`, client([]string{"nowhere"}, 1))
	ended.Status(n.patient(), contract.Running)
	body, err := json.Marshal(ended.raw)
	if err != nil {
		t.Fatal(err)
	}
	n.trials.mutex.Lock()
	for number := range mostRecords - 1 {
		n.trials.all[fmt.Sprint(number)] = ended
	}
	n.trials.mutex.Unlock()
	if _, err := n.trials.Put("b", body); !errors.Is(err, ErrFull) {
		t.Fatal(err)
	}
	n.trials.Delete("7")
	if isNew, err := n.trials.Put("b", body); !isNew || err != nil {
		t.Fatal(isNew, err)
	}
}

func TestBothPeersOfAProcessAreMeasured(t *testing.T) {
	const serial = `{"workload": "messages", "mode": "serial", "messageBytes": 64, "amount": {"count": 100}, "window": 1}`
	n := newNode(t)
	trial, _ := n.begin("tcp", serial, map[string]any{"both": map[string]any{"peers": 2}})
	trial.Start(0)
	outcome := n.end(trial)
	if outcome.Served == nil || outcome.Served.BytesReceived != 2*100*64 || outcome.Measured.BytesSent != 2*100*64 {
		t.Errorf("%+v", outcome.Served)
	}
	if outcome.Measured.Histograms["oneWay"] == "" {
		t.Error("the way of a message has no time")
	}
}

// relayed starts a relay and a source behind it.
func relayed(t *testing.T, transport, parameters string, sources int) (relay, source node, of [2]*Trial, addresses []string) {
	t.Helper()
	relay, source = newNode(t), newNode(t)
	relaying, at := relay.begin(transport, parameters, "relay")
	side := map[string]any{"source": map[string]any{"relay": at[0], "peers": sources}}
	serving, addresses := source.begin(transport, parameters, side)
	return relay, source, [2]*Trial{relaying, serving}, addresses
}

func TestATransferThroughARelayArrivesWholeOnEveryTransport(t *testing.T) {
	for _, transport := range []string{"tcp", "tcp-tls", "ws", "quic-v1", "webtransport", "webrtc-direct"} {
		const parameters = `{"workload": "relay", "path": "relayed", "bytes": 300000, "chunkBytes": "64Ki", "pings": 2, "limits": {}}`
		relay, source, of, addresses := relayed(t, transport, parameters, 1)
		dialler := newNode(t)
		running, _ := dialler.begin(transport, parameters, client(addresses, 1))
		running.Start(0)
		got := dialler.end(running).Measured
		of[1].Finish()
		if sent := source.end(of[1]).Measured.BytesSent; got.BytesReceived != 300000 || sent != 300000 {
			t.Errorf("%s: %d of %d bytes", transport, got.BytesReceived, sent)
		}
		if transport == "quic-v1" && got.CongestionControl != "newReno" {
			t.Errorf("%s: congestion control %s", transport, got.CongestionControl)
		}
		of[0].Finish()
		if relaying := relay.end(of[0]).Measured; relaying.MostCircuits != 1 || relaying.Streams != 1 {
			t.Errorf("%s: %d circuits", transport, relaying.MostCircuits)
		}
		for _, name := range []string{"roundTrip", "relayRoundTrip", "relayConnected", "transfer", "firstByte", "open"} {
			if got.Histograms[name] == "" {
				t.Errorf("%s: no times of %s", transport, name)
			}
		}
	}
}

func TestSinksStressARelayWhichRefusesWhatItsLimitsForbid(t *testing.T) {
	const parameters = `{"workload": "relayStress", "sinks": 4, "sources": 2, "startIntervalSeconds": 0.05, "rampSeconds": 0.2,
		"plateauSeconds": 4, "bytes": 100000, "chunkBytes": "64Ki", "limits": {"circuitsPerPeer": 1, "reservations": 1}}`
	relay, source, of, addresses := relayed(t, "tcp", parameters, 2)
	if len(addresses) != 1 {
		t.Fatalf("%d of 2 sources have a place", len(addresses))
	}
	dialler := newNode(t)
	running, _ := dialler.begin("tcp", parameters, client(addresses, 4))
	running.Start(observe.Nanoseconds(time.Now()))
	got := dialler.end(running).Measured
	of[1].Finish()
	served := source.end(of[1]).Measured
	of[0].Finish()
	relaying := relay.end(of[0]).Measured
	const refused = "circuit: RESOURCE_LIMIT_EXCEEDED (201)"
	if got.BytesReceived == 0 || got.Refused[refused] == 0 || relaying.Refused[refused] == 0 || relaying.MostCircuits != 1 {
		t.Errorf("%d bytes, refused %v by the relay, %v at the sinks", got.BytesReceived, relaying.Refused, got.Refused)
	}
	if fmt.Sprint(served.Refused) != "map[reservation: RESERVATION_REFUSED (200):1]" || served.Errors[contract.Refused] != 1 {
		t.Errorf("%v %v", served.Refused, served.Errors)
	}
}

// go-libp2p renews certificates of WebTransport every two weeks, and addresses contain their hashes. A host
// lives as long as its trial, and so does its certificate: none can change during a run.
func TestEachTrialHasItsOwnCertificate(t *testing.T) {
	server := newNode(t)
	const ping = `{"workload": "ping", "count": 1, "intervalSeconds": 0}`
	certificates := map[string]bool{}
	for range 2 {
		serving, addresses := server.begin("webtransport", ping, "server")
		_, hash, found := strings.Cut(addresses[0], "/certhash/")
		hash, _, _ = strings.Cut(hash, "/")
		if !found || certificates[hash] {
			t.Errorf("%s", addresses[0])
		}
		certificates[hash] = true
		dialler := newNode(t)
		running, _ := dialler.begin("webtransport", ping, client(addresses, 1))
		running.Start(0)
		dialler.end(running)
		serving.Finish()
		server.end(serving)
		server.trials.Delete("a")
	}
}

// limitFiles of this process until the end of the test.
func limitFiles(t *testing.T, most uint64) {
	t.Helper()
	var limit unix.Rlimit
	err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit)
	if err == nil {
		before := limit
		t.Cleanup(func() { _ = unix.Setrlimit(unix.RLIMIT_NOFILE, &before) })
		limit.Cur = most
		err = unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestTooFewOpenFilesAreReportedBeforeAnythingStarts(t *testing.T) {
	const (
		hundred = `{"workload": "echo", "connections": 100, "streamsPerConnection": 1, "connectionIntervalSeconds": 0.001,
			"streamIntervalSeconds": 0, "messageBytes": 1024, "pauseSeconds": 0.05, "deadlineSeconds": 5,
			"durationSeconds": 1, "identity": "ed25519", "sampleIntervalSeconds": 0.1}`
		relaying = `{"workload": "relayStress", "sinks": 200, "sources": 100, "startIntervalSeconds": 0.001, "rampSeconds": 0.2,
			"plateauSeconds": 1, "bytes": 1, "chunkBytes": "64Ki", "limits": {}}`
		messages = `{"workload": "messages", "mode": "broadcast", "messageBytes": 100, "amount": {"count": 50}, "window": 1,
			"receivers": 2}`
		handshakes = `{"workload": "handshakes", "inFlight": 150, "amount": {"seconds": 1}}`
	)
	nobody := []string{"/ip4/127.0.0.1/tcp/1/p2p/12D3KooWGpXJnvi1WQvHLWJGXjxsmgqPz1JmoGNmm1rcHTRZjvM3"}
	behind := map[string]any{"source": map[string]any{"relay": nobody[0], "peers": 100}}
	for _, load := range []struct {
		parameters string
		side       any
		needed     uint64
	}{
		{hundred, client(nobody, 1), 4 * 100},
		{hundred, "server", 4 * 100},
		{handshakes, client(nobody, 1), 4 * 150},
		{messages, client([]string{nobody[0], nobody[0]}, 20), 4*20*2 + 64},
		{relaying, client(nobody, 200), 200 + 64},
		{relaying, behind, 2*100 + 64},
		{relaying, "relay", 200 + 100 + 64},
	} {
		limitFiles(t, load.needed-1)
		n := newNode(t)
		outcome := n.put("tcp", load.parameters, load.side).Status(n.patient(), contract.Running).Outcome
		expected := fmt.Sprintf("needs %d open files, and the system allows the node %d: raise the limit", load.needed, load.needed-1)
		if failure := outcome.Failure; failure.Reason != contract.LimitTooLow || !strings.Contains(failure.Message, expected) {
			t.Errorf("%+v", failure)
		}
	}
	limitFiles(t, 4*30)
	run(t, "tcp", `{"workload": "ping", "count": 1, "intervalSeconds": 0}`, 30)
}

func TestACutTrialEndsSoon(t *testing.T) {
	server, dialler := newNode(t), newNode(t)
	_, addresses := server.begin("tcp", echo, "server")
	trial, _ := dialler.begin("tcp", echo, client(addresses, 1))
	trial.Start(observe.Nanoseconds(time.Now()))
	trial.Status(dialler.patient(), contract.Ready)
	begun := time.Now()
	dialler.trials.Delete("a")
	outcome := trial.Status(dialler.patient(), contract.Running).Outcome
	if outcome.Failure == nil || outcome.Failure.Reason != contract.Cancelled || time.Since(begun) >= endTimeout {
		t.Errorf("%+v after %v", outcome.Failure, time.Since(begun))
	}
}
