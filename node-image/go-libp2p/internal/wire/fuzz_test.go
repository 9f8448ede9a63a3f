package wire

import (
	"io"
	"syscall"
	"testing"
	"time"

	"perfrun/node-go/internal/contract"
	"perfrun/node-go/internal/corpus"
	"perfrun/node-go/internal/observe"
)

const (
	// takes is how many bytes a peer takes before it leaves: it may request more than anybody can send.
	takes = 1 << 16
	// flying is how many messages a peer may acknowledge.
	flying = 5
)

// peer says what an input has, and ends its side of the stream.
type peer struct {
	said         []byte
	piece, takes int
}

func (p *peer) Read(into []byte) (int, error) {
	if len(p.said) == 0 {
		return 0, io.EOF
	}
	n := copy(into[:min(len(into), p.piece)], p.said)
	p.said = p.said[n:]
	return n, nil
}

func (p *peer) Write(from []byte) (int, error) {
	n := min(len(from), p.takes)
	p.takes -= n
	if n < len(from) {
		return n, syscall.EPIPE
	}
	return n, nil
}

func (p *peer) CloseWrite() error               { return nil }
func (p *peer) Close() error                    { return nil }
func (p *peer) Reset() error                    { return nil }
func (p *peer) SetReadDeadline(time.Time) error { return nil }
func (p *peer) SetDeadline(time.Time) error     { return nil }

// side of a protocol, which reads what a peer says and may fail.
type side func(Stream, *Buffers, *observe.Counters)

// fuzz sides with a target of tools/fuzz: the first byte of an input is the size of the pieces in which the
// rest arrives.
func fuzz(f *testing.F, target string, sides ...side) {
	corpus.Add(f, target)
	zeros := make([]byte, chunk)
	f.Fuzz(func(t *testing.T, input []byte) {
		if len(input) == 0 {
			return
		}
		for _, side := range sides {
			p, counters := &peer{said: input[1:], piece: max(int(input[0]), 1), takes: takes}, &observe.Counters{}
			corpus.LimitMemory(t, func() { side(p, NewBuffers(zeros), counters) })
			if received := counters.Received.Load(); received > uint64(len(input)-1) {
				t.Errorf("counted %d bytes of %d", received, len(input)-1)
			}
			if sent := counters.Sent.Load(); sent > takes {
				t.Errorf("counted %d bytes, and the peer took %d", sent, takes)
			}
			if acknowledged := counters.Operations.Load(); acknowledged > flying {
				t.Errorf("counted %d messages of %d", acknowledged, flying)
			}
		}
	})
}

func FuzzPerf(f *testing.F) {
	fuzz(f, "perf",
		func(s Stream, b *Buffers, c *observe.Counters) { _, _ = ServePerf(s, b, c) },
		func(s Stream, b *Buffers, c *observe.Counters) {
			_, _ = RunPerf(s, Volume{Bytes: 100}, Volume{Bytes: 100}, b, c)
		},
		func(s Stream, b *Buffers, c *observe.Counters) {
			_, _ = RunPerf(s, Volume{Bytes: 100}, Volume{Until: time.Now().Add(time.Hour)}, b, c)
		},
	)
}

func FuzzLitep2pPerf(f *testing.F) {
	fuzz(f, "litep2p-perf",
		func(s Stream, b *Buffers, c *observe.Counters) { _, _ = ServeLitep2pPerf(s, b, c) },
		func(s Stream, b *Buffers, c *observe.Counters) { _, _ = RunLitep2pPerf(s, 100, 100, b, c) },
	)
}

func FuzzPing(f *testing.F) {
	fuzz(f, "ping",
		func(s Stream, _ *Buffers, c *observe.Counters) { _ = ServePing(s, c) },
		func(s Stream, _ *Buffers, c *observe.Counters) { _ = RoundTrip(s, [PingSize]byte{}, c) },
	)
}

func FuzzTestData(f *testing.F) {
	fuzz(f, "test-data",
		func(s Stream, b *Buffers, c *observe.Counters) { _ = ServeTestData(s, 100, b, c) },
		func(s Stream, b *Buffers, c *observe.Counters) { _, _, _ = FetchTestData(s, 100, b, c) },
	)
}

func FuzzEcho(f *testing.F) {
	line := Line(10)
	fuzz(f, "echo",
		func(s Stream, _ *Buffers, c *observe.Counters) {
			echo := NewEcho(s, line, time.Minute, c)
			for echoed, err := echo.Serve(); echoed && err == nil; {
				echoed, err = echo.Serve()
			}
		},
		func(s Stream, _ *Buffers, c *observe.Counters) { _ = NewEcho(s, line, time.Minute, c).RoundTrip() },
	)
}

func FuzzMessages(f *testing.F) {
	load := func(mode string) Load {
		p := contract.Parameters{Mode: mode, Amount: count(flying)}
		p.MessageBytes, p.Window = 20, 2
		return Load{&p}
	}
	stream, broadcast, times := load("stream"), load("broadcast"), observe.NewHistogram()
	fuzz(f, "messages",
		func(s Stream, _ *Buffers, _ *observe.Counters) {
			m := NewMessenger(s)
			for err := error(nil); err == nil; {
				_, err = m.receive()
			}
		},
		func(s Stream, _ *Buffers, c *observe.Counters) { _, _ = NewMessenger(s).Serve(stream, c, times) },
		func(s Stream, _ *Buffers, c *observe.Counters) {
			_, _ = NewMessenger(s).ServeBroadcast(broadcast, c, times)
		},
		func(s Stream, _ *Buffers, c *observe.Counters) {
			m := NewMessenger(s)
			if m.Open(nil) == nil {
				_, _, _ = Broadcast([]*Messenger{m}, broadcast, c)
			}
		},
		func(s Stream, _ *Buffers, c *observe.Counters) {
			m := NewMessenger(s)
			if m.Open(nil) != nil {
				return
			}
			// All messages are in flight, without the task that sends them.
			sent := &flight{messenger: m, due: make([]time.Time, flying), counters: c, trips: times}
			sent.sent.Store(flying | last)
			_ = sent.acknowledgements(make(chan struct{}, 1))
		},
	)
}
