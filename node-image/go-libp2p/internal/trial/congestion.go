package trial

import (
	"os"
	"strings"
)

// congestionControl of the connections on a transport, empty without one that has a name. go-libp2p gives no
// access to the TCP sockets that it accepts. They have the kernel's default, and so have those that it dials.
// quic-go always uses NewReno: its sender of CUBIC is made with the flag reno.
func congestionControl(transport string) string {
	switch transport {
	case "tcp", "tcp-tls", "ws":
		name, _ := os.ReadFile("/proc/sys/net/ipv4/tcp_congestion_control")
		return strings.TrimSpace(string(name))
	case "quic-v1", "webtransport":
		return "newReno"
	default:
		return ""
	}
}
