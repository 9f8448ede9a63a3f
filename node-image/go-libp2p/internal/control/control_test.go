package control

import (
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"perfrun/node-go/internal/contract"
	"perfrun/node-go/internal/metrics"
	"perfrun/node-go/internal/trial"
)

// node serves a control port for a test, and returns what calls it.
func node(t *testing.T) func(method, path, body string, headers ...string) (int, string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	exported := metrics.New(map[string]string{"run": "r"})
	trials := trial.New("127.0.0.1", exported)
	n := &Node{ProgramSHA256: func() string { return "ab" }, Token: "secret", Trials: trials, Metrics: NewScrapes(exported.Handler())}
	server := n.Serve(listener)
	t.Cleanup(func() { _ = server.Close(); trials.Stop(0) })
	return func(method, path, body string, headers ...string) (int, string) {
		request, err := http.NewRequest(method, "http://"+listener.Addr().String()+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if len(headers) == 0 {
			headers = []string{"Authorization", "Bearer secret"}
		}
		for i := 0; i < len(headers) && headers[i] != ""; i += 2 {
			request.Header.Set(headers[i], headers[i+1])
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		text, _ := io.ReadAll(response.Body)
		return response.StatusCode, string(text)
	}
}

const server = `{"stack": "go-libp2p", "transport": "tcp", "timeoutSeconds": 20, "side": "server",
	"parameters": {"workload": "ping", "count": 1, "intervalSeconds": 0}}`

func TestACallWithoutTheTokenIsUnauthorized(t *testing.T) {
	call := node(t)
	for _, path := range []string{"/v1/info", "/v1/nothing", "/v1/trials/a", "/debug/pprof/heap"} {
		for _, headers := range [][]string{{"", ""}, {"Authorization", "Bearer wrong"}, {"X-Perfrun-Token", "secre"}} {
			if status, _ := call("GET", path, "", headers...); status != http.StatusUnauthorized {
				t.Error(path, headers, status)
			}
		}
	}
	if status, info := call("GET", "/v1/info", "", "X-Perfrun-Token", "secret"); status != http.StatusOK ||
		!strings.Contains(info, `"programSha256":"ab"`) {
		t.Error(status)
	}
	for _, path := range []string{"/healthz", "/readyz", "/metrics"} {
		if status, _ := call("GET", path, "", "", ""); status != http.StatusOK {
			t.Error(path, status)
		}
	}
}

func TestCallsAnswerAsTheContractSays(t *testing.T) {
	call := node(t)
	is := func(method, path, body string, expected int) string {
		t.Helper()
		status, text := call(method, path, body)
		if status != expected {
			t.Fatalf("%s %s: %d and not %d: %s", method, path, status, expected, text)
		}
		return text
	}
	is("GET", "/v1/nothing", "", http.StatusNotFound)
	is("POST", "/v1/info", "", http.StatusMethodNotAllowed)
	is("GET", "/v1/trials/a", "", http.StatusNotFound)
	is("PUT", "/v1/trials/a", "{", http.StatusBadRequest)
	is("PUT", "/v1/trials/a", "{}", http.StatusBadRequest)
	is("PUT", "/v1/trials/a", strings.Repeat(" ", largestBody+1), http.StatusBadRequest)
	is("PUT", "/v1/trials/a", server, http.StatusCreated)
	is("PUT", "/v1/trials/a", server, http.StatusOK)
	is("PUT", "/v1/trials/a", strings.Replace(server, "20", "21", 1), http.StatusConflict)
	busy := is("PUT", "/v1/trials/b", server, http.StatusLocked)
	if !strings.Contains(busy, `"trial":"a"`) {
		t.Error(busy)
	}
	is("GET", "/v1/trials/a?after=done", "", http.StatusBadRequest)
	var status contract.TrialStatus
	_ = json.Unmarshal([]byte(is("GET", "/v1/trials/a?wait=10&after=preparing", "", http.StatusOK)), &status)
	if status.State != contract.Ready || len(status.Addresses) == 0 {
		t.Errorf("%+v", status)
	}
	is("PUT", "/v1/trials/a/start", "{}", http.StatusBadRequest)
	is("PUT", "/v1/trials/a/finish", "", http.StatusNoContent)
	is("PUT", "/v1/trials/a/finish", "", http.StatusNoContent)
	_ = json.Unmarshal([]byte(is("GET", "/v1/trials/a?wait=10", "", http.StatusOK)), &status)
	if status.State != contract.Finished || status.Outcome == nil || status.Outcome.Failure != nil {
		t.Errorf("%+v", status)
	}
	is("DELETE", "/v1/trials/a", "", http.StatusNoContent)
	is("DELETE", "/v1/trials/a", "", http.StatusNotFound)
	is("GET", "/debug/pprof/heap", "", http.StatusOK)
	for _, name := range []string{"perfrun_echoing_streams{", "libp2p_swarm_", "libp2p_identify_"} {
		if page := is("GET", "/metrics", "", http.StatusOK); !strings.Contains(page, name) {
			t.Errorf("/metrics has no %s", name)
		}
	}
}

func TestAConductorThatAnotherHasTakenOverFromIsRefused(t *testing.T) {
	call := node(t)
	is := func(token, epoch string, expected int) {
		t.Helper()
		headers := []string{"Authorization", "Bearer " + token, "X-Perfrun-Epoch", epoch}
		if status, text := call("GET", "/v1/trials/a", "", headers...); status != expected {
			t.Errorf("epoch %q: %d and not %d: %s", epoch, status, expected, text)
		}
	}
	is("secret", "7", http.StatusNotFound)
	is("wrong", "9", http.StatusUnauthorized)
	is("secret", "7", http.StatusNotFound)
	is("secret", "6", http.StatusPreconditionFailed)
	is("secret", "9223372036854775808", http.StatusBadRequest)
	is("secret", "seven", http.StatusBadRequest)
	if status, why := call("PUT", "/v1/trials/a", server); status != http.StatusPreconditionFailed ||
		!strings.Contains(why, "of epoch 0, and a conductor of epoch 7 has taken over") {
		t.Error(status, why)
	}
	is("secret", "8", http.StatusNotFound)
}

func TestOnlyANodeThatEndsIsUnavailable(t *testing.T) {
	// A conductor replaces nodes that answer 502 to 504.
	for err, expected := range map[error]int{
		&trial.BusyError{Trial: "a"}: http.StatusLocked,
		trial.ErrDifferent:           http.StatusConflict,
		trial.ErrUncollected:         http.StatusConflict,
		trial.ErrFull:                http.StatusInsufficientStorage,
		trial.ErrStopping:            http.StatusServiceUnavailable,
		errors.New("no timeout"):     http.StatusBadRequest,
	} {
		answer := httptest.NewRecorder()
		refuseTrial(answer, err)
		if answer.Code != expected || !strings.Contains(answer.Body.String(), err.Error()) {
			t.Errorf("%v: %d and not %d: %s", err, answer.Code, expected, answer.Body)
		}
	}
}

func TestATrialIsCancelledAndTimesOut(t *testing.T) {
	call := node(t)
	ends := func(request string, reason contract.Reason, cancel bool) {
		t.Helper()
		if status, text := call("PUT", "/v1/trials/a", request); status != http.StatusCreated {
			t.Fatal(status, text)
		}
		call("GET", "/v1/trials/a?wait=10&after=preparing", "")
		if cancel {
			call("DELETE", "/v1/trials/a", "")
		}
		begun := time.Now()
		var status contract.TrialStatus
		_, text := call("GET", "/v1/trials/a?wait=10", "")
		_ = json.Unmarshal([]byte(text), &status)
		if status.Outcome == nil || status.Outcome.Failure == nil || status.Outcome.Failure.Reason != reason {
			t.Error(reason, text, time.Since(begun))
		}
		call("DELETE", "/v1/trials/a", "")
	}
	ends(server, contract.Cancelled, true)
	ends(strings.Replace(server, "20", "0.3", 1), contract.Timeout, false)
	nobody := `{"client": {"servers": ["/ip4/127.0.0.1/tcp/1/p2p/12D3KooWBpZHDZu7YSbvPaPXKhkRNJvR7MkTJMQQAVBKx9mCqz3q"], "peers": 1}}`
	ends(strings.Replace(server, `"server"`, nobody, 1), contract.DialFailed, false)
}
