package bench

import (
	"strings"
	"testing"
)

func TestFlowsThatDoNotFitAreRefusedWithTheNumberThatDoes(t *testing.T) {
	for _, tt := range []struct {
		clients, count, limit int
		want                  string // in the error; empty: none
	}{
		{10_000, 0, 100, ""},
		{10_000, 60_000, 262_144, ""},
		{10_000, 60_000, 80_000, ""},
		{10_000, 60_000, 79_999, "about 9999 clients fit"},
		{10_000, 60_000, 40_000,
			"10000 clients will take 80000 entries of a table that holds 40000; about 5000 clients fit, or raise it: sysctl " +
				"-w net.netfilter.nf_conntrack_max=160000"},
	} {
		err := flowsFit(tt.clients, tt.count, tt.limit)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: %v", tt, err)
		}
	}
}

func TestFlowsFull(t *testing.T) {
	for _, tt := range []struct {
		count, limit int
		want         bool
	}{{0, 0, false}, {10, 262144, false}, {949, 1000, false}, {950, 1000, true}, {1000, 1000, true}, {1010, 1000, true}} {
		if got := flowsFull(tt.count, tt.limit); got != tt.want {
			t.Errorf("%d of %d: full is %t", tt.count, tt.limit, got)
		}
	}
}
