package main

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"perfrun/node-go/internal/observe"
)

// programSHA256 is the digest of the running program, in hexadecimal: the one that its starter knows or,
// without one, that of what the kernel runs. It is empty if that cannot be read, which takes about 0.6 s for
// each GiB.
var programSHA256 = sync.OnceValue(func() string {
	if known := os.Getenv("PERFRUN_PROGRAM_SHA256"); known != "" {
		return known
	}
	program, err := os.Open("/proc/self/exe")
	if err != nil {
		slog.Warn("the digest of the program is unknown", "error", err)
		return ""
	}
	defer program.Close()
	digest := sha256.New()
	if _, err := io.Copy(digest, program); err != nil {
		slog.Warn("the digest of the program is unknown", "error", err)
		return ""
	}
	return hex.EncodeToString(digest.Sum(nil))
})

// cpuField is the first value of a field of /proc/cpuinfo, empty without one.
func cpuField(cpuinfo, name string) string {
	for line := range strings.Lines(cpuinfo) {
		if key, value, found := strings.Cut(line, ":"); found && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

func cpuModel(cpuinfo string) string {
	for _, name := range []string{"model name", "CPU part"} {
		if model := cpuField(cpuinfo, name); model != "" {
			return model
		}
	}
	return "unknown"
}

// hypervisor that the machine is a guest of: its name, or "unknown" if only a flag of the CPU says that there
// is one.
func hypervisor(kind, cpuinfo string) string {
	if kind == "" && strings.Contains(" "+cpuField(cpuinfo, "flags")+" ", " hypervisor ") {
		return "unknown"
	}
	return kind
}

// mitigations of the kernel against vulnerabilities of the CPU: those that are on, and those that are off.
func mitigations(folder string) string {
	files, _ := os.ReadDir(folder)
	var on, off []string
	for _, file := range files {
		switch state := observe.Text(filepath.Join(folder, file.Name())); {
		case strings.HasPrefix(state, "Mitigation"):
			on = append(on, file.Name())
		case strings.HasPrefix(state, "Vulnerable"):
			off = append(off, file.Name())
		}
	}
	var parts []string
	if len(on) > 0 {
		parts = append(parts, "on for "+strings.Join(on, ", "))
	}
	if len(off) > 0 {
		parts = append(parts, "off for "+strings.Join(off, ", "))
	}
	return strings.Join(parts, "; ")
}

// smt says whether CPUs share cores, nil where the kernel does not.
func smt(active string) *bool {
	if active == "" {
		return nil
	}
	on := active == "1"
	return &on
}

// mtu of the interface that an address belongs to, nil if there is none.
func mtu(ip string) *uint32 {
	wanted := net.ParseIP(ip)
	interfaces, _ := net.Interfaces()
	for _, candidate := range interfaces {
		addresses, _ := candidate.Addrs()
		for _, address := range addresses {
			network, isNetwork := address.(*net.IPNet)
			if isNetwork && (network.IP.Equal(wanted) || wanted.IsLoopback() && network.IP.IsLoopback()) {
				bytes := uint32(candidate.MTU)
				return &bytes
			}
		}
	}
	return nil
}
