// Package workload has what both sides of a trial do, time and count: the same as perfrun's other nodes do.
package workload

import (
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"perfrun/node-go/internal/contract"
	"perfrun/node-go/internal/observe"
)

// Findings of a side, besides what its observer counted. They outlive a side that is cut short.
type Findings struct {
	Upload, Download *contract.Transfer

	mutex     sync.Mutex
	recorders map[string]*hdrhistogram.Histogram
}

// Names of distributions.
const (
	established = "handshakeEstablished"
	firstByte   = "handshakeFirstByte"
	open        = "open"
	openCompat  = "openCompat"
	roundTrip   = "roundTrip"
)

// longest is the largest time that a histogram holds: an hour.
const longest = int64(time.Hour)

func (f *Findings) record(distribution string, took time.Duration) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	if f.recorders == nil {
		f.recorders = map[string]*hdrhistogram.Histogram{}
	}
	recorder := f.recorders[distribution]
	if recorder == nil {
		recorder = hdrhistogram.New(1, longest, 3)
		f.recorders[distribution] = recorder
	}
	_ = recorder.RecordValue(min(max(int64(took), 1), longest))
}

// Histograms of the distributions, as the contract has them: base64 of the compressed V2 encoding.
func (f *Findings) Histograms() (map[string]string, error) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	encoded := map[string]string{}
	for name, recorder := range f.recorders {
		text, err := recorder.Encode(hdrhistogram.V2CompressedEncodingCookieBase)
		if err != nil {
			return nil, err
		}
		encoded[name] = string(text)
	}
	return encoded, nil
}

// Each calls do with each recorded time, as often as it occurred.
func (f *Findings) Each(do func(distribution string, took time.Duration, times int64)) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	for name, recorder := range f.recorders {
		for _, bar := range recorder.Distribution() {
			if bar.Count > 0 {
				do(name, time.Duration(bar.To), bar.Count)
			}
		}
	}
}

// Setup of a side.
type Setup struct {
	Request  *contract.TrialRequest
	ListenIP string
	Observer *observe.Observer
	Findings *Findings
}
