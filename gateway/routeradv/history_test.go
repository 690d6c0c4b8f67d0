package routeradv

import (
	"net/netip"
	"slices"
	"testing"
	"time"
)

// TestHistory: a prefix that is no longer advertised is withdrawn for as long as hosts have addresses of it.
func TestHistory(t *testing.T) {
	begin := time.Now()
	var h history
	// Each step is what is advertised after a time, and the valid lifetimes of withdrawn prefixes.
	for _, step := range []struct {
		after     time.Duration
		advert    []Prefix
		withdrawn map[string]time.Duration
	}{
		{0, []Prefix{lasting("a", 24*time.Hour)}, nil},
		{time.Minute, []Prefix{lasting("b", time.Hour)}, map[string]time.Duration{"a": 2 * time.Hour}},
		{31 * time.Minute, []Prefix{lasting("b", time.Hour)}, map[string]time.Duration{"a": 90 * time.Minute}},
		{61 * time.Minute, []Prefix{lasting("c", time.Hour)},
			map[string]time.Duration{"a": time.Hour, "b": 30 * time.Minute}},
		{91 * time.Minute, []Prefix{lasting("c", time.Hour)}, map[string]time.Duration{"a": 30 * time.Minute}},
		// One that comes back is no longer withdrawn, and known hosts ignore a valid lifetime below two hours.
		{92 * time.Minute, []Prefix{lasting("a", time.Minute)}, map[string]time.Duration{"c": 59 * time.Minute}},
		{93 * time.Minute, nil, map[string]time.Duration{"c": 58 * time.Minute, "a": 28 * time.Minute}},
		{24 * time.Hour, nil, nil},
	} {
		now := begin.Add(step.after)
		got := map[string]time.Duration{}
		for _, p := range h.advertise(Advertisement{Prefixes: step.advert}, now).Prefixes {
			if preferred, valid := p.lifetimes(now); preferred == 0 {
				got[name(p)] = valid
			}
			if !p.Autonomous || p.OnLink {
				t.Errorf("after %s: %+v", step.after, p)
			}
		}
		if len(got) != len(step.withdrawn) {
			t.Errorf("after %s: %v, not %v", step.after, got, step.withdrawn)
		}
		for prefix, valid := range step.withdrawn {
			if got[prefix] != valid {
				t.Errorf("after %s: %s is valid for %s, not %s", step.after, prefix, got[prefix], valid)
			}
		}
	}
	if !h.empty() {
		t.Errorf("%+v is left", h)
	}
}

// TestHistoryIsBounded: of prefixes that change all the time, the last are withdrawn, and the message stays short.
func TestHistoryIsBounded(t *testing.T) {
	var h history
	now := time.Now()
	list := manyPrefixes(100)
	for i := range list {
		now = now.Add(time.Minute)
		got := h.advertise(Advertisement{Prefixes: list[i : i+1]}, now).Prefixes
		oldest := max(0, i-maxWithdrawn)
		if want := append([]Prefix{list[i]}, list[oldest:i]...); !slices.EqualFunc(got, want, samePrefix) {
			t.Fatalf("%+v", got)
		}
	}
	full := everything()
	full.Prefixes = manyPrefixes(17)
	if err := full.Check(); err != nil {
		t.Fatal(err)
	}
	full.Source = MAC{2}
	message, err := encode(h.advertise(full, now), now)
	if err != nil || len(message) > maxMessage || len(h.withdrawn) != maxWithdrawn {
		t.Errorf("%d bytes, %d prefixes, %v", len(message), len(h.withdrawn), err)
	}
}

func samePrefix(a, b Prefix) bool { return a.Prefix == b.Prefix }

// lasting is a prefix that hosts can tell from others by a letter.
func lasting(letter string, valid time.Duration) Prefix {
	addr := netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, letter[0]})
	return Prefix{Prefix: netip.PrefixFrom(addr, 64), Preferred: time.Minute, Valid: valid, Autonomous: true}
}

func name(p Prefix) string { return string(p.Prefix.Addr().AsSlice()[4:5]) }
