package contract

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Stack that this node speaks.
const Stack = "go-libp2p"

// Protocols on streams.
const (
	Perf        = "/perf/1.0.0"
	Litep2pPerf = "/litep2p-perf/1.0.0"
	Ping        = "/ipfs/ping/1.0.0"
	EchoLines   = "/echo/1.0.0"
	Framed      = "/perfrun/messages/1.0.0"
	TestData    = "/libp2p/test/data"
)

// Bytes that a message may have.
const (
	LeastMessage = 8
	MostMessage  = 1 << 20
)

// LongestSeconds is the longest time that parameters have: a year.
const LongestSeconds = 366 * 86_400

// Parameters of a workload. Fields of other workloads are empty.
type Parameters struct {
	Workload    string   `json:"workload"`
	Protocol    string   `json:"protocol"`
	Direction   string   `json:"direction"`
	Amount      Amount   `json:"amount"`
	Streams     int      `json:"streams"`
	ChunkBytes  ByteSize `json:"chunkBytes"`
	Timing      string   `json:"timing"`
	Negotiation string   `json:"negotiation"`
	Count       int      `json:"count"`
	Mode        string   `json:"mode"`
	Rate        *int     `json:"rate"`
	InFlight    int      `json:"inFlight"`

	IntervalSeconds float64 `json:"intervalSeconds"`

	Echo
	Messages
	Relay
}

// Echo has what an echo needs besides the fields of other workloads.
type Echo struct {
	Connections               int     `json:"connections"`
	StreamsPerConnection      int     `json:"streamsPerConnection"`
	ConnectionIntervalSeconds float64 `json:"connectionIntervalSeconds"`
	StreamIntervalSeconds     float64 `json:"streamIntervalSeconds"`
	// PauseSeconds follow each answer. PeriodSeconds are between the times at which lines are due. One of them
	// is nil.
	PauseSeconds          *float64 `json:"pauseSeconds"`
	PeriodSeconds         *float64 `json:"periodSeconds"`
	DeadlineSeconds       float64  `json:"deadlineSeconds"`
	DurationSeconds       float64  `json:"durationSeconds"`
	Identity              string   `json:"identity"`
	SampleIntervalSeconds float64  `json:"sampleIntervalSeconds"`
}

// Messages has what messages need besides the fields of other workloads.
type Messages struct {
	// MessageBytes is also the length of an echo's line.
	MessageBytes ByteSize `json:"messageBytes"`
	Window       int      `json:"window"`
	// Receivers are the servers that each peer sends to. Absent, it is one.
	Receivers *int `json:"receivers"`
}

// Relay has what transfers from a source need besides the fields of other workloads.
type Relay struct {
	Path                 string      `json:"path"`
	Bytes                uint64      `json:"bytes"`
	Pings                int         `json:"pings"`
	Sinks                int         `json:"sinks"`
	Sources              int         `json:"sources"`
	StartIntervalSeconds float64     `json:"startIntervalSeconds"`
	RampSeconds          float64     `json:"rampSeconds"`
	PlateauSeconds       float64     `json:"plateauSeconds"`
	Limits               RelayLimits `json:"limits"`
}

// RelayLimits are what a relay grants. What is absent has no limit.
type RelayLimits struct {
	Reservations    *int      `json:"reservations"`
	Circuits        *int      `json:"circuits"`
	CircuitsPerPeer *int      `json:"circuitsPerPeer"`
	CircuitBytes    *ByteSize `json:"circuitBytes"`
}

// ServersOfPeer is the number of servers that each peer of a client dials.
func (p *Parameters) ServersOfPeer() int {
	if p.Receivers == nil {
		return 1
	}
	return *p.Receivers
}

// AcknowledgedEach is the number of messages that an acknowledgement follows.
func (p *Parameters) AcknowledgedEach() int { return max(p.Window/4, 1) }

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
