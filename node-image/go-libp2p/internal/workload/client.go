package workload

import (
	"context"
	"sync"
	"time"

	"perfrun/node-go/internal/contract"
	"perfrun/node-go/internal/peer"
	"perfrun/node-go/internal/wire"
)

// Client that is ready to begin.
type Client struct {
	setup   *Setup
	peers   []*dialler
	servers []string
}

// dialler is one identity of a client.
type dialler struct {
	host       *peer.Host
	server     string
	connection *peer.Connection
}

// Prepare starts hosts and, unless the workload does that itself, opens connections.
func Prepare(ctx context.Context, setup *Setup) (*Client, error) {
	p, side := &setup.Request.Parameters, setup.Request.Side.Client
	c := &Client{setup: setup, servers: side.Servers}
	hosts := p.Hosts(side.Peers)
	if p.Workload == "handshakes" {
		hosts = max(hosts, stock(p.Amount))
	}
	for i := range hosts {
		d := &dialler{server: side.Servers[i%len(side.Servers)]}
		var err error
		if d.host, err = newDialler(setup); err != nil {
			c.Close()
			return nil, err
		}
		c.peers = append(c.peers, d)
		if p.Workload == "handshakes" {
			continue
		}
		if d.connection, err = d.host.Dial(ctx, d.server); err != nil {
			c.Close()
			return nil, err
		}
		setup.Observer.Counters.Connections.Add(1)
		setup.Findings.record(established, d.connection.Established)
	}
	return c, nil
}

func newDialler(setup *Setup) (*peer.Host, error) {
	p := &setup.Request.Parameters
	return peer.New(peer.Config{
		Transport: setup.Request.Transport,
		Protocol:  p.StreamProtocol(),
		Lazy:      p.Negotiation == "v1lazy",
	})
}

// Run the workload. It returns how long that took.
func (c *Client) Run(ctx context.Context) (time.Duration, error) {
	begun := time.Now()
	var err error
	switch c.setup.Request.Parameters.Workload {
	case "bandwidth":
		err = c.bandwidth(ctx)
	case "substreams":
		err = c.substreams(ctx)
	case "handshakes":
		err = c.handshakes(ctx)
	default:
		err = c.ping(ctx)
	}
	return time.Since(begun), err
}

// Close connections and hosts.
func (c *Client) Close() {
	var all sync.WaitGroup
	for _, d := range c.peers {
		all.Go(func() {
			if d.connection != nil {
				d.connection.Close()
			}
			d.host.Close()
		})
	}
	all.Wait()
}

// each calls do for every peer at the same time, and returns the first failure.
func (c *Client) each(do func(i int, d *dialler) error) error {
	return parallel(len(c.peers), func(i int) error { return do(i, c.peers[i]) })
}

// parallel calls do with 0 to n - 1 at the same time, and returns the first failure.
func parallel(n int, do func(i int) error) error {
	failures := make(chan error, n)
	for i := range n {
		go func() { failures <- do(i) }()
	}
	var first error
	for range n {
		if err := <-failures; err != nil && first == nil {
			first = wire.Fail(err)
		}
	}
	return first
}

// bandwidth opens all streams, then exchanges on all of them at the same time.
func (c *Client) bandwidth(ctx context.Context) error {
	p, counters := &c.setup.Request.Parameters, c.setup.Observer.Counters
	streams := make([]wire.Stream, len(c.peers)*p.Streams)
	err := parallel(len(streams), func(i int) (err error) {
		streams[i], err = c.peers[i/p.Streams].connection.Open(ctx)
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
	zeros := make([]byte, chunk(p))
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
		c.setup.Findings.Upload = upload(exchanges, p.Timing == "strict")
	}
	if p.Direction != "upload" {
		c.setup.Findings.Download = download(exchanges)
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

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
