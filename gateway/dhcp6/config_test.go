package dhcp6

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestConfig: what cannot work is refused, and the message names it. Long: one case a line.
func TestConfig(t *testing.T) {
	for want, edit := range map[string]func(*Config){
		"no interface":     func(c *Config) { c.Interface = "" },
		"no store":         func(c *Config) { c.Store = nil },
		"2 bytes":          func(c *Config) { c.DUID = []byte{0, 3} },
		"131 bytes":        func(c *Config) { c.DUID = make([]byte, 131) },
		"2001:db8::1":      func(c *Config) { c.Source = netip.MustParseAddr("2001:db8::1") },
		"59s":              func(c *Config) { c.Lease = 59 * time.Second },
		"not settled":      func(c *Config) { c.ShortLease = 30 * time.Minute },
		"/56, /52 and /56": func(c *Config) { c.Lengths = Lengths{Usual: 52, Shortest: 56, Longest: 56} },
		"/128":             func(c *Config) { c.Lengths = Lengths{Usual: 64, Longest: 128} },
		"1 or more":        func(c *Config) { c.MaxPrefixes = -1 },
		"129 addresses":    func(c *Config) { c.AddressesPerMAC = 129 },
		"9m59s":            func(c *Config) { c.Refresh = 10*time.Minute - time.Second },
		"192.0.2.1":        func(c *Config) { c.DNS = []netip.Addr{netip.MustParseAddr("192.0.2.1")} },
		`"a..b"`:           func(c *Config) { c.Search = []string{"a..b"} },
		`"portal"`:         func(c *Config) { c.CaptivePortalURL = "portal" },
		"take 604 bytes":   func(c *Config) { c.CaptivePortalURL = "https://" + strings.Repeat("x", 592) },
	} {
		cfg := testConfig(usualPrefixes)
		cfg.Store, cfg.DNS, cfg.Search, cfg.Register = &File{}, nil, nil, false
		edit(&cfg)
		if _, err := cfg.withDefaults(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want one with %q", err, want)
		}
	}
	cfg := testConfig(nil)
	cfg.Store = &File{}
	cfg, err := cfg.withDefaults()
	if err != nil || cfg.Lease != time.Hour || cfg.ShortLease != time.Hour || cfg.Lengths != (Lengths{64, 64, 64}) ||
		cfg.AddressesPerMAC != 16 || cfg.PrefixesPerMAC != 4 {
		t.Errorf("%+v, %v", cfg, err)
	}
}

// TestUsablePools: pools that cannot be used are left out, and the others are.
func TestUsablePools(t *testing.T) {
	given := func(prefix string) Pool { return pool(netip.MustParsePrefix(prefix)) }
	use, bad := Prefixes{
		Addresses: []Pool{given("2001:db8::/113"), given("192.0.2.0/24"), given("2001:db8::1/112"), {}},
		Delegated: []Pool{given("2001:db8::/65"), given("2001:db8:1::/64"), given("2001:db8:2::/56"),
			given("2001:db8:3::/56"), given("2001:db8:4::/56"), given("2001:db8:5::/56")},
	}.usable(64)
	if !bad || len(use.Addresses) != 1 || use.Addresses[0].Prefix != netip.MustParsePrefix("2001:db8::/112") ||
		len(use.Delegated) != maxPools {
		t.Errorf("%+v, %v", use, bad)
	}
	if _, bad := usualPrefixes().usable(64); bad {
		t.Error("usual pools are left out")
	}
}

// TestShortLease: clients that are not settled have shorter leases.
func TestShortLease(t *testing.T) {
	settled := macOf(1)
	s := known(t, func(cfg *Config) {
		cfg.ShortLease = 5 * time.Minute
		cfg.Settled = func(c Client) bool { return c.MAC == settled }
	})
	for i, want := range map[int]time.Duration{1: time.Hour, 2: 5 * time.Minute} {
		id := identity{kind: Address, mac: macOf(i), duid: string(duidOf(i))}
		got := s.table.grant(id, s.present(), nil, time.Now())
		if len(got.given) != 1 || got.given[0].valid != want || got.given[0].preferred != want {
			t.Errorf("client %d: %+v", i, got.given)
		}
	}
}

// TestTakenAndGivenAgain: what a client was to have is no more its due, and is what it would be delegated without. The
// answer names it once, as valid.
func TestTakenAndGivenAgain(t *testing.T) {
	var wish Wish
	s := known(t, func(cfg *Config) { cfg.Wanted = func(Client, Kind) Wish { return wish } })
	id := identity{kind: Delegated, mac: macOf(1), duid: string(duidOf(1))}
	usual := s.table.grant(id, s.present(), nil, time.Now()).items[0].prefix
	other := netip.MustParsePrefix("2001:db8:1:90::/64")
	for _, own := range []netip.Prefix{other, usual, {}} {
		if wish = (Wish{}); own.IsValid() {
			wish.Prefixes = []netip.Prefix{own}
		}
		got := s.table.grant(id, s.present(), nil, time.Now())
		var given []string
		for _, g := range got.given {
			given = append(given, fmt.Sprint(g.prefix, g.valid > 0))
		}
		want := []string{fmt.Sprint(usual, true)}
		switch own {
		case other:
			want = []string{fmt.Sprint(usual, false), fmt.Sprint(other, true)}
		case usual:
			want = append([]string{fmt.Sprint(other, false)}, want...)
		}
		if !slices.Equal(given, want) {
			t.Errorf("wish %v: %v, want %v", wish.Prefixes, given, want)
		}
	}
}

// TestTaken: an address that is another host's, or that is for anycast, is given to nobody.
func TestTaken(t *testing.T) {
	asked := 0
	s := known(t, func(cfg *Config) { cfg.Taken = func(Client, netip.Addr) bool { asked++; return asked <= 3 } })
	id := identity{kind: Address, mac: macOf(1), duid: string(duidOf(1))}
	got := s.table.grant(id, s.present(), nil, time.Now())
	if len(got.items) != 1 || got.items[0].prefix.Addr() != s.table.hashed(id, pooled, 3) {
		t.Errorf("%+v after %d questions", got.given, asked)
	}
	for addr, want := range map[string]bool{
		"2001:db8::": true, "2001:db8::1": false, "2001:db8::fdff:ffff:ffff:ff80": true,
		"2001:db8::fdff:ffff:ffff:ff7f": false, "2001:db8::fdff:ffff:ffff:ffff": true,
	} {
		if got := isAnycast(netip.MustParseAddr(addr)); got != want {
			t.Errorf("%s is for anycast: %v", addr, got)
		}
	}
}
