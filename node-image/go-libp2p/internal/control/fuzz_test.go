package control

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"perfrun/node-go/internal/contract"
	"perfrun/node-go/internal/corpus"
	"perfrun/node-go/internal/metrics"
	"perfrun/node-go/internal/trial"
)

// FuzzCalls of trials, by callers with the token. The node has an ended trial and is stopping, so that no
// other begins.
func FuzzCalls(f *testing.F) {
	calls := []struct{ method, path string }{
		{"PUT", ""}, {"GET", ""}, {"PUT", "/start"}, {"PUT", "/finish"}, {"POST", ""}, {"GET", "/other"},
	}
	for _, body := range corpus.Inputs(f, "request") {
		// Bodies for other stacks are refused before anything else is read.
		for _, stack := range []string{"raw", "libp2p", "litep2p"} {
			body = bytes.ReplaceAll(body, []byte(strconv.Quote(stack)), []byte(strconv.Quote(contract.Stack)))
		}
		f.Add(byte(0), "c0.i0", "", "", body) // there is another trial of this name
		f.Add(byte(0), "c0.i1", "", "", body) // the node is stopping
	}
	for call := range calls {
		f.Add(byte(call), "c0.i0", "wait=1.5&after=ready", "7", []byte(`{"atNanoseconds": 1}`))
	}
	trials := trial.New("127.0.0.1", metrics.New(nil))
	if _, err := trials.Put("c0.i0", []byte(strings.Replace(server, "tcp", "pigeon", 1))); err != nil {
		f.Fatal(err)
	}
	trials.Get("c0.i0").Status(f.Context(), contract.Running)
	trials.Stop(0)
	// Callers that do not wait.
	gone, leave := context.WithCancel(f.Context())
	leave()
	f.Fuzz(func(t *testing.T, call byte, id, query, epoch string, body []byte) {
		corpus.LimitMemory(t, func() {
			// A new one, because a node refuses epochs before the latest.
			node := &Node{Token: "secret", Trials: trials, Metrics: http.NotFoundHandler()}
			chosen := calls[int(call)%len(calls)]
			request := (&http.Request{
				Method: chosen.method,
				URL:    &url.URL{Path: "/v1/trials/" + id + chosen.path, RawQuery: query},
				Header: http.Header{"X-Perfrun-Token": {"secret"}, "X-Perfrun-Epoch": {epoch}},
				Body:   io.NopCloser(bytes.NewReader(body)),
			}).WithContext(gone)
			recorder := httptest.NewRecorder()
			node.handler().ServeHTTP(recorder, request)
			if recorder.Code >= 500 && recorder.Code != http.StatusServiceUnavailable || recorder.Code == http.StatusCreated {
				t.Errorf("%s %s: %d", request.Method, request.URL, recorder.Code)
			}
			var problem contract.Problem
			if recorder.Code >= 400 && (json.Unmarshal(recorder.Body.Bytes(), &problem) != nil || problem.Message == "") {
				t.Errorf("%s %s: %d does not say why: %s", request.Method, request.URL, recorder.Code, recorder.Body)
			}
		})
	})
}
