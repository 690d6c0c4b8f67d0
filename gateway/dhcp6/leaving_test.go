package dhcp6

import (
	"context"
	"errors"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv6"

	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// TestForgedRelease: a client that still answers for its address keeps it, whatever another device says in its name.
func TestForgedRelease(t *testing.T) {
	w := newWire(t, newLAN(t))
	var there atomic.Bool
	var asked atomic.Int32
	there.Store(true)
	run := start(t, leasesFile(t), func(cfg *Config) {
		cfg.askAfter = time.Millisecond
		cfg.Present = func(context.Context, MAC, netip.Addr) (bool, error) {
			asked.Add(1)
			return there.Load(), nil
		}
	})
	st := stationOf(1)
	addr := w.lease(st, 1)
	w.ask(st, w.message(dhcpv6.MessageTypeRelease, st, iaNA(1, addr)))
	await(t, "the client's answer", func() bool { return run.Stats().StillThere == 1 })
	if run.Stats().Addresses != 1 {
		t.Errorf("stats %+v", run.Stats())
	}
	there.Store(false)
	await(t, "the release", func() bool {
		w.ask(st, w.message(dhcpv6.MessageTypeRelease, st, iaNA(1, addr)))
		return run.Stats().Addresses == 0
	})
	if asked.Load() != 2 {
		t.Errorf("asked %d times", asked.Load())
	}
	await(t, "the event", func() bool { return run.has("released " + hardware(st.mac) + " " + addr.String() + "/128") })
}

// TestReleaseWithdrawn: a client that asks for its lease while it is asked keeps it.
func TestReleaseWithdrawn(t *testing.T) {
	w := newWire(t, newLAN(t))
	asked, goOn := make(chan bool), make(chan bool)
	run := start(t, leasesFile(t), func(cfg *Config) {
		cfg.askAfter = time.Millisecond
		cfg.Present = func(context.Context, MAC, netip.Addr) (bool, error) {
			asked <- true
			<-goOn
			return false, nil
		}
	})
	st := stationOf(1)
	addr := w.lease(st, 1)
	w.ask(st, w.message(dhcpv6.MessageTypeRelease, st, iaNA(1, addr)))
	<-asked
	w.ask(st, w.message(dhcpv6.MessageTypeRenew, st, iaNA(1, addr)))
	goOn <- true
	await(t, "the question's end", func() bool {
		run.Server.mu.Lock()
		defer run.Server.mu.Unlock()
		return run.nowAsking == 0
	})
	if run.Stats().Addresses != 1 {
		t.Errorf("stats %+v", run.Stats())
	}
}

// TestManyLeave: no more clients are asked at once than may be. The leases of the others go on.
func TestManyLeave(t *testing.T) {
	w := newWire(t, newLAN(t))
	goOn := make(chan bool)
	run := start(t, leasesFile(t), func(cfg *Config) {
		cfg.askAfter = time.Millisecond
		cfg.Present = func(context.Context, MAC, netip.Addr) (bool, error) { <-goOn; return false, nil }
	})
	const more = 10
	for i := range maxAsking + more {
		st := stationOf(i)
		w.ask(st, w.message(dhcpv6.MessageTypeRelease, st, iaNA(1, w.lease(st, 1))))
	}
	if n := run.Stats().StillThere; n != more {
		t.Errorf("%d clients are not asked, want %d", n, more)
	}
	close(goOn)
	await(t, "those that are asked to leave", func() bool { return run.Stats().Addresses == more })
}

// TestDecline: an address in use by another device is left alone, and its client gets another.
func TestDecline(t *testing.T) {
	w := newWire(t, newLAN(t))
	run := start(t, leasesFile(t), nil)
	st := stationOf(1)
	addr := w.lease(st, 1)
	w.ask(st, w.message(dhcpv6.MessageTypeDecline, st, iaNA(1, addr)))
	other := w.lease(st, 1)
	if st := run.Stats(); other == addr || st.DeclinedAddresses != 1 || st.Addresses != 1 {
		t.Errorf("%s after %s, stats %+v", other, addr, st)
	}
	run.Server.mu.Lock()
	run.table.extend(run.table.taken[netip.PrefixFrom(addr, 128)], time.Now())
	run.Server.mu.Unlock()
	await(t, "the end", func() bool { return run.Stats().DeclinedAddresses == 0 })
}

// TestEventsRefuse: a client whose lease cannot be admitted gets no answer, and its next try does.
func TestEventsRefuse(t *testing.T) {
	w := newWire(t, newLAN(t))
	run := start(t, leasesFile(t), nil)
	st := stationOf(1)
	run.failWith(errors.New("not now"))
	w.send(st, w.message(dhcpv6.MessageTypeRequest, st, iaNA(1)))
	await(t, "the refusal", func() bool { return run.Stats().EventErrors == 1 })
	await(t, "its short life", func() bool {
		list := run.Leases()
		return len(list) == 1 && time.Until(list[0].End) <= retryTime
	})
	run.failWith(nil)
	addr := w.lease(st, 1)
	if list := run.Leases(); len(list) != 1 || time.Until(list[0].End) < 50*time.Minute {
		t.Errorf("leases %v", list)
	}
	if !run.has("leased " + hardware(st.mac) + " " + addr.String() + "/128") {
		t.Errorf("events %v", run.all())
	}
}

// TestInterface: the server goes on when its interface has been down, and when it was made anew.
func TestInterface(t *testing.T) {
	w := newWire(t, newLAN(t))
	start(t, leasesFile(t), nil)
	st := stationOf(1)
	addr := w.lease(st, 1)
	for _, script := range []string{
		"ip link set gw0 down; ip link set gw0 up",
		"ip link del gw0; ip link add gw0 type veth peer name gw1; ip link set gw1 master br0; ip link set gw1 up\n" +
			"ip link set gw0 up",
	} {
		netnstest.Run(t, netnstest.Up+script+"; up gw0")
		var got netip.Addr
		sent := map[dhcpv6.TransactionID]bool{}
		await(t, "an answer", func() bool {
			r, _ := w.next(100 * time.Millisecond)
			if r == nil {
				m := w.message(dhcpv6.MessageTypeRequest, st, iaNA(1))
				w.send(st, m)
				sent[m.TransactionID] = true
				return false
			}
			if !sent[r.TransactionID] {
				return false
			}
			got = addrsOf(r)[0]
			return true
		})
		if got != addr {
			t.Errorf("after %q: %s instead of %s", script, got, addr)
		}
	}
}
