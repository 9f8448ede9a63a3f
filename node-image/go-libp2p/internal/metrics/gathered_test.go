package metrics

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

func TestValuesAreGatheredOnceForManyReadersAndAgainAfterATrial(t *testing.T) {
	times := 0
	g := &gathered{from: prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		times++
		return nil, nil
	})}
	is := func(expected int) {
		t.Helper()
		if _, err := g.Gather(); err != nil || times != expected {
			t.Fatal(times, err)
		}
	}
	is(1)
	// As if this machine were never slow.
	g.at = g.at.Add(maxAge)
	is(1)
	g.forget()
	is(2)
	g.at = g.at.Add(-maxAge)
	is(3)
}
