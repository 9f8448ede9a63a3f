package peer

import (
	"context"
	"errors"
	"fmt"
	"math"
	"regexp"
	"time"

	"github.com/libp2p/go-libp2p/core/host"
	libp2ppeer "github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/p2p/protocol/circuitv2/client"
	pbv2 "github.com/libp2p/go-libp2p/p2p/protocol/circuitv2/pb"
	"github.com/libp2p/go-libp2p/p2p/protocol/circuitv2/relay"
	"github.com/multiformats/go-multiaddr"
	"github.com/prometheus/client_golang/prometheus"

	"perfrun/node-go/internal/contract"
)

const (
	// relayBuffer is what a relay copies in one step. go-libp2p's default is 2 KiB.
	relayBuffer = 64 << 10
	longest     = 24 * time.Hour
)

// RefusedError is a relay's refusal.
type RefusedError struct {
	// What was refused: a reservation or a circuit.
	What string
	// Status as the specification of circuit relay v2 writes it.
	Status string
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("the relay refused a %s: %s", e.What, e.Status)
}

// Failure of a trial by this refusal.
func (e *RefusedError) Failure() *contract.Failure {
	return contract.Failf(contract.Refused, "%s", e.Error())
}

// Relaying is what a relay grants, and what it reports.
type Relaying struct {
	Limits contract.RelayLimits
	// Opened is called for each circuit, and Closed when it ends.
	Opened, Closed func()
	// Refused is called with the request of a peer and its status.
	Refused func(what, status string)
}

// start a relay that has the requested limits only. go-libp2p's own would end every benchmark: 128 KiB or two
// minutes for a circuit, 16 circuits for a peer, and 8 reservations for all peers of an address.
func (r *Relaying) start(h host.Host, metrics prometheus.Registerer) error {
	resources := relay.Resources{
		ReservationTTL:        longest,
		MaxReservations:       most(r.Limits.Reservations),
		MaxCircuits:           most(r.Limits.CircuitsPerPeer),
		BufferSize:            relayBuffer,
		MaxReservationsPerIP:  math.MaxInt32,
		MaxReservationsPerASN: math.MaxInt32,
	}
	if bytes := r.Limits.CircuitBytes; bytes != nil {
		resources.Limit = &relay.RelayLimit{Duration: longest, Data: int64(min(uint64(*bytes), math.MaxInt64))}
	}
	// By default a reservation has no private addresses, and a peer of rust-libp2p refuses one without any.
	all := relay.WithReservationAddressFilter(func(multiaddr.Multiaddr) bool { return true })
	own := &tracer{relay.NewMetricsTracer(relay.WithRegisterer(metrics)), r}
	_, err := relay.New(h, relay.WithResources(resources), all, relay.WithMetricsTracer(own))
	return err
}

func most(limit *int) int {
	if limit == nil {
		return math.MaxInt32
	}
	return *limit
}

// tracer receives what go-libp2p's relay does, beside its own metrics.
type tracer struct {
	relay.MetricsTracer
	relaying *Relaying
}

func (t *tracer) ConnectionOpened() {
	t.MetricsTracer.ConnectionOpened()
	t.relaying.Opened()
}

func (t *tracer) ConnectionClosed(after time.Duration) {
	t.MetricsTracer.ConnectionClosed(after)
	t.relaying.Closed()
}

func (t *tracer) ReservationRequestHandled(status pbv2.Status) {
	t.MetricsTracer.ReservationRequestHandled(status)
	t.handled("reservation", status)
}

func (t *tracer) ConnectionRequestHandled(status pbv2.Status) {
	t.MetricsTracer.ConnectionRequestHandled(status)
	t.handled("circuit", status)
}

// handled requests end with a status. Where the other peer did not answer, the relay refused nothing.
func (t *tracer) handled(what string, status pbv2.Status) {
	if status != pbv2.Status_OK && status != pbv2.Status_CONNECTION_FAILED {
		t.relaying.Refused(what, statusText(status))
	}
}

func statusText(status pbv2.Status) string {
	return fmt.Sprintf("%s (%d)", pbv2.Status_name[int32(status)], status)
}

// Reserve a place at a relay. It returns the address at which peers reach this host, how long the connection
// with the relay took, and how long the reservation took after that.
func (h *Host) Reserve(ctx context.Context, address string) (at string, connected, granted time.Duration, err error) {
	info, err := libp2ppeer.AddrInfoFromString(address)
	if err != nil {
		return "", 0, 0, contract.Failf(contract.DialFailed, "unable to dial the relay %s: %v", address, err)
	}
	begun := time.Now()
	if _, err := h.dial(ctx, info); err != nil {
		return "", 0, 0, contract.Failf(contract.DialFailed, "failed to dial the relay %s: %v", address, err)
	}
	connected = time.Since(begun)
	_, err = client.Reserve(ctx, h.host, *info)
	granted = time.Since(begun) - connected
	var refused client.ReservationError
	switch {
	case err == nil:
		return fmt.Sprintf("%s/p2p-circuit/p2p/%s", address, h.host.ID()), connected, granted, nil
	case errors.As(err, &refused) && refused.Unwrap() == nil && refused.Status != pbv2.Status_MALFORMED_MESSAGE:
		return "", 0, 0, &RefusedError{What: "reservation", Status: statusText(refused.Status)}
	default:
		return "", 0, 0, contract.Failf(contract.DialFailed, "failed to reserve a place at the relay %s: %v", address, err)
	}
}

// relayOf a peer that is reached through one, nil for others.
func relayOf(info *libp2ppeer.AddrInfo) *libp2ppeer.AddrInfo {
	if len(info.Addrs) == 0 {
		return nil
	}
	before, circuit := multiaddr.SplitFunc(info.Addrs[0], func(c multiaddr.Component) bool {
		return c.Protocol().Code == multiaddr.P_CIRCUIT
	})
	if circuit == nil {
		return nil
	}
	relay, err := libp2ppeer.AddrInfoFromP2pAddr(before)
	if err != nil {
		return nil
	}
	return relay
}

// The type of this error is not public.
var refusal = regexp.MustCompile(`error opening relay circuit: (\w+ \(\d+\))`)

// refusedCircuit is the status of a relay's refusal, empty for other errors.
func refusedCircuit(err error) string {
	found := refusal.FindStringSubmatch(err.Error())
	if found == nil {
		return ""
	}
	return found[1]
}
