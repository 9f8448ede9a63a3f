package wire

import (
	"errors"
	"fmt"
	"io"
	"os"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-yamux/v5"
	"github.com/pion/sctp"
	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"

	"perfrun/node-go/internal/contract"
	"perfrun/node-go/internal/observe"
)

// half is one end of a stream in memory.
type half struct {
	*io.PipeReader
	*io.PipeWriter
}

func (h half) CloseWrite() error               { return h.PipeWriter.Close() }
func (h half) Reset() error                    { return errors.Join(h.PipeReader.Close(), h.PipeWriter.Close()) }
func (h half) Close() error                    { return h.PipeWriter.Close() }
func (h half) SetReadDeadline(time.Time) error { return nil }
func (h half) SetDeadline(time.Time) error     { return nil }

func pipe() (a, b half) {
	readA, writeB := io.Pipe()
	readB, writeA := io.Pipe()
	return half{readA, writeA}, half{readB, writeB}
}

const chunk = 64

var sizes = []uint64{0, 1, chunk - 1, chunk, chunk + 1, 10*chunk + 7}

type served struct {
	arrival Arrival
	err     error
}

// exchange runs both ends, and returns what they counted.
func exchange(
	run func(Stream, *Buffers, *observe.Counters) (Exchange, error),
	serve func(Stream, *Buffers, *observe.Counters) (Arrival, error),
) (client, server *observe.Counters, e Exchange, s served, err error) {
	client, server = &observe.Counters{}, &observe.Counters{}
	a, b := pipe()
	zeros := make([]byte, chunk)
	done := make(chan served, 1)
	go func() {
		arrival, err := serve(b, NewBuffers(zeros), server)
		done <- served{arrival, err}
	}()
	e, err = run(a, NewBuffers(zeros), client)
	return client, server, e, <-done, err
}

func TestBothProtocolsCarryEveryByteBothWays(t *testing.T) {
	runs := map[string]func(up, down uint64) func(Stream, *Buffers, *observe.Counters) (Exchange, error){
		contract.Perf: func(up, down uint64) func(Stream, *Buffers, *observe.Counters) (Exchange, error) {
			return func(s Stream, b *Buffers, c *observe.Counters) (Exchange, error) {
				return RunPerf(s, Volume{Bytes: up}, Volume{Bytes: down}, b, c)
			}
		},
		contract.Litep2pPerf: func(up, down uint64) func(Stream, *Buffers, *observe.Counters) (Exchange, error) {
			return func(s Stream, b *Buffers, c *observe.Counters) (Exchange, error) {
				return RunLitep2pPerf(s, up, down, b, c)
			}
		},
	}
	serves := map[string]func(Stream, *Buffers, *observe.Counters) (Arrival, error){
		contract.Perf: ServePerf, contract.Litep2pPerf: ServeLitep2pPerf,
	}
	for protocol, run := range runs {
		for _, up := range sizes {
			for _, down := range sizes {
				client, server, e, s, err := exchange(run(up, down), serves[protocol])
				if err != nil || s.err != nil {
					t.Fatalf("%s %d up, %d down: %v, %v", protocol, up, down, err, s.err)
				}
				if e.Sent != up || client.Sent.Load() != up || s.arrival.Bytes != up || server.Received.Load() != up {
					t.Errorf("%s: %d of %d bytes went up", protocol, s.arrival.Bytes, up)
				}
				if e.Arrival.Bytes != down || client.Received.Load() != down || server.Sent.Load() != down {
					t.Errorf("%s: %d of %d bytes went down", protocol, e.Arrival.Bytes, down)
				}
				if e.Consumed.Before(e.Begun) {
					t.Errorf("%s: consumed before it was begun", protocol)
				}
			}
		}
	}
}

// says expects a failure with a reason.
func says(t *testing.T, err error, reason contract.Reason) {
	t.Helper()
	var failure *contract.Failure
	if !errors.As(err, &failure) || failure.Reason != reason {
		t.Errorf("expected %s, not %v", reason, err)
	}
}

func TestAServerThatSendsTooFewOrTooManyBytesIsNoticed(t *testing.T) {
	answer := func(bytes int) func(Stream, *Buffers, *observe.Counters) (Arrival, error) {
		return func(s Stream, _ *Buffers, _ *observe.Counters) (Arrival, error) {
			_, _ = io.ReadFull(s, make([]byte, 8+100))
			_, _ = s.Write(make([]byte, bytes))
			return Arrival{}, s.CloseWrite()
		}
	}
	run := func(s Stream, b *Buffers, c *observe.Counters) (Exchange, error) {
		return RunPerf(s, Volume{Bytes: 100}, Volume{Bytes: 50}, b, c)
	}
	_, _, _, _, err := exchange(run, answer(49))
	says(t, err, contract.TooFewBytes)
	_, _, _, _, err = exchange(run, answer(51))
	says(t, err, contract.UnexpectedBytes)
}

func TestAClientThatEndsEarlyIsNoticed(t *testing.T) {
	end := func(bytes int) func(Stream, *Buffers, *observe.Counters) (Exchange, error) {
		return func(s Stream, _ *Buffers, _ *observe.Counters) (Exchange, error) {
			header := make([]byte, 8)
			header[7] = 200
			_, _ = s.Write(append(header, make([]byte, bytes)...))
			return Exchange{}, s.CloseWrite()
		}
	}
	_, _, _, s, _ := exchange(end(199), ServeLitep2pPerf)
	says(t, s.err, contract.TooFewBytes)
	_, _, _, s, _ = exchange(end(200), ServeLitep2pPerf)
	says(t, s.err, contract.TooFewBytes)
}

func TestAStreamThatWasOnlyOpenedIsNoFailure(t *testing.T) {
	open := func(s Stream, _ *Buffers, _ *observe.Counters) (Exchange, error) { return Exchange{}, s.CloseWrite() }
	_, _, _, s, _ := exchange(open, ServeLitep2pPerf)
	if s.err != nil {
		t.Error(s.err)
	}
}

func TestPingsAreEchoedAndOtherBytesAreRefused(t *testing.T) {
	var counters observe.Counters
	a, b := pipe()
	done := make(chan error, 1)
	go func() { done <- ServePing(b, &observe.Counters{}) }()
	for i := range 3 {
		if err := RoundTrip(a, [PingSize]byte{0: byte(i)}, &counters); err != nil {
			t.Fatal(err)
		}
	}
	_ = a.CloseWrite()
	if err := <-done; err != nil || counters.Received.Load() != 3*PingSize {
		t.Errorf("%v after %d bytes", err, counters.Received.Load())
	}
	a, b = pipe()
	go func() {
		_, _ = io.ReadFull(b, make([]byte, PingSize))
		_, _ = b.Write(make([]byte, PingSize))
	}()
	says(t, RoundTrip(a, [PingSize]byte{1}, &counters), contract.WrongEcho)
}

func TestArrivalsMergeFromTheFirstReadToTheLast(t *testing.T) {
	at := func(seconds int64) time.Time { return time.Unix(seconds, 0) }
	all := Arrival{Bytes: 10, First: at(2), Last: at(4), firstBytes: 3}
	all.Merge(Arrival{Bytes: 5, First: at(1), Last: at(3), firstBytes: 2})
	all.Merge(Arrival{})
	transfer := all.Transfer()
	if transfer.Bytes != 15 || transfer.Seconds != 3 || *transfer.BytesAfterFirst != 13 {
		t.Errorf("%+v", transfer)
	}
	if (&Arrival{}).Transfer() != nil {
		t.Error("nothing arrived")
	}
}

func TestAWriteAfterTheEndOfAWebRTCConnectionIsADrop(t *testing.T) {
	// As SCTP returns it, for a moment before go-libp2p knows that the connection is closed.
	err := fmt.Errorf("%w: state=Closed", sctp.ErrPayloadDataStateNotExist)
	if a, _ := pipe(); !Dropped(a, err) || Dropped(a, errors.New("another error")) {
		t.Error(err)
	}
}

func TestASessionWhoseOwnStreamEndedIsADrop(t *testing.T) {
	// As webtransport-go returns it if it reads the end of that stream before quic-go reports that of the
	// connection.
	err := fmt.Errorf("read: %w", &http3.Error{ErrorCode: http3.ErrCodeDatagramError, ErrorMessage: "H3 error (0x1)"})
	if a, _ := pipe(); !Dropped(a, err) || Dropped(a, &http3.Error{ErrorCode: http3.ErrCodeFrameError}) {
		t.Error(err)
	}
}

// ofClosed is a stream of a connection that is closed.
type ofClosed struct{ half }

func (ofClosed) Conn() network.Conn { return closed{} }

type closed struct{ network.Conn }

func (closed) IsClosed() bool { return true }

func TestOnlyADeadlineOfTheStreamIsATimeout(t *testing.T) {
	// As the error of a connection over WebRTC that its peer has closed, it is a timeout of net.Error.
	gone := &quic.IdleTimeoutError{}
	if isDeadline(gone) || !Dropped(ofClosed{}, gone) {
		t.Error(gone)
	}
	for _, deadline := range []error{os.ErrDeadlineExceeded, yamux.ErrTimeout} {
		if !isDeadline(deadline) || Dropped(ofClosed{}, deadline) {
			t.Error(deadline)
		}
	}
}
