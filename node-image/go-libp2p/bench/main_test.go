package main

import "testing"

func TestTheIntervalOfAMedianLeavesOutTheTails(t *testing.T) {
	var values []float64
	for i := range 100 {
		values = append(values, float64((i*37)%100))
	}
	if low, high := interval(values); low != 40 || high != 59 {
		t.Errorf("[%v, %v]", low, high)
	}
	if low, high := interval([]float64{3, 1, 2}); low != 1 || high != 3 {
		t.Errorf("[%v, %v]", low, high)
	}
}

func TestATargetIsMetOnlyIfTheWholeIntervalIs(t *testing.T) {
	for _, of := range []struct {
		low, high float64
		expected  string
	}{
		{0.97, 1.01, ", target 0.97 met"},
		{0.90, 0.96, ", target 0.97 missed"},
		{0.96, 0.97, ", target 0.97 inconclusive"},
	} {
		if got := verdict("tcp-tls", of.low, of.high); got != of.expected {
			t.Errorf("%q", got)
		}
	}
	if got := verdict("webtransport", 0.5, 0.6); got != "" {
		t.Errorf("%q", got)
	}
}
