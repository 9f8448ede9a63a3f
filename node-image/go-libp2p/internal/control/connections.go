package control

import (
	"context"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

const (
	// The head of a request takes no longer. Callers send it immediately.
	longestHead = 5 * time.Second
	// An answer that waits for its reader for longer ends the connection.
	longestStuck = 30 * time.Second
	// Bytes of an answer that may take longestStuck.
	chunk = 64 << 10
)

// serve at most a number of connections, each idle for at most some time. Beyond that number, the oldest
// connection that has not carried the token ends in favour of the new one, so that silent strangers keep
// nobody out.
func serve(listener net.Listener, handler http.Handler, most int, idle time.Duration) *http.Server {
	server := &http.Server{
		Handler: handler, ReadHeaderTimeout: longestHead, ReadTimeout: 60 * time.Second, IdleTimeout: idle,
		MaxHeaderBytes: 64 << 10,
		ConnContext: func(ctx context.Context, connection net.Conn) context.Context {
			return context.WithValue(ctx, placeKey{}, connection)
		},
	}
	go func() { _ = server.Serve(&places{Listener: listener, most: most, stuck: longestStuck}) }()
	return server
}

type placeKey struct{}

// trust the connection of a request: no stranger takes its place from now on.
func trust(r *http.Request) {
	if p, ok := r.Context().Value(placeKey{}).(*place); ok {
		p.places.mutex.Lock()
		p.trusted = true
		p.places.mutex.Unlock()
	}
}

// places for connections.
type places struct {
	net.Listener
	most  int
	stuck time.Duration
	mutex sync.Mutex
	// The oldest first.
	taken []*place
}

// place of a connection.
type place struct {
	net.Conn
	places  *places
	trusted bool
}

func (l *places) Accept() (net.Conn, error) {
	for {
		connection, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if taken := l.take(connection); taken != nil {
			return taken, nil
		}
		_ = connection.Close()
	}
}

func (l *places) take(connection net.Conn) *place {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if len(l.taken) >= l.most {
		oldest := slices.IndexFunc(l.taken, func(p *place) bool { return !p.trusted })
		if oldest < 0 {
			return nil
		}
		_ = l.taken[oldest].Conn.Close()
		l.taken = slices.Delete(l.taken, oldest, oldest+1)
	}
	taken := &place{Conn: connection, places: l}
	l.taken = append(l.taken, taken)
	return taken
}

func (p *place) Close() error {
	p.places.mutex.Lock()
	p.places.taken = slices.DeleteFunc(p.places.taken, func(other *place) bool { return other == p })
	p.places.mutex.Unlock()
	return p.Conn.Close()
}

// Write until the peer takes nothing for too long.
func (p *place) Write(bytes []byte) (int, error) {
	written := 0
	for part := range slices.Chunk(bytes, chunk) {
		if err := p.SetWriteDeadline(time.Now().Add(p.places.stuck)); err != nil {
			return written, err
		}
		n, err := p.Conn.Write(part)
		written += n
		if err != nil {
			return written, err
		}
	}
	return written, nil
}
