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

// Measurements of a side, besides what its observer counted. They outlive a side that is cut short.
type Measurements struct {
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

// keep changes the measurements.
func (m *Measurements) keep(change func()) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	change()
}

func (m *Measurements) record(distribution string, took time.Duration) {
	m.keep(func() { observe.Record(m.recorder(distribution), took) })
}

// add the times of another recorder.
func (m *Measurements) add(distribution string, recorded *hdrhistogram.Histogram) {
	m.keep(func() { m.recorder(distribution).Merge(recorded) })
}

// recorder with the lock held.
func (m *Measurements) recorder(distribution string) *hdrhistogram.Histogram {
	if m.recorders == nil {
		m.recorders = map[string]*hdrhistogram.Histogram{}
	}
	recorder := m.recorders[distribution]
	if recorder == nil {
		recorder = observe.NewHistogram()
		m.recorders[distribution] = recorder
	}
	return recorder
}

// recordDial of a connection.
func (m *Measurements) recordDial(c *peer.Connection) {
	m.record(established, c.Established)
	if c.RelayConnected > 0 {
		m.record(relayConnected, c.RelayConnected)
	}
}

// keepSmallest buffers of UDP sockets.
func (m *Measurements) keepSmallest(buffers contract.UDPBuffers) {
	m.keep(func() {
		if m.udpBuffers != nil {
			buffers.ReceiveBytes = min(buffers.ReceiveBytes, m.udpBuffers.ReceiveBytes)
			buffers.SendBytes = min(buffers.SendBytes, m.udpBuffers.SendBytes)
		}
		m.udpBuffers = &buffers
	})
}

// countIfRefused counts an error if it is a refusal by a relay.
func (m *Measurements) countIfRefused(err error) {
	var refused *peer.RefusedError
	if errors.As(err, &refused) {
		m.countRefusal(refused.What + ": " + refused.Status)
	}
}

func (m *Measurements) countRefusal(what string) {
	m.keep(func() {
		if m.refused == nil {
			m.refused = map[string]uint64{}
		}
		m.refused[what]++
	})
}

// Measured is what was observed and found. It is called once.
func (m *Measurements) Measured(observed observe.Observations) (contract.Measured, error) {
	if observed.RoundTrips != nil && observed.RoundTrips.TotalCount() > 0 {
		m.add(roundTrip, observed.RoundTrips)
	}
	m.mutex.Lock()
	defer m.mutex.Unlock()
	measured := observed.Measured
	measured.Upload, measured.Download, measured.Plateau = m.upload, m.download, m.plateau
	measured.UDPBuffers = m.udpBuffers
	measured.Refused, measured.MostCircuits = maps.Clone(m.refused), m.mostCircuits
	var err error
	measured.Histograms, err = m.histograms()
	return measured, err
}

// histograms of the distributions, as the contract has them: base64 of the compressed V2 encoding. The caller
// holds the lock.
func (m *Measurements) histograms() (map[string]string, error) {
	encoded := map[string]string{}
	for name, recorder := range m.recorders {
		text, err := recorder.Encode(hdrhistogram.V2CompressedEncodingCookieBase)
		if err != nil {
			return nil, err
		}
		encoded[name] = string(text)
	}
	return encoded, nil
}

// Each calls do with each recorded time, as often as it occurred.
func (m *Measurements) Each(do func(distribution string, took time.Duration, times int64)) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	for name, recorder := range m.recorders {
		for _, bar := range recorder.Distribution() {
			if bar.Count > 0 {
				do(name, time.Duration(bar.To), bar.Count)
			}
		}
	}
}
