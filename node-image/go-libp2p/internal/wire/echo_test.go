package wire

import (
	"io"
	"testing"
	"time"

	"perfrun/node-go/internal/contract"
	"perfrun/node-go/internal/observe"
)

func TestLinesOfAnySizeAreEchoed(t *testing.T) {
	for _, length := range []uint64{2, 1024, mostRead, mostRead + 1, 1 << 20} {
		var client, server observe.Counters
		a, b := pipe()
		ended := make(chan error, 1)
		go func() {
			echo := NewEcho(b, Line(length), time.Minute, &server)
			for {
				if echoed, err := echo.Serve(); !echoed || err != nil {
					ended <- err
					return
				}
			}
		}()
		echo := NewEcho(a, Line(length), time.Minute, &client)
		for range 3 {
			if err := echo.RoundTrip(); err != nil {
				t.Fatal(err)
			}
		}
		_ = a.CloseWrite()
		if err := <-ended; err != nil || client.Received.Load() != 3*length || server.Sent.Load() != 3*length {
			t.Errorf("%v, %d of %d bytes", err, client.Received.Load(), 3*length)
		}
	}
}

func TestOtherLinesAreNoticedAtBothEnds(t *testing.T) {
	a, b := pipe()
	go func() { _, _ = a.Write([]byte("00000001\n")) }()
	_, err := NewEcho(b, Line(9), time.Minute, &observe.Counters{}).Serve()
	says(t, err, contract.UnexpectedBytes)

	a, b = pipe()
	go func() {
		_, _ = io.ReadFull(b, make([]byte, 9))
		_, _ = b.Write([]byte("00000001\n"))
	}()
	says(t, NewEcho(a, Line(9), time.Minute, &observe.Counters{}).RoundTrip(), contract.WrongEcho)

	a, b = pipe()
	go func() { _, _ = a.Write([]byte("0000")); _ = a.CloseWrite() }()
	_, err = NewEcho(b, Line(9), time.Minute, &observe.Counters{}).Serve()
	says(t, err, contract.TooFewBytes)
}

func TestATransferFromASourceMustHaveItsLength(t *testing.T) {
	const due = 10*chunk + 7
	for sent, reason := range map[uint64]contract.Reason{
		due: "", due - 1: contract.TooFewBytes, due + 1: contract.UnexpectedBytes,
	} {
		a, b := pipe()
		ended := make(chan error, 1)
		zeros := make([]byte, chunk)
		go func() { ended <- ServeTestData(b, sent, NewBuffers(zeros), &observe.Counters{}) }()
		arrival, _, err := FetchTestData(a, due, NewBuffers(zeros), &observe.Counters{})
		_ = a.Reset()
		if reason != "" {
			says(t, err, reason)
		} else if err := <-ended; err != nil || arrival.Bytes != due {
			t.Errorf("%v, %d of %d bytes", err, arrival.Bytes, due)
		}
	}
}
