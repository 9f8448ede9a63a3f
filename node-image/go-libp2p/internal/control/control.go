// Package control serves the node's control port.
package control

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/pprof"
	"strconv"
	"time"

	"perfrun/node-go/internal/contract"
	"perfrun/node-go/internal/observe"
	"perfrun/node-go/internal/trial"
)

const (
	largestBody     = 4 << 20
	mostConnections = 256
	longestWait     = 60.0
)

// Node behind the control port.
type Node struct {
	// Info without the digest of the program.
	Info contract.Info
	// ProgramSHA256 is that digest. The first call takes time.
	ProgramSHA256 func() string
	Token         string
	Trials        *trial.Trials
	Metrics       http.Handler
	// Renew requests a restart of the program. It does not wait.
	Renew func()
	epoch epoch
}

// Serve calls until the listener is closed.
func (n *Node) Serve(listener net.Listener) *http.Server {
	return serve(listener, n.handler(), mostConnections, 60*time.Second)
}

// ServeMetrics serves /metrics, and nothing else.
func ServeMetrics(listener net.Listener, metrics http.Handler) *http.Server {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", metrics)
	// Scrapers keep their connections between two scrapes.
	return serve(listener, mux, 16, 150*time.Second)
}

func (n *Node) handler() http.Handler {
	open := http.NewServeMux()
	open.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") })
	open.HandleFunc("GET /readyz", n.ready)
	open.Handle("GET /metrics", n.Metrics)
	calls := http.NewServeMux()
	calls.HandleFunc("GET /v1/info", func(w http.ResponseWriter, _ *http.Request) {
		info := n.Info
		info.ProgramSHA256 = n.ProgramSHA256()
		answer(w, http.StatusOK, info)
	})
	calls.HandleFunc("GET /v1/clock", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, contract.Clock{Nanoseconds: observe.Nanoseconds(time.Now())})
	})
	calls.HandleFunc("PUT /v1/trials/{id}", n.put)
	calls.HandleFunc("GET /v1/trials/{id}", n.get)
	calls.HandleFunc("DELETE /v1/trials/{id}", n.delete)
	calls.HandleFunc("PUT /v1/trials/{id}/start", n.start)
	calls.HandleFunc("PUT /v1/trials/{id}/finish", n.finish)
	calls.HandleFunc("PUT /v1/renew", n.renew)
	calls.HandleFunc("GET /debug/pprof/", pprof.Index)
	calls.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	calls.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, pattern := open.Handler(r); pattern != "" {
			open.ServeHTTP(w, r)
			return
		}
		// Calls without the token learn nothing, not even whether a path exists.
		if !n.carriesToken(r) {
			refuse(w, http.StatusUnauthorized, "this call needs the header Authorization: Bearer TOKEN, or "+
				"X-Perfrun-Token: TOKEN, with the run's token")
			return
		}
		trust(r)
		if !n.epoch.allows(w, r) {
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, largestBody)
		calls.ServeHTTP(&problems{ResponseWriter: w}, r)
	})
}

// problems turns the plain answers of the multiplexer (404, 405) into problems.
type problems struct {
	http.ResponseWriter
	ours    bool
	replied bool
}

func (p *problems) WriteHeader(status int) {
	if !p.ours && (status == http.StatusNotFound || status == http.StatusMethodNotAllowed) {
		p.replied = true
		message := "unknown call"
		if status == http.StatusMethodNotAllowed {
			message = "this call does not have this method"
		}
		refuse(p.ResponseWriter, status, message)
		return
	}
	p.ResponseWriter.WriteHeader(status)
}

func (p *problems) Write(text []byte) (int, error) {
	if p.replied {
		return len(text), nil
	}
	return p.ResponseWriter.Write(text)
}

// carriesToken says whether one of the headers has the token: a proxy may need the first for its own.
func (n *Node) carriesToken(r *http.Request) bool {
	is := func(given, expected string) bool {
		return subtle.ConstantTimeCompare([]byte(given), []byte(expected)) == 1
	}
	bearer := is(r.Header.Get("Authorization"), "Bearer "+n.Token)
	return is(r.Header.Get("X-Perfrun-Token"), n.Token) || bearer
}

func (n *Node) ready(w http.ResponseWriter, _ *http.Request) {
	if n.Trials.IsStopping() {
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, "stopping\n")
		return
	}
	_, _ = io.WriteString(w, "ok\n")
}

func (n *Node) put(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		unreadable(w, err)
		return
	}
	created, err := n.Trials.Put(r.PathValue("id"), body)
	switch {
	case err != nil:
		refuseTrial(w, err)
	case created:
		w.WriteHeader(http.StatusCreated)
	default:
		w.WriteHeader(http.StatusOK)
	}
}

// renew restarts this program in its process.
func (n *Node) renew(w http.ResponseWriter, _ *http.Request) {
	if err := n.Trials.Close(); err != nil {
		refuseTrial(w, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
	n.Renew()
}

func refuseTrial(w http.ResponseWriter, err error) {
	var busy *trial.BusyError
	switch {
	case errors.As(err, &busy):
		answer(w, http.StatusLocked, contract.Problem{Message: err.Error(), Trial: busy.Trial})
	case errors.Is(err, trial.ErrDifferent), errors.Is(err, trial.ErrUncollected):
		refuse(w, http.StatusConflict, err.Error())
	case errors.Is(err, trial.ErrFull):
		refuse(w, http.StatusInsufficientStorage, err.Error())
	case errors.Is(err, trial.ErrStopping):
		refuse(w, http.StatusServiceUnavailable, err.Error())
	default:
		refuse(w, http.StatusBadRequest, err.Error())
	}
}

func (n *Node) get(w http.ResponseWriter, r *http.Request) {
	found := n.find(w, r)
	if found == nil {
		return
	}
	wait, after := 0.0, contract.Running
	if text := r.URL.Query().Get("wait"); text != "" {
		var err error
		if wait, err = strconv.ParseFloat(text, 64); err != nil {
			refuse(w, http.StatusBadRequest, "wait must be a number of seconds")
			return
		}
	}
	if text := r.URL.Query().Get("after"); text != "" {
		if _, known := contract.Later(contract.Finished, text); !known {
			refuse(w, http.StatusBadRequest, "after must be a state of trials")
			return
		}
		after = text
	}
	if !(wait > 0) {
		wait = 0
	}
	ctx, cancel := context.WithTimeout(r.Context(), contract.Seconds(min(wait, longestWait)))
	defer cancel()
	answer(w, http.StatusOK, found.Status(ctx, after))
}

func (n *Node) start(w http.ResponseWriter, r *http.Request) {
	var start contract.Start
	if err := json.NewDecoder(r.Body).Decode(&start); err != nil {
		unreadable(w, err)
		return
	}
	if start.AtNanoseconds == nil {
		refuse(w, http.StatusBadRequest, "atNanoseconds is missing")
		return
	}
	if found := n.find(w, r); found != nil {
		found.Start(*start.AtNanoseconds)
		w.WriteHeader(http.StatusNoContent)
	}
}

func (n *Node) finish(w http.ResponseWriter, r *http.Request) {
	if found := n.find(w, r); found != nil {
		found.Finish()
		w.WriteHeader(http.StatusNoContent)
	}
}

func (n *Node) delete(w http.ResponseWriter, r *http.Request) {
	if !n.Trials.Delete(r.PathValue("id")) {
		unknown(w, r)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func (n *Node) find(w http.ResponseWriter, r *http.Request) *trial.Trial {
	found := n.Trials.Get(r.PathValue("id"))
	if found == nil {
		unknown(w, r)
	}
	return found
}

func unknown(w http.ResponseWriter, r *http.Request) {
	if p, ok := w.(*problems); ok {
		p.ours = true
	}
	refuse(w, http.StatusNotFound, "unknown trial "+strconv.Quote(r.PathValue("id")))
}

func unreadable(w http.ResponseWriter, err error) {
	refuse(w, http.StatusBadRequest, err.Error())
}

func refuse(w http.ResponseWriter, status int, message string) {
	answer(w, status, contract.Problem{Message: message})
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}
