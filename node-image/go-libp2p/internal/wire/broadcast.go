package wire

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"perfrun/node-go/internal/contract"
	"perfrun/node-go/internal/observe"
)

// Broadcast sends each message to all listeners, whose exchanges are open, and then the end. It returns the
// number of messages, and the time until all listeners had the end. A listener whose stream is full holds up
// the messages to all.
func Broadcast(messengers []*Messenger, load Load, counters *observe.Counters) (sent uint64, took time.Duration, err error) {
	pace := pace{begun: time.Now(), rate: load.Rate}
	for isLast := false; !isLast; {
		due := pace.due(sent)
		if load.Rate != nil && time.Until(due) > 0 {
			for _, m := range messengers {
				if err := m.out.Flush(); err != nil {
					return sent, 0, err
				}
			}
			waitUntil(due)
		}
		sent++
		isLast = load.isLast(sent, due.Sub(pace.begun))
		for _, m := range messengers {
			if err := m.give(sent, observe.Nanoseconds(due), int(load.MessageBytes)); err != nil {
				return sent, 0, err
			}
		}
		counters.Sent.Add(uint64(len(messengers)) * uint64(load.MessageBytes))
	}
	for _, m := range messengers {
		if err := m.send(sent|last, 0, contract.LeastMessage); err != nil {
			return sent, 0, err
		}
	}
	for _, m := range messengers {
		if _, err := m.acknowledgement(sent, sent); err != nil {
			return sent, 0, err
		}
	}
	return sent, time.Since(pace.begun), nil
}

// ServeBroadcast takes the messages of a broadcast until its end. Nothing but message 0 and the end is
// acknowledged. A gap is a loss, which the numbers of both ends show.
func (m *Messenger) ServeBroadcast(load Load, counters *observe.Counters, times *hdrhistogram.Histogram) (Arrival, error) {
	l := &listener{load: load, counters: counters, times: times}
	expected, isOver := uint64(0), false
	for {
		var got message
		receive := func() (err error) { got, err = m.receive(); return err }
		var err error
		if isOver {
			var lost bool
			if lost, err = counters.AwaitEnd(m.stream, receive); lost {
				return l.arrival, nil
			}
		} else {
			err = receive()
		}
		switch {
		case err != nil && isOver:
			return l.arrival, nil
		case err != nil:
			return l.ended(expected, err)
		case got.isLast():
			// The dialler may have left, with an earlier acknowledgement.
			if err := m.send(got.number(), 0, contract.LeastMessage); err != nil && !isOver {
				return l.arrival, err
			}
			isOver = true
			continue
		case got.number() < expected || expected == 0 && got.number() > 0:
			return l.arrival, lost(expected, got.number())
		}
		if err := l.arrive(got, got.number()); err != nil {
			return l.arrival, err
		}
		expected = got.number() + 1
		if got.number() == 0 {
			if err := m.send(0, 0, contract.LeastMessage); err != nil {
				return l.arrival, err
			}
		}
	}
}
