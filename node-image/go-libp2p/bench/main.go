// bench measures the bandwidth of perfrun-node-go against a bare loop over go-libp2p: that of the published
// perf client and server (libp2p/test-plans, perf/impl/go-libp2p), with blocks of 64 KiB. Both take turns,
// with both peers in this process, over loopback. `cargo xtask bench go` runs it.
//
// Connections of the same kind differ in speed by a quarter and more, on either side, and the cause is not
// known. So both have many short turns, each with a new connection.
package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"math"
	"os"
	"runtime/pprof"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"perfrun/node-go/internal/contract"
	"perfrun/node-go/internal/metrics"
	"perfrun/node-go/internal/observe"
	"perfrun/node-go/internal/peer"
	"perfrun/node-go/internal/trial"
	"perfrun/node-go/internal/wire"
)

const (
	block = 64 << 10
	pause = 50 * time.Millisecond
	here  = "127.0.0.1"
)

var (
	pairs      = flag.Int("pairs", 50, "number of turns that each of both has")
	duration   = flag.Duration("duration", 250*time.Millisecond, "time of a transfer")
	transports = flag.String("transports", "tcp-tls,quic-v1,webtransport,webrtc-direct", "transports to measure, separated by commas")
	profile    = flag.String("cpuprofile", "", "`file` for a CPU profile of the node's transfers over tcp-tls")
)

// targets for the ratios, by transport. Others are printed without one.
var targets = map[string]float64{"tcp-tls": 0.97, "quic-v1": 0.97}

func main() {
	flag.Parse()
	log.SetFlags(0)
	// Trials write records of theirs there.
	results := os.Stdout
	var err error
	if os.Stdout, err = os.OpenFile(os.DevNull, os.O_WRONLY, 0); err != nil {
		log.Fatalf("bench: %v", err)
	}
	heading := "perfrun-node-go against a bare loop over go-libp2p: medians of %d pairs of %v, ratios with 95 %% intervals\n"
	if _, err = fmt.Fprintf(results, heading, *pairs, *duration); err != nil {
		log.Fatalf("bench: %v", err)
	}
	for _, transport := range strings.Split(*transports, ",") {
		for _, direction := range []string{"upload", "download"} {
			if err := compare(results, transport, direction); err != nil {
				log.Fatalf("bench: %s over %s: %v", direction, transport, err)
			}
		}
	}
}

// compare both in turns, and print the ratio.
func compare(results io.Writer, transport, direction string) error {
	var nodes, bares, ratios []float64
	for i := range *pairs {
		var node, bare float64
		turns := []func() error{
			func() (err error) { bare, err = bareLoop(transport, direction); return err },
			func() (err error) {
				defer profiled(transport)()
				node, err = throughNodes(transport, direction)
				return err
			},
		}
		// Who is first alternates.
		for j := range turns {
			if err := turns[(i+j)%len(turns)](); err != nil {
				return err
			}
		}
		nodes, bares, ratios = append(nodes, node), append(bares, bare), append(ratios, node/bare)
	}
	low, high := interval(ratios)
	_, err := fmt.Fprintf(results, "%-13s %-8s  node %5.2f, bare loop %5.2f Gbit/s, ratio %.3f [%.3f, %.3f]%s\n",
		transport, direction, median(nodes)/1e9, median(bares)/1e9, median(ratios), low, high, verdict(transport, low, high))
	return err
}

// verdict on the target of a transport, given the interval of the ratio.
func verdict(transport string, low, high float64) string {
	least, has := targets[transport]
	switch {
	case !has:
		return ""
	case low >= least:
		return fmt.Sprintf(", target %.2f met", least)
	case high < least:
		return fmt.Sprintf(", target %.2f missed", least)
	default:
		return fmt.Sprintf(", target %.2f inconclusive", least)
	}
}

// interval of 95 % for the median, whatever the distribution (Conover, Practical Nonparametric Statistics,
// section 3.2).
func interval(values []float64) (low, high float64) {
	sorted := slices.Sorted(slices.Values(values))
	n := float64(len(sorted))
	first := int(max(n/2-0.98*math.Sqrt(n), 0))
	return sorted[first], sorted[len(sorted)-1-first]
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}

// profiled starts a profile, if one was requested for this transport. The last one is kept.
func profiled(transport string) (stop func()) {
	if *profile == "" || transport != "tcp-tls" {
		return func() {}
	}
	file, err := os.Create(*profile)
	if err == nil {
		err = pprof.StartCPUProfile(file)
	}
	if err != nil {
		log.Fatalf("bench: %v", err)
	}
	return func() { pprof.StopCPUProfile(); _ = file.Close() }
}

// bareLoop returns bits per second at the receiver.
func bareLoop(transport, direction string) (float64, error) {
	// The published tools are processes of their own, and begin with an empty heap. So do trials.
	observe.ResetPeak()
	config := peer.Config{Transport: transport, Protocol: contract.Perf, Metrics: prometheus.NewRegistry(), Sized: func(contract.UDPBuffers) {}}
	listening := config
	listening.ListenIP = here
	server, err := peer.New(listening)
	if err != nil {
		return 0, err
	}
	defer server.Close()
	received := make(chan float64, 1)
	server.Serve(func() {}, func(s wire.Stream) { received <- servePerf(s) }, func(wire.Stream) {})
	addresses, err := server.Addresses()
	if err != nil {
		return 0, err
	}
	client, err := peer.New(config)
	if err != nil {
		return 0, err
	}
	defer client.Close()
	connection, err := client.Dial(context.Background(), addresses[0])
	if err != nil {
		return 0, err
	}
	defer connection.Close()
	// Identify mostly ends in the meantime. A bare loop that begins with the dial measures something else.
	time.Sleep(pause)
	s, err := connection.Open(context.Background())
	if err != nil {
		return 0, err
	}
	defer s.Reset()
	var header [8]byte
	if direction == "download" {
		binary.BigEndian.PutUint64(header[:], math.MaxUint64)
	}
	if _, err := s.Write(header[:]); err != nil {
		return 0, err
	}
	deadline := time.Now().Add(*duration)
	if direction == "upload" {
		if err := send(s, deadline); err != nil {
			return 0, err
		}
	}
	if err := s.CloseWrite(); err != nil {
		return 0, err
	}
	if direction == "upload" {
		return <-received, nil
	}
	_ = s.SetReadDeadline(deadline)
	return drain(s, deadline), nil
}

// servePerf drains the stream, and sends for as long as the peer takes it.
func servePerf(s wire.Stream) float64 {
	var header [8]byte
	if _, err := io.ReadFull(s, header[:]); err != nil {
		return 0
	}
	rate := drain(s, time.Time{})
	if binary.BigEndian.Uint64(header[:]) > 0 {
		_ = send(s, time.Now().Add(2**duration))
	}
	_ = s.Close()
	return rate
}

func send(s io.Writer, until time.Time) error {
	data := make([]byte, block)
	for time.Now().Before(until) {
		if _, err := s.Write(data); err != nil {
			return err
		}
	}
	return nil
}

// drain reads to the end, and returns bits per second from the first read to the last or, as a trial does, to
// the deadline that ended it: a stall at the end counts.
func drain(s io.Reader, deadline time.Time) float64 {
	data := make([]byte, block)
	var first, last time.Time
	bytes := 0
	for {
		n, err := s.Read(data)
		if n > 0 {
			last = time.Now()
			if first.IsZero() {
				first = last
			} else {
				bytes += n
			}
		}
		if err != nil {
			if last.Before(deadline) {
				last = deadline
			}
			return float64(bytes) * 8 / last.Sub(first).Seconds()
		}
	}
}

// throughNodes runs a trial between two nodes, and returns bits per second at the receiver.
func throughNodes(transport, direction string) (float64, error) {
	server, client := trial.New(here, metrics.New(nil)), trial.New(here, metrics.New(nil))
	defer server.Stop(0)
	defer client.Stop(0)
	parameters := map[string]any{
		"workload": "bandwidth", "protocol": contract.Perf, "direction": direction, "streams": 1, "chunkBytes": block,
		"amount": map[string]float64{"seconds": duration.Seconds()}, "timing": "strict", "negotiation": "v1",
	}
	begin := func(trials *trial.Trials, side any) (*trial.Trial, contract.TrialStatus, error) {
		body, err := json.Marshal(map[string]any{
			"stack": contract.Stack, "transport": transport, "parameters": parameters, "side": side, "timeoutSeconds": 60,
		})
		if err == nil {
			_, err = trials.Put("a", body)
		}
		if err != nil {
			return nil, contract.TrialStatus{}, err
		}
		begun := trials.Get("a")
		return begun, begun.Status(context.Background(), contract.Preparing), nil
	}
	serving, status, err := begin(server, "server")
	if err != nil {
		return 0, err
	}
	running, _, err := begin(client, map[string]any{"client": map[string]any{"servers": status.Addresses, "peers": 1}})
	if err != nil {
		return 0, err
	}
	// As long after the dial as the bare loop.
	running.Start(observe.Nanoseconds(time.Now().Add(pause)))
	of := running.Status(context.Background(), contract.Running).Outcome
	serving.Finish()
	served := serving.Status(context.Background(), contract.Running).Outcome
	for _, outcome := range []*contract.Outcome{of, served} {
		if outcome.Failure != nil {
			return 0, errors.New(strings.TrimSpace(outcome.Failure.Message))
		}
	}
	transfer := of.Measured.Download
	if direction == "upload" {
		transfer = served.Measured.Upload
	}
	if transfer == nil || transfer.FirstToLastSeconds == nil {
		return 0, errors.New("nothing arrived")
	}
	return float64(*transfer.BytesAfterFirst) * 8 / *transfer.FirstToLastSeconds, nil
}
