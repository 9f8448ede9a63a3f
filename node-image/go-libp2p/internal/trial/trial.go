// Package trial has the life of trials: prepare, wait, run, report.
package trial

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"perfrun/node-go/internal/contract"
	"perfrun/node-go/internal/metrics"
	"perfrun/node-go/internal/observe"
	"perfrun/node-go/internal/workload"
)

// endTimeout is how long a stack may take to end after its trial was cut short.
const endTimeout = 3 * time.Second

// Trial of a node.
type Trial struct {
	id            string
	request       *contract.TrialRequest
	raw           any
	metrics       *metrics.Trial
	observer      *observe.Observer
	measurements  *workload.Measurements
	cancel        context.CancelCauseFunc
	start, finish chan struct{}

	mutex     sync.Mutex
	startAt   uint64
	started   bool
	finishing bool
	state     string
	addresses []string
	outcome   *contract.Outcome
	collected bool
	changed   chan struct{}
}

// Start a client when the node's clock shows this number. Only the first call has an effect.
func (t *Trial) Start(at uint64) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if !t.started {
		t.started, t.startAt = true, at
		close(t.start)
	}
}

// Finish lets a server end: its clients are done.
func (t *Trial) Finish() {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if !t.finishing {
		t.finishing = true
		close(t.finish)
	}
}

// Status of the trial, once its state is later than after, or when ctx ends.
func (t *Trial) Status(ctx context.Context, after string) contract.TrialStatus {
	for {
		t.mutex.Lock()
		later, _ := contract.Later(t.state, after)
		changed := t.changed
		if later || ctx.Err() != nil {
			defer t.mutex.Unlock()
			return t.status()
		}
		t.mutex.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

// status with the lock held.
func (t *Trial) status() contract.TrialStatus {
	status := contract.TrialStatus{
		State: t.state, Addresses: t.addresses, Outcome: t.outcome,
		BytesSent: t.observer.Counters.Sent.Load(), BytesReceived: t.observer.Counters.Received.Load(),
	}
	if t.outcome != nil {
		t.collected = true
		status.BytesSent, status.BytesReceived = t.outcome.Measured.BytesSent, t.outcome.Measured.BytesReceived
	}
	return status
}

func (t *Trial) isCollected() bool {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	return t.collected
}

func (t *Trial) isFinished() bool {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	return t.state == contract.Finished
}

func (t *Trial) advance(change func()) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	change()
	close(t.changed)
	t.changed = make(chan struct{})
}

// sideResult is how the side of a trial went.
type sideResult struct {
	err     error
	started *uint64
	took    *time.Duration
	served  *contract.Measured
}

// run the trial until it has an outcome.
func (t *Trial) run(ctx context.Context, listenIP string) {
	defer t.cancel(nil)
	limit := contract.Seconds(t.request.TimeoutSeconds)
	expired := contract.Failf(contract.Timeout, "not completed after %v", limit)
	ctx, cancel := context.WithTimeoutCause(ctx, limit, expired)
	defer cancel()
	setup := &workload.Setup{
		Request: t.request, ListenIP: listenIP, Observer: t.observer, Metrics: t.metrics, Measurements: t.measurements,
		Handover: workload.NewHandover(),
	}
	result := make(chan sideResult, 1)
	go func() {
		var r sideResult
		// A panic in a stack ends this trial and not the node.
		defer func() {
			if panicked := recover(); panicked != nil {
				r.err = contract.Failf(contract.Internal, "%v", panicked)
				_, _ = os.Stderr.Write(debug.Stack())
			}
			result <- r
		}()
		t.side(ctx, setup, &r)
	}()
	var r sideResult
	select {
	case r = <-result:
	case <-ctx.Done():
		t.observer.Finish()
		select {
		case r = <-result:
		case <-time.After(endTimeout):
		}
	}
	t.end(ctx, &r)
}

func (t *Trial) side(ctx context.Context, setup *workload.Setup, r *sideResult) {
	side := &t.request.Side
	switch {
	case side.Server || side.Source != nil:
		r.err = workload.Serve(ctx, setup, side.Source, t.setListening, t.finish)
	case side.Relay:
		r.err = workload.Relay(ctx, setup, t.setListening, t.finish)
	case side.Both != nil:
		t.both(ctx, setup, r)
	default:
		t.client(ctx, setup, *side.Client, r)
	}
}

// both a server and a client that dials it. The node's metrics are those of the client.
func (t *Trial) both(ctx context.Context, setup *workload.Setup, r *sideResult) {
	server := *setup
	server.Observer = observe.New(metrics.Nowhere{}, workload.SamplingOf(&t.request.Parameters))
	server.Measurements = &workload.Measurements{}
	addresses, done, served := make(chan []string, 1), make(chan struct{}), make(chan error, 1)
	go func() {
		served <- workload.Serve(ctx, &server, nil, func(at []string) { addresses <- at }, done)
		close(addresses)
	}()
	// Without addresses, the server has failed and says why.
	if at, ok := <-addresses; ok {
		t.client(ctx, setup, contract.Client{Servers: at, Peers: t.request.Side.Both.Peers}, r)
	}
	close(done)
	if err := <-served; r.err == nil {
		r.err = err
	}
	measured, err := server.Measurements.Measured(server.Observer.Finish())
	// What the process used is all in the client's.
	measured.Resources, measured.Samples = contract.Resources{}, nil
	measured.CongestionControl = congestionControl(t.request.Transport)
	r.served = &measured
	if r.err == nil {
		r.err = err
	}
}

func (t *Trial) client(ctx context.Context, setup *workload.Setup, side contract.Client, r *sideResult) {
	client, err := workload.Prepare(ctx, setup, side)
	if err != nil {
		r.err = err
		return
	}
	// A cut trial ends exchanges in progress by closing their hosts.
	unwatch := context.AfterFunc(ctx, client.Close)
	defer func() {
		if unwatch() {
			client.Close()
		}
	}()
	t.advance(func() { t.state = contract.Ready })
	select {
	case <-t.start:
	case <-ctx.Done():
		r.err = context.Cause(ctx)
		return
	}
	waitUntil(ctx, observe.At(t.startAt))
	t.advance(func() { t.state = contract.Running })
	t.observer.Begin()
	started := observe.Nanoseconds(time.Now())
	r.started = &started
	took, err := client.Run(ctx)
	t.observer.Finish()
	r.err = err
	if err == nil {
		r.took = &took
	}
}

func (t *Trial) setListening(addresses []string) {
	t.advance(func() { t.state, t.addresses = contract.Ready, addresses })
}

// waitUntil a moment. The runtime's timers are late by up to a millisecond, so the kernel does the last
// stretch.
func waitUntil(ctx context.Context, at time.Time) {
	const lastStretch = 5 * time.Millisecond
	select {
	case <-ctx.Done():
		return
	case <-time.After(time.Until(at) - lastStretch):
	}
	observe.SleepUntil(at)
}

func (t *Trial) end(ctx context.Context, r *sideResult) {
	observed := t.observer.Finish()
	measured, err := t.measurements.Measured(observed)
	measured.StartedNanoseconds = r.started
	measured.CongestionControl = congestionControl(t.request.Transport)
	switch {
	case r.took != nil:
		measured.Seconds = r.took.Seconds()
	case r.started != nil:
		measured.Seconds = max(observed.At.Sub(observe.At(*r.started)).Seconds(), 0)
	}
	failure := failureOf(ctx, r)
	if err != nil && failure == nil {
		failure = contract.Failf(contract.Internal, "failed to encode a histogram: %v", err)
	}
	t.measurements.Each(t.metrics.Observe)
	reason := contract.Reason("")
	if failure != nil {
		reason = failure.Reason
	}
	t.metrics.CountEnd(reason)
	outcome := &contract.Outcome{Failure: failure, Measured: measured, Served: r.served}
	t.advance(func() { t.state, t.outcome = contract.Finished, outcome })
	// Last: a full pipe without a reader must not delay this trial.
	go t.record(outcome)
}

// failureOf a trial: what cut it short, or else what its side reports.
func failureOf(ctx context.Context, r *sideResult) *contract.Failure {
	var failure *contract.Failure
	if ctx.Err() != nil && r.took == nil && errors.As(context.Cause(ctx), &failure) {
		if r.err != nil && failure.Reason == contract.Timeout && !errors.Is(r.err, failure) {
			return contract.Failf(contract.Timeout, "%s: %v", failure.Message, r.err)
		}
		return failure
	}
	if r.err == nil {
		return nil
	}
	if errors.As(r.err, &failure) {
		return failure
	}
	return contract.Failf(contract.Internal, "%v", r.err)
}

var recordMutex sync.Mutex

// record writes the trial to standard output, a line of JSON.
func (t *Trial) record(outcome *contract.Outcome) {
	line, err := json.Marshal(map[string]any{"type": "trial", "id": t.id, "request": t.raw, "outcome": outcome})
	if err != nil {
		return
	}
	recordMutex.Lock()
	defer recordMutex.Unlock()
	_, _ = os.Stdout.Write(append(line, '\n'))
}
