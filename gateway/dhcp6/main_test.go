package dhcp6

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv6"
	"github.com/mdlayher/packet"
	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/budget"
	"github.com/gateweigh/gateweigh/internal/netnstest"
	"github.com/gateweigh/gateweigh/internal/sockbuf"
)

// TestMain runs the tests in their own network namespace, or a server for the test that kills it.
func TestMain(m *testing.M) {
	if path := os.Getenv("GATEWAY_TEST_LEASES6"); path != "" {
		serveUntilKilled(path)
	}
	netnstest.Main(m, "")
}

const gateway = "gw0" // the server's interface

var (
	onLink  = netip.MustParsePrefix("2001:db8:1:1::/64")
	pooled  = netip.MustParsePrefix("2001:db8:1:1:d::/80")
	parcels = netip.MustParsePrefix("2001:db8:1:80::/57")

	serverDUID = []byte{0, 3, 0, 1, 2, 0, 0, 0, 0, 1}
	await      = netnstest.Until
)

// newLAN connects the server's interface to a bridge, and returns a port of the bridge for the test's own frames.
func newLAN(t testing.TB) string {
	t.Helper()
	t.Cleanup(func() { netnstest.Try("ip link del " + gateway + "; ip link del w0; ip link del br0") })
	netnstest.Run(t, netnstest.Up+`
		echo 0 >/proc/sys/net/ipv6/conf/default/accept_dad
		ip link add br0 type bridge mcast_snooping 0
		ip link add gw0 type veth peer name gw1
		ip link add w0 type veth peer name w1
		for port in gw1 w1; do ip link set $port master br0; done
		for link in br0 gw0 gw1 w0 w1; do ip link set $link up; done
		up gw0 w0
		until ip -6 addr show dev gw0 scope link -tentative | grep -q fe80; do sleep 0.01; done`)
	return "w0"
}

// journal records events.
type journal struct {
	mu     sync.Mutex
	lines  []string
	leases []Lease
	fail   error
}

func (j *journal) Leased(l Lease) error   { return j.note("leased", l) }
func (j *journal) Released(l Lease) error { return j.note("released", l) }

func (j *journal) Rogue(mac MAC, source netip.Addr) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, fmt.Sprintf("rogue %s %s", hardware(mac), source))
}

func (j *journal) note(label string, l Lease) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.fail != nil {
		return j.fail
	}
	j.lines = append(j.lines, fmt.Sprintf("%s %s %s", label, hardware(l.MAC), l.Prefix))
	j.leases = append(j.leases, l)
	return nil
}

func (j *journal) has(line string) bool { return slices.Contains(j.all(), line) }

func (j *journal) all() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.lines)
}

func (j *journal) failWith(err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.fail = err
}

// network is the prefixes of a test, which it may change.
type network struct {
	mu  sync.Mutex
	now Prefixes
}

func (n *network) get() Prefixes {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.now
}

func (n *network) set(p Prefixes) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.now = p
}

func pool(prefix netip.Prefix) Pool {
	return Pool{Prefix: prefix, Preferred: 24 * time.Hour, Valid: 48 * time.Hour}
}

func usualPrefixes() Prefixes {
	return Prefixes{OnLink: []netip.Prefix{onLink}, Addresses: []Pool{pool(pooled)}, Delegated: []Pool{pool(parcels)}}
}

func testConfig(prefixes func() Prefixes) Config {
	return Config{
		Interface: gateway, DUID: serverDUID, Prefixes: prefixes,
		Preference: 255, DNS: []netip.Addr{netip.MustParseAddr("2001:db8:1:1::1")}, Search: []string{"guests.example"},
		CaptivePortalURL: "https://portal.example/api", Refresh: time.Hour, Register: true,
		PerMAC: budget.Rate{AtOnce: 10_000, EachSecond: 10_000},
	}
}

// started is a server in a test.
type started struct {
	*Server
	*journal
	net  *network
	file *File
	stop func()
}

// start runs a server until the test ends or stop is called; edit may be nil.
func start(t testing.TB, path string, edit func(*Config)) *started {
	t.Helper()
	file, err := OpenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	run := &started{journal: &journal{}, net: &network{now: usualPrefixes()}, file: file}
	cfg := testConfig(run.net.get)
	cfg.Store = file
	if edit != nil {
		edit(&cfg)
	}
	if run.Server, err = New(cfg, run.journal); err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() { done <- run.Run(context.Background()) }()
	run.stop = sync.OnceFunc(func() {
		if err := errors.Join(run.Close(), <-done, file.Close()); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(run.stop)
	return run
}

func leasesFile(t testing.TB) string { return filepath.Join(t.TempDir(), "leases6.db") }

// wire sends and receives clients' frames at a port of the LAN.
type wire struct {
	t     testing.TB
	conn  *packet.Conn
	xid   uint32
	heard chan []byte // frames that a data path hands to the server; nil: they are sent
}

func newWire(t testing.TB, name string) *wire { return newWireOf(t, name, unix.ETH_P_IPV6) }

// newWireOf is newWire for frames of a type.
func newWireOf(t testing.TB, name string, kind int) *wire {
	t.Helper()
	ifi, err := net.InterfaceByName(name)
	netnstest.Must(t, err)
	conn, err := packet.Listen(ifi, packet.Raw, kind, nil)
	netnstest.Must(t, err)
	t.Cleanup(func() { conn.Close() })
	netnstest.Must(t, sockbuf.ReceiveOn(conn, 16<<20))
	// The bridge sends it the frames of all MACs that it has not learned.
	netnstest.Must(t, conn.SetPromiscuous(true))
	return &wire{t: t, conn: conn}
}

func macOf(i int) MAC { return MAC{0x02, 0, 0, byte(i >> 16), byte(i >> 8), byte(i)} }

// localOf is the link-local address that a client makes of its MAC (RFC 4291, appendix A).
func localOf(mac MAC) netip.Addr {
	return netip.AddrFrom16([16]byte{0: 0xfe, 1: 0x80, 8: mac[0] ^ 2, 9: mac[1], 10: mac[2], 11: 0xff, 12: 0xfe,
		13: mac[3], 14: mac[4], 15: mac[5]})
}

func duidOf(i int) []byte { return append([]byte{0, 4}, fmt.Sprintf("client %09d", i)...) }

// station is a client that the test plays.
type station struct {
	mac  MAC
	duid []byte
	src  netip.Addr // zero: its link-local address
	// session is PPPoE's; 0: none
	session uint16
}

func stationOf(i int) station { return station{mac: macOf(i), duid: duidOf(i)} }

// frame makes the frame of a message.
func (st station) frame(payload []byte) []byte {
	src := st.src
	if !src.IsValid() {
		src = localOf(st.mac)
	}
	return datagram{
		srcMAC: st.mac, dstMAC: MAC{0x33, 0x33, 0, 1, 0, 2}, session: st.session, payload: payload,
		src: netip.AddrPortFrom(src, clientPort), dst: netip.AddrPortFrom(allServers, serverPort),
	}.frame()
}

// message makes a message of a type that names its client, and the server where the type has it.
func (w *wire) message(kind dhcpv6.MessageType, st station, options ...dhcpv6.Option) *dhcpv6.Message {
	w.xid++
	id := dhcpv6.TransactionID{byte(w.xid >> 16), byte(w.xid >> 8), byte(w.xid)}
	m := &dhcpv6.Message{MessageType: kind, TransactionID: id}
	if st.duid != nil {
		m.AddOption(generic(dhcpv6.OptionClientID, st.duid))
	}
	switch kind {
	case dhcpv6.MessageTypeRequest, dhcpv6.MessageTypeRenew, dhcpv6.MessageTypeRelease, dhcpv6.MessageTypeDecline:
		m.AddOption(generic(dhcpv6.OptionServerID, serverDUID))
	}
	for _, option := range options {
		m.AddOption(option)
	}
	return m
}

func (w *wire) sendFrame(frame []byte) {
	w.t.Helper()
	if w.heard != nil {
		w.heard <- frame
		return
	}
	if _, err := w.conn.WriteTo(frame, &packet.Addr{HardwareAddr: frame[:6]}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *wire) send(st station, m *dhcpv6.Message) {
	w.t.Helper()
	w.sendFrame(st.frame(m.ToBytes()))
}

// next returns the next reply on the wire, to any client; nil: none comes in time.
func (w *wire) next(wait time.Duration) (*dhcpv6.Message, datagram) {
	w.t.Helper()
	w.conn.SetReadDeadline(time.Now().Add(wait))
	buf := make([]byte, 4096)
	for {
		n, _, err := w.conn.ReadFrom(buf)
		if err != nil {
			return nil, datagram{}
		}
		got, err := parseFrame(buf[:n])
		if err != nil || got.src.Port() != serverPort {
			continue
		}
		m, err := dhcpv6.MessageFromBytes(got.payload)
		if err != nil {
			w.t.Fatalf("the server's reply: %v", err)
		}
		return m, got
	}
}

// expect is next with a long wait.
func (w *wire) expect() (*dhcpv6.Message, datagram) {
	w.t.Helper()
	r, got := w.next(time.Minute)
	if r == nil {
		w.t.Fatal("the server does not answer any more")
	}
	return r, got
}

// ask sends a message and returns the reply to it.
func (w *wire) ask(st station, m *dhcpv6.Message) (*dhcpv6.Message, datagram) {
	w.t.Helper()
	w.send(st, m)
	for {
		r, got := w.expect()
		if r.TransactionID == m.TransactionID {
			return r, got
		}
	}
}

// silent checks that a frame gets no reply: the server answers in order, and another message, sent later, is answered
// first.
func (w *wire) silent(frame []byte) {
	w.t.Helper()
	w.sendFrame(frame)
	probe := w.message(dhcpv6.MessageTypeInformationRequest, station{})
	w.send(stationOf(0xffffff), probe)
	for {
		switch r, got := w.expect(); {
		case r.TransactionID == probe.TransactionID:
			return
		case got.dstMAC == MAC(frame[6:12]):
			w.t.Fatalf("the reply %s", r)
		}
	}
}

func iaNA(iaid byte, addrs ...netip.Addr) *dhcpv6.OptIANA {
	ia := &dhcpv6.OptIANA{IaId: [4]byte{3: iaid}}
	for _, addr := range addrs {
		ia.Options.Add(&dhcpv6.OptIAAddress{IPv6Addr: addr.AsSlice()})
	}
	return ia
}

func iaPD(iaid byte, prefixes ...netip.Prefix) *dhcpv6.OptIAPD {
	ia := &dhcpv6.OptIAPD{IaId: [4]byte{3: iaid}}
	for _, prefix := range prefixes {
		ia.Options.Add(given{prefix: prefix}.option(Delegated))
	}
	return ia
}

// addrsOf returns the addresses of a reply that are valid, and prefixesOf its prefixes.
func addrsOf(m *dhcpv6.Message) (addrs []netip.Addr) {
	for _, ia := range m.Options.IANA() {
		for _, one := range ia.Options.Addresses() {
			if addr, _ := netip.AddrFromSlice(one.IPv6Addr); one.ValidLifetime > 0 {
				addrs = append(addrs, addr)
			}
		}
	}
	return addrs
}

func prefixesOf(m *dhcpv6.Message) (prefixes []netip.Prefix) {
	for _, ia := range m.Options.IAPD() {
		for _, one := range ia.Options.Prefixes() {
			addr, _ := netip.AddrFromSlice(one.Prefix.IP)
			if bits, _ := one.Prefix.Mask.Size(); one.ValidLifetime > 0 {
				prefixes = append(prefixes, netip.PrefixFrom(addr, bits))
			}
		}
	}
	return prefixes
}

// lease has a client request an address, and returns it.
func (w *wire) lease(st station, iaid byte) netip.Addr {
	w.t.Helper()
	r, _ := w.ask(st, w.message(dhcpv6.MessageTypeRequest, st, iaNA(iaid)))
	if addrs := addrsOf(r); len(addrs) == 1 {
		return addrs[0]
	}
	w.t.Fatalf("no address: %s", strings.TrimSpace(r.LongString(0)))
	return netip.Addr{}
}

// serveUntilKilled runs a server in its own process.
func serveUntilKilled(path string) {
	file, err := OpenFile(path)
	if err == nil {
		cfg := testConfig(usualPrefixes)
		cfg.Store = file
		var s *Server
		if s, err = New(cfg, &journal{}); err == nil {
			s.Run(context.Background())
		}
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
