package control

import (
	"fmt"
	"math"
	"net/http"
	"strconv"
	"sync"
)

// epoch of the latest conductor that has called.
type epoch struct {
	mutex  sync.Mutex
	latest uint64
}

// KnowEpoch makes the node refuse calls of a smaller epoch. A program that restarts passes on what it
// knew.
func (n *Node) KnowEpoch(latest uint64) {
	n.epoch.mutex.Lock()
	defer n.epoch.mutex.Unlock()
	n.epoch.latest = max(n.epoch.latest, latest)
}

// LatestEpoch is the largest epoch of callers so far.
func (n *Node) LatestEpoch() uint64 {
	n.epoch.mutex.Lock()
	defer n.epoch.mutex.Unlock()
	return n.epoch.latest
}

// allows says whether a call is not of a conductor that another has taken over from. It refuses others.
func (e *epoch) allows(w http.ResponseWriter, r *http.Request) bool {
	text := r.Header.Get("X-Perfrun-Epoch")
	if text == "" {
		text = "0"
	}
	called, err := strconv.ParseUint(text, 10, 63)
	if err != nil {
		refuse(w, http.StatusBadRequest, fmt.Sprintf("the header X-Perfrun-Epoch must be a number from 0 to %d", math.MaxInt64))
		return false
	}
	e.mutex.Lock()
	defer e.mutex.Unlock()
	if called < e.latest {
		refuse(w, http.StatusPreconditionFailed, fmt.Sprintf(
			"this call is of epoch %d, and a conductor of epoch %d has taken over: end this conductor", called, e.latest))
		return false
	}
	e.latest = called
	return true
}
