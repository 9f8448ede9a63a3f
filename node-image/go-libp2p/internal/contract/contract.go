// Package contract has the types of the node contract: what a conductor asks of a node, and what the node
// answers. docs/reference/node-contract.md of perfrun describes them.
package contract

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Version of the contract that this node speaks.
const Version = 1

// Info is what a node is and what it runs on.
type Info struct {
	Contract                int                     `json:"contract"`
	Version                 string                  `json:"version"`
	Stacks                  map[string]string       `json:"stacks"`
	Capabilities            map[string]Capabilities `json:"capabilities"`
	Profile                 string                  `json:"profile"`
	ListenIP                string                  `json:"listenIp"`
	Clock                   string                  `json:"clock,omitempty"`
	Host                    string                  `json:"host"`
	Kernel                  string                  `json:"kernel"`
	CPU                     string                  `json:"cpu"`
	CPUs                    int                     `json:"cpus"`
	Governor                string                  `json:"governor,omitempty"`
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
	Transport      string      `json:"transport"`
	Parameters     Parameters  `json:"parameters"`
	Side           Side        `json:"side"`
	TimeoutSeconds float64     `json:"timeoutSeconds"`
	Labels         TrialLabels `json:"labels"`
}

// TrialLabels name a trial in metrics.
type TrialLabels struct {
	Cell    string `json:"cell"`
	Network string `json:"network"`
}

// Parameters of a workload. Fields of other workloads are empty.
type Parameters struct {
	Workload        string   `json:"workload"`
	Protocol        string   `json:"protocol"`
	Direction       string   `json:"direction"`
	Amount          Amount   `json:"amount"`
	Streams         int      `json:"streams"`
	ChunkBytes      ByteSize `json:"chunkBytes"`
	Timing          string   `json:"timing"`
	Negotiation     string   `json:"negotiation"`
	Count           int      `json:"count"`
	Mode            string   `json:"mode"`
	Rate            *int     `json:"rate"`
	InFlight        int      `json:"inFlight"`
	IntervalSeconds float64  `json:"intervalSeconds"`
}

// Amount is a number of things, or a time.
type Amount struct {
	Count   *uint64  `json:"count"`
	Seconds *float64 `json:"seconds"`
}

// Duration is the time of an amount, and whether it has one.
func (a Amount) Duration() (time.Duration, bool) {
	if a.Seconds == nil {
		return 0, false
	}
	return Seconds(*a.Seconds), true
}

// Number is the count of an amount, zero if it is a time.
func (a Amount) Number() uint64 {
	if a.Count == nil {
		return 0
	}
	return *a.Count
}

// ByteSize is a number of bytes, in JSON also as text: "64Ki".
type ByteSize uint64

var suffixes = map[string]uint64{
	"": 1, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12,
	"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40,
}

// UnmarshalJSON reads a number, or text with a suffix of Kubernetes.
func (b *ByteSize) UnmarshalJSON(text []byte) error {
	plain := strings.Trim(string(text), `"`)
	digits := strings.TrimRight(plain, "kKMGTi")
	factor, known := suffixes[plain[len(digits):]]
	number, err := strconv.ParseUint(digits, 10, 64)
	if err != nil || !known || number > math.MaxUint64/factor {
		return fmt.Errorf("%q is not a byte size such as 64Ki", plain)
	}
	*b = ByteSize(number * factor)
	return nil
}

// Side of a node in a trial: exactly one field is set.
type Side struct {
	Server bool
	Client *Client
}

// Client is the dialling side.
type Client struct {
	Servers []string `json:"servers"`
	Peers   int      `json:"peers"`
}

// ErrSide is a side that this node cannot take.
var ErrSide = errors.New("side must be server or client: this node has no other")

// UnmarshalJSON reads "server" or {"client": …}.
func (s *Side) UnmarshalJSON(text []byte) error {
	if string(text) == `"server"` {
		s.Server = true
		return nil
	}
	var named struct {
		Client *Client `json:"client"`
	}
	if err := json.Unmarshal(text, &named); err != nil || named.Client == nil {
		return ErrSide
	}
	s.Client = named.Client
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
	ListenFailed    Reason = "ListenFailed"
	DialFailed      Reason = "DialFailed"
	OpenFailed      Reason = "OpenFailed"
	StreamFailed    Reason = "StreamFailed"
	TooFewBytes     Reason = "TooFewBytes"
	UnexpectedBytes Reason = "UnexpectedBytes"
	WrongEcho       Reason = "WrongEcho"
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
	Histograms         map[string]string `json:"histograms,omitempty"`
	Resources          Resources         `json:"resources"`
	Samples            []Sample          `json:"samples,omitempty"`
}

// Transfer is bytes that went one way.
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
}

// Sample is what happened in one interval of a trial.
type Sample struct {
	AtSeconds       float64           `json:"atSeconds"`
	IntervalSeconds float64           `json:"intervalSeconds"`
	BytesSent       uint64            `json:"bytesSent"`
	BytesReceived   uint64            `json:"bytesReceived"`
	Operations      uint64            `json:"operations"`
	CPUSeconds      float64           `json:"cpuSeconds"`
	RSSBytes        uint64            `json:"rssBytes"`
	AllocatedBytes  *uint64           `json:"allocatedBytes,omitempty"`
	Errors          map[Reason]uint64 `json:"errors,omitempty"`
}

// Seconds as a duration, at most a year: more would overflow a clock.
func Seconds(seconds float64) time.Duration {
	return time.Duration(min(max(seconds, 0), longestSeconds) * float64(time.Second))
}
