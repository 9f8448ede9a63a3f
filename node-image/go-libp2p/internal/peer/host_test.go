package peer

import (
	"testing"

	"github.com/libp2p/go-libp2p/p2p/muxer/yamux"
)

func TestAStreamHasTheRequestedWindowAtMostAndOtherwiseTheDefault(t *testing.T) {
	before := *yamux.DefaultTransport
	for requested, most := range map[uint32]uint32{256 << 10: 256 << 10, 1 << 30: 1 << 30, 0: before.MaxStreamWindowSize} {
		expected := before
		expected.MaxStreamWindowSize = most
		if got := *muxer(requested); got != expected {
			t.Errorf("%d: %+v, not %+v", requested, got, expected)
		}
	}
	if *yamux.DefaultTransport != before {
		t.Error("other hosts of the process have another window, too")
	}
}
