package wire

import (
	"errors"
	"io"

	"perfrun/node-go/internal/contract"
	"perfrun/node-go/internal/observe"
)

// PingSize is the number of bytes of a ping.
const PingSize = 32

// ServePing echoes pings (libp2p specs, ping/ping.md) until the peer ends the stream. go-libp2p's own handler
// resets streams that pause for long.
func ServePing(s Stream, counters *observe.Counters) error {
	var payload [PingSize]byte
	for {
		err := readNext(s, payload[:], "the ping", counters)
		switch {
		case Dropped(s, err):
			_ = s.Close()
			return nil
		case err != nil:
			return err
		}
		counters.Received.Add(PingSize)
		if _, err := s.Write(payload[:]); err != nil {
			return err
		}
		counters.Sent.Add(PingSize)
	}
}

// RoundTrip sends a ping and waits for its echo.
func RoundTrip(s Stream, payload [PingSize]byte, counters *observe.Counters) error {
	if _, err := s.Write(payload[:]); err != nil {
		return err
	}
	counters.Sent.Add(PingSize)
	var echo [PingSize]byte
	n, err := io.ReadFull(s, echo[:])
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return tooFew("the ping", uint64(n), PingSize)
	}
	if err != nil {
		return err
	}
	counters.Received.Add(PingSize)
	if echo != payload {
		return contract.Failf(contract.WrongEcho, "the peer echoed other bytes than it was sent")
	}
	return nil
}
