package observe

import (
	"os"
	"path/filepath"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"strings"
	"syscall"
	"time"

	"perfrun/node-go/internal/contract"
)

// The emulator's device: packets pass it a second time.
const emulatorDevice = "perfrun0"

// Usage is a reading of the kernel's counters for this process.
type Usage struct {
	User, System             float64
	Voluntary, Involuntary   uint64
	RSS                      uint64
	Throttled                *float64
	Retransmits              *uint64
	ReceivedBytes, SentBytes *uint64
	Machine                  *contract.MachineTime
}

// Now reads the usage.
func Now() Usage {
	var usage syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
	received, sent := interfaces(Text("/proc/self/net/dev"))
	return Usage{
		User:          seconds(usage.Utime),
		System:        seconds(usage.Stime),
		Voluntary:     uint64(usage.Nvcsw),
		Involuntary:   uint64(usage.Nivcsw),
		RSS:           Resident(),
		Throttled:     throttled(),
		Retransmits:   retransmits(Text("/proc/self/net/snmp")),
		ReceivedBytes: received,
		SentBytes:     sent,
		Machine:       machineNow(),
	}
}

// Since is the usage since an earlier reading.
func (u Usage) Since(start Usage, peak uint64, allocatedPeak uint64) contract.Resources {
	return contract.Resources{
		CPUUserSeconds:             u.User - start.User,
		CPUSystemSeconds:           u.System - start.System,
		RSSStartBytes:              start.RSS,
		RSSPeakBytes:               max(peak, start.RSS, u.RSS),
		AllocatedPeakBytes:         &allocatedPeak,
		ContextSwitchesVoluntary:   u.Voluntary - start.Voluntary,
		ContextSwitchesInvoluntary: u.Involuntary - start.Involuntary,
		ThrottledSeconds:           difference(u.Throttled, start.Throttled),
		TCPRetransmits:             difference(u.Retransmits, start.Retransmits),
		InterfaceReceivedBytes:     difference(u.ReceivedBytes, start.ReceivedBytes),
		InterfaceSentBytes:         difference(u.SentBytes, start.SentBytes),
		Machine:                    machineBetween(u.Machine, start.Machine),
	}
}

func difference[N uint64 | float64](now, then *N) *N {
	if now == nil || then == nil || *now < *then {
		return nil
	}
	difference := *now - *then
	return &difference
}

func seconds(time syscall.Timeval) float64 {
	return float64(time.Sec) + float64(time.Usec)/1e6
}

// CPU time of the process, in seconds.
func CPU() float64 {
	var usage syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
	return seconds(usage.Utime) + seconds(usage.Stime)
}

// Resident memory, in bytes. statm would be less exact: the kernel updates it in batches for each thread.
func Resident() uint64 { return statusField("VmRSS:") }

// Peak of the resident memory since ResetPeak, in bytes.
func Peak() uint64 { return statusField("VmHWM:") }

// ResetPeak hands free memory back to the kernel and resets the peak. It says whether the kernel lets it.
func ResetPeak() bool {
	debug.FreeOSMemory()
	return os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) == nil
}

// Allocated is the memory of the heap's objects, in bytes: what the program requested and not yet freed, with
// what the garbage collector has not found.
func Allocated() uint64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

func statusField(name string) uint64 {
	for line := range strings.Lines(Text("/proc/self/status")) {
		if value, found := strings.CutPrefix(line, name); found {
			kib, _ := strconv.ParseUint(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
			return kib << 10
		}
	}
	return 0
}

// Text of a file of the kernel, without white space around it: empty if the file cannot be read.
func Text(path string) string {
	content, _ := os.ReadFile(path)
	return strings.TrimSpace(string(content))
}

// controlGroup is the folder of the process's control group for a controller, in a unified (v2) or a legacy
// (v1) hierarchy.
func controlGroup(controller string) string {
	for line := range strings.Lines(Text("/proc/self/cgroup")) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		for _, folder := range []string{"/sys/fs/cgroup", filepath.Join("/sys/fs/cgroup", controller)} {
			if parts[1] == "" || strings.Contains(","+parts[1]+",", ","+controller+",") {
				candidate := filepath.Join(folder, parts[2])
				if _, err := os.Stat(filepath.Join(candidate, controller+".stat")); err == nil {
					return candidate
				}
			}
		}
	}
	return ""
}

func throttled() *float64 {
	for line := range strings.Lines(Text(filepath.Join(controlGroup("cpu"), "cpu.stat"))) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		number, err := strconv.ParseFloat(value, 64)
		if err != nil {
			continue
		}
		var time float64
		switch name {
		case "throttled_usec":
			time = number / 1e6
		case "throttled_time":
			time = number / 1e9
		default:
			continue
		}
		return &time
	}
	return nil
}

// CPULimit is the number of CPUs that the control group allows, nil without a limit.
func CPULimit() *float64 {
	folder := controlGroup("cpu")
	if quota, period, found := strings.Cut(Text(filepath.Join(folder, "cpu.max")), " "); found {
		return ratio(quota, period)
	}
	return ratio(Text(filepath.Join(folder, "cpu.cfs_quota_us")), Text(filepath.Join(folder, "cpu.cfs_period_us")))
}

func ratio(quota, period string) *float64 {
	a, errA := strconv.ParseFloat(quota, 64)
	b, errB := strconv.ParseFloat(period, 64)
	if errA != nil || errB != nil || a <= 0 || b <= 0 {
		return nil
	}
	limit := a / b
	return &limit
}

// MemoryLimit is the memory that the control group allows, in bytes, nil without a limit.
func MemoryLimit() *uint64 {
	limit, err := strconv.ParseUint(Text(filepath.Join(controlGroup("memory"), "memory.max")), 10, 64)
	if err != nil {
		return nil
	}
	return &limit
}

// retransmits reads the TCP segments sent again from /proc/net/snmp: a line of names, a line of values.
func retransmits(snmp string) *uint64 {
	var names []string
	for line := range strings.Lines(snmp) {
		words := strings.Fields(line)
		if len(words) == 0 || words[0] != "Tcp:" {
			continue
		}
		if names == nil {
			names = words
			continue
		}
		for i, name := range names {
			if name == "RetransSegs" && i < len(words) {
				value, err := strconv.ParseUint(words[i], 10, 64)
				if err == nil {
					return &value
				}
			}
		}
	}
	return nil
}

// interfaces sums the bytes that interfaces received and sent, without loopback and the emulator's device.
// nil if there are no others.
func interfaces(dev string) (received, sent *uint64) {
	for line := range strings.Lines(dev) {
		name, numbers, found := strings.Cut(line, ":")
		name = strings.TrimSpace(name)
		words := strings.Fields(numbers)
		if !found || len(words) < 9 || name == "lo" || name == emulatorDevice {
			continue
		}
		r, errR := strconv.ParseUint(words[0], 10, 64)
		s, errS := strconv.ParseUint(words[8], 10, 64)
		if errR != nil || errS != nil {
			continue
		}
		received, sent = plus(received, r), plus(sent, s)
	}
	return received, sent
}

func plus(sum *uint64, value uint64) *uint64 {
	if sum != nil {
		value += *sum
	}
	return &value
}

// The clock that the contract shows: Linux' monotonic clock, which nodes of one machine share.
var (
	started      = time.Now()
	startedShown = monotonic()
)

// Nanoseconds is the node's clock at a moment.
func Nanoseconds(at time.Time) uint64 {
	return uint64(int64(startedShown) + at.Sub(started).Nanoseconds())
}

// At is the moment at which the node's clock shows a number of nanoseconds.
func At(nanoseconds uint64) time.Time {
	return started.Add(time.Duration(int64(nanoseconds) - int64(startedShown)))
}
