package workload

import (
	"context"
	"io"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"perfrun/node-go/internal/contract"
	"perfrun/node-go/internal/observe"
)

const ms = time.Millisecond

// stream over a pipe in memory.
type stream struct{ net.Conn }

func (s stream) CloseWrite() error { return s.Close() }
func (s stream) Reset() error      { return s.Close() }

// echoed has the moments at which lines reach a peer that answers the second one after 250 ms and the others
// after 10 ms, in half a second of one of four streams, and the mean of the round trips.
func echoed(t *testing.T, load contract.Echo) (sent []time.Duration, mean time.Duration) {
	t.Helper()
	load.Connections, load.StreamsPerConnection, load.DeadlineSeconds = 2, 2, 5
	request := contract.TrialRequest{Parameters: contract.Parameters{Echo: load, Messages: contract.Messages{MessageBytes: 64}}}
	setup := Setup{Request: &request, Observer: &observe.Observer{Counters: &observe.Counters{}}}
	begun, side := time.Now(), newEchoSide(&setup)
	ours, theirs := net.Pipe()
	peer := make(chan error, 1)
	go func() {
		line := make([]byte, 64)
		for {
			if _, err := io.ReadFull(theirs, line); err != nil {
				peer <- err
				return
			}
			sent = append(sent, time.Since(begun))
			answer := 10 * ms
			if len(sent) == 2 {
				answer = 250 * ms
			}
			time.Sleep(answer)
			if _, err := theirs.Write(line); err != nil {
				peer <- err
				return
			}
		}
	}()
	settled := 0
	if err := side.echoUntil(t.Context(), stream{ours}, 1, begun.Add(500*ms), func() { settled++ }); err != nil {
		t.Error(err)
	}
	_ = ours.Close()
	if err := <-peer; err != io.EOF {
		t.Error(err)
	}
	trips := observe.NewHistogram()
	setup.counters().RoundTrips.Take(trips)
	if operations := int(setup.counters().Operations.Load()); operations != len(sent) || settled != operations ||
		int(trips.TotalCount()) != operations {
		t.Errorf("%d round trips, of which %d have a time, and %d lines", operations, trips.TotalCount(), len(sent))
	}
	return sent, time.Duration(trips.Mean())
}

// isAbout says whether the mean of a histogram is the expected one, within its three digits.
func isAbout(mean, expected time.Duration) bool { return (mean - expected).Abs() < expected/500 }

func TestASlowAnswerDelaysAllLinesThatPauseAfterIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sent, mean := echoed(t, contract.Echo{PauseSeconds: new(0.1)})
		// 10, 250 and 10 ms.
		if !slices.Equal(sent, []time.Duration{0, 110 * ms, 460 * ms}) || !isAbout(mean, 90*ms) {
			t.Errorf("%v, %v", sent, mean)
		}
	})
}

func TestASlowAnswerDelaysLinesWithAPeriodUntilTheyAreOnTimeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sent, mean := echoed(t, contract.Echo{PeriodSeconds: new(0.1)})
		// Those of 225 and 325 ms wait for the answer at 375 ms. The round trips take 10, 250 and, from the moments
		// at which they were due, 160, 70 and 10 ms.
		if !slices.Equal(sent, []time.Duration{25 * ms, 125 * ms, 375 * ms, 385 * ms, 425 * ms}) ||
			!isAbout(mean, 100*ms) {
			t.Errorf("%v, %v", sent, mean)
		}
	})
}

func TestStreamsShareEachPeriodEvenly(t *testing.T) {
	begun := time.Now()
	load := contract.Echo{Connections: 2, StreamsPerConnection: 4, PeriodSeconds: new(0.8)}
	pacer := newPacer(&contract.Parameters{Echo: load}, begun)
	for number := range 8 {
		if first := pacer.first(number, begun).Sub(begun); first != time.Duration(number)*100*ms {
			t.Errorf("stream %d: %v", number, first)
		}
	}
	// The first of these times that has not passed when the stream is open.
	for opened, expected := range map[time.Duration]time.Duration{
		99 * ms: 100 * ms, 100 * ms: 100 * ms, 101 * ms: 900 * ms, 8101 * ms: 8900 * ms,
	} {
		if first := pacer.first(1, begun.Add(opened)).Sub(begun); first != expected {
			t.Errorf("open after %v: %v", opened, first)
		}
	}
}

func TestATimerAddsAtMostTwoMilliseconds(t *testing.T) {
	due := time.Now()
	for late, added := range map[time.Duration]time.Duration{-ms: 0, 0: 0, ms: ms, 2 * ms: 2 * ms, 3 * ms: 2 * ms, 900 * ms: 2 * ms} {
		if by := addedByTimer(due, due.Add(late)); by != added {
			t.Errorf("%v late: %v", late, by)
		}
	}
}

func TestLateLinesWithAPeriodCountFromTheirDueTimeWithoutWhatATimerAdded(t *testing.T) {
	due := time.Now()
	load := contract.Echo{Connections: 1, StreamsPerConnection: 1, PeriodSeconds: new(0.8)}
	pacer := newPacer(&contract.Parameters{Echo: load}, due)
	for _, line := range []struct{ late, added, counted time.Duration }{
		{0, 0, 0}, {900 * ms, 0, 0}, {ms, ms, ms}, {900 * ms, ms, ms}, {ms, 2 * ms, ms}, {900 * ms, 2 * ms, 2 * ms},
	} {
		if from := pacer.countsFrom(due, due.Add(line.late), line.added).Sub(due); from != line.counted {
			t.Errorf("%+v: %v", line, from)
		}
	}
}

func TestATimeThatHasPassedTakesNoTimer(t *testing.T) {
	for _, pause := range []time.Duration{0, -ms} {
		if taken := testing.AllocsPerRun(100, func() { sleep(t.Context(), pause) }); taken > 0 {
			t.Errorf("%v: %v allocations", pause, taken)
		}
	}
	stopped, stop := context.WithCancel(t.Context())
	stop()
	if sleep(stopped, 0) {
		t.Error("a stream that was stopped continues")
	}
}
