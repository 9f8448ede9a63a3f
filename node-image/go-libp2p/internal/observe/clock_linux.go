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

// SleepUntil a moment on the kernel's clock, more exactly than the runtime's timers. Signals of the runtime
// end a sleep early.
func SleepUntil(at time.Time) {
	for pause := time.Until(at); pause > 0; pause = time.Until(at) {
		request := unix.NsecToTimespec(pause.Nanoseconds())
		_ = unix.Nanosleep(&request, nil)
	}
}
