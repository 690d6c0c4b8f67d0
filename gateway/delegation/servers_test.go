package delegation

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// TestDelegated: a server delegates a prefix, and a client that starts again keeps it.
func TestDelegated(t *testing.T) {
	eachServer(t, func(t *testing.T, kind serverKind) {
		newProvider(t, kind, lasting(poolA))
		folder := t.TempDir()
		c := run(t, Options{Folder: folder, Length: 56})
		one := func(list []Prefix) bool { return len(usable(list, poolA)) == 1 }
		first := c.await(t, "a prefix", one)[0]
		if first.Prefix.Bits() != 56 {
			t.Errorf("%v is delegated, not a /56", first.Prefix)
		}
		state := c.State()
		if state.Phase != "bound" || state.ServerDUID == "" || state.LastError != "" ||
			!state.T1.Before(state.T2) || !slices.Equal(state.Prefixes, c.present()) {
			t.Errorf("the state is %+v", state)
		}
		c.end()
		again := run(t, Options{Folder: folder, Length: 56})
		netnstest.Until(t, "the prefix to be confirmed", func() bool { return again.State().Phase == "bound" })
		again.mu.Lock()
		defer again.mu.Unlock()
		for _, list := range again.told {
			if len(list) != 1 || list[0].Prefix != first.Prefix {
				t.Errorf("after another start %v is told, and %v before", list, first)
			}
		}
	})
}

// TestRenewed: lifetimes are renewed at T1, and the prefix does not end meanwhile.
func TestRenewed(t *testing.T) {
	eachServer(t, func(t *testing.T, kind serverKind) {
		newProvider(t, kind, short(poolA))
		c := run(t, Options{Folder: t.TempDir()})
		first := c.await(t, "a prefix", func(list []Prefix) bool { return len(usable(list, poolA)) == 1 })[0]
		c.await(t, "a renewal", func(list []Prefix) bool {
			return len(list) == 1 && list[0].ValidUntil.After(first.ValidUntil.Add(time.Second))
		})
		c.mu.Lock()
		defer c.mu.Unlock()
		for i, list := range c.told {
			if i > 0 && (len(list) != 1 || list[0].Prefix != first.Prefix) {
				t.Errorf("%v was told", list)
			}
		}
	})
}

// TestReplaced: a server that comes back with other prefixes gives one of those, and the former one is not used for new
// connections any more.
func TestReplaced(t *testing.T) {
	eachServer(t, func(t *testing.T, kind serverKind) {
		s := newProvider(t, kind, short(poolA))
		c := run(t, Options{Folder: t.TempDir()})
		c.await(t, "a prefix", func(list []Prefix) bool { return len(usable(list, poolA)) == 1 })
		s.stop(t)
		s.start(t, short(poolB))
		c.await(t, "another prefix", func(list []Prefix) bool {
			return len(usable(list, poolB)) == 1 && len(usable(list, poolA)) == 0
		})
		c.await(t, "the end of the first", func(list []Prefix) bool { return len(list) == 1 })
	})
}

// TestWithdrawn: with a server that has no prefixes any more, the prefix ends at the latest with its lifetime, and the
// state says why. When it has prefixes again, the client gets one.
func TestWithdrawn(t *testing.T) {
	eachServer(t, func(t *testing.T, kind serverKind) {
		s := newProvider(t, kind, brief(poolA))
		c := run(t, Options{Folder: t.TempDir()})
		c.await(t, "a prefix", func(list []Prefix) bool { return len(usable(list, poolA)) == 1 })
		none := brief(poolA)
		none.empty = true
		s.stop(t)
		s.start(t, none)
		c.await(t, "no prefix", func(list []Prefix) bool { return len(list) == 0 })
		if said := c.State().LastError; said == "" {
			t.Error("the state does not say why there is no prefix")
		}
		s.stop(t)
		s.start(t, brief(poolB))
		c.LinkUp()
		c.await(t, "another prefix", func(list []Prefix) bool { return len(usable(list, poolB)) == 1 })
	})
}

// TestServerAway: while no server answers, the prefix holds until its lifetime ends. It comes again with the server.
func TestServerAway(t *testing.T) {
	eachServer(t, func(t *testing.T, kind serverKind) {
		s := newProvider(t, kind, brief(poolA))
		c := run(t, Options{Folder: t.TempDir()})
		first := c.await(t, "a prefix", func(list []Prefix) bool { return len(usable(list, poolA)) == 1 })[0]
		s.stop(t)
		c.await(t, "no prefix", func(list []Prefix) bool { return len(list) == 0 })
		if now := time.Now(); now.Before(first.ValidUntil) {
			t.Errorf("the prefix ended at %v, before %v", now, first.ValidUntil)
		}
		if said := c.State().LastError; !strings.Contains(said, "expired") {
			t.Errorf("the state says %q", said)
		}
		s.start(t, brief(poolA))
		c.await(t, "the prefix again", func(list []Prefix) bool { return len(usable(list, poolA)) == 1 })
	})
}

// TestTwoPrefixes: each of two wanted prefixes has its number.
func TestTwoPrefixes(t *testing.T) {
	eachServer(t, func(t *testing.T, kind serverKind) {
		newProvider(t, kind, lasting(poolA))
		c := run(t, Options{Folder: t.TempDir(), Wanted: 2})
		list := c.await(t, "two prefixes", func(list []Prefix) bool { return len(usable(list, poolA)) == 2 })
		if list[0].Number != 0 || list[1].Number != 1 || list[0].Prefix == list[1].Prefix {
			t.Errorf("%v are delegated", list)
		}
	})
}

// TestRefused: the state has the words of a server that delegates nothing.
func TestRefused(t *testing.T) {
	eachServer(t, func(t *testing.T, kind serverKind) {
		none := lasting(poolA)
		none.empty = true
		newProvider(t, kind, none)
		c := run(t, Options{Folder: t.TempDir()})
		netnstest.Until(t, "a refusal", func() bool {
			return strings.Contains(c.State().LastError, "the provider's server said NoPrefixAvail")
		})
		if list := c.present(); len(list) != 0 {
			t.Errorf("%v are told", list)
		}
	})
}

// TestTooLong: a prefix that is longer than a network's is refused.
func TestTooLong(t *testing.T) {
	eachServer(t, func(t *testing.T, kind serverKind) {
		long := lasting(poolA)
		long.length = 72
		newProvider(t, kind, long)
		c := run(t, Options{Folder: t.TempDir()})
		netnstest.Until(t, "a refusal", func() bool { return strings.Contains(c.State().LastError, "a network needs a /64") })
	})
}

// TestRelease: a prefix is given back when the client is told so, and the file has it no more.
func TestRelease(t *testing.T) {
	said := map[string]string{"kea": "DHCP6_RELEASE_PD ", "dhcpd": "Release message from"}
	eachServer(t, func(t *testing.T, kind serverKind) {
		s := newProvider(t, kind, lasting(poolA))
		folder := t.TempDir()
		c := run(t, Options{Folder: folder})
		c.await(t, "a prefix", func(list []Prefix) bool { return len(usable(list, poolA)) == 1 })
		netnstest.Must(t, c.Release(t.Context()))
		if list, state := c.present(), c.State(); len(list) != 0 || state.Phase != "idle" {
			t.Errorf("%v are told, and the state is %+v", list, state)
		}
		netnstest.Until(t, "the server to know", func() bool { return strings.Contains(s.output.String(), said[kind.name]) })
		c.end()
		again := run(t, Options{Folder: folder})
		if list := again.State().Prefixes; len(list) != 0 {
			t.Errorf("the file has %v", list)
		}
		again.await(t, "a prefix", func(list []Prefix) bool { return len(usable(list, poolA)) == 1 })
	})
}

// TestLinkUp: a server is asked at once when the link comes up, also where the interface was made anew.
func TestLinkUp(t *testing.T) {
	s := newProvider(t, kinds[0], lasting(poolA))
	c := run(t, Options{Folder: t.TempDir()})
	first := c.await(t, "a prefix", func(list []Prefix) bool { return len(usable(list, poolA)) == 1 })[0]
	former := first.ValidUntil
	for _, again := range []string{"ip link set wan0 down", "ip link del wan0\n" + s.cable()} {
		s.space.Run(t, "sleep 1") // lifetimes are of seconds, and are to differ
		netnstest.Run(t, again+"\nip link set wan0 up")
		s.connect(t)
		if strings.Contains(again, "del") { // its sockets have gone with the link
			s.stop(t)
			s.start(t, lasting(poolA))
		}
		list := c.await(t, "a renewal", func(list []Prefix) bool {
			return len(list) == 1 && list[0].ValidUntil.After(former)
		})
		if list[0].Prefix != first.Prefix {
			t.Errorf("%v is delegated, and before it was %v", list, first)
		}
		former = list[0].ValidUntil
	}
}

// TestFullDisk: prefixes are renewed also where they cannot be kept, and the state says what that means.
func TestFullDisk(t *testing.T) {
	newProvider(t, kinds[0], lasting(poolA))
	folder := t.TempDir()
	netnstest.Run(t, "mount -t tmpfs -o size=1m pd "+folder)
	t.Cleanup(func() { netnstest.Run(t, "umount "+folder) })
	c := run(t, Options{Folder: folder})
	first := c.await(t, "a prefix", func(list []Prefix) bool { return len(usable(list, poolA)) == 1 })[0]
	if _, err := netnstest.Try("cat /dev/zero >" + folder + "/zeros"); err == nil {
		t.Fatal("the disk is not full")
	}
	c.LinkUp()
	netnstest.Until(t, "a warning", func() bool {
		said := c.State().Warnings
		return len(said) == 1 && strings.Contains(said[0], "no space left on device")
	})
	c.await(t, "a renewal", func(list []Prefix) bool {
		return len(list) == 1 && list[0].ValidUntil.After(first.ValidUntil)
	})
	netnstest.Run(t, "rm "+folder+"/zeros")
	c.LinkUp()
	netnstest.Until(t, "no warning", func() bool { return len(c.State().Warnings) == 0 })
}

// TestPortTaken: where another program has the port of DHCPv6 clients, the error says so.
func TestPortTaken(t *testing.T) {
	newProvider(t, kinds[0], lasting(poolA))
	c := run(t, Options{Folder: t.TempDir()})
	if _, err := Open(Options{Interface: "wan0", Folder: t.TempDir()}); err == nil ||
		!strings.Contains(err.Error(), "end the other DHCPv6 client") {
		t.Errorf("beside another client: %v", err)
	}
	c.end()
	for _, o := range []Options{
		{Interface: "wan9", Folder: t.TempDir()}, {Interface: "wan0", Folder: "/nowhere"},
		{Interface: "wan0", Folder: t.TempDir(), Wanted: 9}, {Interface: "wan0", Folder: t.TempDir(), Length: 65},
	} {
		if c, err := Open(o); err == nil {
			t.Errorf("%+v is opened", o)
			c.Close()
		}
	}
}
