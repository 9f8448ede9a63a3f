package trial

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"

	"perfrun/node-go/internal/contract"
	"perfrun/node-go/internal/metrics"
	"perfrun/node-go/internal/observe"
	"perfrun/node-go/internal/workload"
)

// mostRecords of trials. Those that have ended count until somebody deletes them.
const mostRecords = 1024

// Errors of Put.
var (
	ErrDifferent = errors.New("there is a trial of this id with another request")
	ErrFull      = fmt.Errorf("the node has %d trials: collect and delete them", mostRecords)
	ErrStopping  = errors.New("the node is stopping")
	// ErrUncollected: a new start would lose an outcome.
	ErrUncollected = errors.New("the outcome of a trial was not collected: collect it, or forget it by DELETE")
)

// BusyError names the trial that keeps the node busy.
type BusyError struct{ Trial string }

func (e *BusyError) Error() string { return "trial " + e.Trial + " is in progress" }

// Trials of a node, of which one is in progress at most.
type Trials struct {
	listenIP string
	metrics  *metrics.Metrics
	stopping context.Context
	stop     context.CancelCauseFunc

	mutex sync.Mutex
	all   map[string]*Trial
}

// New trials, whose servers listen on an address.
func New(listenIP string, metrics *metrics.Metrics) *Trials {
	stopping, stop := context.WithCancelCause(context.Background())
	return &Trials{listenIP: listenIP, metrics: metrics, stopping: stopping, stop: stop, all: map[string]*Trial{}}
}

// Put accepts a trial. It says whether the trial is new; it is not if the node has it with an equal request.
func (t *Trials) Put(id string, body []byte) (bool, error) {
	request := &contract.TrialRequest{}
	if err := json.Unmarshal(body, request); err != nil {
		return false, err
	}
	if err := workload.Check(request); err != nil {
		return false, err
	}
	var raw any
	_ = json.Unmarshal(body, &raw)
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if known := t.all[id]; known != nil {
		if !reflect.DeepEqual(known.raw, raw) {
			return false, ErrDifferent
		}
		return false, nil
	}
	if t.stopping.Err() != nil {
		return false, ErrStopping
	}
	for busy, trial := range t.all {
		if !trial.isFinished() {
			return false, &BusyError{Trial: busy}
		}
	}
	if len(t.all) >= mostRecords {
		return false, ErrFull
	}
	t.all[id] = t.begin(id, request, raw)
	return true, nil
}

func (t *Trials) begin(id string, request *contract.TrialRequest, raw any) *Trial {
	ctx, cancel := context.WithCancelCause(t.stopping)
	labelled := t.metrics.Trial(request)
	trial := &Trial{
		id: id, request: request, raw: raw, metrics: labelled, cancel: cancel,
		observer: observe.New(labelled, workload.SamplingOf(&request.Parameters)), measurements: &workload.Measurements{},
		start: make(chan struct{}), finish: make(chan struct{}), changed: make(chan struct{}),
		state: contract.Preparing,
	}
	go trial.run(ctx, t.listenIP)
	return trial
}

// Get a trial, nil if there is none.
func (t *Trials) Get(id string) *Trial {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	return t.all[id]
}

// Delete cancels a running trial, or forgets an ended one. It says whether the trial exists.
func (t *Trials) Delete(id string) bool {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	trial := t.all[id]
	if trial == nil {
		return false
	}
	if trial.isFinished() {
		delete(t.all, id)
	} else {
		trial.cancel(contract.Failf(contract.Cancelled, "cancelled on request"))
	}
	return true
}

// IsStopping says whether the node accepts no more trials.
func (t *Trials) IsStopping() bool { return t.stopping.Err() != nil }

// Stop ends the trial in progress, accepts no new ones, and waits until outcomes were collected, or for
// limit.
func (t *Trials) Stop(limit time.Duration) {
	t.stop(contract.Failf(contract.Stopped, "the node was stopped"))
	for deadline := time.Now().Add(limit); t.hasUncollected() && time.Now().Before(deadline); {
		time.Sleep(20 * time.Millisecond)
	}
}

// Close accepts no more trials, unless one is in progress or has an outcome that was not collected.
func (t *Trials) Close() error {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	for id, trial := range t.all {
		if !trial.isFinished() {
			return &BusyError{Trial: id}
		}
		if !trial.isCollected() {
			return ErrUncollected
		}
	}
	t.stop(contract.Failf(contract.Stopped, "the node starts again"))
	return nil
}

func (t *Trials) hasUncollected() bool {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	for _, trial := range t.all {
		if !trial.isCollected() {
			return true
		}
	}
	return false
}
