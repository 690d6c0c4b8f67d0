// Tests of PPPoE with the kernel's PPP (data path "kernel"). newLinesAt makes the host of a gateway with PPPoE clients,
// in namespaces, on a data path (pppoe_test.go); a subscriber is a PPPoE client within the test's process
// (subscriber_test.go). eventually waits until a function returns no error.

package main

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/gateweigh/gateweigh/gateway/control"
	"github.com/gateweigh/gateweigh/ppp"
)

// TestSubscribersOfTheKernel: with the kernel's PPPoE a subscriber's TCP arrives whole both ways, although the kernel
// aggregates it at the gateway, and is counted to the byte. When the daemon ends or is killed, traffic goes on, and the
// next daemon has the same interface and all counts. Meanwhile the keeper, a process that holds the sessions' files,
// writes to the daemon's log and keeps the LAN blocked. After detach nothing is left. Long: the steps of one run, each
// of which needs the state that the one before left.
func TestSubscribersOfTheKernel(t *testing.T) {
	kernelPPPoE(t)
	w := newLinesAt(t, kernelPath, "echo = \"1s\"\necho_failures = 60")
	w.sh("nsenter --net=/run/netns/$ID-server ethtool -K s0 tx off; nsenter --net=/run/netns/$ID-router ethtool -K wan0 " +
		"gro on")
	c := w.addUnaddressed()
	s := c.subscriber(ppp.Config{User: "ann", Password: "right", AskDNS: true})
	terms, err := s.dial()
	must(t, err)
	s.ping(terms.Local, terms.Peer, 1492) // the gateway answers: this is not counted
	s.route(c, terms)
	w.transfer(c, 1_000_000)
	w.checkCounters("ann", c)
	one, err := w.session("ann")
	must(t, err)

	unit := w.sh("ip -n $ID-router -o link show type ppp")
	w.daemon.signalAndWait(syscall.SIGTERM)
	w.transfer(c, 50_000) // without a daemon
	if text := w.daemon.output(); !strings.Contains(text, "no daemon is there") || !strings.Contains(text, "sessions=1") {
		t.Errorf("the keeper does not say that it has a session:\n%s", text)
	}
	const netAdmin = "0000000000001000"
	if current := w.sh(
		"for p in $(ip netns pids $ID-router); do tr '\\0' ' ' < /proc/$p/cmdline | grep -q '^gatewayd keep ' " +
			"&& grep CapEff /proc/$p/status; done; true"); strings.Join(strings.Fields(current), " ") != "CapEff: "+netAdmin {
		t.Errorf("the keeper has the capabilities %q", current)
	}
	w.start()
	w.transfer(c, 200_000)
	var again control.Session
	eventually(t, "the session's bytes after a restart", func() (err error) {
		again, err = w.session("ann")
		up, down := c.counted()
		if err == nil && (again.UpBytes != up || again.DownBytes != down) {
			err = fmt.Errorf("counted %d and %d, its host has sent %d and received %d", again.UpBytes, again.DownBytes, up, down)
		}
		return err
	})
	if again.ID != one.ID || again.UpBytes < one.UpBytes {
		t.Errorf("the session was %+v and is %+v", one, again)
	}
	w.kill()
	w.transfer(c, 50_000) // without a daemon
	w.sh("nsenter --net=/run/netns/$ID-router nft 'delete table netdev gatewayd-lan0; delete table inet gatewayd-lan0'")
	eventually(t, "the keeper's rules that block the LAN", func() error { // one capability suffices
		if out, err := w.try(
			"nsenter --net=/run/netns/$ID-router sh -ec 'nft list table netdev gatewayd-lan0; nft list table inet gatewayd-lan0'"); err != nil {
			return fmt.Errorf("%w: %s\n%s", err, out, w.daemon.output())
		}
		return nil
	})
	w.start()
	w.transfer(c, 100_000)
	if now := w.sh("ip -n $ID-router -o link show type ppp"); now != unit {
		t.Errorf("the interface was\n%s\nand is\n%s", unit, now)
	}
	eventually(t, "the bytes that came while no daemon ran", func() error {
		again, err = w.session("ann")
		up, down := c.counted()
		if err == nil && (again.UpBytes != up || again.DownBytes != down || again.ID != one.ID) {
			err = fmt.Errorf("counted %+v, its host has sent %d and received %d", again, up, down)
		}
		return err
	})
	w.sh("gatewayd logout --socket $DIR/run/control.sock --user ann")
	s.awaitEnd()
	if r := w.acct.awaitAccounting("Stop", one.ID); r.number("Acct-Output-Octets") < again.DownBytes {
		t.Errorf("accounted as %v", r)
	}
	w.kill()
	w.sh("nsenter --net=/run/netns/$ID-router gatewayd detach -c $DIR/gatewayd.toml")
	if out := w.sh("ip -n $ID-router -o link show type ppp; nsenter --net=/run/netns/$ID-router nft list ruleset"); strings.TrimSpace(
		out) != "" {
		t.Errorf("after detach there is\n%s", out)
	}
}

// TestSubscribersOfTheKernelLeave: a session ends when the client terminates it, when the client does not answer, and
// when the LAN's interface is set down, and its interface is removed.
func TestSubscribersOfTheKernelLeave(t *testing.T) {
	kernelPPPoE(t)
	w := newLinesAt(t, kernelPath, "echo = \"1s\"\necho_failures = 3")
	for manner, end := range map[string]struct {
		action func(*subscriber)
		cause  string
	}{
		"terminates": {(*subscriber).hangUp, "User-Request"},
		"PADT":       {(*subscriber).padt, "User-Request"},
		"vanishes":   {(*subscriber).vanish, "Lost-Carrier"},
		"LAN down": {func(*subscriber) { w.sh("ip -n $ID-router link set lan0 down; ip -n $ID-router link set lan0 up") },
			"Lost-Carrier"},
	} {
		t.Run(manner, func(t *testing.T) {
			s := w.addUnaddressed().subscriber(ppp.Config{User: "ann", Password: "right"})
			s.t = t
			terms, err := s.dial()
			must(t, err)
			s.ping(terms.Local, serverAddr, 100)
			one, err := w.session("ann")
			must(t, err)
			end.action(s)
			if r := w.acct.awaitAccounting("Stop", one.ID); r.value("Acct-Terminate-Cause") != end.cause ||
				r.number("Acct-Input-Octets") != one.UpBytes {
				t.Errorf("accounted as %v", r)
			}
			eventually(t, "the end of its interface", func() error {
				if out := w.sh("ip -n $ID-router -o link show type ppp"); out != "" {
					return errors.New(out)
				}
				return nil
			})
		})
	}
}
