package workload

import (
	"context"
	"fmt"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"perfrun/node-go/internal/contract"
	"perfrun/node-go/internal/observe"
	"perfrun/node-go/internal/wire"
)

const (
	mostWindow   = 4096
	mostRate     = 10_000_000
	mostServers  = 100
	mostInFlight = 64 << 20
)

// messages from each peer of a client to its server, or to all servers.
type messages struct{ common }

func (messages) protocol() string    { return contract.Framed }
func (w messages) isInProcess() bool { return w.Mode == "serial" }

func (w messages) clientFiles(hosts int) uint64 {
	return filesOfHost*uint64(hosts)*uint64(w.ServersOfPeer()) + filesBesides
}

func (w messages) check() error {
	switch w.Mode {
	case "serial", "serialAck", "stream", "broadcast":
	default:
		return fmt.Errorf("mode must be serial, serialAck, stream or broadcast, not %.64q", w.Mode)
	}
	if w.MessageBytes < contract.LeastMessage || w.MessageBytes > contract.MostMessage {
		return fmt.Errorf("messageBytes must be %d to %d, not %d", contract.LeastMessage, contract.MostMessage, w.MessageBytes)
	}
	if w.Window < 1 || w.Window > mostWindow {
		return fmt.Errorf("window must be 1 to %d, not %d", mostWindow, w.Window)
	}
	if w.Window > 1 && w.Mode != "stream" {
		return fmt.Errorf("window must be 1 in mode %s", w.Mode)
	}
	if w.Rate != nil && (*w.Rate < 1 || *w.Rate > mostRate) {
		return fmt.Errorf("rate must be 1 to %d messages per second", mostRate)
	}
	if receivers := w.ServersOfPeer(); receivers < 1 || receivers > mostServers {
		return fmt.Errorf("receivers must be 1 to %d, not %d", mostServers, receivers)
	}
	if w.ServersOfPeer() > 1 && w.Mode != "broadcast" {
		return fmt.Errorf("receivers must be 1 in mode %s", w.Mode)
	}
	if uint64(w.Window)*uint64(w.MessageBytes) > mostInFlight {
		return fmt.Errorf("the messages of a window must have at most %d bytes together", mostInFlight)
	}
	if w.Amount.Count != nil && *w.Amount.Count == 0 {
		return fmt.Errorf("amount.count must be at least 1 message")
	}
	return checkAmount(w.Amount)
}

// peerExchange is what a peer exchanges with its servers.
type peerExchange struct {
	messengers []*wire.Messenger
	// server is the other end, where the client itself has it.
	server    *serverEnd
	exchanged wire.Exchanged
	times     *hdrhistogram.Histogram
}

// run the exchanges, which are open before the clock starts.
func (w messages) run(ctx context.Context, c *Client) error {
	load := wire.Load{Parameters: w.Parameters}
	all, err := w.exchanges(ctx, c)
	defer func() {
		for _, e := range all {
			for _, m := range e.messengers {
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
	var run func(e *peerExchange) error
	switch w.Mode {
	case "broadcast":
		run = func(e *peerExchange) error {
			sent, took, err := wire.Broadcast(e.messengers, load, c.setup.counters())
			toAll := sent * uint64(len(e.messengers))
			e.exchanged = wire.Exchanged{Bytes: toAll * uint64(w.MessageBytes), Took: took}
			return err
		}
	case "serial":
		distribution = oneWay
		run = func(e *peerExchange) (err error) {
			var arrival wire.Arrival
			e.exchanged, arrival, err = wire.Serial(e.messengers[0], e.server.messenger, load, c.setup.counters(),
				e.server.counters, e.times)
			e.server.arrived <- arrival
			return err
		}
	default:
		run = func(e *peerExchange) (err error) {
			e.exchanged, err = e.messengers[0].Run(load, c.setup.counters(), e.times)
			return err
		}
	}
	if err := parallel(len(all), func(i int) error { return run(all[i]) }); err != nil {
		return err
	}
	upload := &contract.Transfer{}
	for _, e := range all {
		upload.Bytes += e.exchanged.Bytes
		upload.Seconds = max(upload.Seconds, e.exchanged.Took.Seconds())
		if e.times.TotalCount() > 0 {
			c.setup.Measurements.add(distribution, e.times)
		}
	}
	c.setup.Measurements.keep(func() { c.setup.Measurements.upload = upload })
	return nil
}

// exchanges of each peer with its servers, with message 0 acknowledged. Where the client itself has the other
// ends, they are opened one after the other, so that each comes with its own.
func (w messages) exchanges(ctx context.Context, c *Client) (all []*peerExchange, err error) {
	all = make([]*peerExchange, len(c.peers))
	for i, d := range c.peers {
		all[i] = &peerExchange{messengers: make([]*wire.Messenger, len(d.connectedServers)), times: observe.NewHistogram()}
	}
	if !w.isInProcess() {
		err = c.each(func(i int, d *dialler) error {
			return parallel(len(d.connectedServers), func(j int) (err error) {
				all[i].messengers[j], err = w.exchange(ctx, c, d.connectedServers[j])
				return err
			})
		})
		return all, err
	}
	for i, d := range c.peers {
		if all[i].messengers[0], err = w.exchange(ctx, c, d.connectedServers[0]); err == nil {
			all[i].server, err = c.take(ctx)
		}
		if err != nil {
			return all, err
		}
	}
	return all, nil
}

func (w messages) exchange(ctx context.Context, c *Client, server connectedServer) (*wire.Messenger, error) {
	s, err := server.Open(ctx)
	if err != nil {
		return nil, err
	}
	c.setup.counters().Streams.Add(1)
	messenger := wire.NewMessenger(s)
	if w.isInProcess() {
		return messenger, messenger.Begin(nil)
	}
	return messenger, messenger.Open(server.clock)
}

// serverEnd of an exchange, of which the client in the same process does both.
type serverEnd struct {
	messenger *wire.Messenger
	counters  *observe.Counters
	arrived   chan wire.Arrival
}

func (c *Client) take(ctx context.Context) (*serverEnd, error) {
	select {
	case server := <-c.setup.Handover:
		return server, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-time.After(nextEndTimeout):
		return nil, contract.Failf(contract.Timeout, "the server did not take the exchange")
	}
}

// serve one exchange until its last message, or hand it to the client in this process.
func (w messages) serve(ctx context.Context, s *server, stream wire.Stream) (wire.Arrival, error) {
	counters, messenger := s.setup.counters(), wire.NewMessenger(stream)
	if w.isInProcess() {
		server := &serverEnd{messenger: messenger, counters: counters, arrived: make(chan wire.Arrival, 1)}
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
	if w.Mode == "broadcast" {
		serve = messenger.ServeBroadcast
	}
	arrival, err := serve(wire.Load{Parameters: w.Parameters}, counters, times)
	if times.TotalCount() > 0 {
		s.setup.Measurements.add(oneWay, times)
	}
	return arrival, err
}
