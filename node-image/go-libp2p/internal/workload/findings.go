// Package workload has what both sides of a trial do, time and count: the same as perfrun's other nodes do.
package workload

import (
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"perfrun/node-go/internal/contract"
	"perfrun/node-go/internal/observe"
	"perfrun/node-go/internal/peer"
)

// Findings of a side, besides what its observer counted. They outlive a side that is cut short.
type Findings struct {
	mutex            sync.Mutex
	upload, download *contract.Transfer
	plateau          *contract.Plateau
	udpBuffers       *contract.UDPBuffers
	refused          map[string]uint64
	mostCircuits     uint64
	recorders        map[string]*hdrhistogram.Histogram
}

// Names of distributions.
const (
	established       = "handshakeEstablished"
	firstByte         = "handshakeFirstByte"
	open              = "open"
	openCompat        = "openCompat"
	roundTrip         = "roundTrip"
	oneWay            = "oneWay"
	relayConnected    = "relayConnected"
	reservation       = "reservation"
	relayRoundTrip    = "relayRoundTrip"
	transferFirstByte = "firstByte"
	transfer          = "transfer"
	lateness          = "lateness"
)

// keep changes the findings.
func (f *Findings) keep(change func()) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	change()
}

func (f *Findings) record(distribution string, took time.Duration) {
	f.keep(func() { observe.Record(f.recorder(distribution), took) })
}

// add the times of another recorder.
func (f *Findings) add(distribution string, recorded *hdrhistogram.Histogram) {
	f.keep(func() { f.recorder(distribution).Merge(recorded) })
}

// recorder with the lock held.
func (f *Findings) recorder(distribution string) *hdrhistogram.Histogram {
	if f.recorders == nil {
		f.recorders = map[string]*hdrhistogram.Histogram{}
	}
	recorder := f.recorders[distribution]
	if recorder == nil {
		recorder = observe.NewHistogram()
		f.recorders[distribution] = recorder
	}
	return recorder
}

// recordDial of a connection.
func (f *Findings) recordDial(c *peer.Connection) {
	f.record(established, c.Established)
	if c.RelayConnected > 0 {
		f.record(relayConnected, c.RelayConnected)
	}
}

// sized keeps the smallest buffers.
func (f *Findings) sized(buffers contract.UDPBuffers) {
	f.keep(func() {
		if f.udpBuffers != nil {
			buffers.ReceiveBytes = min(buffers.ReceiveBytes, f.udpBuffers.ReceiveBytes)
			buffers.SendBytes = min(buffers.SendBytes, f.udpBuffers.SendBytes)
		}
		f.udpBuffers = &buffers
	})
}

// refusal counts an error if it is a refusal by a relay.
func (f *Findings) refusal(err error) {
	var refused *peer.RefusedError
	if errors.As(err, &refused) {
		f.countRefusal(refused.What + ": " + refused.Status)
	}
}

func (f *Findings) countRefusal(what string) {
	f.keep(func() {
		if f.refused == nil {
			f.refused = map[string]uint64{}
		}
		f.refused[what]++
	})
}

// Measured is what was observed and found. It is called once.
func (f *Findings) Measured(observed observe.Observations) (contract.Measured, error) {
	if observed.RoundTrips != nil && observed.RoundTrips.TotalCount() > 0 {
		f.add(roundTrip, observed.RoundTrips)
	}
	f.mutex.Lock()
	defer f.mutex.Unlock()
	measured := observed.Measured
	measured.Upload, measured.Download, measured.Plateau = f.upload, f.download, f.plateau
	measured.UDPBuffers = f.udpBuffers
	measured.Refused, measured.MostCircuits = maps.Clone(f.refused), f.mostCircuits
	var err error
	measured.Histograms, err = f.histograms()
	return measured, err
}

// histograms of the distributions, as the contract has them: base64 of the compressed V2 encoding. The caller
// holds the lock.
func (f *Findings) histograms() (map[string]string, error) {
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
