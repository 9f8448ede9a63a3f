package peer

import (
	"slices"
	"testing"

	libp2ppeer "github.com/libp2p/go-libp2p/core/peer"
	"github.com/multiformats/go-multiaddr"

	"perfrun/node-go/internal/corpus"
)

func FuzzAddress(f *testing.F) {
	corpus.Add(f, "address")
	const id = "12D3KooWBpZHDZu7YSbvPaPXKhkRNJvR7MkTJMQQAVBKx9mCqz3q"
	f.Add([]byte("/ip4/127.0.0.1/tcp/1/p2p/" + id + "/p2p-circuit/p2p/" + id))
	f.Fuzz(func(t *testing.T, input []byte) {
		corpus.LimitMemory(t, func() {
			info, err := libp2ppeer.AddrInfoFromString(string(input))
			if err != nil {
				return
			}
			relay := relayOf(info)
			if relay == nil {
				return
			}
			isCircuit := func(p multiaddr.Protocol) bool { return p.Code == multiaddr.P_CIRCUIT }
			for _, address := range relay.Addrs {
				if relay.ID == "" || slices.ContainsFunc(address.Protocols(), isCircuit) {
					t.Errorf("the relay of %s is dialled at %s", input, address)
				}
			}
		})
	})
}
