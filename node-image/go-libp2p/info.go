package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"perfrun/node-go/internal/contract"
	"perfrun/node-go/internal/observe"
	"perfrun/node-go/internal/peer"
	"perfrun/node-go/internal/workload"
)

// version of perfrun, the commit that the program is built from, and what its builder calls it: set by the
// linker, with -X main.commit=89abcde.
var (
	version       = "0.0.0"
	commit, label string
)

// readInfo reads the properties of the build and of the machine, without the digest of the program, which
// takes time.
func readInfo(listenIP string) contract.Info {
	var name unix.Utsname
	_ = unix.Uname(&name)
	stack, profile := build()
	cpuinfo := observe.Text("/proc/cpuinfo")
	return contract.Info{
		Contract:                contract.Version,
		Instance:                rand.Uint64(),
		Version:                 version,
		Stacks:                  map[string]string{contract.Stack: stack},
		Capabilities:            map[string]contract.Capabilities{contract.Stack: capabilities()},
		Profile:                 profile,
		Commit:                  commit,
		Label:                   label,
		Compiler:                runtime.Version(),
		ListenIP:                listenIP,
		Clock:                   clockName(),
		BootID:                  observe.Text("/proc/sys/kernel/random/boot_id"),
		Host:                    unix.ByteSliceToString(name.Nodename[:]),
		Kernel:                  unix.ByteSliceToString(name.Release[:]),
		CPU:                     cpuModel(cpuinfo),
		CPUs:                    runtime.GOMAXPROCS(0),
		Governor:                observe.Text("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
		Hypervisor:              hypervisor(observe.Text("/sys/hypervisor/type"), cpuinfo),
		SMT:                     smt(observe.Text("/sys/devices/system/cpu/smt/active")),
		Mitigations:             mitigations("/sys/devices/system/cpu/vulnerabilities"),
		MTUBytes:                mtu(listenIP),
		CongestionControl:       observe.Text("/proc/sys/net/ipv4/tcp_congestion_control"),
		CPULimit:                observe.CPULimit(),
		MemoryLimitBytes:        observe.MemoryLimit(),
		SocketBufferLimitsBytes: pair("/proc/sys/net/core/rmem_max", "/proc/sys/net/core/wmem_max"),
		TCPWindowLimitsBytes:    pair("/proc/sys/net/ipv4/tcp_rmem", "/proc/sys/net/ipv4/tcp_wmem"),
	}
}

// capabilities of go-libp2p in this program.
func capabilities() contract.Capabilities {
	transports := map[string]contract.Limits{}
	for transport := range peer.Transports {
		transports[transport] = contract.Limits{}
	}
	// go-libp2p's QUIC takes 256 streams, which is not configurable; WebTransport needs two of them itself.
	// Of a burst of streams, its WebRTC loses some without an error.
	transports["quic-v1"] = contract.Limits{MaxStreams: 256}
	transports["webtransport"] = contract.Limits{MaxStreams: 254}
	transports["webrtc-direct"] = contract.Limits{StreamBurst: 50}
	return contract.Capabilities{
		Wire:       "libp2p",
		Transports: transports,
		Workloads:  workload.Names(),
		Protocols: []string{
			contract.EchoLines, contract.Framed, contract.Litep2pPerf, contract.Perf, contract.Ping, contract.TestData,
		},
		Roles:       []string{"client", "relay", "server"},
		Negotiation: []string{"v1", "v1lazy"},
		Identities:  []string{"ed25519", "rsa2048"},
		Paces:       []string{"pause", "period"},
		Settings:    []string{"yamuxWindow"},
	}
}

// build reads the version of go-libp2p and its parts, and whether the build has the race detector, which
// makes numbers mean little.
func build() (stack, profile string) {
	stack, profile = "unknown", "release"
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return stack, profile
	}
	versions := map[string]string{}
	for _, module := range info.Deps {
		versions[module.Path] = strings.TrimPrefix(module.Version, "v")
	}
	for _, setting := range info.Settings {
		if setting.Key == "-race" && setting.Value == "true" {
			profile = "debug"
		}
	}
	stack = fmt.Sprintf("%s (quic-go %s, yamux %s, %s)", versions["github.com/libp2p/go-libp2p"],
		versions["github.com/quic-go/quic-go"], versions["github.com/libp2p/go-yamux/v5"], runtime.Version())
	return stack, profile
}

// clockName names the clock that nodes of this kernel and time namespace share.
func clockName() string {
	kernel := observe.Text("/proc/sys/kernel/random/boot_id")
	namespace, _ := os.Readlink("/proc/self/ns/time")
	return strings.TrimSpace(kernel + " " + namespace)
}

// pair of the last numbers in two files, nil without them.
func pair(receive, send string) *[2]uint64 {
	var both [2]uint64
	for i, path := range []string{receive, send} {
		words := strings.Fields(observe.Text(path))
		if len(words) == 0 {
			return nil
		}
		number, err := strconv.ParseUint(words[len(words)-1], 10, 64)
		if err != nil {
			return nil
		}
		both[i] = number
	}
	return &both
}
