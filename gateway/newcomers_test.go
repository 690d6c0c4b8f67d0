package gateway

import (
	"net/netip"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/gateway/config"
	"github.com/gateweigh/gateweigh/gateway/control"
	"github.com/gateweigh/gateweigh/gateway/netnstest"
	"github.com/gateweigh/gateweigh/gateway/session"
)

// sessions lists the gateway's clients.
func (d daemon) sessions(t *testing.T) (all []control.Session) {
	t.Helper()
	c, err := control.Dial(d.cfg.ControlSocket())
	must(t, err)
	must(t, c.Sessions(t.Context(), control.Filter{}, func(s control.Session) error { all = append(all, s); return nil }))
	return all
}

// until waits for a number of clients.
func (d daemon) until(t *testing.T, want int) []control.Session {
	t.Helper()
	var all []control.Session
	for range 3000 {
		if all = d.sessions(t); len(all) == want {
			return all
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("waited in vain for %d clients; there are %+v", want, all)
	return nil
}

// TestClaimsOfAddresses: where another program leases addresses, one device claims few of
// them and for a short time unless it logs in, nobody claims the LAN's own addresses, and
// claims are forgotten when the gateway leases addresses itself again.
func TestClaimsOfAddresses(t *testing.T) {
	network(t)
	dir := t.TempDir()
	d := start(t, dir)
	must(t, d.stop())
	external := *d.cfg
	external.DHCP.Mode = config.External
	d = serve(t, &external)
	t.Cleanup(func() { d.stop(); must(t, Detach(d.cfg, false)) })

	// One device uses 40 addresses, and then again.
	sh(t, `cd /; for i in $(seq 20 59); do ip -n client addr add 10.1.0.$i/24 dev c0; done
for i in $(seq 20 59) $(seq 20 59); do ip netns exec client ping -q -c 1 -W 0.05 -I 10.1.0.$i 10.1.0.1 || :; done`)
	first := d.until(t, maxClaims)
	for _, s := range first {
		if left := time.Until(s.LeaseEnd); s.State != session.Leased || left <= 0 || left > claimTime {
			t.Errorf("a claim is %s for %v, want at most %v", s.State, left, claimTime)
		}
	}
	// Another device claims an address that the first one uses without having it.
	sh(t, `ip -n client addr del 10.1.0.59/24 dev c0
ip netns add other; ip link add o0 netns other type veth peer name o1 netns hub
ip -n other link set lo up; ip -n other link set o0 up; ip -n other addr add 10.1.0.59/24 dev o0
ip netns exec hub sh -ec '`+netnstest.Hub+`plug o1' `)
	t.Cleanup(func() { sh(t, "ip netns del other") })
	for i := 0; len(d.sessions(t)) == maxClaims; i++ {
		if i == 600 {
			t.Fatal("another device gets no address")
		}
		try("ip netns exec other ping -q -c 1 -W 0.05 10.1.0.1")
	}
	d.until(t, maxClaims+1)

	c, err := control.Dial(d.cfg.ControlSocket())
	must(t, err)
	addr := netip.MustParseAddr("10.1.0.59")
	_, err = c.Login(t.Context(), control.LoginRequest{Addr: addr, User: "ann"})
	must(t, err)
	for _, s := range d.sessions(t) {
		if s.Addr == addr && time.Until(s.LeaseEnd) <= claimTime {
			t.Errorf("a client that has logged in loses its address after %v", time.Until(s.LeaseEnd))
		}
	}
	must(t, d.stop())

	server := *d.cfg
	server.DHCP.Mode = config.Server
	d = serve(t, &server)
	left := d.until(t, 1)
	if left[0].User != "ann" {
		t.Errorf("the session of %+v is left, want ann's", left[0])
	}
}
