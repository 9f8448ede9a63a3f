package workload

import (
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"perfrun/node-go/internal/contract"
	"perfrun/node-go/internal/observe"
	"perfrun/node-go/internal/wire"
)

func serving(parameters contract.Parameters) *server {
	request := contract.TrialRequest{Parameters: parameters}
	return newServer(&Setup{
		Request: &request, Observer: &observe.Observer{Counters: &observe.Counters{}}, Measurements: &Measurements{},
	})
}

// whole is a stream whose reading end stays open when its writing end is closed.
type whole struct{ stream }

func (whole) CloseWrite() error { return nil }

// opened is a client's end of a stream that is served.
func opened(t *testing.T, s *server) net.Conn {
	t.Helper()
	ours, theirs := net.Pipe()
	go s.serve(t.Context(), whole{stream{theirs}})
	synctest.Wait()
	return ours
}

// say writes zeros. A pipe waits for a reader of no bytes, too.
func say(t *testing.T, client net.Conn, bytes int) {
	t.Helper()
	if bytes == 0 {
		return
	}
	if _, err := client.Write(make([]byte, bytes)); err != nil {
		t.Fatal(err)
	}
}

// drained has how long the end took, how many ends of streams were counted as lost, and the failure.
func drained(t *testing.T, s *server) (took time.Duration, lost uint64, err error) {
	t.Helper()
	synctest.Wait()
	begun := time.Now()
	err = s.end(t.Context())
	return time.Since(begun), s.setup.counters().Failures.Load(), err
}

func transferred(protocol string) contract.Parameters {
	return contract.Parameters{Workload: "bandwidth", Protocol: protocol, ChunkBytes: 1024}
}

func relayed(workload string, bytes uint64) contract.Parameters {
	return contract.Parameters{Workload: workload, ChunkBytes: 1024, Relay: contract.Relay{Bytes: bytes}}
}

func TestALostEndOfAStreamIsCountedAndFailsNoTrial(t *testing.T) {
	for _, c := range []struct {
		name       string
		parameters contract.Parameters
		says       int
		hears      int
	}{
		{"ping", contract.Parameters{Workload: "ping"}, wire.PingSize, wire.PingSize},
		{"opened", transferred(contract.Litep2pPerf), 0, 0},
		{"relay", relayed("relay", 100), 0, 100},
		{"cut off", relayed("relayStress", 10_000), 0, 100},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := serving(c.parameters)
			client := opened(t, s)
			say(t, client, c.says)
			if _, err := io.ReadFull(client, make([]byte, c.hears)); err != nil {
				t.Fatal(err)
			}
			if _, lost, err := drained(t, s); err != nil || lost != 1 {
				t.Errorf("%s: %v, and %d lost", c.name, err, lost)
			}
		})
	}
}

func TestMessagesCountThoughTheEndOfTheStreamIsLost(t *testing.T) {
	for _, mode := range []string{"stream", "broadcast"} {
		synctest.Test(t, func(t *testing.T) {
			p := contract.Parameters{
				Workload: "messages", Mode: mode, Amount: contract.Amount{Count: new(uint64(3))},
				Messages: contract.Messages{MessageBytes: 64, Window: 2},
			}
			s := serving(p)
			client := wire.NewMessenger(stream{opened(t, s)})
			if err := client.Open(nil); err != nil {
				t.Fatal(err)
			}
			load, counters := wire.Load{Parameters: &p}, &observe.Counters{}
			var err error
			if mode == "broadcast" {
				_, _, err = wire.Broadcast([]*wire.Messenger{client}, load, counters)
			} else {
				_, err = client.Run(load, counters, observe.NewHistogram())
			}
			if err != nil {
				t.Fatal(err)
			}
			took, lost, err := drained(t, s)
			if arrived := s.setup.Measurements.upload; err != nil || lost != 1 || took != nextEndTimeout || arrived == nil ||
				arrived.Bytes != 3*64 {
				t.Errorf("%s: %v after %v, %d lost, and %v arrived", mode, err, took, lost, arrived)
			}
		})
	}
}

func TestAStreamOnWhichSomethingIsDueFailsATrial(t *testing.T) {
	for _, c := range []struct {
		name       string
		parameters contract.Parameters
		says       int
	}{
		{"ping", contract.Parameters{Workload: "ping"}, wire.PingSize - 1},
		{"perf", transferred(contract.Perf), 0},
		{"perf", transferred(contract.Perf), 8 + 99},
		{"litep2p-perf", transferred(contract.Litep2pPerf), 7},
		{"litep2p-perf", transferred(contract.Litep2pPerf), 8},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := serving(c.parameters)
			client := opened(t, s)
			defer client.Close()
			say(t, client, c.says)
			_, lost, err := drained(t, s)
			if err == nil || wire.Fail(err).Reason != contract.Timeout || lost != 0 {
				t.Errorf("%s after %d bytes: %v, and %d lost", c.name, c.says, err, lost)
			}
		})
	}
}

func TestAServerIsPatientWhileStreamsEnd(t *testing.T) {
	for _, c := range []struct {
		gap, took time.Duration
		lost      uint64
	}{
		{400 * ms, 8 * time.Second, 0},
		// Six have ended after nine seconds.
		{1500 * ms, allEndsTimeout, 14},
		{2100 * ms, nextEndTimeout, 20},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := serving(contract.Parameters{Workload: "ping"})
			clients := make([]net.Conn, 20)
			for i := range clients {
				clients[i] = opened(t, s)
			}
			var leave sync.WaitGroup
			defer leave.Wait()
			leave.Go(func() {
				for _, client := range clients {
					time.Sleep(c.gap)
					_ = client.Close()
				}
			})
			if took, lost, err := drained(t, s); err != nil || took != c.took || lost != c.lost {
				t.Errorf("every %v: %v after %v, and %d lost", c.gap, err, took, lost)
			}
		})
	}
}
