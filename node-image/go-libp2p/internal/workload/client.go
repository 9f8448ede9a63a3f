package workload

import (
	"context"
	"runtime"
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
	clocks  []int64
}

// dialler is one identity of a client.
type dialler struct {
	server string

	mutex  sync.Mutex
	host   *peer.Host
	closed bool

	// connectedServers are those that the peer talks to. Empty if connecting is part of the workload.
	connectedServers []connectedServer
}

// connectedServer is one that a peer has connected to.
type connectedServer struct {
	*peer.Connection
	// clock of the server, as far as it is ahead, in nanoseconds. nil if that is unknown.
	clock *int64
}

// dial a connection that a workload needs but does not measure. After a lost dial, a new host takes the place
// of the old one.
func (d *dialler) dial(ctx context.Context, setup *Setup, server string) (*peer.Connection, error) {
	for left := setup.dials(); ; left-- {
		connection, err := d.host.Dial(ctx, server)
		if err == nil || left == 1 || ctx.Err() != nil {
			return connection, err
		}
		setup.counters().CountFailure(contract.DialFailed)
		d.host.Close()
		host, err := setup.newDialler()
		if err != nil {
			return nil, err
		}
		d.mutex.Lock()
		d.host = host
		closed := d.closed
		d.mutex.Unlock()
		if closed {
			host.Close()
		}
	}
}

// close the host, and every host that takes its place.
func (d *dialler) close() {
	d.mutex.Lock()
	d.closed = true
	host := d.host
	d.mutex.Unlock()
	for _, server := range d.connectedServers {
		server.Close()
	}
	host.Close()
}

func (d *dialler) connection() *peer.Connection { return d.connectedServers[0].Connection }

// Prepare starts hosts and, unless the workload does that itself, opens connections.
func Prepare(ctx context.Context, setup *Setup, side contract.Client) (*Client, error) {
	w := workloadOf(setup.parameters())
	c := &Client{setup: setup, servers: side.Servers, clocks: side.Clocks}
	slots := w.hosts(side.Peers)
	hosts := w.prepared(slots)
	if err := checkFiles(w.clientFiles(max(hosts, slots))); err != nil {
		return nil, err
	}
	c.peers = make([]*dialler, hosts)
	// At the same time, as far as there are CPUs: keys take their time.
	err := limited(runtime.GOMAXPROCS(0), hosts, func(i int) (err error) {
		c.peers[i] = &dialler{server: side.Servers[i%len(side.Servers)]}
		c.peers[i].host, err = setup.newDialler()
		return err
	})
	for i := 0; err == nil && i < hosts && w.connectsBeforeStart(); i++ {
		err = c.connect(ctx, c.peers[i], i)
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// connect a peer with the server of this number, in turn, and those after it if it talks to several.
func (c *Client) connect(ctx context.Context, d *dialler, first int) error {
	for i := range c.setup.parameters().ServersOfPeer() {
		number := (first + i) % len(c.servers)
		var server connectedServer
		var err error
		if i == 0 {
			server.Connection, err = d.dial(ctx, c.setup, c.servers[number])
		} else {
			// Another host would lose the connections that are open.
			server.Connection, err = d.host.Dial(ctx, c.servers[number])
		}
		if err != nil {
			c.setup.Measurements.countIfRefused(err)
			return err
		}
		if number < len(c.clocks) {
			server.clock = &c.clocks[number]
		}
		d.connectedServers = append(d.connectedServers, server)
		c.setup.counters().Connections.Add(1)
		c.setup.Measurements.recordDial(server.Connection)
	}
	return nil
}

// Run the workload. It returns how long that took.
func (c *Client) Run(ctx context.Context) (time.Duration, error) {
	begun := time.Now()
	err := workloadOf(c.setup.parameters()).run(ctx, c)
	return time.Since(begun), err
}

// Close connections and hosts.
func (c *Client) Close() {
	var all sync.WaitGroup
	for _, d := range c.peers {
		if d != nil && d.host != nil {
			all.Go(d.close)
		}
	}
	all.Wait()
}

// each calls do for every peer at the same time, and returns the first failure.
func (c *Client) each(do func(i int, d *dialler) error) error {
	return parallel(len(c.peers), func(i int) error { return do(i, c.peers[i]) })
}

// parallel calls do with 0 to n - 1 at the same time, and returns the first failure.
func parallel(n int, do func(i int) error) error { return limited(n, n, do) }

// limited is parallel with at most a number of calls at the same time.
func limited(most, n int, do func(i int) error) error {
	failures := make(chan error, n)
	turns := make(chan struct{}, max(most, 1))
	for i := range n {
		go func() {
			turns <- struct{}{}
			failures <- do(i)
			<-turns
		}()
	}
	var first error
	for range n {
		if err := <-failures; err != nil && first == nil {
			first = wire.Fail(err)
		}
	}
	return first
}
