// Package metrics exports what the node counts, under the names that all nodes of perfrun share.
package metrics

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"perfrun/node-go/internal/contract"
	"perfrun/node-go/internal/observe"
)

// buckets of times, in seconds: those of perfrun's other nodes.
var (
	buckets         = prometheus.ExponentialBuckets(10e-6, 2, 23)
	transferBuckets = prometheus.ExponentialBuckets(1e-3, 2, 23)
)

// Metrics of a node.
type Metrics struct {
	registry *prometheus.Registry
	gathered *gathered
	// stack is where go-libp2p registers its own metrics, under its own names.
	stack prometheus.Registerer

	payload, connections, streams, operations, failures, trials, refused *prometheus.CounterVec
	cell, echoing, circuits                                              *prometheus.GaugeVec
	handshake, open, roundTrip, transfer                                 *prometheus.HistogramVec
}

// New metrics with the labels of a run and node. Empty labels are left out.
func New(labels map[string]string) *Metrics {
	constant := prometheus.Labels{}
	for name, value := range labels {
		if value != "" {
			constant[name] = value
		}
	}
	registry := prometheus.NewRegistry()
	labelled := prometheus.WrapRegistererWith(constant, registry)
	names := []string{"stack", "transport", "network"}
	counter := func(name, help string, more ...string) *prometheus.CounterVec {
		vec := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "perfrun_" + name, Help: help}, append(names, more...))
		labelled.MustRegister(vec)
		return vec
	}
	gauge := func(name, help string, more ...string) *prometheus.GaugeVec {
		vec := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "perfrun_" + name, Help: help}, append(more, names...))
		labelled.MustRegister(vec)
		return vec
	}
	histogram := func(name, help string, buckets []float64, more ...string) *prometheus.HistogramVec {
		opts := prometheus.HistogramOpts{Name: "perfrun_" + name + "_seconds", Help: help, Buckets: buckets}
		vec := prometheus.NewHistogramVec(opts, append(names, more...))
		labelled.MustRegister(vec)
		return vec
	}
	m := &Metrics{
		registry:    registry,
		gathered:    &gathered{from: registry},
		stack:       labelled,
		payload:     counter("payload_bytes_total", "Payload handed to the stack (direction=sent) or taken from it (received)", "direction"),
		connections: counter("connections_total", "Connections established"),
		streams:     counter("streams_total", "Streams opened or accepted; at a relay, circuits"),
		operations:  counter("operations_total", "Opens, handshakes, round trips, transfers from a source and messages that clients completed, and lines of an echo that servers returned"),
		failures:    counter("operation_failures_total", "Dials, opens, handshakes, round trips, transfers from a source and lines of an echo that failed in a trial that continued; at a server also lost ends of streams and refused reservations, at a relay requests that it refused"),
		trials:      counter("trials_total", "Trials ended, by outcome: Completed, or the reason of the failure", "outcome"),
		handshake:   histogram("handshake", "Time from the dial to the end of the phase: transport (connected), relay (connected with the relay), established (secured and multiplexed) or first_byte (a byte came back). Phase reservation, of a source: time from the connection with its relay until the relay granted the reservation. Added when a trial ends", buckets, "phase"),
		open:        histogram("substream_open", "Request until a substream was open, in a burst from before the first request; added when a trial ends", buckets),
		roundTrip:   histogram("round_trip", "Application round trip; added when a trial ends", buckets),
		transfer:    histogram("transfer", "Stream open until all of a transfer from a source was read; added when a trial ends", transferBuckets),
		echoing:     gauge("echoing_streams", "Streams that completed a round trip in the last sample interval of an echo; 0 between trials"),
		circuits:    gauge("relay_circuits", "Circuits that are up at a relay"),
		refused:     counter("relay_refused_total", "Reservations and circuits (what) that a relay refused, by the status it gave", "what", "status"),
		cell:        gauge("cell_running", "1 for the cell of the trial in progress, 0 for the cell of the last one", "cell"),
	}
	labelled.MustRegister(process{}, collectors.NewGoCollector())
	return m
}

// Handler of /metrics.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.gathered, promhttp.HandlerOpts{EnableOpenMetrics: true})
}

// Trial is the series of one trial. It implements observe.Deltas.
type Trial struct {
	metrics *Metrics
	of      prometheus.Labels
	cell    prometheus.Gauge
}

// Trial begins a trial.
func (m *Metrics) Trial(request *contract.TrialRequest) *Trial {
	of := prometheus.Labels{"stack": request.Stack, "transport": request.Transport, "network": request.Labels.Network}
	m.cell.Reset()
	cell := m.cell.With(with(of, "cell", request.Labels.Cell))
	cell.Set(1)
	// For all workloads: a panel without a series would look like a fault.
	m.echoing.With(of).Set(0)
	return &Trial{metrics: m, of: of, cell: cell}
}

func with(labels prometheus.Labels, name, value string) prometheus.Labels {
	more := prometheus.Labels{name: value}
	for name, value := range labels {
		more[name] = value
	}
	return more
}

// Add what was counted between two readings.
func (t *Trial) Add(sent, received, connections, streams, operations, failures uint64) {
	t.metrics.payload.With(with(t.of, "direction", "sent")).Add(float64(sent))
	t.metrics.payload.With(with(t.of, "direction", "received")).Add(float64(received))
	t.metrics.connections.With(t.of).Add(float64(connections))
	t.metrics.streams.With(t.of).Add(float64(streams))
	t.metrics.operations.With(t.of).Add(float64(operations))
	t.metrics.failures.With(t.of).Add(float64(failures))
}

// Stack is where go-libp2p registers its own metrics.
func (t *Trial) Stack() prometheus.Registerer { return t.metrics.stack }

// SetEchoing sets the number of streams that echoed in the last interval.
func (t *Trial) SetEchoing(streams uint64) { t.metrics.echoing.With(t.of).Set(float64(streams)) }

// SetCircuits sets the number of open circuits.
func (t *Trial) SetCircuits(live uint64) { t.metrics.circuits.With(t.of).Set(float64(live)) }

// CountRefusal counts a refusal by a relay.
func (t *Trial) CountRefusal(what, status string) {
	t.metrics.refused.With(with(with(t.of, "what", what), "status", status)).Inc()
}

// Nowhere takes what a second side of a trial counts, and drops it.
type Nowhere struct{}

// Add drops counts.
func (Nowhere) Add(_, _, _, _, _, _ uint64) {}

// SetEchoing drops a number of streams.
func (Nowhere) SetEchoing(uint64) {}

// Observe a time of a distribution.
func (t *Trial) Observe(distribution string, took time.Duration, times int64) {
	var observer prometheus.Observer
	switch distribution {
	case "handshakeEstablished":
		observer = t.metrics.handshake.With(with(t.of, "phase", "established"))
	case "handshakeFirstByte":
		observer = t.metrics.handshake.With(with(t.of, "phase", "first_byte"))
	case "open":
		observer = t.metrics.open.With(t.of)
	case "relayConnected":
		observer = t.metrics.handshake.With(with(t.of, "phase", "relay"))
	case "reservation":
		observer = t.metrics.handshake.With(with(t.of, "phase", "reservation"))
	case "transfer":
		observer = t.metrics.transfer.With(t.of)
	case "roundTrip":
		observer = t.metrics.roundTrip.With(t.of)
	default:
		return
	}
	for range times {
		observer.Observe(took.Seconds())
	}
}

// CountEnd counts the trial as ended. The reason is empty if it completed.
func (t *Trial) CountEnd(reason contract.Reason) {
	outcome := string(reason)
	if outcome == "" {
		outcome = "Completed"
	}
	t.metrics.trials.With(with(t.of, "outcome", outcome)).Inc()
	t.cell.Set(0)
	t.SetEchoing(0)
	t.metrics.gathered.forget()
}

// process reads what the process uses when it is scraped.
type process struct{}

var (
	cpu         = prometheus.NewDesc("perfrun_process_cpu_seconds_total", "CPU time of the process, mode=user or system", []string{"mode"}, nil)
	switches    = prometheus.NewDesc("perfrun_process_context_switches_total", "Context switches of the process, voluntary (it waited) or involuntary (it was pre-empted)", []string{"kind"}, nil)
	resident    = prometheus.NewDesc("perfrun_process_resident_memory_bytes", "Resident memory of the process", nil, nil)
	allocated   = prometheus.NewDesc("perfrun_process_allocated_memory_bytes", "Memory that the process has allocated and not freed (in Go: objects of the heap that no collection has freed). It includes pages that were never written, which are not resident, and leaves out what the allocator keeps, which may be", nil, nil)
	throttled   = prometheus.NewDesc("perfrun_cgroup_throttled_seconds_total", "Time for which the control group held the process back; absent where the kernel does not report it", nil, nil)
	retransmits = prometheus.NewDesc("perfrun_tcp_retransmitted_segments_total", "TCP segments sent again in the network namespace of the process", nil, nil)
	carried     = prometheus.NewDesc("perfrun_interface_bytes_total", "Bytes that the interfaces of the network namespace of the process sent or received (direction), headers and all, without loopback and the device of a link's emulator", []string{"direction"}, nil)
)

func (process) Describe(descs chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{cpu, switches, resident, allocated, throttled, retransmits, carried} {
		descs <- desc
	}
}

func (process) Collect(metrics chan<- prometheus.Metric) {
	usage := observe.Now()
	counter := func(desc *prometheus.Desc, value float64, labels ...string) {
		metrics <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, value, labels...)
	}
	gauge := func(desc *prometheus.Desc, value uint64) {
		metrics <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(value))
	}
	counter(cpu, usage.User, "user")
	counter(cpu, usage.System, "system")
	counter(switches, float64(usage.Voluntary), "voluntary")
	counter(switches, float64(usage.Involuntary), "involuntary")
	gauge(resident, usage.RSS)
	gauge(allocated, observe.Allocated())
	if usage.Throttled != nil {
		counter(throttled, *usage.Throttled)
	}
	if usage.Retransmits != nil {
		counter(retransmits, float64(*usage.Retransmits))
	}
	if usage.SentBytes != nil {
		counter(carried, float64(*usage.SentBytes), "sent")
		counter(carried, float64(*usage.ReceivedBytes), "received")
	}
}
