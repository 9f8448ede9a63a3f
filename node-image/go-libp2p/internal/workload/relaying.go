package workload

import (
	"context"
	"sync"

	"perfrun/node-go/internal/contract"
	"perfrun/node-go/internal/observe"
	"perfrun/node-go/internal/peer"
	"perfrun/node-go/internal/wire"
)

// Relay what peers send each other until finish or ctx ends.
func Relay(ctx context.Context, setup *Setup, ready func([]string), finish <-chan struct{}) error {
	w, counters, measurements := workloadOf(setup.parameters()), setup.counters(), setup.Measurements
	var mutex sync.Mutex
	var begun, ended bool
	circuits := func(change int64) {
		mutex.Lock()
		defer mutex.Unlock()
		live := uint64(max(counters.Circuits.Add(change), 0))
		measurements.keep(func() { measurements.mostCircuits = max(measurements.mostCircuits, live) })
		if !ended {
			setup.Metrics.SetCircuits(live)
		}
	}
	if err := checkFiles(w.relayFiles()); err != nil {
		return err
	}
	config := setup.host(setup.ListenIP)
	config.Relayed = false
	config.Relay = &peer.Relaying{
		Limits: setup.parameters().Limits,
		Opened: func() {
			// Where circuits are opened before the start, the workload begins after the last one. Otherwise
			// it begins with the first one.
			mutex.Lock()
			begins := !begun || w.connectsBeforeStart()
			begun = true
			mutex.Unlock()
			if begins {
				setup.Observer.Begin()
			}
			counters.Streams.Add(1)
			circuits(1)
		},
		Closed: func() { circuits(-1) },
		Refused: func(what, status string) {
			counters.CountFailure(contract.Refused)
			setup.Metrics.CountRefusal(what, status)
			measurements.countRefusal(what + ": " + status)
		},
	}
	host, err := peer.New(config)
	if err != nil {
		return err
	}
	// A close that takes longer continues in the background.
	defer func() { go host.Close() }()
	// No peer has a reason to open a stream of the workload to the relay itself.
	host.Serve(func() { counters.Connections.Add(1) }, func(s wire.Stream) { _ = s.Reset() }, answer)
	addresses, err := host.Addresses()
	if err != nil {
		return err
	}
	if err := until(ctx, addresses, ready, finish); err != nil {
		return err
	}
	setup.Observer.Finish()
	mutex.Lock()
	defer mutex.Unlock()
	ended = true
	setup.Metrics.SetCircuits(0)
	return nil
}

// answer pings beside a workload. Their bytes are not payload, and their end does not matter.
func answer(s wire.Stream) {
	if err := wire.ServePing(s, &observe.Counters{}); err != nil {
		_ = s.Reset()
	}
}
