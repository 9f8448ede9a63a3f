// Package contract has the types of the node contract: what a conductor asks of a node, and what the node
// answers. docs/reference/node-contract.md of perfrun describes them.
package contract

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Version of the contract that this node speaks.
const Version = 1

// Info is what a node is and what it runs on.
type Info struct {
	Contract                int                     `json:"contract"`
	Instance                uint64                  `json:"instance"`
	Version                 string                  `json:"version"`
	Stacks                  map[string]string       `json:"stacks"`
	Capabilities            map[string]Capabilities `json:"capabilities"`
	Profile                 string                  `json:"profile"`
	ProgramSHA256           string                  `json:"programSha256,omitempty"`
	Commit                  string                  `json:"commit,omitempty"`
	Label                   string                  `json:"label,omitempty"`
	Compiler                string                  `json:"compiler,omitempty"`
	ListenIP                string                  `json:"listenIp"`
	Clock                   string                  `json:"clock,omitempty"`
	BootID                  string                  `json:"bootId,omitempty"`
	Host                    string                  `json:"host"`
	Kernel                  string                  `json:"kernel"`
	CPU                     string                  `json:"cpu"`
	CPUs                    int                     `json:"cpus"`
	Governor                string                  `json:"governor,omitempty"`
	Hypervisor              string                  `json:"hypervisor,omitempty"`
	SMT                     *bool                   `json:"smt,omitempty"`
	Mitigations             string                  `json:"mitigations,omitempty"`
	MTUBytes                *uint32                 `json:"mtuBytes,omitempty"`
	CongestionControl       string                  `json:"congestionControl,omitempty"`
	CPULimit                *float64                `json:"cpuLimit,omitempty"`
	MemoryLimitBytes        *uint64                 `json:"memoryLimitBytes,omitempty"`
	SocketBufferLimitsBytes *[2]uint64              `json:"socketBufferLimitsBytes,omitempty"`
	TCPWindowLimitsBytes    *[2]uint64              `json:"tcpWindowLimitsBytes,omitempty"`
}

// Capabilities are what a stack can do.
type Capabilities struct {
	Wire        string            `json:"wire"`
	Transports  map[string]Limits `json:"transports"`
	Workloads   []string          `json:"workloads"`
	Protocols   []string          `json:"protocols"`
	Roles       []string          `json:"roles"`
	Negotiation []string          `json:"negotiation"`
	Identities  []string          `json:"identities"`
	Paces       []string          `json:"paces"`
	Settings    []string          `json:"settings"`
}

// Limits of the streams of a connection with a server. Zero means that there is none.
type Limits struct {
	MaxStreams  int `json:"maxStreams,omitempty"`
	StreamBurst int `json:"streamBurst,omitempty"`
}

// Clock is a reading of the node's monotonic clock.
type Clock struct {
	Nanoseconds uint64 `json:"nanoseconds"`
}

// TrialRequest is one node's part in a trial.
type TrialRequest struct {
	Stack          string      `json:"stack"`
	Settings       Settings    `json:"settings"`
	Transport      string      `json:"transport"`
	Parameters     Parameters  `json:"parameters"`
	Side           Side        `json:"side"`
	TimeoutSeconds float64     `json:"timeoutSeconds"`
	Labels         TrialLabels `json:"labels"`
}

// IsTCP says whether connections are of TCP, with yamux over it.
func (r *TrialRequest) IsTCP() bool {
	return r.Transport == "tcp" || r.Transport == "tcp-tls" || r.Transport == "ws"
}

// Settings of a stack.
type Settings struct {
	// TCPCongestion and QUICCongestion are settings that go-libp2p does not have. Requests with them are
	// refused: a node that ignores them measures something else.
	TCPCongestion  any `json:"tcpCongestion"`
	QUICCongestion any `json:"quicCongestion"`
	// YamuxWindow is how many bytes the streams of a connection over TCP may receive, together, before the
	// application reads them. Nil is go-libp2p's default, for each stream.
	YamuxWindow *ByteSize `json:"yamuxWindow"`
}

// TrialLabels name a trial in metrics.
type TrialLabels struct {
	Cell    string `json:"cell"`
	Network string `json:"network"`
}

// Side of a node in a trial: exactly one field is set.
type Side struct {
	Server bool
	Relay  bool
	Source *Source
	Client *Client
	Both   *Both
}

// Source listens behind a relay.
type Source struct {
	// Relay is its address.
	Relay string `json:"relay"`
	// Peers are hosts with a reservation of their own.
	Peers int `json:"peers"`
}

// Client is the dialling side.
type Client struct {
	Servers []string `json:"servers"`
	Peers   int      `json:"peers"`
	// Clocks are how far those of the servers are ahead of the node's, in nanoseconds. Empty if unknown.
	Clocks []int64 `json:"clocks"`
}

// Both are a server and a client in one process.
type Both struct {
	Peers int `json:"peers"`
}

// ErrSide is a side that no node can take.
var ErrSide = errors.New("side must be server, relay, source, client or both")

// UnmarshalJSON reads "server", "relay", or an object with one of the other sides.
func (s *Side) UnmarshalJSON(text []byte) error {
	switch string(text) {
	case `"server"`:
		s.Server = true
		return nil
	case `"relay"`:
		s.Relay = true
		return nil
	}
	var named struct {
		Source *Source `json:"source"`
		Client *Client `json:"client"`
		Both   *Both   `json:"both"`
	}
	if err := json.Unmarshal(text, &named); err != nil {
		return ErrSide
	}
	sides := 0
	for _, set := range []bool{named.Source != nil, named.Client != nil, named.Both != nil} {
		if set {
			sides++
		}
	}
	if sides != 1 {
		return ErrSide
	}
	s.Source, s.Client, s.Both = named.Source, named.Client, named.Both
	return nil
}

// Start is when a client begins, in the node's own clock.
type Start struct {
	AtNanoseconds *uint64 `json:"atNanoseconds"`
}

// Problem is why a call was refused.
type Problem struct {
	Message string `json:"message"`
	Trial   string `json:"trial,omitempty"`
}

// States of a trial, in their order.
const (
	Preparing = "preparing"
	Ready     = "ready"
	Running   = "running"
	Finished  = "finished"
)

var order = map[string]int{Preparing: 0, Ready: 1, Running: 2, Finished: 3}

// Later says whether a state is later than another one, and whether both exist.
func Later(state, after string) (later, known bool) {
	a, ok := order[state]
	b, known := order[after]
	return a > b, ok && known
}

// TrialStatus is how far a trial is.
type TrialStatus struct {
	State         string   `json:"state"`
	Addresses     []string `json:"addresses,omitempty"`
	BytesSent     uint64   `json:"bytesSent"`
	BytesReceived uint64   `json:"bytesReceived"`
	Outcome       *Outcome `json:"outcome,omitempty"`
}

// Outcome is how a trial ended at a node.
type Outcome struct {
	Failure  *Failure `json:"failure,omitempty"`
	Measured Measured `json:"measured"`
	// Served is what the server measured, where both sides are in this process.
	Served *Measured `json:"served,omitempty"`
}

// Failure is why a trial failed. It is an error.
type Failure struct {
	Reason  Reason `json:"reason"`
	Message string `json:"message"`
}

func (f *Failure) Error() string { return f.Message }

// Failf is a failure with a formatted message.
func Failf(reason Reason, format string, values ...any) *Failure {
	return &Failure{Reason: reason, Message: fmt.Sprintf(format, values...)}
}

// Reason is a kind of failure.
type Reason string

// Kinds of failures that this node has.
const (
	Unsupported     Reason = "Unsupported"
	LimitTooLow     Reason = "LimitTooLow"
	ListenFailed    Reason = "ListenFailed"
	DialFailed      Reason = "DialFailed"
	Refused         Reason = "Refused"
	OpenFailed      Reason = "OpenFailed"
	StreamFailed    Reason = "StreamFailed"
	TooFewBytes     Reason = "TooFewBytes"
	UnexpectedBytes Reason = "UnexpectedBytes"
	WrongEcho       Reason = "WrongEcho"
	MessageLost     Reason = "MessageLost"
	Timeout         Reason = "Timeout"
	Cancelled       Reason = "Cancelled"
	Stopped         Reason = "Stopped"
	Internal        Reason = "Internal"
)

// Measured is what a node measured in a trial.
type Measured struct {
	StartedNanoseconds *uint64           `json:"startedNanoseconds,omitempty"`
	BytesSent          uint64            `json:"bytesSent"`
	BytesReceived      uint64            `json:"bytesReceived"`
	Connections        uint64            `json:"connections"`
	Streams            uint64            `json:"streams"`
	Failures           uint64            `json:"failures"`
	Errors             map[Reason]uint64 `json:"errors,omitempty"`
	Seconds            float64           `json:"seconds"`
	Upload             *Transfer         `json:"upload,omitempty"`
	Download           *Transfer         `json:"download,omitempty"`
	Refused            map[string]uint64 `json:"refused,omitempty"`
	MostCircuits       uint64            `json:"mostCircuits,omitempty"`
	Histograms         map[string]string `json:"histograms,omitempty"`
	Plateau            *Plateau          `json:"plateau,omitempty"`
	UDPBuffers         *UDPBuffers       `json:"udpBuffers,omitempty"`
	CongestionControl  string            `json:"congestionControl,omitempty"`
	Resources          Resources         `json:"resources"`
	Samples            []Sample          `json:"samples,omitempty"`
}

// UDPBuffers are the smallest buffers of a trial's UDP sockets, as the kernel counts them.
type UDPBuffers struct {
	WantedBytes  uint64 `json:"wantedBytes"`
	ReceiveBytes uint64 `json:"receiveBytes"`
	SendBytes    uint64 `json:"sendBytes"`
}

// Plateau is the part of an echo in which all streams are open.
type Plateau struct {
	RampSeconds         float64 `json:"rampSeconds"`
	RampLatenessSeconds float64 `json:"rampLatenessSeconds"`
	Seconds             float64 `json:"seconds"`
	RoundTrips          uint64  `json:"roundTrips"`
}

// Transfer is bytes that went in one direction.
type Transfer struct {
	Bytes              uint64   `json:"bytes"`
	Seconds            float64  `json:"seconds"`
	BytesAfterFirst    *uint64  `json:"bytesAfterFirst,omitempty"`
	FirstToLastSeconds *float64 `json:"firstToLastSeconds,omitempty"`
}

// Resources are what a node used during a trial.
type Resources struct {
	CPUUserSeconds             float64  `json:"cpuUserSeconds"`
	CPUSystemSeconds           float64  `json:"cpuSystemSeconds"`
	RSSStartBytes              uint64   `json:"rssStartBytes"`
	RSSPeakBytes               uint64   `json:"rssPeakBytes"`
	AllocatedPeakBytes         *uint64  `json:"allocatedPeakBytes,omitempty"`
	ContextSwitchesVoluntary   uint64   `json:"contextSwitchesVoluntary"`
	ContextSwitchesInvoluntary uint64   `json:"contextSwitchesInvoluntary"`
	ThrottledSeconds           *float64 `json:"throttledSeconds,omitempty"`
	TCPRetransmits             *uint64  `json:"tcpRetransmits,omitempty"`
	InterfaceReceivedBytes     *uint64  `json:"interfaceReceivedBytes,omitempty"`
	InterfaceSentBytes         *uint64  `json:"interfaceSentBytes,omitempty"`

	Machine *MachineTime `json:"machine,omitempty"`
}

// MachineTime is what all processes of the machine used, the node included, of all its CPUs together.
type MachineTime struct {
	CPUs                 uint32   `json:"cpus"`
	TotalSeconds         float64  `json:"totalSeconds"`
	BusySeconds          float64  `json:"busySeconds"`
	InterruptSeconds     float64  `json:"interruptSeconds"`
	StealSeconds         float64  `json:"stealSeconds"`
	MemoryStalledSeconds *float64 `json:"memoryStalledSeconds,omitempty"`
}

// Sample is what happened in one interval of a trial.
type Sample struct {
	AtSeconds              float64           `json:"atSeconds"`
	IntervalSeconds        float64           `json:"intervalSeconds"`
	BytesSent              uint64            `json:"bytesSent"`
	BytesReceived          uint64            `json:"bytesReceived"`
	Operations             uint64            `json:"operations"`
	CPUSeconds             float64           `json:"cpuSeconds"`
	RSSBytes               uint64            `json:"rssBytes"`
	Circuits               uint64            `json:"circuits,omitempty"`
	InterfaceReceivedBytes *uint64           `json:"interfaceReceivedBytes,omitempty"`
	InterfaceSentBytes     *uint64           `json:"interfaceSentBytes,omitempty"`
	AllocatedBytes         *uint64           `json:"allocatedBytes,omitempty"`
	Echo                   *EchoSample       `json:"echo,omitempty"`
	Errors                 map[Reason]uint64 `json:"errors,omitempty"`
}

// EchoSample is the activity on the streams of an echo in one interval.
type EchoSample struct {
	ActiveStreams       uint64   `json:"activeStreams"`
	EchoingStreams      uint64   `json:"echoingStreams"`
	RoundTripP50Seconds *float64 `json:"roundTripP50Seconds,omitempty"`
	RoundTripP99Seconds *float64 `json:"roundTripP99Seconds,omitempty"`
}

// Seconds as a duration, at most a year: more would overflow a clock.
func Seconds(seconds float64) time.Duration {
	return time.Duration(min(max(seconds, 0), LongestSeconds) * float64(time.Second))
}
