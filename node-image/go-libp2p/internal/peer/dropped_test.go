package peer

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"perfrun/node-go/internal/contract"
	"perfrun/node-go/internal/wire"
)

// On webrtc-direct, a few of many closed connections are reported with another error than the others.
func TestStreamsOfAClosedConnectionAreDroppedOnEveryTransport(t *testing.T) {
	for transport := range Transports {
		t.Run(transport, func(t *testing.T) {
			t.Parallel()
			start := func(listenIP string) *Host {
				host, err := New(Config{
					Transport: transport, Protocol: contract.Ping, ListenIP: listenIP,
					Metrics: prometheus.NewRegistry(), Sized: func(contract.UDPBuffers) {},
				})
				if err != nil {
					t.Fatal(err)
				}
				return host
			}
			server := start("127.0.0.1")
			defer server.Close()
			ends := make(chan error, 1)
			server.Serve(func() {}, func(s wire.Stream) {
				_, err := s.Read(make([]byte, 1))
				if wire.Dropped(s, err) {
					err = nil
				}
				ends <- err
			}, nil)
			addresses, err := server.Addresses()
			if err != nil {
				t.Fatal(err)
			}
			connections := 0
			for range 50 {
				client := start("")
				connection, err := client.Dial(t.Context(), addresses[0])
				if err != nil {
					// On webrtc-direct, a dial may be lost.
					client.Close()
					continue
				}
				connections++
				if _, err := connection.Open(t.Context()); err != nil {
					t.Fatal(err)
				}
				client.Close()
				select {
				case err := <-ends:
					if err != nil {
						t.Error(err)
					}
				case <-time.After(2 * time.Minute):
					t.Fatal("the stream of a closed connection does not end")
				}
			}
			if connections == 0 {
				t.Error("no dial succeeded")
			}
		})
	}
}
