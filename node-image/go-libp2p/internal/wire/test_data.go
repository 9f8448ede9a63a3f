package wire

import (
	"errors"
	"io"
	"time"

	"perfrun/node-go/internal/contract"
	"perfrun/node-go/internal/observe"
)

// ServeTestData serves one transfer of /libp2p/test/data (libp2p-relay-test): the client opens a stream and
// sends nothing, the server writes everything and closes, and the client reads to the end.
func ServeTestData(s Stream, bytes uint64, b *Buffers, counters *observe.Counters) error {
	if _, err := b.send(s, bytes, time.Time{}, counters); err != nil {
		return err
	}
	if err := s.CloseWrite(); err != nil {
		return err
	}
	// The client ends the stream when it has everything.
	lost, err := counters.AwaitEnd(s, func() error { return ended(s, "the request", 0) })
	if lost || Dropped(s, err) {
		return nil
	}
	return err
}

// FetchTestData reads to the end of the stream, which must follow after a number of bytes. It returns when
// the end arrived.
func FetchTestData(s Stream, bytes uint64, b *Buffers, counters *observe.Counters) (Arrival, time.Time, error) {
	const what = "the transfer"
	var arrival Arrival
	for {
		// One byte more than is due, to read the end or a byte too many.
		err := b.receive(s, bytes-arrival.Bytes+1, &arrival, counters)
		switch {
		case err == nil && arrival.Bytes > bytes:
			return arrival, time.Time{}, contract.Failf(contract.UnexpectedBytes,
				"the peer sent more than the %d bytes of %s that were due", bytes, what)
		case err == nil:
		case !errors.Is(err, io.EOF):
			return arrival, time.Time{}, err
		case arrival.Bytes < bytes:
			return arrival, time.Time{}, tooFew(what, arrival.Bytes, bytes)
		default:
			end := time.Now()
			// The server waits for this end. Whether it arrives is not part of the transfer.
			_ = s.Close()
			return arrival, end, nil
		}
	}
}
