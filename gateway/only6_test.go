package gateway

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/gateway/session"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// TestClientWithoutIPv4 takes a client that never asks for an IPv4 address through redirect, login, a restart of the
// gateway, another address in the first one's place, a lease of an IPv4 address after all, and logout. Long: the steps
// of one run, each of which needs the state that the one before left.
func TestClientWithoutIPv4(t *testing.T) {
	network6(t)
	dir := t.TempDir()
	d := serve6(t, dir)
	t.Cleanup(func() { must(t, Detach(d.cfg, false)) })
	first := awaitAddrs6(t, 1)[0]
	caught := sh(t, curl6+`-o /dev/null -w '%{http_code} %{redirect_url}' http://[2001:db8:9::2]/generate_204`)
	if !strings.HasPrefix(caught, "302 http://[2001:db8:1::1]:8080/login") {
		t.Fatalf("the first look at the web is answered by %q", caught)
	}
	if got := d.client(t); got.State != session.PreAuth || got.Addr != first {
		t.Errorf("after the redirect there is %+v", got)
	}
	if reaches6(first) == nil {
		t.Error("it reaches the server before login")
	}
	login6(t)
	netnstest.Await(t, "the way out", func() error { return reaches6(first) })
	began := d.client(t)

	must(t, d.stop())
	if err := reaches6(first); err != nil {
		t.Errorf("without the daemon the client is cut off: %v", err)
	}
	d = serve6(t, dir)
	must(t, reaches6(first))
	same := func(after string) {
		t.Helper()
		if s := d.client(t); s.ID != began.ID || s.State != session.Authenticated || s.User != "ann" {
			t.Errorf("%s there is %+v, before %+v", after, s, began)
		}
	}
	same("after a restart")
	second := netip.MustParseAddr("2001:db8:1::7e3b")
	sh(t, "ip -n client addr add 2001:db8:1::7e3b/64 dev c0")
	netnstest.Await(t, "a new address without a new login", func() error {
		if !slices.Contains(addrs6(t), second) {
			return errors.New("the kernel still looks whether another host has it")
		}
		return reaches6(second)
	})
	same("with another address")

	leased := netip.MustParseAddr(lease(t))
	same("with a lease")
	if s := d.client(t); s.Addr != leased || !slices.Contains(s.Further, first) || !slices.Contains(s.Further, second) {
		t.Errorf("with a lease there is %+v", s)
	}
	netnstest.Await(t, "IPv4 without a new login", func() error {
		if !clientReachesServer() {
			return errors.New("no echo")
		}
		return nil
	})
	must(t, reaches6(first))
	logout6(t)
	if reaches6(first) == nil || clientReachesServer() {
		t.Error("it still passes after logout")
	}
	if got := d.client(t).State; got != session.PreAuth {
		t.Errorf("after logout it is %q", got)
	}
}
