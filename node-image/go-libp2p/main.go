// perfrun-node-go is perfrun's benchmark node for go-libp2p. A conductor (`perfrun run`, or the operator)
// controls it over HTTP, as it controls perfrun-node.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"perfrun/node-go/internal/control"
	"perfrun/node-go/internal/metrics"
	"perfrun/node-go/internal/trial"
)

// epochVariable passes on the largest epoch of callers to a new start of the program.
const epochVariable = "PERFRUN_EPOCH"

// collectionTimeout is how long outcomes may take to be collected after a stop signal.
const collectionTimeout = 3 * time.Second

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "perfrun-node-go: %v\n", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 1 && args[0] == "--version" {
		fmt.Println("perfrun-node-go", version)
		return nil
	}
	if len(args) == 0 || args[0] != "control" {
		return errors.New("the first argument must be control: perfrun-node-go control --help lists its options")
	}
	options, err := parse(args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	return serve(options)
}

type options struct {
	control, listenIP, tokenFile, role      string
	listenIPs, ipFamily                     string
	run, runNamespace, runNode, metricsPort string
	linger                                  float64
	epoch                                   uint64
}

// parse flags, whose defaults are environment variables, as those of perfrun-node.
func parse(args []string) (*options, error) {
	o := &options{}
	flags := flag.NewFlagSet("perfrun-node-go control", flag.ContinueOnError)
	text := func(to *string, name, variable, otherwise, help string) {
		if value, set := os.LookupEnv(variable); set && variable != "" {
			otherwise = value
		}
		flags.StringVar(to, name, otherwise, help)
	}
	text(&o.control, "control", "", "0.0.0.0:9090", "`address` of the control port: ADDRESS:PORT, or fd:N for an inherited socket")
	text(&o.listenIP, "listen-ip", "PERFRUN_LISTEN_IP", "0.0.0.0", "`address` that trials listen on and dial from")
	text(&o.listenIPs, "listen-ips", "PERFRUN_LISTEN_IPS", "", "all `addresses` of this machine or pod, with commas in between")
	text(&o.ipFamily, "ip-family", "PERFRUN_IP_FAMILY", "", "IP `family` that the conductor needs, IPv4 or IPv6: the first of --listen-ips that is of it takes the place of --listen-ip, if that is not")
	text(&o.tokenFile, "token-file", "PERFRUN_TOKEN_FILE", "", "`file` with the token that calls must carry")
	text(&o.role, "role", "", "server", "role of the node, for the labels of metrics")
	text(&o.run, "run", "PERFRUN_RUN", "", "name of the run, for the labels of metrics")
	text(&o.runNamespace, "run-namespace", "PERFRUN_RUN_NAMESPACE", "", "namespace of the run, for the labels of metrics")
	text(&o.runNode, "run-node", "PERFRUN_RUN_NODE", "", "name of the node, for the labels of metrics")
	text(&o.metricsPort, "metrics", "PERFRUN_METRICS", "", "also serve /metrics, and nothing else, at this `address`")
	linger, _ := strconv.ParseFloat(os.Getenv("PERFRUN_LINGER_SECONDS"), 64)
	flags.Float64Var(&o.linger, "linger-seconds", linger, "on a stop signal, wait up to this many `seconds` for another scrape")
	// Not an option: only a new start of this program knows it.
	o.epoch, _ = strconv.ParseUint(os.Getenv(epochVariable), 10, 63)
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if flags.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if net.ParseIP(o.listenIP) == nil {
		return nil, fmt.Errorf("--listen-ip must be an IP address, not %q", o.listenIP)
	}
	o.listenIP = ofFamily(o.ipFamily, o.listenIP, strings.Split(o.listenIPs, ","))
	return o, nil
}

// ofFamily returns the first address of a family. Without one, it returns the first of all, and the conductor
// says that this is of another family.
func ofFamily(family, first string, others []string) string {
	for _, candidate := range append([]string{first}, others...) {
		ip := net.ParseIP(candidate)
		if ip == nil {
			continue
		}
		is := "IPv6"
		if ip.To4() != nil {
			is = "IPv4"
		}
		if family == "" || family == is {
			return candidate
		}
	}
	return first
}

func serve(o *options) error {
	token, err := readToken(o.tokenFile)
	if err != nil {
		return err
	}
	listener, err := listen(o.control)
	if err != nil {
		return err
	}
	exported := metrics.New(map[string]string{
		"run": o.run, "run_namespace": o.runNamespace, "run_node": o.runNode, "role": o.role,
	})
	trials := trial.New(o.listenIP, exported)
	scrapes := control.NewScrapes(exported.Handler())
	stop, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer cancel()
	renewed, renew := context.WithCancel(context.Background())
	defer renew()
	node := &control.Node{
		Info: readInfo(o.listenIP), ProgramSHA256: programSHA256, Token: token, Trials: trials, Metrics: scrapes,
		Renew: renew,
	}
	node.KnowEpoch(o.epoch)
	server := node.Serve(listener)
	var scraped *http.Server
	if o.metricsPort != "" {
		extra, err := net.Listen("tcp", o.metricsPort)
		if err != nil {
			return fmt.Errorf("failed to bind %s: is another node running? %w", o.metricsPort, err)
		}
		scraped = control.ServeMetrics(extra, scrapes)
		defer scraped.Close()
	}
	select {
	case <-stop.Done():
		trials.Stop(collectionTimeout)
		scrapes.WaitForAnother(time.Duration(o.linger * float64(time.Second)))
	case <-renewed.Done():
	}
	ctx, done := context.WithTimeout(context.Background(), time.Second)
	defer done()
	if scraped != nil {
		// The last scrape counts before its answer is sent.
		_ = scraped.Shutdown(ctx)
	}
	_ = server.Shutdown(ctx)
	if stop.Err() != nil {
		return nil
	}
	// In the same process, with the same arguments.
	if err := os.Setenv(epochVariable, strconv.FormatUint(node.LatestEpoch(), 10)); err != nil {
		return fmt.Errorf("failed to pass on the epoch: %w", err)
	}
	return fmt.Errorf("failed to start the program again: %w", syscall.Exec("/proc/self/exe", os.Args, os.Environ()))
}

// readToken reads the file once: it may be one in memory.
func readToken(file string) (string, error) {
	if file == "" {
		return "", errors.New("--token-file is missing: name a file with a secret of the run")
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("failed to read the token: %w", err)
	}
	token := strings.TrimSpace(string(content))
	if token == "" {
		return "", fmt.Errorf("the token in %s is empty: write a secret of the run to this file", file)
	}
	return token, nil
}

// inherited control socket. Without a reference, it would be closed.
var inherited *os.File

func listen(address string) (net.Listener, error) {
	number, isInherited := strings.CutPrefix(address, "fd:")
	if !isInherited {
		listener, err := net.Listen("tcp", address)
		if err != nil {
			return nil, fmt.Errorf("failed to bind %s: is another node running? %w", address, err)
		}
		return listener, nil
	}
	fd, err := strconv.ParseUint(number, 10, 31)
	if err != nil || fd < 3 {
		return nil, fmt.Errorf("%s is not a listening socket: fd:N needs a number above 2", address)
	}
	// It stays open, for a new start of the program.
	inherited = os.NewFile(uintptr(fd), "control")
	listener, err := net.FileListener(inherited)
	if err != nil {
		return nil, fmt.Errorf("%s is not a listening socket: %w", address, err)
	}
	return listener, nil
}
