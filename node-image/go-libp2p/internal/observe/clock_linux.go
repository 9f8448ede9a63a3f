package observe

import (
	"time"

	"golang.org/x/sys/unix"
)

func monotonic() uint64 {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return 0
	}
	return uint64(now.Nano())
}

// Sleep on the kernel's clock, more exactly than the runtime's timers.
func Sleep(pause time.Duration) {
	if pause > 0 {
		request := unix.NsecToTimespec(pause.Nanoseconds())
		_ = unix.Nanosleep(&request, nil)
	}
}
