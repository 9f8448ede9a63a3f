package observe

import (
	"math"
	"strconv"
	"strings"

	"perfrun/node-go/internal/contract"
)

// ticks of a second, in which the kernel counts CPU time for programs (USER_HZ is 100 wherever Go runs).
const ticks = 100

// machineNow reads the CPU time of the machine since it was started, nil where the kernel does not report it.
func machineNow() *contract.MachineTime {
	return machineSinceBoot(Text("/proc/stat"), Text("/proc/pressure/memory"))
}

// machineSinceBoot reads /proc/stat (proc_stat(5)) and, if there is one, /proc/pressure/memory.
func machineSinceBoot(stat, memoryPressure string) *contract.MachineTime {
	time := contract.MachineTime{MemoryStalledSeconds: fullStall(memoryPressure)}
	found := false
	for line := range strings.Lines(stat) {
		name, counts, _ := strings.Cut(line, " ")
		number, isCPU := strings.CutPrefix(name, "cpu")
		switch {
		case !isCPU:
		case number != "":
			time.CPUs++
		default:
			// User, nice, system, idle, wait, interrupt, soft interrupt, steal. User mode includes guests.
			var seconds [8]float64
			fields := strings.Fields(counts)
			if len(fields) < len(seconds) {
				return nil
			}
			for i := range seconds {
				count, err := strconv.ParseUint(fields[i], 10, 64)
				if err != nil {
					return nil
				}
				seconds[i] = float64(count) / ticks
				time.TotalSeconds += seconds[i]
			}
			time.BusySeconds = seconds[0] + seconds[1] + seconds[2]
			time.InterruptSeconds = seconds[5] + seconds[6]
			time.StealSeconds = seconds[7]
			found = true
		}
	}
	if !found {
		return nil
	}
	return &time
}

// machineBetween two readings, in whole ticks. The kernel may take back time of waiting.
func machineBetween(now, then *contract.MachineTime) *contract.MachineTime {
	if now == nil || then == nil {
		return nil
	}
	between := func(now, then float64) float64 { return max(math.Round((now-then)*ticks)/ticks, 0) }
	return &contract.MachineTime{
		CPUs:                 now.CPUs,
		TotalSeconds:         between(now.TotalSeconds, then.TotalSeconds),
		BusySeconds:          between(now.BusySeconds, then.BusySeconds),
		InterruptSeconds:     between(now.InterruptSeconds, then.InterruptSeconds),
		StealSeconds:         between(now.StealSeconds, then.StealSeconds),
		MemoryStalledSeconds: difference(now.MemoryStalledSeconds, then.MemoryStalledSeconds),
	}
}

// fullStall is the time for which all processes waited, of a file in /proc/pressure.
func fullStall(pressure string) *float64 {
	for line := range strings.Lines(pressure) {
		fields := strings.Fields(line)
		if len(fields) == 0 || fields[0] != "full" {
			continue
		}
		for _, field := range fields {
			if total, found := strings.CutPrefix(field, "total="); found {
				microseconds, err := strconv.ParseUint(total, 10, 64)
				if err != nil {
					return nil
				}
				seconds := float64(microseconds) / 1e6
				return &seconds
			}
		}
	}
	return nil
}
