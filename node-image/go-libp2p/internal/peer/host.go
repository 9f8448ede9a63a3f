// Package peer sets up go-libp2p hosts: one transport, no limits that could end a benchmark silently.
package peer

import (
	"context"
	"crypto/rand"
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
}

// Host is a peer: an identity, a transport and, if it listens, a socket.
type Host struct {
	host   host.Host
	config Config
}

// Transports of this program, with the multiaddr that follows the address of the interface.
var Transports = map[string]string{
	"tcp":           "/tcp/0",
	"tcp-tls":       "/tcp/0",
	"ws":            "/tcp/0/ws",
	"quic-v1":       "/udp/0/quic-v1",
	"webtransport":  "/udp/0/quic-v1/webtransport",
	"webrtc-direct": "/udp/0/webrtc-direct",
}

// New starts a host.
func New(config Config) (*Host, error) {
	suffix, known := Transports[config.Transport]
	if !known {
		return nil, contract.Failf(contract.Unsupported, "go-libp2p cannot do %s", config.Transport)
	}
	key, _, err := crypto.GenerateEd25519Key(rand.Reader)
	if err != nil {
		return nil, contract.Failf(contract.Internal, "failed to make a key: %v", err)
	}
	options := append(common(), libp2p.Identity(key))
	options = append(options, carrier(config.Transport)...)
	if config.ListenIP == "" {
		options = append(options, libp2p.NoListenAddrs)
	} else {
		family := "/ip6/"
		if net.ParseIP(config.ListenIP).To4() != nil {
			family = "/ip4/"
		}
		options = append(options, libp2p.ListenAddrStrings(family+config.ListenIP+suffix))
	}
	// A dialler must never relay, and a relay transport would be a second transport.
	h, err := libp2p.New(append(options, libp2p.DisableRelay())...)
	if err != nil {
		return nil, contract.Failf(contract.ListenFailed, "failed to start a host of go-libp2p: %v", err)
	}
	return &Host{host: h, config: config}, nil
}

// common are the options of all hosts. Each removes a limit that go-libp2p applies silently.
func common() []libp2p.Option {
	return []libp2p.Option{
		// By default 8 connections from an IP address, and limits on streams and memory.
		libp2p.ResourceManager(&network.NullResourceManager{}),
		// By default connections above 192 are closed.
		libp2p.ConnectionManager(connmgr.NullConnMgr{}),
		// The built-in ping resets streams that pause.
		libp2p.Ping(false),
		// Observed addresses serve no benchmark, and cost streams.
		libp2p.DisableIdentifyAddressDiscovery(),
		// After failures they would refuse to dial over UDP or IPv6.
		libp2p.UDPBlackHoleSuccessCounter(nil),
		libp2p.IPv6BlackHoleSuccessCounter(nil),
		// By default QUIC is tried first, and others wait.
		libp2p.DialRanker(swarm.NoDelayDialRanker),
		// By default 5 s for local addresses and 15 s for others.
		libp2p.SwarmOpts(swarm.WithDialTimeout(dialTimeout), swarm.WithDialTimeoutLocal(dialTimeout)),
		libp2p.DisableMetrics(),
	}
}

func carrier(transport string) []libp2p.Option {
	muxer := libp2p.Muxer(yamux.ID, yamux.DefaultTransport)
	switch transport {
	case "tcp":
		return []libp2p.Option{libp2p.Transport(tcp.NewTCPTransport), libp2p.Security(noise.ID, noise.New), muxer}
	case "tcp-tls":
		return []libp2p.Option{libp2p.Transport(tcp.NewTCPTransport), libp2p.Security(libp2ptls.ID, libp2ptls.New), muxer}
	case "ws":
		return []libp2p.Option{libp2p.Transport(websocket.New), libp2p.Security(noise.ID, noise.New), muxer}
	case "webtransport":
		return []libp2p.Option{libp2p.Transport(libp2pwebtransport.New)}
	case "webrtc-direct":
		return []libp2p.Option{libp2p.Transport(libp2pwebrtc.New)}
	default:
		return []libp2p.Option{libp2p.Transport(libp2pquic.NewTransport)}
	}
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

// Serve calls serve for each stream of a peer, and connected for each connection.
func (h *Host) Serve(connected func(), serve func(wire.Stream)) {
	h.host.Network().Notify(&network.NotifyBundle{ConnectedF: func(network.Network, network.Conn) { connected() }})
	h.host.SetStreamHandler(protocol.ID(h.config.Protocol), func(s network.Stream) { serve(s) })
}

// Connection that this host dialled.
type Connection struct {
	connection network.Conn
	config     Config
	// Established is how long the dial took.
	Established time.Duration
}

// Dial opens a connection, and waits until it is established, secured and multiplexed.
func (h *Host) Dial(ctx context.Context, address string) (*Connection, error) {
	info, err := libp2ppeer.AddrInfoFromString(address)
	if err != nil {
		return nil, contract.Failf(contract.DialFailed, "unable to dial %s: %v", address, err)
	}
	h.host.Peerstore().AddAddrs(info.ID, info.Addrs, peerstore.PermanentAddrTTL)
	begun := time.Now()
	connection, err := h.host.Network().DialPeer(ctx, info.ID)
	if err != nil {
		return nil, contract.Failf(contract.DialFailed, "failed to dial %s: %v", address, err)
	}
	return &Connection{connection: connection, config: h.config, Established: time.Since(begun)}, nil
}

// Open a stream and negotiate its protocol. host.NewStream would wait for identify, and then be lazy.
func (c *Connection) Open(ctx context.Context) (wire.Stream, error) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	s, err := c.connection.NewStream(ctx)
	if err != nil {
		return nil, contract.Failf(contract.OpenFailed, "failed to open a stream: %v", err)
	}
	id := protocol.ID(c.config.Protocol)
	if c.config.Lazy {
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
		return nil, contract.Failf(contract.OpenFailed, "failed to negotiate %s: %v", id, err)
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
