// Package peer sets up go-libp2p hosts: one transport, no limits that could end a benchmark silently.
package peer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/core/connmgr"
	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	libp2ppeer "github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/peerstore"
	"github.com/libp2p/go-libp2p/core/protocol"
	"github.com/libp2p/go-libp2p/p2p/muxer/yamux"
	"github.com/libp2p/go-libp2p/p2p/net/swarm"
	"github.com/libp2p/go-libp2p/p2p/security/noise"
	libp2ptls "github.com/libp2p/go-libp2p/p2p/security/tls"
	libp2pquic "github.com/libp2p/go-libp2p/p2p/transport/quic"
	"github.com/libp2p/go-libp2p/p2p/transport/tcp"
	libp2pwebrtc "github.com/libp2p/go-libp2p/p2p/transport/webrtc"
	"github.com/libp2p/go-libp2p/p2p/transport/websocket"
	libp2pwebtransport "github.com/libp2p/go-libp2p/p2p/transport/webtransport"
	"github.com/multiformats/go-multistream"
	"github.com/prometheus/client_golang/prometheus"

	"perfrun/node-go/internal/contract"
	"perfrun/node-go/internal/wire"
)

const (
	// dialTimeout and openTimeout are those of all stacks that perfrun measures.
	dialTimeout = 10 * time.Second
	openTimeout = 30 * time.Second
)

// Config of a host.
type Config struct {
	// Transport by perfrun's name.
	Transport string
	// Protocol on the host's streams.
	Protocol string
	// Lazy hands streams out before the peer has confirmed their protocol.
	Lazy bool
	// ListenIP is the address of a listening host, empty for a dialler.
	ListenIP string
	// RSA identities have keys of 2048 bits. Others are Ed25519.
	RSA bool
	// Relayed hosts can be dialled, and can dial, through a relay.
	Relayed bool
	// Relay makes the host a relay.
	Relay *Relaying
	// StreamWindow is what yamux grants to the peer on each stream, in bytes, at least 256 KiB. Zero is
	// go-libp2p's default.
	StreamWindow uint32
	// Metrics is where go-libp2p registers its own metrics.
	Metrics prometheus.Registerer
	// Sized takes the buffers of each socket of QUIC.
	Sized func(contract.UDPBuffers)
}

// Host is a peer: an identity, a transport and, if it listens, a socket.
type Host struct {
	host    host.Host
	config  Config
	sockets *udpSockets
}

// Transport of go-libp2p.
type Transport struct {
	// listen is the multiaddr that follows the address of the interface.
	listen      string
	constructor any
}

// Transports of this program.
var Transports = map[string]Transport{
	"tcp":           {"/tcp/0", tcp.NewTCPTransport},
	"tcp-tls":       {"/tcp/0", tcp.NewTCPTransport},
	"ws":            {"/tcp/0/ws", websocket.New},
	"quic-v1":       {"/udp/0/quic-v1", libp2pquic.NewTransport},
	"webtransport":  {"/udp/0/quic-v1/webtransport", libp2pwebtransport.New},
	"webrtc-direct": {"/udp/0/webrtc-direct", libp2pwebrtc.New},
}

// New starts a host.
func New(config Config) (*Host, error) {
	transport, known := Transports[config.Transport]
	if !known {
		return nil, contract.Failf(contract.Unsupported, "go-libp2p cannot do %s", config.Transport)
	}
	key, err := newKey(config.RSA)
	if err != nil {
		return nil, contract.Failf(contract.Internal, "failed to make a key: %v", err)
	}
	sockets := &udpSockets{}
	options := append(common(), libp2p.Identity(key), libp2p.PrometheusRegisterer(config.Metrics), sockets.manager(config.Metrics))
	options = append(options, carrier(&config)...)
	if config.Relayed {
		options = append(options, libp2p.EnableRelay())
	} else {
		// A peer that dials directly must never use a relay.
		options = append(options, libp2p.DisableRelay())
	}
	if config.ListenIP == "" {
		options = append(options, libp2p.NoListenAddrs)
	} else {
		family := "/ip6/"
		if net.ParseIP(config.ListenIP).To4() != nil {
			family = "/ip4/"
		}
		options = append(options, libp2p.ListenAddrStrings(family+config.ListenIP+transport.listen))
	}
	h, err := libp2p.New(options...)
	if err != nil {
		return nil, contract.Failf(contract.ListenFailed, "failed to start a host of go-libp2p: %v", err)
	}
	if config.Relay != nil {
		if err := config.Relay.start(h, config.Metrics); err != nil {
			_ = h.Close()
			return nil, contract.Failf(contract.ListenFailed, "failed to start a relay of go-libp2p: %v", err)
		}
	}
	sockets.read(config.Sized)
	return &Host{host: h, config: config, sockets: sockets}, nil
}

func newKey(isRSA bool) (crypto.PrivKey, error) {
	kind, bits := crypto.Ed25519, -1
	if isRSA {
		kind, bits = crypto.RSA, 2048
	}
	key, _, err := crypto.GenerateKeyPair(kind, bits)
	return key, err
}

// common are the options of all hosts. They switch off limits, delays and services of go-libp2p that would
// change a measurement silently.
func common() []libp2p.Option {
	return []libp2p.Option{
		// By default 8 connections from an IP address, and limits on streams and memory.
		libp2p.ResourceManager(&network.NullResourceManager{}),
		// By default connections above 192 are closed.
		libp2p.ConnectionManager(connmgr.NullConnMgr{}),
		// The built-in ping resets streams that pause.
		libp2p.Ping(false),
		// Observed addresses serve no benchmark.
		libp2p.DisableIdentifyAddressDiscovery(),
		// After failures they would refuse to dial over UDP or IPv6.
		libp2p.UDPBlackHoleSuccessCounter(nil),
		libp2p.IPv6BlackHoleSuccessCounter(nil),
		libp2p.SwarmOpts(
			// By default QUIC is tried first, and others wait.
			swarm.WithDialRanker(swarm.NoDelayDialRanker),
			// By default 5 s for local addresses and 15 s for others.
			swarm.WithDialTimeout(dialTimeout), swarm.WithDialTimeoutLocal(dialTimeout),
		),
	}
}

// carrier has the options of a transport. Circuits are secured and multiplexed again, whatever carries them:
// by Noise, which every implementation has.
func carrier(config *Config) []libp2p.Option {
	transport := config.Transport
	options := []libp2p.Option{
		libp2p.Transport(Transports[transport].constructor), libp2p.Muxer(yamux.ID, muxer(config.StreamWindow)),
	}
	// The first one that both ends have is taken.
	if transport == "tcp-tls" {
		options = append(options, libp2p.Security(libp2ptls.ID, libp2ptls.New))
	}
	if transport == "tcp" || transport == "ws" || config.Relayed {
		options = append(options, libp2p.Security(noise.ID, noise.New))
	}
	return options
}

// muxer is go-libp2p's yamux. The window of a stream begins at 256 KiB. It doubles, up to streamWindow, each
// time that it is granted again within four round trips.
func muxer(streamWindow uint32) *yamux.Transport {
	config := *yamux.DefaultTransport
	if streamWindow > 0 {
		config.MaxStreamWindowSize = streamWindow
	}
	return &config
}

// Addresses that peers can dial.
func (h *Host) Addresses() ([]string, error) {
	addresses, err := h.host.Network().InterfaceListenAddresses()
	if err != nil {
		return nil, contract.Failf(contract.ListenFailed, "failed to read the addresses of the host: %v", err)
	}
	var all []string
	for _, address := range addresses {
		all = append(all, fmt.Sprintf("%s/p2p/%s", address, h.host.ID()))
	}
	if len(all) == 0 {
		return nil, contract.Failf(contract.ListenFailed, "go-libp2p did not listen")
	}
	return all, nil
}

// Serve calls serve for each stream of a peer, and connected for each connection. Pings beside another
// protocol are answered by ping.
func (h *Host) Serve(connected func(), serve, ping func(wire.Stream)) {
	h.host.Network().Notify(&network.NotifyBundle{ConnectedF: func(network.Network, network.Conn) { connected() }})
	if h.config.Protocol != contract.Ping {
		h.host.SetStreamHandler(contract.Ping, func(s network.Stream) { ping(s) })
	}
	h.host.SetStreamHandler(protocol.ID(h.config.Protocol), func(s network.Stream) { serve(s) })
}

// Connection that this host dialled.
type Connection struct {
	connection network.Conn
	relay      network.Conn
	config     Config
	// Established is how long the dial took.
	Established time.Duration
	// RelayConnected is how long the dial of the relay took, zero without one.
	RelayConnected time.Duration
}

// Dial opens a connection, and waits until it is established, secured and multiplexed.
func (h *Host) Dial(ctx context.Context, address string) (*Connection, error) {
	info, err := libp2ppeer.AddrInfoFromString(address)
	if err != nil {
		return nil, contract.Failf(contract.DialFailed, "unable to dial %s: %v", address, err)
	}
	c := &Connection{config: h.config}
	begun := time.Now()
	if relay := relayOf(info); relay != nil {
		if c.relay, err = h.dial(ctx, relay); err != nil {
			return nil, contract.Failf(contract.DialFailed, "failed to dial the relay of %s: %v", address, err)
		}
		c.RelayConnected = time.Since(begun)
	}
	if c.connection, err = h.dial(ctx, info); err != nil {
		if status := refusedCircuit(err); status != "" {
			return nil, &RefusedError{What: "circuit", Status: status}
		}
		return nil, contract.Failf(contract.DialFailed, "failed to dial %s: %v", address, err)
	}
	c.Established = time.Since(begun)
	return c, nil
}

func (h *Host) dial(ctx context.Context, to *libp2ppeer.AddrInfo) (network.Conn, error) {
	h.host.Peerstore().AddAddrs(to.ID, to.Addrs, peerstore.PermanentAddrTTL)
	defer h.sockets.read(h.config.Sized)
	return h.host.Network().DialPeer(network.WithAllowLimitedConn(ctx, "benchmark"), to.ID)
}

// Ping opens a stream for pings, to the peer or to the relay on the way. It is nil without a relay, and if
// the peer does not answer pings.
func (c *Connection) Ping(ctx context.Context, toRelay bool) (wire.Stream, error) {
	connection := c.connection
	if toRelay {
		if c.relay == nil {
			return nil, nil
		}
		connection = c.relay
	}
	s, err := open(ctx, connection, contract.Ping, false)
	var unsupported multistream.ErrNotSupported[protocol.ID]
	if errors.As(err, &unsupported) {
		return nil, nil
	}
	return s, openFailed(err)
}

// Open a stream and negotiate its protocol.
func (c *Connection) Open(ctx context.Context) (wire.Stream, error) {
	s, err := open(ctx, c.connection, protocol.ID(c.config.Protocol), c.config.Lazy)
	return s, openFailed(err)
}

func openFailed(err error) error {
	if err == nil {
		return nil
	}
	return contract.Failf(contract.OpenFailed, "%v", err)
}

// open a stream. host.NewStream would wait for identify, and then be lazy.
func open(ctx context.Context, connection network.Conn, id protocol.ID, lazy bool) (wire.Stream, error) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	// libp2p's relays limit every circuit, if only to a number that is never reached.
	s, err := connection.NewStream(network.WithAllowLimitedConn(ctx, "benchmark"))
	if err != nil {
		return nil, fmt.Errorf("failed to open a stream: %w", err)
	}
	if lazy {
		_ = s.SetProtocol(id)
		return &lazyStream{Stream: s, lazy: multistream.NewMSSelect(s, id)}, nil
	}
	negotiated := make(chan error, 1)
	go func() { negotiated <- multistream.SelectProtoOrFail(id, s) }()
	select {
	case err = <-negotiated:
	case <-ctx.Done():
		_ = s.Reset()
		<-negotiated
		err = ctx.Err()
	}
	if err != nil {
		_ = s.Reset()
		return nil, fmt.Errorf("failed to negotiate %s: %w", id, err)
	}
	_ = s.SetProtocol(id)
	return s, nil
}

// Close the connection.
func (c *Connection) Close() { _ = c.connection.Close() }

// Close listeners and connections.
func (h *Host) Close() { _ = h.host.Close() }

// lazyStream negotiates with its first bytes.
type lazyStream struct {
	network.Stream
	lazy io.ReadWriteCloser
}

func (s *lazyStream) Read(b []byte) (int, error)  { return s.lazy.Read(b) }
func (s *lazyStream) Write(b []byte) (int, error) { return s.lazy.Write(b) }

func (s *lazyStream) CloseWrite() error {
	if flusher, ok := s.lazy.(interface{ Flush() error }); ok {
		if err := flusher.Flush(); err != nil {
			return err
		}
	}
	return s.Stream.CloseWrite()
}
