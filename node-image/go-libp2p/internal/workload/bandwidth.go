package workload

import (
	"context"
	"fmt"
	"time"

	"perfrun/node-go/internal/contract"
	"perfrun/node-go/internal/wire"
)

// bandwidth is bulk transfer.
type bandwidth struct{ common }

func (w bandwidth) protocol() string                     { return w.Protocol }
func (w bandwidth) connectionStreams(*contract.Side) int { return w.Streams }

func (w bandwidth) check() error {
	if w.Protocol != contract.Perf && w.Protocol != contract.Litep2pPerf {
		return fmt.Errorf("%.64q carries no bulk transfer", w.Protocol)
	}
	if w.Streams < 1 || w.Streams > mostStreams {
		return fmt.Errorf("streams must be 1 to %d, not %d", mostStreams, w.Streams)
	}
	if err := checkChunk(w.ChunkBytes); err != nil {
		return err
	}
	switch w.Direction {
	case "upload", "download", "both":
	default:
		return fmt.Errorf("direction must be upload, download or both, not %.64q", w.Direction)
	}
	if w.Timing != "strict" && w.Timing != "compat" {
		return fmt.Errorf("timing must be strict or compat, not %.64q", w.Timing)
	}
	if err := checkAmount(w.Amount); err != nil {
		return err
	}
	if w.Amount.Seconds != nil {
		if w.Protocol != contract.Perf {
			return fmt.Errorf("%s announces its bytes: it cannot run for a time", w.Protocol)
		}
		if w.Direction == "both" {
			return fmt.Errorf("a transfer for a time must have one direction")
		}
	}
	return checkNegotiation(w.Negotiation)
}

func (w bandwidth) serve(_ context.Context, s *server, stream wire.Stream) (wire.Arrival, error) {
	if w.Protocol == contract.Litep2pPerf {
		return wire.ServeLitep2pPerf(stream, wire.NewBuffers(s.zeros), s.setup.counters())
	}
	return wire.ServePerf(stream, wire.NewBuffers(s.zeros), s.setup.counters())
}

// run opens all streams, then exchanges on all of them at the same time.
func (w bandwidth) run(ctx context.Context, c *Client) error {
	p, counters := w.Parameters, c.setup.counters()
	streams := make([]wire.Stream, len(c.peers)*p.Streams)
	err := parallel(len(streams), func(i int) (err error) {
		streams[i], err = c.peers[i/p.Streams].connection().Open(ctx)
		return err
	})
	if err != nil {
		return err
	}
	counters.Streams.Add(uint64(len(streams)))
	var up, down wire.Volume
	volume := wire.Volume{Bytes: p.Amount.Number()}
	// The time of a transfer begins when all streams are open.
	if duration, timed := p.Amount.Duration(); timed {
		volume.Until = time.Now().Add(duration)
	}
	if p.Direction != "download" {
		up = volume
	}
	if p.Direction != "upload" {
		down = volume
	}
	zeros := c.setup.zeros()
	exchanges := make([]wire.Exchange, len(streams))
	err = parallel(len(streams), func(i int) (err error) {
		buffers := wire.NewBuffers(zeros)
		if p.Protocol == contract.Litep2pPerf {
			exchanges[i], err = wire.RunLitep2pPerf(streams[i], up.Bytes, down.Bytes, buffers, counters)
		} else {
			exchanges[i], err = wire.RunPerf(streams[i], up, down, buffers, counters)
		}
		return err
	})
	if err != nil {
		return err
	}
	if p.Direction != "download" {
		c.setup.Measurements.keep(func() { c.setup.Measurements.upload = upload(exchanges, p.Timing == "strict") })
	}
	if p.Direction != "upload" {
		c.setup.Measurements.keep(func() { c.setup.Measurements.download = download(exchanges) })
	}
	return nil
}

// upload of all streams as one, from the first byte written until the end that the timing defines.
func upload(exchanges []wire.Exchange, strict bool) *contract.Transfer {
	begun, ended := exchanges[0].Begun, time.Time{}
	var bytes uint64
	for _, e := range exchanges {
		end := e.Written
		if strict {
			end = e.Consumed
		}
		begun, ended = earlier(begun, e.Begun), later(ended, end)
		bytes += e.Sent
	}
	return &contract.Transfer{Bytes: bytes, Seconds: ended.Sub(begun).Seconds()}
}

// download of all streams as one, from the first request until the last byte.
func download(exchanges []wire.Exchange) *contract.Transfer {
	requested := exchanges[0].Requested
	var all wire.Arrival
	for _, e := range exchanges {
		requested = earlier(requested, e.Requested)
		all.Merge(e.Arrival)
	}
	transfer := all.Transfer()
	if transfer == nil {
		return &contract.Transfer{}
	}
	transfer.Seconds = all.Last.Sub(requested).Seconds()
	return transfer
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
