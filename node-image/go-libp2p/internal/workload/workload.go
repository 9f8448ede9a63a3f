package workload

import (
	"context"
	"maps"
	"slices"
	"time"

	"perfrun/node-go/internal/contract"
	"perfrun/node-go/internal/observe"
	"perfrun/node-go/internal/wire"
)

// workloads that this node has.
var workloads = map[string]func(common) workload{
	"bandwidth":   func(c common) workload { return bandwidth{c} },
	"echo":        func(c common) workload { return echo{c} },
	"handshakes":  func(c common) workload { return handshakes{ping{c}} },
	"messages":    func(c common) workload { return messages{c} },
	"ping":        func(c common) workload { return ping{c} },
	"relay":       func(c common) workload { return relay{c} },
	"relayStress": func(c common) workload { return relayStress{c} },
	"substreams":  func(c common) workload { return substreams{c} },
}

// Names of the workloads.
func Names() []string { return slices.Sorted(maps.Keys(workloads)) }

// workloadOf parameters that were checked.
func workloadOf(p *contract.Parameters) workload { return workloads[p.Workload](common{p}) }

// workload has the facts of one, and does it. Those that most workloads share are those of common.
type workload interface {
	// check refuses parameters that would make the node fail otherwise.
	check() error
	// checkPeers refuses numbers of peers of a client.
	checkPeers(peers int) error
	// protocol on the streams.
	protocol() string
	// run the part of a client.
	run(ctx context.Context, c *Client) error
	// begin the part of a server.
	begin(s *server)
	// serve one stream of it.
	serve(ctx context.Context, s *server, stream wire.Stream) (wire.Arrival, error)

	// hosts that a client of a number of peers needs at the same time.
	hosts(peers int) int
	// prepared are the hosts that a client starts before the trial.
	prepared(hosts int) int
	// hostsOfServer that peers dial.
	hostsOfServer() int
	// connectionStreams is the number of streams that a connection of a side has, at most.
	connectionStreams(side *contract.Side) int
	// clientFiles are the open files of a client with a number of hosts, as crates/contract counts them.
	clientFiles(hosts int) uint64
	// relayFiles are the open files that a relay needs.
	relayFiles() uint64
	// sampleInterval is the time between samples of echoing streams, zero without them.
	sampleInterval() time.Duration

	// isRelayed says whether clients reach servers through a relay.
	isRelayed() bool
	// isInProcess says whether both peers are in one process.
	isInProcess() bool
	// connectsBeforeStart says whether a client opens its connections before the start.
	connectsBeforeStart() bool
	// mayBeCutOff says whether the end of a trial cuts off transfers in progress.
	mayBeCutOff() bool
}

const (
	// filesBesides are open files that a node needs besides those of the load.
	filesBesides = 64
	// filesOfHost are open files of a host, with room for those of its dials.
	filesOfHost = 4
)

// common has what most workloads share.
type common struct{ *contract.Parameters }

func (common) checkPeers(int) error                 { return nil }
func (common) begin(*server)                        {}
func (common) hosts(peers int) int                  { return peers }
func (common) prepared(hosts int) int               { return hosts }
func (common) hostsOfServer() int                   { return 1 }
func (common) connectionStreams(*contract.Side) int { return 1 }
func (common) clientFiles(hosts int) uint64         { return filesOfHost * uint64(hosts) }
func (common) relayFiles() uint64                   { return filesBesides }
func (common) sampleInterval() time.Duration        { return 0 }
func (common) isRelayed() bool                      { return false }
func (common) isInProcess() bool                    { return false }
func (common) connectsBeforeStart() bool            { return true }
func (common) mayBeCutOff() bool                    { return false }

// serverFiles are the open files that a server needs: for the hosts of a source behind a relay, or for those
// that peers dial.
func serverFiles(w workload, source *contract.Source) uint64 {
	if source != nil {
		// A listener, and a connection with the relay.
		return w.clientFiles(2 * source.Peers)
	}
	return w.clientFiles(w.hostsOfServer())
}

// SamplingOf a workload.
func SamplingOf(p *contract.Parameters) observe.Sampling {
	w := workloadOf(p)
	return observe.NewSampling(w.isRelayed(), w.sampleInterval())
}
