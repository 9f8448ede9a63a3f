package wire

import (
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"perfrun/node-go/internal/contract"
	"perfrun/node-go/internal/observe"
)

// messages runs both ends of an exchange, and returns what they counted and timed.
func messages(t *testing.T, p contract.Parameters) (client, server *observe.Counters, trips, times *hdrhistogram.Histogram) {
	t.Helper()
	client, server = &observe.Counters{}, &observe.Counters{}
	trips, times = observe.NewHistogram(), observe.NewHistogram()
	a, b := pipe()
	ours, theirs, load := NewMessenger(a), NewMessenger(b), Load{&p}
	ended := make(chan served, 1)
	go func() {
		serve := theirs.Serve
		if p.Mode == "broadcast" {
			serve = theirs.ServeBroadcast
		}
		arrival, err := serve(load, server, times)
		ended <- served{arrival, err}
	}()
	clock := int64(0)
	err := ours.Open(&clock)
	var sent uint64
	if err == nil && p.Mode == "broadcast" {
		sent, _, err = Broadcast([]*Messenger{ours}, load, client)
	} else if err == nil {
		var exchanged Exchanged
		exchanged, err = ours.Run(load, client, trips)
		sent = exchanged.Bytes / uint64(p.MessageBytes)
	}
	ours.Close()
	if s := <-ended; err != nil || s.err != nil || s.arrival.Bytes != sent*uint64(p.MessageBytes) {
		t.Fatalf("%v, %v, %d of %d messages of %d bytes", err, s.err, s.arrival.Bytes, sent, p.MessageBytes)
	}
	return client, server, trips, times
}

func count(n uint64) contract.Amount { return contract.Amount{Count: &n} }

func TestAllMessagesArriveWhateverTheirSizeAndWindow(t *testing.T) {
	for _, bytes := range []uint64{8, 15, 16, 1000, together, contract.MostMessage} {
		for _, window := range []int{1, 4, 64} {
			for _, amount := range []uint64{1, 5, 200} {
				p := contract.Parameters{Mode: "stream", Amount: count(amount)}
				p.MessageBytes, p.Window = contract.ByteSize(bytes), window
				client, server, trips, times := messages(t, p)
				if client.Sent.Load() != amount*bytes || server.Received.Load() != amount*bytes || client.Operations.Load() != amount {
					t.Errorf("%d messages of %d bytes: %d sent", amount, bytes, client.Sent.Load())
				}
				// One for each acknowledgement.
				each := uint64(p.AcknowledgedEach())
				if due := (amount + each - 1) / each; uint64(trips.TotalCount()) != due {
					t.Errorf("%d round trips of %d", trips.TotalCount(), due)
				}
				// Shorter messages have no stamp.
				if oneWay := uint64(times.TotalCount()); bytes >= stamped && oneWay != amount || bytes < stamped && oneWay != 0 {
					t.Errorf("%d one-way delays", oneWay)
				}
			}
		}
	}
}

func TestABroadcastEndsAfterItsTime(t *testing.T) {
	seconds, rate := 0.05, 1000
	p := contract.Parameters{Mode: "broadcast", Amount: contract.Amount{Seconds: &seconds}, Rate: &rate}
	p.MessageBytes, p.Window = 100, 1
	client, _, _, _ := messages(t, p)
	// The first is due immediately, and none is sent early. On a busy machine, there are fewer.
	if sent := client.Sent.Load() / 100; sent < 1 || sent > 51 {
		t.Errorf("%d messages at 1000 per second in 50 ms", sent)
	}
}

func TestLatencyCountsFromTheScheduledMoment(t *testing.T) {
	rate := 1000
	p := contract.Parameters{Mode: "serialAck", Amount: count(20), Rate: &rate}
	p.MessageBytes, p.Window = 64, 1
	a, b := pipe()
	load := Load{&p}
	go func() {
		theirs := NewMessenger(b)
		for range 21 {
			got, err := theirs.receive()
			if err != nil {
				return
			}
			if got.number() == 1 {
				time.Sleep(30 * time.Millisecond)
			}
			_ = theirs.send(got.number(), 0, contract.LeastMessage)
		}
	}()
	ours, trips := NewMessenger(a), observe.NewHistogram()
	if err := ours.Open(nil); err != nil {
		t.Fatal(err)
	}
	if _, err := ours.Run(load, &observe.Counters{}, trips); err != nil {
		t.Fatal(err)
	}
	// The stall delays those that were due in it, too.
	if median := time.Duration(trips.ValueAtQuantile(50)); median < 5*time.Millisecond {
		t.Errorf("half of the round trips took less than %v", median)
	}
}

func TestLostAndWrongMessagesAreNoticed(t *testing.T) {
	for _, wrong := range []struct {
		sequence uint64
		bytes    int
		reason   contract.Reason
	}{
		{2, 100, contract.MessageLost}, {0, 100, contract.MessageLost}, {1, 99, contract.TooFewBytes},
		{1, 101, contract.UnexpectedBytes},
	} {
		p := contract.Parameters{Mode: "stream", Amount: count(3)}
		p.MessageBytes, p.Window = 100, 4
		a, b := pipe()
		ended := make(chan error, 1)
		go func() {
			_, err := NewMessenger(b).Serve(Load{&p}, &observe.Counters{}, observe.NewHistogram())
			ended <- err
		}()
		ours := NewMessenger(a)
		if err := ours.Open(nil); err != nil {
			t.Fatal(err)
		}
		_ = ours.send(wrong.sequence, 0, wrong.bytes)
		says(t, <-ended, wrong.reason)
	}
}

func TestWrongAcknowledgementsAreNoticed(t *testing.T) {
	for _, wrong := range [][2]uint64{{0, 8}, {5, 8}, {1, 9}} {
		p := contract.Parameters{Mode: "stream", Amount: count(4)}
		p.MessageBytes, p.Window = 16, 4
		a, b := pipe()
		go func() {
			theirs := NewMessenger(b)
			_, _ = theirs.receive()
			_ = theirs.send(wrong[0], 0, int(wrong[1]))
			for err := error(nil); err == nil; {
				_, err = theirs.receive()
			}
		}()
		_, err := NewMessenger(a).Run(Load{&p}, &observe.Counters{}, observe.NewHistogram())
		says(t, err, contract.UnexpectedBytes)
	}
}

func TestSerialMessagesArriveOneAfterTheOther(t *testing.T) {
	p := contract.Parameters{Mode: "serial", Amount: count(50)}
	p.MessageBytes, p.Window = contract.MostMessage, 1
	a, b := pipe()
	ours, theirs, times := NewMessenger(a), NewMessenger(b), observe.NewHistogram()
	begun := make(chan error, 1)
	go func() { begun <- ours.Begin(nil) }()
	// A pipe has no buffer: message 0 must be read before it is sent.
	_, _ = theirs.in.Peek(1)
	if err := <-begun; err != nil {
		t.Fatal(err)
	}
	var sender, receiver observe.Counters
	exchanged, arrival, err := Serial(ours, theirs, Load{&p}, &sender, &receiver, times)
	if bytes := uint64(50 * contract.MostMessage); err != nil || exchanged.Bytes != bytes || arrival.Bytes != bytes {
		t.Errorf("%v, %d bytes", err, arrival.Bytes)
	}
	if times.TotalCount() != 50 || sender.Operations.Load() != 50 {
		t.Errorf("%d times", times.TotalCount())
	}
}
