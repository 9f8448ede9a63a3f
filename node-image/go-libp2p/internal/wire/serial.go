package wire

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"perfrun/node-go/internal/observe"
)

// Serial sends one message at a time, each after the last has arrived at the other end, which is in this
// process and has not taken message 0 yet. Times gets the time from giving a message to the stack until it
// arrived.
func Serial(from, to *Messenger, load Load, sender, receiver *observe.Counters, times *hdrhistogram.Histogram) (Exchanged, Arrival, error) {
	l := &listener{load: load, counters: receiver, times: times}
	got, err := to.receive()
	if err == nil {
		err = l.arrive(got, 0)
	}
	if err != nil {
		return Exchanged{}, l.arrival, err
	}
	arrived := make(chan error, 1)
	// Read beside the writes, for messages larger than all buffers.
	go func() {
		for expected := uint64(1); ; expected++ {
			got, err := to.receive()
			if err == nil {
				err = l.arrive(got, expected)
			}
			arrived <- err
			if err != nil || got.isLast() {
				return
			}
		}
	}()
	pace := pace{begun: time.Now(), rate: load.Rate}
	now := pace.begun
	for sequence := uint64(1); ; sequence++ {
		due := now
		if load.Rate != nil {
			due = pace.due(sequence - 1)
			waitUntil(due)
		}
		isLast := load.isLast(sequence, time.Since(pace.begun))
		marked := sequence
		if isLast {
			marked |= last
		}
		if err := from.send(marked, observe.Nanoseconds(due), int(load.MessageBytes)); err != nil {
			return Exchanged{}, l.arrival, err
		}
		if err := <-arrived; err != nil {
			return Exchanged{}, l.arrival, noEOF(err)
		}
		now = time.Now()
		observe.Record(times, now.Sub(due))
		sender.Sent.Add(uint64(load.MessageBytes))
		sender.Operations.Add(1)
		if isLast {
			return Exchanged{Bytes: l.arrival.Bytes, Took: now.Sub(pace.begun)}, l.arrival, nil
		}
	}
}
