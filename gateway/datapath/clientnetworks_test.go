package datapath

import (
	"errors"
	"net/netip"
	"slices"
	"testing"
)

// TestHolderLongestPrefix: of the networks that contain an address, the owner of the one with the longest prefix holds
// the address, and nobody takes a network of another owner. holds checks who holds the address; take adds networks, of
// which as many as fresh says are new.
func TestHolderLongestPrefix(t *testing.T) {
	wide, narrow := netip.MustParsePrefix("198.18.0.0/16"), netip.MustParsePrefix("198.18.5.0/24")
	in := netip.MustParseAddr("198.18.5.9")
	var b ClientNetworks[string]
	holds := func(want string) {
		t.Helper()
		if got, ok := b.Holder(in); got != want || ok != (want != "") {
			t.Errorf("behind %q, want %q", got, want)
		}
	}
	holds("")
	take := func(owner string, fresh int, networks ...netip.Prefix) {
		t.Helper()
		if got, err := b.Add(owner, networks); err != nil || len(got) != fresh {
			t.Errorf("%s takes %v: %v, %v", owner, networks, got, err)
		}
	}
	take("ada", 1, wide, wide)
	holds("ada")
	if _, err := b.Add("bob", []netip.Prefix{narrow, wide}); !errors.Is(err, ErrTaken) {
		t.Errorf("bob takes a network of ada's: %v", err)
	}
	holds("ada")
	take("bob", 1, narrow)
	take("bob", 0, narrow)
	holds("bob")
	for _, wrong := range []string{"0.0.0.0/0", "198.18.5.1/24", "2001:db8::/64"} {
		if _, err := b.Add("bob", []netip.Prefix{netip.MustParsePrefix(wrong)}); err == nil {
			t.Errorf("%s is taken", wrong)
		}
	}
	if removed := b.Drop("ada", []netip.Prefix{wide, narrow}); !slices.Equal(removed, []netip.Prefix{wide}) {
		t.Errorf("ada had %v", removed)
	}
	holds("bob")
	if removed := b.Drop("bob", b.Of("bob")); len(removed) != 1 || !b.Empty() || len(b.All()) > 0 {
		t.Errorf("bob had %v", removed)
	}
	holds("")
}

// TestOwner: a network has the owner that added it, whatever networks contain it or are within it.
func TestOwner(t *testing.T) {
	wide, narrow := netip.MustParsePrefix("198.18.0.0/16"), netip.MustParsePrefix("198.18.5.0/24")
	var b ClientNetworks[string]
	is := func(network netip.Prefix, want string) {
		t.Helper()
		if owner, ok := b.Owner(network); owner != want || ok != (want != "") {
			t.Errorf("%v is of %q, want %q", network, owner, want)
		}
	}
	is(wide, "")
	if n, ok := b.Any(); ok {
		t.Errorf("there is %v", n)
	}
	if _, err := b.Add("ada", []netip.Prefix{wide}); err != nil {
		t.Fatal(err)
	}
	is(wide, "ada")
	is(narrow, "")
	if n, ok := b.Any(); n != wide || !ok {
		t.Errorf("one of the networks is %v, %v", n, ok)
	}
}
