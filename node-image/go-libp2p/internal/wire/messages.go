package wire

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"perfrun/node-go/internal/contract"
	"perfrun/node-go/internal/observe"
)

// Messages with sequence numbers on a stream, each after its length.
//
// The dialler's message 0 opens the exchange and counts nowhere. Its stamp says how far the listener's clock
// is ahead of the dialler's; the stamps of all others are the moments at which they were due. The last one
// has the highest bit of its number set. The listener acknowledges both of them, and others after a number of
// messages that both ends know. An acknowledgement has nothing but the number of the message that arrived
// last.
const (
	// last marks the number of the last message.
	last = 1 << 63
	// unknown is the stamp of message 0 if it is unknown how far the clocks are apart.
	unknown = math.MinInt64
	// stamped is the length of the first message, and the least that has room for a stamp.
	stamped = 16
	// together is the most bytes of messages that are written or read together.
	together = 64 << 10
)

var zeros [contract.MostMessage]byte

// message that arrived.
type message struct {
	sequence, stamp uint64
	bytes           int
}

func (m message) number() uint64 { return m.sequence &^ last }
func (m message) isLast() bool   { return m.sequence&last != 0 }

// Messenger is one end of an exchange.
type Messenger struct {
	stream Stream
	in     *bufio.Reader
	out    *bufio.Writer
}

// NewMessenger on a stream.
func NewMessenger(s Stream) *Messenger {
	return &Messenger{stream: s, in: bufio.NewReaderSize(s, together), out: bufio.NewWriterSize(s, together)}
}

// Close the stream.
func (m *Messenger) Close() { _ = m.stream.Close() }

// give a message to the buffer, which is written when it is full.
func (m *Messenger) give(sequence, stamp uint64, bytes int) error {
	head := binary.BigEndian.AppendUint32(m.out.AvailableBuffer(), uint32(bytes))
	head = binary.BigEndian.AppendUint64(head, sequence)
	rest := bytes - contract.LeastMessage
	if bytes >= stamped {
		head = binary.BigEndian.AppendUint64(head, stamp)
		rest = bytes - stamped
	}
	// Whole messages, unless they are larger than the buffer: the rest of one would be another segment.
	if m.out.Available() < len(head)+rest && len(head)+rest <= together {
		if err := m.out.Flush(); err != nil {
			return err
		}
	}
	if _, err := m.out.Write(head); err != nil {
		return err
	}
	_, err := m.out.Write(zeros[:rest])
	return err
}

func (m *Messenger) send(sequence, stamp uint64, bytes int) error {
	if err := m.give(sequence, stamp, bytes); err != nil {
		return err
	}
	return m.out.Flush()
}

// receive a message. It returns io.EOF if the peer ends the stream before one.
func (m *Messenger) receive() (message, error) {
	length, err := m.in.Peek(4)
	if err != nil {
		if len(length) > 0 && errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return message{}, err
	}
	bytes := int(binary.BigEndian.Uint32(length))
	if bytes < contract.LeastMessage || bytes > contract.MostMessage {
		return message{}, contract.Failf(contract.StreamFailed, "the stream broke: the peer announced a message of %d bytes", bytes)
	}
	arrived, known := message{bytes: bytes}, contract.LeastMessage
	if bytes >= stamped {
		known = stamped
	}
	head, err := m.in.Peek(4 + known)
	if err != nil {
		return message{}, noEOF(err)
	}
	arrived.sequence = binary.BigEndian.Uint64(head[4:])
	if known == stamped {
		arrived.stamp = binary.BigEndian.Uint64(head[12:])
	}
	_, err = m.in.Discard(4 + bytes)
	return arrived, noEOF(err)
}

// noEOF is an end within a message.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// Load of messages.
type Load struct {
	*contract.Parameters
}

func (l Load) isLast(sequence uint64, after time.Duration) bool {
	if duration, timed := l.Amount.Duration(); timed {
		return after >= duration
	}
	return sequence >= l.Amount.Number()
}

// pace is the schedule of messages: at a rate, or each as soon as possible.
type pace struct {
	begun time.Time
	rate  *int
}

// due is when a message is due; the first one has the number 0.
func (p pace) due(number uint64) time.Time {
	if p.rate == nil {
		return time.Now()
	}
	rate := uint64(*p.rate)
	whole, rest := number/rate, number%rate
	return p.begun.Add(time.Duration(whole)*time.Second + time.Duration(rest*uint64(time.Second)/rate))
}

// waitUntil a moment that is at most a second ahead: the runtime's timers are late by up to a millisecond, so
// the kernel does the last stretch.
func waitUntil(at time.Time) {
	const lastStretch = 2 * time.Millisecond
	time.Sleep(time.Until(at) - lastStretch)
	observe.SleepUntil(at)
}

// Exchanged is what a dialler found.
type Exchanged struct {
	// Bytes of messages that arrived.
	Bytes uint64
	// Took from the first message until the last one was known to have arrived.
	Took time.Duration
}

// Begin sends message 0. Clock is how far the listener's is ahead, in nanoseconds, nil if unknown.
func (m *Messenger) Begin(clock *int64) error {
	ahead := int64(unknown)
	if clock != nil {
		ahead = *clock
	}
	return m.send(0, uint64(ahead), stamped)
}

// Open sends message 0 and waits for its acknowledgement.
func (m *Messenger) Open(clock *int64) error {
	if err := m.Begin(clock); err != nil {
		return err
	}
	_, err := m.acknowledgement(0, 0)
	return err
}

// acknowledgement of one of the messages that are in flight.
func (m *Messenger) acknowledgement(from, to uint64) (uint64, error) {
	return m.acknowledgementUpTo(from, func() uint64 { return to })
}

// acknowledgementUpTo calls to when the acknowledgement has arrived: more messages may be in flight by then.
func (m *Messenger) acknowledgementUpTo(from uint64, to func() uint64) (uint64, error) {
	got, err := m.receive()
	switch {
	case errors.Is(err, io.EOF):
		return 0, endedEarly(from)
	case err != nil:
		return 0, err
	case got.bytes != contract.LeastMessage:
		return 0, contract.Failf(contract.UnexpectedBytes,
			"the peer sent more than the %d bytes of an acknowledgement that were due", contract.LeastMessage)
	case got.sequence < from || got.sequence > to():
		return 0, contract.Failf(contract.UnexpectedBytes,
			"the peer acknowledged message %d, and messages %d to %d were in flight", got.sequence, from, to())
	default:
		return got.sequence, nil
	}
}

func endedEarly(due uint64) error {
	return contract.Failf(contract.StreamFailed, "the stream broke: the peer ended the exchange, and message %d was due", due)
}

// Run sends messages with at most a window of them in flight, until the last is acknowledged. Trips gets the
// round trips of acknowledged messages: from the moment at which a message was due until the acknowledgement
// that names it.
func (m *Messenger) Run(load Load, counters *observe.Counters, trips *hdrhistogram.Histogram) (Exchanged, error) {
	f := &flight{messenger: m, due: make([]time.Time, load.Window), counters: counters, trips: trips}
	pace := pace{begun: time.Now(), rate: load.Rate}
	ended := make(chan error, 1)
	room := make(chan struct{}, 1)
	// Where each message waits for the last, one task does both: a second one would only add to the round
	// trip.
	inTurn := load.Window == 1
	if !inTurn {
		go func() { ended <- f.acknowledgements(room) }()
	}
	wait := func() error {
		if err := m.out.Flush(); err != nil {
			return err
		}
		if inTurn {
			return f.acknowledgement()
		}
		select {
		case <-room:
			return nil
		case err := <-ended:
			ended <- err
			return err
		}
	}
	for sent, isLast := uint64(0), false; !isLast; sent++ {
		for sent-f.arrived.Load() == uint64(load.Window) {
			if err := wait(); err != nil {
				return Exchanged{}, err
			}
		}
		due := pace.due(sent)
		if load.Rate != nil && time.Until(due) > 0 {
			if err := m.out.Flush(); err != nil {
				return Exchanged{}, err
			}
			waitUntil(due)
		}
		sequence := sent + 1
		isLast = load.isLast(sequence, due.Sub(pace.begun))
		marked := sequence
		if isLast {
			marked |= last
		}
		f.due[sent%uint64(load.Window)] = due
		f.sent.Store(marked)
		if err := m.give(marked, observe.Nanoseconds(due), int(load.MessageBytes)); err != nil {
			return Exchanged{}, err
		}
		counters.Sent.Add(uint64(load.MessageBytes))
	}
	for !f.isOver() {
		if err := wait(); err != nil {
			return Exchanged{}, err
		}
	}
	return Exchanged{Bytes: f.arrived.Load() * uint64(load.MessageBytes), Took: time.Since(pace.begun)}, nil
}

// flight of messages that were sent and not acknowledged.
type flight struct {
	messenger *Messenger
	// due has the moment of each, at its number modulo the window. Written before sent, read after it.
	due []time.Time
	// sent is the number of the message that was sent last, with the mark of the last: the task that reads
	// acknowledgements must not see one without the other.
	sent, arrived atomic.Uint64
	counters      *observe.Counters
	trips         *hdrhistogram.Histogram
}

func (f *flight) inFlightUpTo() uint64 { return f.sent.Load() &^ last }

// isOver when the last message is acknowledged.
func (f *flight) isOver() bool { return f.sent.Load() == f.arrived.Load()|last }

// acknowledgements until the last message has one.
func (f *flight) acknowledgements(room chan<- struct{}) error {
	for !f.isOver() {
		if err := f.acknowledgement(); err != nil {
			return err
		}
		select {
		case room <- struct{}{}:
		default:
		}
	}
	return nil
}

func (f *flight) acknowledgement() error {
	arrived := f.arrived.Load()
	got, err := f.messenger.acknowledgementUpTo(arrived+1, f.inFlightUpTo)
	if err != nil {
		return err
	}
	// Only the message that is named was acknowledged immediately.
	observe.Record(f.trips, time.Since(f.due[(got-1)%uint64(len(f.due))]))
	f.counters.Operations.Add(got - arrived)
	f.arrived.Store(got)
	return nil
}

// Serve takes messages until the last, and acknowledges them. Times gets the one-way delays, if it is known
// how far the clocks are apart.
func (m *Messenger) Serve(load Load, counters *observe.Counters, times *hdrhistogram.Histogram) (Arrival, error) {
	l := &listener{load: load, counters: counters, times: times}
	each, acknowledged := uint64(load.AcknowledgedEach()), uint64(0)
	for expected := uint64(0); ; expected++ {
		got, err := m.receive()
		if err != nil {
			return l.ended(expected, err)
		}
		if err := l.arrive(got, expected); err != nil {
			return l.arrival, err
		}
		if expected == 0 || got.isLast() || expected-acknowledged >= each {
			acknowledged = expected
			if err := m.send(expected, 0, contract.LeastMessage); err != nil {
				return l.arrival, err
			}
		}
		if got.isLast() {
			// Otherwise the last acknowledgement could be lost with the stream.
			_, _ = counters.AwaitEnd(m.stream, func() error { _, err := m.receive(); return err })
			return l.arrival, nil
		}
	}
}

func lost(expected, got uint64) error {
	return contract.Failf(contract.MessageLost, "message %d is lost: %d arrived in its place", expected, got)
}

// listener's side of an exchange.
type listener struct {
	load     Load
	counters *observe.Counters
	times    *hdrhistogram.Histogram
	arrival  Arrival
	clock    *int64
}

// arrive counts a message, and times its way.
func (l *listener) arrive(got message, expected uint64) error {
	const what = "a message"
	due := int(l.load.MessageBytes)
	if expected == 0 {
		due = stamped
	}
	switch {
	case got.number() != expected:
		return lost(expected, got.number())
	case got.bytes < due:
		return tooFew(what, uint64(got.bytes), uint64(due))
	case got.bytes > due:
		return contract.Failf(contract.UnexpectedBytes, "the peer sent more than the %d bytes of %s that were due", due, what)
	case expected == 0:
		if ahead := int64(got.stamp); ahead != unknown {
			l.clock = &ahead
		}
		return nil
	}
	l.arrival.add(got.bytes)
	l.counters.Received.Add(uint64(got.bytes))
	if l.clock != nil && got.bytes >= stamped {
		// Below zero if the clocks are further apart than believed.
		observe.Record(l.times, time.Duration(int64(observe.Nanoseconds(l.arrival.Last))-int64(got.stamp)-*l.clock))
	}
	return nil
}

// ended before a message: a peer may leave before it has begun.
func (l *listener) ended(due uint64, err error) (Arrival, error) {
	switch {
	case errors.Is(err, io.EOF) && due == 0:
		return l.arrival, nil
	case errors.Is(err, io.EOF):
		return l.arrival, endedEarly(due)
	default:
		return l.arrival, err
	}
}
