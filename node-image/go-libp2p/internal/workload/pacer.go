package workload

import (
	"time"

	"perfrun/node-go/internal/contract"
)

// timerLatenessMax is how late a timer may be that nothing delays. It is that of perfrun-node, so that both
// count alike.
const timerLatenessMax = 2 * time.Millisecond

// pacer says when the lines of an echo are due: after a pause that follows each answer, or, with a period, at
// fixed times.
type pacer struct {
	pause, period time.Duration
	begun         time.Time
	streams       int
}

// newPacer of a load that begins at a moment.
func newPacer(p *contract.Parameters, begun time.Time) pacer {
	paces := pacer{begun: begun, streams: p.Connections * p.StreamsPerConnection}
	if p.PeriodSeconds != nil {
		paces.period = contract.Seconds(*p.PeriodSeconds)
	} else {
		paces.pause = contract.Seconds(*p.PauseSeconds)
	}
	return paces
}

// first is when the first line is due on a stream that was opened at a moment. number counts the streams of
// all connections, from 0 on. Streams start at multiples of an interval. If periods began with them, the
// lines of most streams would be due at the same few moments. So the streams share each period evenly.
func (p *pacer) first(number int, opened time.Time) time.Time {
	if p.period == 0 {
		return opened
	}
	phase := p.begun.Add(time.Duration(float64(p.period) * float64(number) / float64(p.streams)))
	elapsed := max(opened.Sub(phase), 0)
	return phase.Add((elapsed + p.period - 1) / p.period * p.period)
}

// next is when the next line is due after one that was due, and whose answer came, at these moments.
func (p *pacer) next(due, answered time.Time) time.Time {
	if p.period == 0 {
		return answered.Add(p.pause)
	}
	return due.Add(p.period)
}

// countsFrom is from when the round trip counts of a line that was due and sent at these moments. With a
// period, a slow answer or a busy client delays lines without lowering their rate, so the delay must be part
// of the round trip. What a timer added to it does not belong to the stack.
func (p *pacer) countsFrom(due, sent time.Time, added time.Duration) time.Time {
	if p.period == 0 {
		return sent
	}
	return earlier(sent, due.Add(added))
}

// addedByTimer is what a timer added to the wait for a line that was due at one moment, if the stream woke at
// the other.
func addedByTimer(due, woken time.Time) time.Duration {
	return min(max(woken.Sub(due), 0), timerLatenessMax)
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
