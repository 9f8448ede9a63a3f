package main

import "testing"

func TestANodeListensOnTheFirstAddressOfTheNeededFamily(t *testing.T) {
	both := []string{"10.0.0.1", "fd00::1", "fd00::2"}
	for _, test := range []struct {
		family, first string
		others        []string
		chosen        string
	}{
		{"IPv4", "10.0.0.1", both, "10.0.0.1"},
		{"IPv6", "10.0.0.1", both, "fd00::1"},
		{"IPv6", "fd00::2", both, "fd00::2"},
		{"IPv4", "fd00::1", both, "10.0.0.1"},
		{"", "127.0.0.1", []string{""}, "127.0.0.1"},
		// The conductor refuses such a node.
		{"IPv6", "10.0.0.1", both[:1], "10.0.0.1"},
	} {
		if got := ofFamily(test.family, test.first, test.others); got != test.chosen {
			t.Errorf("%v: %s", test, got)
		}
	}
}
