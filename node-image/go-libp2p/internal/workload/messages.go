package workload

import (
	"context"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"perfrun/node-go/internal/contract"
	"perfrun/node-go/internal/observe"
	"perfrun/node-go/internal/peer"
	"perfrun/node-go/internal/wire"
)

// messages from each peer of a client to its server, or to all servers. Exchanges are open before the clock
// starts.
func (c *Client) messages(ctx context.Context) error {
	p := c.setup.parameters()
	load := wire.Load{Parameters: p}
	exchanged := make([]wire.Exchanged, len(c.peers))
	times := make([]*hdrhistogram.Histogram, len(c.peers))
	all, servers, err := c.exchanges(ctx)
	defer func() {
		for _, messengers := range all {
			for _, m := range messengers {
				if m != nil {
					m.Close()
				}
			}
		}
	}()
	if err != nil {
		return err
	}
	distribution := roundTrip
	var run func(i int) error
	switch p.Mode {
	case "broadcast":
		run = func(i int) error {
			sent, took, err := wire.Broadcast(all[i], load, c.setup.counters())
			toAll := sent * uint64(len(all[i]))
			exchanged[i] = wire.Exchanged{Bytes: toAll * uint64(p.MessageBytes), Took: took}
			return err
		}
	case "serial":
		distribution = oneWay
		run = func(i int) (err error) {
			var arrival wire.Arrival
			exchanged[i], arrival, err = wire.Serial(all[i][0], servers[i].messenger, load, c.setup.counters(),
				servers[i].counters, times[i])
			servers[i].arrived <- arrival
			return err
		}
	default:
		run = func(i int) (err error) {
			exchanged[i], err = all[i][0].Run(load, c.setup.counters(), times[i])
			return err
		}
	}
	for i := range times {
		times[i] = observe.NewHistogram()
	}
	if err := parallel(len(all), run); err != nil {
		return err
	}
	upload := &contract.Transfer{}
	for i, of := range exchanged {
		upload.Bytes += of.Bytes
		upload.Seconds = max(upload.Seconds, of.Took.Seconds())
		if times[i].TotalCount() > 0 {
			c.setup.Measurements.add(distribution, times[i])
		}
	}
	c.setup.Measurements.keep(func() { c.setup.Measurements.upload = upload })
	return nil
}

// exchanges of each peer with its servers, with message 0 acknowledged. Where the client itself has the other
// ends, they are opened one after the other, so that each comes with its own.
func (c *Client) exchanges(ctx context.Context) (all [][]*wire.Messenger, servers []*handed, err error) {
	all = make([][]*wire.Messenger, len(c.peers))
	for i, d := range c.peers {
		all[i] = make([]*wire.Messenger, len(d.connections))
	}
	if !c.setup.parameters().IsInProcess() {
		err = c.each(func(i int, d *dialler) error {
			return parallel(len(d.connections), func(j int) (err error) {
				all[i][j], err = c.exchange(ctx, d.connections[j], d.clock(j))
				return err
			})
		})
		return all, nil, err
	}
	servers = make([]*handed, len(c.peers))
	for i, d := range c.peers {
		if all[i][0], err = c.exchange(ctx, d.connection(), nil); err == nil {
			servers[i], err = c.take(ctx)
		}
		if err != nil {
			return all, nil, err
		}
	}
	return all, servers, nil
}

func (c *Client) exchange(ctx context.Context, connection *peer.Connection, clock *int64) (*wire.Messenger, error) {
	s, err := connection.Open(ctx)
	if err != nil {
		return nil, err
	}
	c.setup.counters().Streams.Add(1)
	messenger := wire.NewMessenger(s)
	if c.setup.parameters().IsInProcess() {
		return messenger, messenger.Begin(nil)
	}
	return messenger, messenger.Open(clock)
}

// handed is a server's end of an exchange, of which the client in the same process does both.
type handed struct {
	messenger *wire.Messenger
	counters  *observe.Counters
	arrived   chan wire.Arrival
}

func (c *Client) take(ctx context.Context) (*handed, error) {
	select {
	case server := <-c.setup.Handover:
		return server, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-time.After(patience):
		return nil, contract.Failf(contract.Timeout, "the server did not take the exchange")
	}
}

// exchange serves one exchange until its last message, or hands it to the client in this process.
func (s *served) exchangeMessages(ctx context.Context, stream wire.Stream) (wire.Arrival, error) {
	p, counters := s.setup.parameters(), s.setup.counters()
	messenger := wire.NewMessenger(stream)
	if p.IsInProcess() {
		server := &handed{messenger: messenger, counters: counters, arrived: make(chan wire.Arrival, 1)}
		select {
		case s.setup.Handover <- server:
		case <-ctx.Done():
			return wire.Arrival{}, nil
		}
		select {
		case arrival := <-server.arrived:
			return arrival, nil
		case <-ctx.Done():
			return wire.Arrival{}, nil
		}
	}
	times := observe.NewHistogram()
	serve := messenger.Serve
	if p.Mode == "broadcast" {
		serve = messenger.ServeBroadcast
	}
	arrival, err := serve(wire.Load{Parameters: p}, counters, times)
	if times.TotalCount() > 0 {
		s.setup.Measurements.add(oneWay, times)
	}
	return arrival, err
}
