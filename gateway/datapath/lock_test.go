package datapath

import (
	"errors"
	"testing"
)

// TestLock: gateways of two LANs share a WAN if both do, and nobody shares a LAN.
func TestLock(t *testing.T) {
	alone, shared := Alone("lan0", "wan0"), Sharing("lan0", "wan0")
	for _, c := range []struct {
		name          string
		first, second []Claim
		busy          bool
	}{
		{"the same gateway again", alone, alone, true},
		{"the same, sharing", shared, shared, true},
		{"both alone at the WAN", alone, Alone("lan1", "wan0"), true},
		{"the second alone", shared, Alone("lan1", "wan0"), true},
		{"the first alone", alone, Sharing("lan1", "wan0"), true},
		{"both share", shared, Sharing("lan1", "wan0"), false},
		{"one's LAN is the other's WAN", shared, Sharing("wan0", "wan1"), true},
		{"a WAN whose name begins the same", shared, Alone("lan1", "wan01"), false},
	} {
		held, err := Lock(c.first...)
		if err != nil {
			t.Fatal(err)
		}
		if err := Taken(c.second...); errors.Is(err, ErrBusy) != c.busy {
			t.Errorf("%s: looked for: %v", c.name, err)
		}
		next, err := Lock(c.second...)
		if errors.Is(err, ErrBusy) != c.busy {
			t.Errorf("%s: %v", c.name, err)
		}
		if err := errors.Join(held.Close(), next.Close()); err != nil {
			t.Fatal(err)
		}
		if err := Taken(c.second...); err != nil {
			t.Errorf("%s: %v after all are closed", c.name, err)
		}
	}
}
