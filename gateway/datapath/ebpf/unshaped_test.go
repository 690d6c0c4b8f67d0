// Tests of queues that cannot be made, or must be removed. newNetwork makes a LAN with alice and bob and a WAN with a
// server, and open starts a data path between them (main_test.go). rated is a client with a rate, and shaped switches
// shaping on (shape_test.go).

package ebpf

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// TestNoQueuesAfterDetach: after detach --force has removed a running daemon's queues, logins do not make them again.
func TestNoQueuesAfterDetach(t *testing.T) {
	n := newNetwork(t)
	before := n.queues(t)
	cfg := n.config(t)
	shaped(&cfg)
	for _, first := range []bool{true, false} { // the first login with a rate comes after detach, or at the same time
		d, err := Open(cfg)
		must(t, err)
		t.Cleanup(func() { d.Close(); detach(cfg) })
		var login sync.WaitGroup
		if !first {
			login.Go(func() { d.Set(rated(5, 20)) })
		}
		must(t, Remove(cfg)) // without the daemon's lock, as detach --force does
		if first {
			must(t, d.Set(rated(5, 20)))
		}
		login.Wait()
		must(t, d.keepShaping())
		if now := n.queues(t); now != before {
			t.Errorf("after detach and a login:\n%s\nnot\n%s", now, before)
		}
		must(t, d.Close())
	}
}

// unprivileged calls f without the right to change the network.
func unprivileged(t *testing.T, f func() error) error {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked, so that the thread ends with the goroutine
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var caps [2]unix.CapUserData
		if err := unix.Capget(&header, &caps[0]); err != nil {
			done <- err
			return
		}
		caps[0].Effective &^= 1 << unix.CAP_NET_ADMIN
		if err := unix.Capset(&header, &caps[0]); err != nil {
			done <- err
			return
		}
		done <- f()
	}()
	return <-done
}

// isHeld waits until a daemon's queues hold packets back, also those of a client.
func (d *Datapath) isHeld(t *testing.T) {
	t.Helper()
	place, err := d.placeOf(alice)
	must(t, err)
	netnstest.Await(t, "packets are held", func() error {
		var q gatewayQueues
		if err := d.objs.ClientQueues.Lookup(place, &q); err != nil {
			return err
		}
		if holder := d.holders(); holder[0] == gatewayHolderHOLDER_NONE || holder[1] == gatewayHolderHOLDER_NONE {
			return fmt.Errorf("%v hold packets", holder)
		}
		return nil
	})
}

// TestQueueRefused: if a queue cannot be made or changed, logins and the start work all the same, and the daemon tries
// again.
func TestQueueRefused(t *testing.T) {
	n := newNetwork(t)
	cfg := n.config(t)
	shaped(&cfg)
	d, err := Open(cfg)
	must(t, err)
	t.Cleanup(func() { d.Close(); detach(cfg) })
	if err := unprivileged(t, func() error { return d.Set(rated(5, 5)) }); err != nil {
		t.Errorf("a login where no queue can be made: %v", err)
	}
	d.isHeld(t)
	if err := unprivileged(t, func() error { return d.Set(rated(7, 7)) }); err != nil {
		t.Errorf("another rate where no class can be changed: %v", err)
	}
	d.isHeld(t)
	if holder := d.holders()[0]; holder == gatewayHolderHOLDER_CLASS {
		netnstest.Await(t, "the class has the new rate", func() error {
			if now := n.queues(t); !strings.Contains(now, "7065Kbit") {
				return errors.New(now)
			}
			return nil
		})
	}
	if err := unprivileged(t, func() error { return d.Set(rated(0, 0)) }); err != nil {
		t.Errorf("no rate where no class can be removed: %v", err)
	}
	must(t, d.Set(rated(5, 5)))
	must(t, d.Close())
	if holder := d.holders()[0]; holder != gatewayHolderHOLDER_CLASS {
		return // an fq has no filters
	}
	run(t, "tc filter del dev $wan parent 6a77: pref 1; tc filter add dev $wan parent 6a77: pref 1 protocol all u32 "+
		"match u32 0 0 classid 6a77:fffe", n.env()...)
	d, err = Open(cfg)
	if err != nil {
		t.Fatalf("a start beside an operator's filter: %v", err)
	}
	t.Cleanup(func() { d.Close() })
	if holder := d.holders(); holder[0] != gatewayHolderHOLDER_NONE || holder[1] == gatewayHolderHOLDER_NONE {
		t.Errorf("beside an operator's filter %v hold packets", holder)
	}
	run(t, "tc filter del dev $wan parent 6a77: pref 1", n.env()...)
	d.isHeld(t)
}

// TestFormerInterfaceGetsDefaultQueue: the next start and detach restore the default queue of an interface that is no
// longer the LAN's or the WAN's, also if the interface has another name by then. It is no error if it is gone.
func TestFormerInterfaceGetsDefaultQueue(t *testing.T) {
	n := newNetwork(t)
	run(t, `ip link add ${wan}a type veth peer name ${wan}b; ip link set ${wan}a up; ip link set ${wan}b up; ip link add ${wan}.c type veth peer name ${wan}d; ip link set ${wan}.c up; ip link set ${wan}d up`,
		n.env()...)
	t.Cleanup(func() { run(t, "ip link del ${wan}b; ip link del ${wan}d", n.env()...) })
	made := func() int { return strings.Count(run(t, "tc qdisc show"), " 6a77:") }
	cfg := n.config(t)
	shaped(&cfg)
	start := func(wan string) {
		t.Helper()
		cfg.WAN = wan
		d, err := Open(cfg)
		must(t, err)
		must(t, d.Set(rated(5, 5)))
		must(t, d.Close())
	}
	t.Cleanup(func() { detach(cfg) })
	start(n.wan)
	start(n.wan + ".c")
	if current := made(); current != 1 {
		t.Errorf("%d queues after a start with another WAN", current)
	}
	run(t, "ip link set ${wan}.c down; ip link set ${wan}.c name ${wan}e; ip link set ${wan}e up", n.env()...)
	start(n.wan + "a")
	if current := made(); current != 1 {
		t.Errorf("%d queues after a start with another WAN, when the former had another name", current)
	}
	run(t, "ip link set ${wan}a down; ip link set ${wan}a name ${wan}f", n.env()...)
	cfg.WAN = n.wan
	must(t, detach(cfg))
	if current := made(); current != 0 {
		t.Errorf("%d queues after detach, when the WAN had another name", current)
	}
	start(n.wan + "e")
	run(t, "ip link del ${wan}e; ip link add ${wan}e type veth peer name ${wan}d; ip link set ${wan}e up", n.env()...)
	start(n.wan)
	must(t, detach(cfg))
	if current := made(); current != 0 {
		t.Errorf("%d queues after detach, when a WAN had gone", current)
	}
}

// TestQueueOfAnotherGateway: an htb that the gatewayd of another LAN made is not used for clients, because clients of
// two LANs have the same numbers in it, and stays.
func TestQueueOfAnotherGateway(t *testing.T) {
	n := newNetwork(t)
	run(t, "tc qdisc add dev $wan root handle 6a77: htb; tc class add dev $wan parent 6a77: classid 6a77:b htb rate 3Mbit",
		n.env()...)
	before := n.queues(t)
	cfg := n.config(t)
	shaped(&cfg)
	d, err := Open(cfg)
	must(t, err)
	t.Cleanup(func() { d.Close(); detach(cfg) })
	must(t, d.Set(rated(5, 5)))
	must(t, d.keepShaping())
	if holder := d.holders(); holder[0] != gatewayHolderHOLDER_NONE || holder[1] == gatewayHolderHOLDER_NONE {
		t.Errorf("%v hold packets", holder)
	}
	must(t, d.Set(rated(0, 0)))
	must(t, d.Close())
	must(t, detach(cfg))
	if now := n.queues(t); now != before {
		t.Errorf("after detach:\n%s\nnot\n%s", now, before)
	}
	run(t, "tc qdisc del dev $wan root", n.env()...)
	d, err = Open(cfg)
	must(t, err)
	must(t, d.Set(rated(5, 5)))
	if holder := d.holders(); holder[0] == gatewayHolderHOLDER_NONE {
		t.Errorf("%v hold packets where the other is gone", holder)
	}
}
