// Package wire has what is sent on a stream, for any stream. Integers are big-endian u64, payload is zeros,
// and nothing has a frame. There are three exceptions: each message follows its length, a u32; a line of an
// echo is zeros in ASCII; a ping begins with its number. A declared length is only counted down; nothing is
// allocated for it.
package wire

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-yamux/v5"
	"github.com/pion/sctp"
	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
	"github.com/quic-go/webtransport-go"

	"perfrun/node-go/internal/contract"
	"perfrun/node-go/internal/observe"
)

// Stream is a bidirectional byte stream.
type Stream interface {
	io.ReadWriter
	// CloseWrite ends the sending direction.
	CloseWrite() error
	// Close ends both directions; what was written still arrives.
	Close() error
	// Reset ends both directions; what was written may be lost.
	Reset() error
	SetReadDeadline(time.Time) error
	SetDeadline(time.Time) error
}

// Buffers are what a stream writes from and reads into.
type Buffers struct {
	zeros, read []byte
}

// NewBuffers for writes and reads of as many bytes as zeros has, which all streams of a trial share.
func NewBuffers(zeros []byte) *Buffers {
	return &Buffers{zeros: zeros, read: make([]byte, len(zeros))}
}

// Arrival is bytes as they arrived at a receiver.
type Arrival struct {
	Bytes       uint64
	First, Last time.Time
	firstBytes  uint64
}

func (a *Arrival) add(n int) {
	now := time.Now()
	if a.First.IsZero() {
		a.First, a.firstBytes = now, uint64(n)
	}
	a.Bytes += uint64(n)
	a.Last = now
}

// Merge the arrival on another stream into this one.
func (a *Arrival) Merge(other Arrival) {
	a.Bytes += other.Bytes
	if other.First.IsZero() {
		return
	}
	if a.First.IsZero() || other.First.Before(a.First) {
		a.First, a.firstBytes = other.First, other.firstBytes
	}
	if other.Last.After(a.Last) {
		a.Last = other.Last
	}
}

// Transfer as the receiver reports it: its time is from the first read until the last. nil without bytes.
func (a *Arrival) Transfer() *contract.Transfer {
	if a.First.IsZero() {
		return nil
	}
	seconds, after := a.Last.Sub(a.First).Seconds(), a.Bytes-a.firstBytes
	return &contract.Transfer{Bytes: a.Bytes, Seconds: seconds, BytesAfterFirst: &after, FirstToLastSeconds: &seconds}
}

// Exchange has the moments of one client's exchange.
type Exchange struct {
	// Sent payload bytes.
	Sent uint64
	// Begun before the first payload byte was written, Written when the last write or the half-close
	// returned.
	Begun, Written time.Time
	// Consumed when the peer proved that it had everything, by its first byte or its end of stream.
	Consumed time.Time
	// Requested when the download was requested.
	Requested time.Time
	Arrival   Arrival
}

// send payload, a number of bytes, or until a moment if that is set. It counts what the stack accepts.
func (b *Buffers) send(s Stream, bytes uint64, until time.Time, counters *observe.Counters) (uint64, error) {
	var sent uint64
	for {
		due := bytes - sent
		if !until.IsZero() {
			due = uint64(len(b.zeros))
			if !time.Now().Before(until) {
				due = 0
			}
		}
		if due == 0 {
			return sent, nil
		}
		n, err := s.Write(b.zeros[:min(uint64(len(b.zeros)), due)])
		sent += uint64(n)
		counters.Sent.Add(uint64(n))
		if err != nil {
			return sent, err
		}
	}
}

// receive once, at most due bytes. It returns io.EOF at the end of the stream.
func (b *Buffers) receive(s Stream, due uint64, arrival *Arrival, counters *observe.Counters) error {
	n, err := s.Read(b.read[:min(uint64(len(b.read)), due)])
	if n > 0 {
		arrival.add(n)
		counters.Received.Add(uint64(n))
		return nil
	}
	return err
}

// receiveExactly this number of bytes.
func (b *Buffers) receiveExactly(s Stream, what string, due uint64, arrival *Arrival, counters *observe.Counters) error {
	for arrival.Bytes < due {
		err := b.receive(s, due-arrival.Bytes, arrival, counters)
		if errors.Is(err, io.EOF) {
			return tooFew(what, arrival.Bytes, due)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// ended checks that nothing more arrives.
func ended(s Stream, what string, due uint64) error {
	n, err := s.Read(make([]byte, 1))
	if n > 0 {
		return contract.Failf(contract.UnexpectedBytes, "the peer sent more than the %d bytes of %s that were due", due, what)
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

func writeHeader(s Stream, value uint64) error {
	_, err := s.Write(binary.BigEndian.AppendUint64(nil, value))
	return err
}

// readHeader returns io.EOF if the stream ends before it.
func readHeader(s Stream, what string) (uint64, error) {
	var header [8]byte
	n, err := io.ReadFull(s, header[:])
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return 0, tooFew(what, uint64(n), 8)
	}
	return binary.BigEndian.Uint64(header[:]), err
}

// readNext fills a buffer, or else the stream may end. It returns io.EOF if the stream ends before, or if its
// end is lost.
func readNext(s Stream, into []byte, what string, counters *observe.Counters) error {
	got := 0
	lost, err := counters.AwaitEnd(s, func() (err error) {
		for got == 0 && err == nil {
			got, err = s.Read(into)
		}
		return err
	})
	if lost {
		return io.EOF
	}
	if got == 0 {
		return err
	}
	more, err := io.ReadFull(s, into[got:])
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return tooFew(what, uint64(got+more), uint64(len(into)))
	}
	return err
}

func tooFew(what string, got, due uint64) error {
	return contract.Failf(contract.TooFewBytes, "the peer ended the stream after %d of %d bytes of %s", got, due, what)
}

// Dropped says whether the peer dropped a stream or its connection, in the ways that stacks report it.
func Dropped(s Stream, err error) bool {
	if err == nil || isDeadline(err) {
		return false
	}
	var stream *network.StreamError
	var connection *network.ConnError
	// go-libp2p passes these three on as they are, below WebTransport. The last is of a session whose own
	// stream ended first.
	var session *webtransport.SessionError
	var carrier *quic.ApplicationError
	ended := &http3.Error{ErrorCode: http3.ErrCodeDatagramError}
	if errors.Is(err, ended) || errors.Is(err, io.EOF) || errors.Is(err, network.ErrReset) || errors.As(err, &stream) ||
		errors.As(err, &connection) || errors.As(err, &session) || errors.As(err, &carrier) || errors.Is(err, net.ErrClosed) || errors.Is(err, syscall.ECONNRESET) ||
		errors.Is(err, syscall.EPIPE) || errors.Is(err, sctp.ErrPayloadDataStateNotExist) {
		return true
	}
	// Other errors of SCTP, below WebRTC, have no type.
	of, ok := s.(interface{ Conn() network.Conn })
	return ok && of.Conn().IsClosed() || strings.Contains(err.Error(), "abort chunk")
}

// isDeadline says whether a deadline of the stream has passed. Errors of closed connections may be timeouts
// of net.Error, too: go-libp2p's WebRTC reports some connections that the peer has closed as timed out.
func isDeadline(err error) bool {
	return errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, yamux.ErrTimeout)
}

// Fail is an error of a stream as a failure of its trial.
func Fail(err error) *contract.Failure {
	var failure *contract.Failure
	if errors.As(err, &failure) {
		return failure
	}
	var known interface{ Failure() *contract.Failure }
	if errors.As(err, &known) {
		return known.Failure()
	}
	return contract.Failf(contract.StreamFailed, "the stream broke: %v", err)
}
