package gateway

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/gateway/config"
	"github.com/gateweigh/gateweigh/gateway/control"
	"github.com/gateweigh/gateweigh/gateway/session"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// TestOperatorLogin: an operator's login has the limits that it was given and none of the configuration's. A client
// without a lease is gone with its session, however that ends, also one that outlived a daemon. Long: the steps of one
// run, each of which needs the state that the one before left.
func TestOperatorLogin(t *testing.T) {
	network(t)
	cfg := configured(t, t.TempDir(), onEBPF)
	cfg.Limits = config.Limits{
		SessionTimeout: time.Hour, IdleTimeout: 5 * time.Minute, UpRate: 1e6, DownRate: 2e6, UpQuota: 1e6, DownQuota: 2e6,
		TotalQuota: 3e6, SessionsPerUser: 1,
	}
	d := serve(t, cfg)
	t.Cleanup(func() { must(t, Detach(d.cfg, false)) })
	c, err := control.Dial(cfg.ControlSocket())
	must(t, err)
	login := func(host, mac string, limits control.Limits) netip.Addr {
		t.Helper()
		addr := netip.MustParseAddr("10.1.0." + host)
		s, err := c.Login(t.Context(), control.LoginRequest{Addr: addr, MAC: mac, User: "printer", Limits: limits})
		must(t, err)
		if s.Limits != limits {
			t.Errorf("given %+v, granted %+v", limits, s.Limits)
		}
		return addr
	}
	gone := func(addr netip.Addr) error {
		if s, err := c.Session(t.Context(), addr); err == nil || !strings.Contains(err.Error(), "no client has") {
			return errors.Join(err, errors.New(string(s.State)))
		}
		return nil
	}
	none := login("9", "02:00:00:00:00:09", control.Limits{})
	some := login("10", "02:00:00:00:00:0a", control.Limits{DownBps: 5e6, TotalBytes: 1 << 40})
	short := login("11", "02:00:00:00:00:0b", control.Limits{SessionTimeoutSeconds: 1})
	idle := login("12", "02:00:00:00:00:0c", control.Limits{IdleTimeoutSeconds: 1})
	for _, addr := range []netip.Addr{short, idle} {
		netnstest.Await(t, addr.String()+" to be forgotten", func() error { return gone(addr) })
	}
	if _, err := c.Logout(t.Context(), control.LogoutRequest{Addr: none}); err != nil || gone(none) != nil {
		t.Errorf("after its logout: %v, %v", err, gone(none))
	}
	must(t, d.stop())
	serve(t, cfg)
	if s, err := c.Session(t.Context(), some); err != nil || s.State != session.Authenticated {
		t.Fatalf("after a restart the client without a lease is %q: %v", s.State, err)
	}
	if _, err := c.Logout(t.Context(), control.LogoutRequest{All: true}); err != nil || gone(some) != nil {
		t.Errorf("after the logout of all: %v, %v", err, gone(some))
	}
	leased := netip.MustParseAddr(lease(t))
	if s, err := c.Login(t.Context(), control.LoginRequest{Addr: leased, User: "ann"}); err != nil ||
		s.Limits != (control.Limits{}) {
		t.Errorf("a client with a lease: %+v, %v", s.Limits, err)
	}
	// A session of a second, and one of a byte: the page says which ended it.
	for message, limits := range map[string]control.Limits{
		"Your time is used up.": {SessionTimeoutSeconds: 1}, "Your data volume is used up.": {TotalBytes: 1}} {
		_, err := c.Login(t.Context(), control.LoginRequest{Addr: leased, User: "ann", Limits: limits})
		must(t, err)
		_, _ = try("ip netns exec client ping -c 1 -W 1 192.0.2.2") // uses the byte up
		netnstest.Await(t, message, func() error {
			if page, _ := try(curl + "http://10.1.0.1:8080/login"); !strings.Contains(page, message) {
				return errors.New(page)
			}
			return nil
		})
	}
	_, err = c.Login(t.Context(), control.LoginRequest{Addr: leased, User: "ann"})
	must(t, err)
	if _, err := c.Logout(t.Context(), control.LogoutRequest{Addr: leased}); err != nil || gone(leased) == nil {
		t.Errorf("a client with a lease is forgotten at its logout: %v", err)
	}
}
