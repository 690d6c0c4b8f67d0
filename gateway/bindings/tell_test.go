// A test of the order in which Bound and Gone are called (tell.go).

package bindings

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
)

// TestStories: what a client takes is told together, and what concerns an address that changes hands in order.
func TestStories(t *testing.T) {
	ann, bob := anchorOf(1), anchorOf(2)
	one, two, three := netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("2001:db8::2"),
		netip.MustParseAddr("2001:db8::3")
	var got []string
	for _, s := range stories([]Action{
		{Bound, ann, one}, {Bound, bob, two}, {Gone, bob, two}, {Keep, ann, one}, {Bound, ann, three}, {Bound, ann, two},
		{Keep, ann, three},
	}) {
		got = append(got, fmt.Sprint(s.bound, s.then))
	}
	want := []string{
		fmt.Sprint([]netip.Addr{one, three}, []Action{{Keep, ann, one}, {Keep, ann, three}}),
		fmt.Sprint([]netip.Addr{}, []Action{{Bound, bob, two}, {Gone, bob, two}, {Bound, ann, two}}),
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
