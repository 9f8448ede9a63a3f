package control

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

const patience = 20 * time.Second

func TestSilentConnectionsKeepNoCallerOut(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/quick", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("/trusted", func(_ http.ResponseWriter, r *http.Request) { trust(r) })
	server := serve(listener, mux, 2, time.Hour)
	defer server.Close()
	dial := func() net.Conn {
		connection, err := net.Dial("tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = connection.Close() })
		_ = connection.SetDeadline(time.Now().Add(patience))
		return connection
	}
	call := func(connection net.Conn, path string) {
		t.Helper()
		_, _ = io.WriteString(connection, "GET "+path+" HTTP/1.1\r\nHost: node\r\n\r\n")
		response, err := http.ReadResponse(bufio.NewReader(connection), nil)
		if err != nil || response.StatusCode != http.StatusOK {
			t.Fatal(path, response, err)
		}
	}
	trusted := dial()
	call(trusted, "/trusted")
	var silent []net.Conn
	for range 20 {
		silent = append(silent, dial())
	}
	for _, connection := range silent[:19] {
		// Another took its slot, long before its time for a request was over.
		if _, err := connection.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal(err)
		}
	}
	call(dial(), "/quick")
	call(trusted, "/quick")
}

func TestAPeerThatDoesNotReadLosesTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		defer ours.Close()
		stuck := &connectionSlot{Conn: ours, slots: &connectionSlots{stuck: time.Minute}}
		if n, err := stuck.Write(make([]byte, 2*chunk)); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal(n, err)
		}
		// One that reads has this time for each part.
		go func() { _, _ = io.Copy(io.Discard, theirs) }()
		if n, err := stuck.Write(make([]byte, 2*chunk+1)); n != 2*chunk+1 || err != nil {
			t.Fatal(n, err)
		}
	})
}
