// A test of PPPoE clients that no longer answer LCP echo requests. newNetwork makes the host of a gateway with clients
// and a server, in namespaces (world_test.go).

package main

import (
	"fmt"
	"maps"
	"net/netip"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/gateweigh/gateweigh/gateway/control"
	"github.com/gateweigh/gateweigh/gateway/session"
	"github.com/gateweigh/gateweigh/ppp"
	"github.com/gateweigh/gateweigh/ppp/pppoe"
)

// TestSubscribersTimeOut: a thousand subscribers send and receive, and then send and answer nothing more. The gateway's
// echo requests get no answer, so it ends their sessions, each accounted as Lost-Carrier with the bytes that it has
// sent and received. Long: the steps of one run, each of which needs the state that the one before left.
func TestSubscribersTimeOut(t *testing.T) {
	t.Parallel()
	const n = 1000
	w := newNetwork(t)
	w.Wide, w.Lines = true, "methods = [\"chap\"]\necho = \"1s\"\necho_failures = 10"
	w.auth, w.acct = w.radius("auth", 1812), w.radius("acct", 1813)
	w.write("radius/gatewayd.toml", "gatewayd.toml", w)
	w.sh(`ip -n $ID-router addr flush dev lan0; ip -n $ID-router addr add 10.1.0.1/16 dev lan0; ip -n $ID-server route replace 10.1.0.0/16 via 192.0.2.1`)
	w.start()

	a := w.addUnaddressed().access()
	var sent [n]struct {
		addr  netip.Addr
		bytes uint64
	}
	var all errgroup.Group
	all.SetLimit(50)
	for i := range sent {
		all.Go(func() error {
			s := a.subscriber(
				t, pppoe.MAC{2, 0x67, 0x77, 'v', byte(i >> 8), byte(i)}, ppp.Config{User: "ann", Password: "right"})
			terms, err := s.dial()
			if err != nil {
				return fmt.Errorf("subscriber %d: %w", i, err)
			}
			bytes := 28 + i
			sent[i].addr, sent[i].bytes = terms.Local, uint64(bytes*s.ping(terms.Local, serverAddr, bytes))
			return nil
		})
	}
	must(t, all.Wait())
	want := map[netip.Addr]uint64{}
	for _, s := range sent {
		want[s.addr] = s.bytes
	}
	for _, s := range a.subscribers() {
		s.vanish()
	}

	eventually(t, "the end of all sessions", func() error {
		s, err := w.status()
		if err == nil && (s.Sessions[session.Authenticated] > 0 || s.Outbox > 0) {
			err = fmt.Errorf("%d sessions, %d messages to send", s.Sessions[session.Authenticated], s.Outbox)
		}
		return err
	})
	accounted := map[netip.Addr]uint64{}
	for _, r := range w.acct.accounting("") {
		if r.value("Acct-Status-Type") != "Stop" {
			continue
		}
		if cause := r.value("Acct-Terminate-Cause"); cause != "Lost-Carrier" {
			t.Errorf("a session ended by %s", cause)
		}
		counts := r.counts()
		accounted[netip.MustParseAddr(r.value("Framed-IP-Address"))] = counts.UpBytes
		if counts != (control.Traffic{
			UpBytes: counts.UpBytes, UpPackets: counts.UpPackets, DownBytes: counts.UpBytes, DownPackets: counts.UpPackets}) {
			t.Errorf("%s sent echo requests and is counted %+v", r.value("Framed-IP-Address"), counts)
		}
	}
	if !maps.Equal(accounted, want) {
		for addr, bytes := range want {
			if accounted[addr] != bytes {
				t.Errorf("%s sent %d bytes, and %d are counted", addr, bytes, accounted[addr])
			}
		}
		t.Errorf("%d sessions are accounted, of %d", len(accounted), n)
	}
}
