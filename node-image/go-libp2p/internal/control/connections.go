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
			return context.WithValue(ctx, slotKey{}, connection)
		},
	}
	go func() { _ = server.Serve(&connectionSlots{Listener: listener, most: most, stuck: longestStuck}) }()
	return server
}

type slotKey struct{}

// trust the connection of a request: no stranger takes its slot from now on.
func trust(r *http.Request) {
	if s, ok := r.Context().Value(slotKey{}).(*connectionSlot); ok {
		s.slots.mutex.Lock()
		s.trusted = true
		s.slots.mutex.Unlock()
	}
}

// connectionSlots limit how many connections are open.
type connectionSlots struct {
	net.Listener
	most  int
	stuck time.Duration
	mutex sync.Mutex
	// The oldest first.
	taken []*connectionSlot
}

// connectionSlot that a connection has taken.
type connectionSlot struct {
	net.Conn
	slots   *connectionSlots
	trusted bool
}

func (l *connectionSlots) Accept() (net.Conn, error) {
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

func (l *connectionSlots) take(connection net.Conn) *connectionSlot {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if len(l.taken) >= l.most {
		oldest := slices.IndexFunc(l.taken, func(s *connectionSlot) bool { return !s.trusted })
		if oldest < 0 {
			return nil
		}
		_ = l.taken[oldest].Conn.Close()
		l.taken = slices.Delete(l.taken, oldest, oldest+1)
	}
	taken := &connectionSlot{Conn: connection, slots: l}
	l.taken = append(l.taken, taken)
	return taken
}

func (s *connectionSlot) Close() error {
	s.slots.mutex.Lock()
	s.slots.taken = slices.DeleteFunc(s.slots.taken, func(other *connectionSlot) bool { return other == s })
	s.slots.mutex.Unlock()
	return s.Conn.Close()
}

// Write until the peer takes nothing for too long.
func (s *connectionSlot) Write(bytes []byte) (int, error) {
	written := 0
	for part := range slices.Chunk(bytes, chunk) {
		if err := s.SetWriteDeadline(time.Now().Add(s.slots.stuck)); err != nil {
			return written, err
		}
		n, err := s.Conn.Write(part)
		written += n
		if err != nil {
			return written, err
		}
	}
	return written, nil
}
