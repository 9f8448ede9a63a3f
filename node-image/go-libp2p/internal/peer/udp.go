package peer

import (
	"net"
	"sync"

	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/p2p/transport/quicreuse"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/quic-go/quic-go"
	"go.uber.org/fx"
	"golang.org/x/sys/unix"

	"perfrun/node-go/internal/contract"
)

// wantedBuffer is the size that quic-go wants the buffers of its sockets to have.
const wantedBuffer = 7 << 20

// udpSockets are sockets of QUIC whose buffers were not read yet.
type udpSockets struct {
	mutex  sync.Mutex
	unread []*net.UDPConn
}

// manager of QUIC's sockets, as libp2p.New makes it where there is no limit of resources.
func (u *udpSockets) manager(metrics prometheus.Registerer) libp2p.Option {
	type resetKey = quic.StatelessResetKey
	type tokenKey = quic.TokenGeneratorKey
	return libp2p.QUICReuse(func(reset resetKey, token tokenKey, lifecycle fx.Lifecycle) (*quicreuse.ConnManager, error) {
		manager, err := quicreuse.NewConnManager(reset, token, quicreuse.EnableMetrics(metrics), quicreuse.OverrideListenUDP(u.listen))
		if err == nil {
			lifecycle.Append(fx.StopHook(manager.Close))
		}
		return manager, err
	})
}

func (u *udpSockets) listen(network string, address *net.UDPAddr) (net.PacketConn, error) {
	socket, err := net.ListenUDP(network, address)
	if err != nil {
		return nil, err
	}
	u.mutex.Lock()
	defer u.mutex.Unlock()
	u.unread = append(u.unread, socket)
	return socket, nil
}

// read the buffers of sockets that quic-go has set up since the last call, and pass them to sized.
func (u *udpSockets) read(sized func(contract.UDPBuffers)) {
	u.mutex.Lock()
	sockets := u.unread
	u.unread = nil
	u.mutex.Unlock()
	for _, socket := range sockets {
		if raw, err := socket.SyscallConn(); err == nil {
			_ = raw.Control(func(fd uintptr) {
				receive, errReceive := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF)
				send, errSend := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_SNDBUF)
				if errReceive == nil && errSend == nil {
					sized(contract.UDPBuffers{WantedBytes: wantedBuffer, ReceiveBytes: uint64(receive), SendBytes: uint64(send)})
				}
			})
		}
	}
}
