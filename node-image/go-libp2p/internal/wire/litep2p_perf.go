package wire

import (
	"encoding/binary"
	"errors"
	"io"
	"time"

	"perfrun/node-go/internal/contract"
	"perfrun/node-go/internal/observe"
)

// linger is how long a client waits for bytes beyond the download, and a server for the client's end. It is
// not part of any time.
const linger = time.Second

// ServeLitep2pPerf serves one exchange of the Litep2p Performance Protocol:
//
//	client → server : u64 U, then U bytes, then u64 D
//	server → client : D bytes
//
// A stream that ends before its first byte was only opened (the workload substreams).
func ServeLitep2pPerf(s Stream, b *Buffers, counters *observe.Counters) (Arrival, error) {
	const what = "the download header"
	var arrival Arrival
	var header [8]byte
	err := readNext(s, header[:], "the upload header", counters)
	if Dropped(s, err) {
		return arrival, nil
	}
	if err != nil {
		return arrival, err
	}
	upload := binary.BigEndian.Uint64(header[:])
	if err := b.receiveExactly(s, "the upload", upload, &arrival, counters); err != nil {
		return arrival, err
	}
	download, err := readHeader(s, what)
	if errors.Is(err, io.EOF) {
		err = tooFew(what, 0, 8)
	}
	if err != nil {
		return arrival, err
	}
	if _, err := b.send(s, download, time.Time{}, counters); err != nil {
		return arrival, err
	}
	_ = s.CloseWrite()
	_ = s.SetReadDeadline(time.Now().Add(linger))
	defer s.Close()
	if n, _ := s.Read(make([]byte, 1)); n > 0 {
		return arrival, contract.Failf(contract.UnexpectedBytes,
			"the peer sent more than the %d bytes of the upload that were due", upload)
	}
	return arrival, nil
}

// RunLitep2pPerf runs one exchange.
func RunLitep2pPerf(s Stream, upload, download uint64, b *Buffers, counters *observe.Counters) (Exchange, error) {
	defer s.Reset()
	var e Exchange
	if err := writeHeader(s, upload); err != nil {
		return e, err
	}
	e.Begun = time.Now()
	var err error
	if e.Sent, err = b.send(s, upload, time.Time{}, counters); err != nil {
		return e, err
	}
	e.Written = time.Now()
	if err := writeHeader(s, download); err != nil {
		return e, err
	}
	e.Requested = time.Now()
	if err := b.receiveExactly(s, "the download", download, &e.Arrival, counters); err != nil {
		return e, err
	}
	// The first byte of a download proves that the upload was consumed, so the end is only a check. Without a
	// download, the end of the stream is the proof, and it must arrive.
	if download > 0 {
		_ = s.SetReadDeadline(time.Now().Add(linger))
	}
	err = ended(s, "the download", download)
	if err != nil && !Dropped(s, err) && !isDeadline(err) {
		return e, err
	}
	e.Consumed = e.Arrival.First
	if e.Consumed.IsZero() {
		e.Consumed = time.Now()
	}
	return e, nil
}
