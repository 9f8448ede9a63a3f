package trial

import (
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"perfrun/node-go/internal/contract"
)

const (
	// wantedBuffer of quic-go.
	wantedBuffer = 7 << 20
	// noBuffers is the variable with which this test program runs in a process that gets no larger buffers.
	noBuffers = "PERFRUN_TEST_NO_UDP_BUFFERS"
)

func TestTheUDPBuffersOfSocketsAreReported(t *testing.T) {
	expected := obtainable(t)
	if os.Getenv(noBuffers) != "" {
		refuseBuffers(t)
		if expected = obtainable(t); expected.ReceiveBytes >= wantedBuffer || expected.SendBytes >= wantedBuffer {
			t.Fatalf("a socket still gets %+v", expected)
		}
	}
	const transfer = `{"workload": "bandwidth", "protocol": "/perf/1.0.0", "direction": "download", "streams": 1,
		"chunkBytes": "64Ki", "amount": {"count": 3000000}, "timing": "strict", "negotiation": "v1"}`
	for _, transport := range []string{"quic-v1", "webtransport"} {
		of, served := run(t, transport, transfer, 1)
		if of.BytesReceived != 3000000 {
			t.Errorf("%d bytes over %s", of.BytesReceived, transport)
		}
		for _, buffers := range []*contract.UDPBuffers{of.UDPBuffers, served.UDPBuffers} {
			if buffers == nil || *buffers != expected {
				t.Errorf("%s reports %+v, and a socket gets %+v", transport, buffers, expected)
			}
		}
	}
	if of, served := run(t, "tcp", transfer, 1); of.UDPBuffers != nil || served.UDPBuffers != nil {
		t.Errorf("TCP reports %+v and %+v", of.UDPBuffers, served.UDPBuffers)
	}
}

// No network namespace has a limit of its own for UDP buffers, and a test must not change that of the
// machine. So a process refuses itself larger buffers, as a small limit does.
func TestANodeWithoutUDPBuffersRunsTrialsAndReportsTheLack(t *testing.T) {
	const test = "TestTheUDPBuffersOfSocketsAreReported"
	program := exec.Command(os.Args[0], "-test.v", "-test.run=^"+test+"$")
	program.Env = append(os.Environ(), noBuffers+"=1")
	output, err := program.CombinedOutput()
	if err != nil || !strings.Contains(string(output), "--- PASS: "+test) {
		t.Errorf("%v\n%s", err, output)
	}
}

// obtainable are the buffers of a socket that requests as much as quic-go does.
func obtainable(t *testing.T) contract.UDPBuffers {
	t.Helper()
	socket, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	raw, err := socket.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	buffers := contract.UDPBuffers{WantedBytes: wantedBuffer}
	err = raw.Control(func(fd uintptr) {
		size := func(option, force int) uint64 {
			_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, option, wantedBuffer)
			got, _ := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, option)
			if got < wantedBuffer {
				_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, force, wantedBuffer)
				got, _ = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, option)
			}
			return uint64(got)
		}
		buffers.ReceiveBytes = size(unix.SO_RCVBUF, unix.SO_RCVBUFFORCE)
		buffers.SendBytes = size(unix.SO_SNDBUF, unix.SO_SNDBUFFORCE)
	})
	if err != nil {
		t.Fatal(err)
	}
	return buffers
}

// refuseBuffers to this process for good: a change of a buffer's size succeeds without an effect.
func refuseBuffers(t *testing.T) {
	t.Helper()
	const (
		number, level, option = 0, 16 + 8, 16 + 2*8 // offsets in struct seccomp_data
		load                  = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		equal                 = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		end                   = unix.BPF_RET | unix.BPF_K
	)
	filter := []unix.SockFilter{
		{Code: load, K: number}, {Code: equal, K: unix.SYS_SETSOCKOPT, Jf: 7},
		{Code: load, K: level}, {Code: equal, K: unix.SOL_SOCKET, Jf: 5},
		{Code: load, K: option},
		{Code: equal, K: unix.SO_SNDBUF, Jt: 4}, {Code: equal, K: unix.SO_RCVBUF, Jt: 3},
		{Code: equal, K: unix.SO_SNDBUFFORCE, Jt: 2}, {Code: equal, K: unix.SO_RCVBUFFORCE, Jt: 1},
		{Code: end, K: unix.SECCOMP_RET_ALLOW},
		{Code: end, K: unix.SECCOMP_RET_ERRNO},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	_, _, failed := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC,
		uintptr(unsafe.Pointer(&program)))
	runtime.KeepAlive(filter)
	if failed != 0 {
		t.Fatal(failed)
	}
}
