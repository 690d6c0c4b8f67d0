package gateway

import (
	"bytes"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/gateway/config"
	"github.com/gateweigh/gateweigh/gateway/control"
	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/datapath/compared/admission"
	"github.com/gateweigh/gateweigh/gateway/session"
	"github.com/gateweigh/gateweigh/internal/logtest"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// sessions lists the gateway's clients.
func (d daemon) sessions(t *testing.T) (all []control.Session) {
	t.Helper()
	c, err := control.Dial(d.cfg.ControlSocket())
	must(t, err)
	must(t, c.Sessions(t.Context(), control.Filter{}, func(s control.Session) error { all = append(all, s); return nil }))
	return all
}

// awaitClients waits for a number of clients.
func (d daemon) awaitClients(t *testing.T, want int) []control.Session {
	t.Helper()
	var all []control.Session
	netnstest.Await(t, fmt.Sprint(want, " clients"), func() error {
		if all = d.sessions(t); len(all) != want {
			return fmt.Errorf("there are %+v", all)
		}
		return nil
	})
	return all
}

// hasEntry reports whether a client has an entry.
func (d daemon) hasEntry(t *testing.T, addr, mac string) bool {
	t.Helper()
	return slices.ContainsFunc(
		d.sessions(t), func(s control.Session) bool { return s.Addr.String() == addr && s.MAC == mac })
}

// linkMACIn is the MAC address of a link in a namespace.
func linkMACIn(t *testing.T, namespace, link string) string {
	t.Helper()
	return sh(t, "ip netns exec "+namespace+" cat /sys/class/net/"+link+"/address")
}

// claim is a broadcast ARP request whose sender uses an address.
func claim(mac net.HardwareAddr, addr string) []byte {
	a := netip.MustParseAddr(addr).As4()
	frame := slices.Concat(bytes.Repeat([]byte{0xff}, 6), mac, []byte{8, 6, 0, 1, 8, 0, 6, 4, 0, 1}, mac, a[:], make(
		[]byte, 6), []byte{10, 1, 0, 1})
	return append(frame, make([]byte, 18)...)
}

// TestClaimsOfAddresses: where another program leases addresses, one device can claim few addresses, and for a short
// time unless it logs in. The LAN's own addresses cannot be claimed. Claims are forgotten when the gateway leases
// addresses itself again. Long: the steps of one run, each of which needs the state that the one before left.
func TestClaimsOfAddresses(t *testing.T) {
	network(t)
	dir := t.TempDir()
	d := start(t, dir)
	must(t, d.stop())
	external := *d.cfg
	external.DHCP.Mode = config.External
	external.Garden.Prefixes = []netip.Prefix{netip.MustParsePrefix("10.1.0.53/32")}
	d = serve(t, &external)
	t.Cleanup(func() { d.stop(); must(t, Detach(d.cfg, false)) })

	// One device uses 40 addresses, and then again.
	sh(t, `cd /; for i in $(seq 20 59); do ip -n client addr add 10.1.0.$i/24 dev c0; done
for i in $(seq 20 59) $(seq 20 59); do ip netns exec client ping -q -c 1 -W 0.05 -I 10.1.0.$i 10.1.0.1 || :; done`)
	first := d.awaitClients(t, maxClaims)
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
	d.awaitClients(t, maxClaims+1)

	// A device sends with an address that it does not have, as a claim and as an answer to the owner: the owner gets it.
	ownMAC := addIntruder(t)
	inject(t, "intruder", "i0", claim(ownMAC, "10.1.0.80"))
	eventually(t, "the claim", func() bool { return d.hasEntry(t, "10.1.0.80", ownMAC.String()) })
	sh(t, "ip -n other addr add 10.1.0.80/24 dev o0")
	eventually(t, "the owner's turn", func() bool {
		try("ip netns exec other ping -q -c 1 -W 0.05 -I 10.1.0.80 10.1.0.1")
		return d.hasEntry(t, "10.1.0.80", linkMACIn(t, "other", "o0"))
	})
	// No client's: outside, the network's own, the broadcast address, and a second one of the gateway. A later claim shows
	// that they were decided.
	sh(t, "ip addr add 10.1.0.250/24 dev lan0")
	inject(t, "intruder", "i0", claim(ownMAC, outside), claim(ownMAC, "10.1.0.0"), claim(ownMAC, "10.1.0.255"),
		claim(ownMAC, "10.1.0.250"), claim(ownMAC, "10.1.0.81"))
	eventually(t, "a later claim", func() bool { return d.hasEntry(t, "10.1.0.81", ownMAC.String()) })
	if d.hasEntry(t, "10.1.0.0", ownMAC.String()) || d.hasEntry(t, "10.1.0.255", ownMAC.String()) ||
		d.hasEntry(t, "10.1.0.250", ownMAC.String()) {
		t.Errorf("an address that no client can have was claimed: %+v", d.sessions(t))
	}
	// The address of a server that the configuration names is nobody's to claim.
	sh(t, "ip -n other addr add 10.1.0.53/24 dev o0")
	for range 5 {
		try("ip netns exec other ping -q -c 1 -W 0.05 -I 10.1.0.53 10.1.0.1")
	}
	if all := d.awaitClients(t, maxClaims+2); slices.ContainsFunc(
		all, func(s control.Session) bool { return s.Addr == netip.MustParseAddr("10.1.0.53") }) {
		t.Errorf("a server's address was claimed: %+v", all)
	}

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
	left := d.awaitClients(t, 1)
	if left[0].User != "ann" {
		t.Errorf("the session of %+v is left, want ann's", left[0])
	}
}

// TestFailingClaimsDoNotFillTheLog: where claims cannot be kept, as on a full disk, the log says so once, however many
// packets of newcomers come.
func TestFailingClaimsDoNotFillTheLog(t *testing.T) {
	cfg, err := config.Parse("gatewayd.toml", []byte(
		"lan.interface = \"lan0\"\nlan.address = \"10.1.0.1/24\"\nwan.interface = \"wan0\"\ndhcp.mode = "+
			"\"external\"\ndns.upstreams = [\"192.0.2.2\"]\nauth.methods = [\"click-through\"]\n"))
	must(t, err)
	dp, err := admission.New(admission.Config{Network: networksOf(cfg)[0]})
	must(t, err)
	table, err := session.Open(filepath.Join(t.TempDir(), "s.db"), dp, slog.New(slog.DiscardHandler))
	must(t, err)
	must(t, table.Close()) // fails as a full disk does, for every change
	var log logtest.Log
	g := &gateway{cfg: cfg, log: log.Logger(), table: table, tableOpened: make(chan struct{})}
	close(g.tableOpened)
	for n := range byte(100) {
		g.newcomer(netip.AddrFrom4([4]byte{10, 1, 0, 100 + n}), datapath.MAC{2, 0, 0, 0, 0, n})
	}
	if n := log.Count("level=WARN"); n != 1 || !strings.Contains(log.String(), "10.1.0.100") {
		t.Errorf("100 newcomers make %d warnings:\n%.500s", n, log.String())
	}
}
