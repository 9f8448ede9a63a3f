// Package observe counts and samples what a trial does, and reads what the process uses.
package observe

import (
	"sync"
	"sync/atomic"

	"perfrun/node-go/internal/contract"
)

// Counters of a trial. The data path touches atomics only; the lock guards failures, which are rare.
type Counters struct {
	Sent, Received, Connections, Streams, Operations, Failures atomic.Uint64

	mutex  sync.Mutex
	errors map[contract.Reason]uint64
}

// Failed counts a failed operation of a trial that continues.
func (c *Counters) Failed(reason contract.Reason) {
	c.Failures.Add(1)
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.errors == nil {
		c.errors = map[contract.Reason]uint64{}
	}
	c.errors[reason]++
}

func (c *Counters) errorsUntilNow() map[contract.Reason]uint64 {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	errors := make(map[contract.Reason]uint64, len(c.errors))
	for reason, count := range c.errors {
		errors[reason] = count
	}
	return errors
}
