package observe

import (
	"testing"
	"time"

	"perfrun/node-go/internal/contract"
)

func TestRetransmitsAreReadByName(t *testing.T) {
	found := retransmits("Ip: A B\nIp: 1 2\nTcp: InSegs RetransSegs\nTcp: 10 7\n")
	if found == nil || *found != 7 {
		t.Error(found)
	}
	if retransmits("Tcp: InSegs\nTcp: 10\n") != nil {
		t.Error("there is no such counter")
	}
}

func TestInterfacesAreSummedWithoutLoopbackAndTheEmulator(t *testing.T) {
	received, sent := interfaces("Inter-|\n face |\n lo: 1 0 0 0 0 0 0 0 1 0\n" +
		"eth0: 10 0 0 0 0 0 0 0 20 0\neth1: 5 0 0 0 0 0 0 0 6 0\nperfrun0: 9 0 0 0 0 0 0 0 9 0\n")
	if *received != 15 || *sent != 26 {
		t.Error(*received, *sent)
	}
	if received, _ := interfaces(" lo: 1 0 0 0 0 0 0 0 1 0\n"); received != nil {
		t.Error("loopback does not count")
	}
}

func TestTheClockIsTheKernelsAndGoesBothWays(t *testing.T) {
	before := monotonic()
	shown := Nanoseconds(time.Now())
	after := monotonic()
	if slack := uint64(time.Millisecond); shown+slack < before || shown > after+slack {
		t.Error(before, shown, after)
	}
	at := time.Now().Add(time.Second)
	if difference := At(Nanoseconds(at)).Sub(at).Abs(); difference > time.Microsecond {
		t.Error(difference)
	}
}

// sums adds up what an observer hands to metrics.
type sums struct{ sent, operations uint64 }

func (*sums) SetEchoing(uint64) {}

func (s *sums) Add(sent, _, _, _, operations, _ uint64) { s.sent += sent; s.operations += operations }

func TestAnObserverHandsEveryCountToTheMetricsOnce(t *testing.T) {
	total := &sums{}
	o := New(total, NewSampling(false, 0))
	o.Counters.Sent.Add(10)
	o.Begin()
	o.Counters.Sent.Add(5)
	o.Counters.Operations.Add(2)
	o.Counters.CountFailure(contract.DialFailed)
	first, second := o.Finish(), o.Finish()
	if total.sent != 15 || total.operations != 2 {
		t.Errorf("%+v", total)
	}
	if first.Measured.BytesSent != 15 || first.At != second.At || first.Measured.Errors[contract.DialFailed] != 1 {
		t.Errorf("%+v", first)
	}
	o.Begin()
	if again := o.Finish(); again.At != first.At {
		t.Error("a finished observation begins again")
	}
}

func TestASeriesStaysShort(t *testing.T) {
	at, sampling := time.Unix(0, 0), NewSampling(false, 0)
	o := &Observer{Counters: &Counters{}, sampling: sampling}
	o.series = newSeries(reading{at: at}, reading{}, sampling)
	for i := range uint64(1000) {
		o.keep(reading{at: at.Add(time.Duration(i+1) * sampling.interval), sent: i + 1}, i == 999)
	}
	s := &o.series
	var sent uint64
	for _, sample := range s.samples {
		sent += sample.BytesSent
	}
	if len(s.samples) >= sampling.most || sent != 1000 {
		t.Error(len(s.samples), sent)
	}
}
