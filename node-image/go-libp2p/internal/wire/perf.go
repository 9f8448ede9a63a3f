package wire

import (
	"errors"
	"io"
	"math"
	"time"

	"perfrun/node-go/internal/contract"
	"perfrun/node-go/internal/observe"
)

// endless is the announced length of a download that the client will cut off.
const endless = math.MaxUint64

// Volume is a number of bytes or, if Until is set, as much as passes until that moment.
type Volume struct {
	Bytes uint64
	Until time.Time
}

// ServePerf serves one exchange of /perf/1.0.0 (libp2p specs, perf/perf.md):
//
//	client → server : u64 D, then U bytes, then half-close
//	server → client : D bytes after the client's end of stream, then close
func ServePerf(s Stream, b *Buffers, counters *observe.Counters) (Arrival, error) {
	const what = "the perf header"
	var arrival Arrival
	download, err := readHeader(s, what)
	if errors.Is(err, io.EOF) {
		return arrival, tooFew(what, 0, 8)
	}
	for err == nil {
		err = b.receive(s, math.MaxUint64, &arrival, counters)
	}
	if !errors.Is(err, io.EOF) {
		return arrival, err
	}
	send := func() error {
		_, err := b.send(s, download, time.Time{}, counters)
		return err
	}
	if download == endless {
		// Only the peer ends this.
		lost, err := counters.AwaitEnd(s, send)
		if lost || Dropped(s, err) {
			return arrival, nil
		}
		return arrival, err
	}
	if err := send(); err != nil {
		return arrival, err
	}
	// A peer that has received everything may be gone before the end of the stream.
	_ = s.Close()
	return arrival, nil
}

// RunPerf runs one exchange. It drops the stream at its end, which resets it if it was cut off.
func RunPerf(s Stream, up, down Volume, b *Buffers, counters *observe.Counters) (Exchange, error) {
	defer s.Reset()
	announced := down.Bytes
	if !down.Until.IsZero() {
		announced = endless
	}
	var e Exchange
	if err := writeHeader(s, announced); err != nil {
		return e, err
	}
	e.Begun = time.Now()
	var err error
	if e.Sent, err = b.send(s, up.Bytes, up.Until, counters); err != nil {
		return e, err
	}
	e.Requested = time.Now()
	if err := s.CloseWrite(); err != nil {
		return e, err
	}
	e.Written = time.Now()
	if down.Until.IsZero() {
		err = b.receiveDownload(s, down.Bytes, &e.Arrival, counters)
	} else {
		err = b.receiveUntil(s, down.Until, &e.Arrival, counters)
	}
	e.Consumed = e.Arrival.First
	if e.Consumed.IsZero() {
		e.Consumed = time.Now()
	}
	return e, err
}

func (b *Buffers) receiveDownload(s Stream, due uint64, arrival *Arrival, counters *observe.Counters) error {
	const what = "the download"
	if err := b.receiveExactly(s, what, due, arrival, counters); err != nil {
		return err
	}
	return ended(s, what, due)
}

// receiveUntil a moment. A stall at the end counts: the receiver was ready until then.
func (b *Buffers) receiveUntil(s Stream, deadline time.Time, arrival *Arrival, counters *observe.Counters) error {
	if err := s.SetReadDeadline(deadline); err != nil {
		return err
	}
	for {
		err := b.receive(s, math.MaxUint64, arrival, counters)
		switch {
		case err == nil && time.Now().Before(deadline):
		case err == nil || isDeadline(err):
			if !arrival.First.IsZero() && arrival.Last.Before(deadline) {
				arrival.Last = deadline
			}
			return nil
		case errors.Is(err, io.EOF):
			return contract.Failf(contract.TooFewBytes, "the peer ended an endless download after %d bytes", arrival.Bytes)
		default:
			return err
		}
	}
}
