package wire

import (
	"bytes"
	"errors"
	"io"
	"time"

	"perfrun/node-go/internal/contract"
	"perfrun/node-go/internal/observe"
)

// mostRead bytes of one read of a line.
const mostRead = 4096

// Line of /echo/1.0.0 with a number of bytes: zeros in ASCII and a line feed.
func Line(length uint64) []byte {
	line := bytes.Repeat([]byte{'0'}, int(length))
	line[len(line)-1] = '\n'
	return line
}

// Echo of lines on one stream (WebRTC transport benchmarks, /echo/1.0.0): a line there and the same line
// back. Both ends know the line, and compare what arrives with one copy that all streams share.
type Echo struct {
	stream   Stream
	line     []byte
	buffer   []byte
	deadline time.Duration
	counters *observe.Counters
}

// NewEcho on a stream. Each round trip must end within deadline.
func NewEcho(s Stream, line []byte, deadline time.Duration, counters *observe.Counters) *Echo {
	return &Echo{stream: s, line: line, buffer: make([]byte, min(len(line), mostRead)), deadline: deadline, counters: counters}
}

// RoundTrip sends the line and waits for its echo.
func (e *Echo) RoundTrip() error {
	_ = e.stream.SetDeadline(time.Now().Add(e.deadline))
	if err := e.send(); err != nil {
		return e.late(err)
	}
	if err := e.receive(contract.WrongEcho, "the peer echoed other bytes than it was sent"); err != nil {
		return e.late(err)
	}
	return nil
}

// Serve echoes one line. False if the peer ended or dropped the stream instead.
func (e *Echo) Serve() (bool, error) {
	_ = e.stream.SetDeadline(time.Now().Add(e.deadline))
	const wrong = "the peer sent another line than the one that both ends use"
	err := e.receive(contract.UnexpectedBytes, wrong)
	if errors.Is(err, io.EOF) || Dropped(e.stream, err) {
		return false, nil
	}
	if err == nil {
		err = e.send()
	}
	return true, e.late(err)
}

func (e *Echo) send() error {
	if _, err := e.stream.Write(e.line); err != nil {
		return err
	}
	e.counters.Sent.Add(uint64(len(e.line)))
	return nil
}

// receive the line. It returns io.EOF if the stream ends before it.
func (e *Echo) receive(reason contract.Reason, wrong string) error {
	for got := 0; got < len(e.line); {
		n, err := e.stream.Read(e.buffer[:min(len(e.buffer), len(e.line)-got)])
		if !bytes.Equal(e.buffer[:n], e.line[got:got+n]) {
			return contract.Failf(reason, "%s", wrong)
		}
		got += n
		switch {
		case n > 0:
		case errors.Is(err, io.EOF) && got > 0:
			return tooFew("the line", uint64(got), uint64(len(e.line)))
		case err != nil:
			return err
		}
	}
	e.counters.Received.Add(uint64(len(e.line)))
	return nil
}

// late turns an error by the deadline into a failure that says so.
func (e *Echo) late(err error) error {
	if isDeadline(err) {
		return contract.Failf(contract.Timeout, "a line did not come back within its deadline, %v", e.deadline)
	}
	if errors.Is(err, io.EOF) {
		return tooFew("the line", 0, uint64(len(e.line)))
	}
	return err
}
