// Helpers of this package's tests: the server's interface (gw0) with a wire at its other end (c0), over which a test
// sends and receives frames of clients, and a journal of what the server tells its listener.

package dhcp

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/mdlayher/packet"
	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/internal/netnstest"
	"github.com/gateweigh/gateweigh/internal/sockbuf"
)

// TestMain runs the tests in their own network namespace, or a server for the test that kills it.
func TestMain(m *testing.M) {
	if path := os.Getenv("GATEWAY_TEST_LEASES"); path != "" {
		serveUntilKilled(path)
	}
	netnstest.Main(m, "")
}

const gateway = "gw0" // the server's interface

var (
	serverAddr = netip.MustParseAddr("10.1.0.1")
	subnet     = netip.MustParsePrefix("10.1.0.0/16")
)

// run runs a program, which must succeed.
func run(t testing.TB, argv ...string) {
	t.Helper()
	if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(argv, " "), err, out)
	}
}

// await waits until a condition holds.
var await = netnstest.Until

var must = netnstest.Must

// newLAN creates the server's interface and returns its other end.
func newLAN(t testing.TB) string {
	t.Helper()
	run(t, "ip", "link", "add", gateway, "type", "veth", "peer", "name", "c0")
	t.Cleanup(func() { exec.Command("ip", "link", "del", gateway).Run() })
	run(t, "ip", "addr", "add", serverAddr.String()+"/16", "dev", gateway)
	run(t, "ip", "link", "set", gateway, "up")
	run(t, "ip", "link", "set", "c0", "up")
	run(t, "sh", "-ec", netnstest.Up+"up "+gateway)
	return "c0"
}

// journal is a listener that records its calls.
type journal struct {
	mu    sync.Mutex
	lines []string
	fail  error
}

func (j *journal) Leased(l Lease) error {
	return j.note("leased", l.MAC, l.Addr, l.Hostname)
}

func (j *journal) Released(mac net.HardwareAddr, addr netip.Addr) error {
	return j.note("released", mac, addr, "")
}

func (j *journal) note(label string, mac net.HardwareAddr, addr netip.Addr, hostname string) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.fail != nil {
		return j.fail
	}
	j.lines = append(j.lines, strings.TrimSpace(fmt.Sprintf("%s %s %s %s", label, mac, addr, hostname)))
	return nil
}

func (j *journal) all() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return append([]string(nil), j.lines...)
}

func (j *journal) failWith(err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.fail = err
}

// testConfig is the configuration of a server whose leases are in the file path.
func testConfig(path string) Config {
	return Config{
		Interface: gateway, Server: serverAddr, Subnet: subnet, Path: path,
		Pools:            []Range{{netip.MustParseAddr("10.1.1.0"), netip.MustParseAddr("10.1.40.255")}},
		Domain:           "guests.example",
		CaptivePortalURL: "https://portal.example/api",
		MTU:              1400,
	}
}

// start runs a server until the test ends; edit may be nil.
func start(t testing.TB, path string, edit func(*Config)) (*Server, *journal) {
	t.Helper()
	cfg, j := testConfig(path), &journal{}
	if edit != nil {
		edit(&cfg)
	}
	s, err := New(cfg, j)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() { done <- s.Run(t.Context()) }()
	t.Cleanup(func() {
		if err := errors.Join(s.Close(), <-done); err != nil {
			t.Error(err)
		}
	})
	return s, j
}

// leasesFile returns a path for a file of leases, which does not exist yet.
func leasesFile(t testing.TB) string { return filepath.Join(t.TempDir(), "leases.db") }

// wire sends and receives clients' frames at the LAN's other end.
type wire struct {
	t    testing.TB
	conn *packet.Conn
}

// newWire opens a raw socket at the interface name.
func newWire(t testing.TB, name string) *wire {
	t.Helper()
	ifi, err := net.InterfaceByName(name)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := packet.Listen(ifi, packet.Raw, unix.ETH_P_IP, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := sockbuf.ReceiveOn(conn, 16<<20); err != nil {
		t.Fatal(err)
	}
	return &wire{t, conn}
}

// station is the addresses of a client's frames.
type station struct {
	mac      MAC
	src, dst netip.Addr // zero: 0.0.0.0 and 255.255.255.255
}

func (st station) datagram(m *dhcpv4.DHCPv4) datagram {
	if !st.src.IsValid() {
		st.src = netip.IPv4Unspecified()
	}
	to := broadcastMAC
	if st.dst.IsValid() {
		ifi, _ := net.InterfaceByName(gateway)
		to = MAC(ifi.HardwareAddr)
	} else {
		st.dst = limitedBroadcast
	}
	return datagram{
		srcMAC: st.mac, dstMAC: to,
		src: netip.AddrPortFrom(st.src, clientPort), dst: netip.AddrPortFrom(st.dst, serverPort), payload: m.ToBytes(),
	}
}

func (w *wire) send(st station, m *dhcpv4.DHCPv4) {
	w.t.Helper()
	w.sendFrame(st.datagram(m).frame())
}

func (w *wire) sendFrame(frame []byte) {
	w.t.Helper()
	if _, err := w.conn.WriteTo(frame, &packet.Addr{HardwareAddr: frame[:6]}); err != nil {
		w.t.Fatal(err)
	}
}

// next returns the next reply on the wire, to any client; nil when none arrives in time.
func (w *wire) next(wait time.Duration) (*dhcpv4.DHCPv4, datagram) {
	w.t.Helper()
	w.conn.SetReadDeadline(time.Now().Add(wait))
	buf := make([]byte, 4096)
	for {
		n, _, err := w.conn.ReadFrom(buf)
		if err != nil {
			return nil, datagram{}
		}
		d, err := parseFrame(buf[:n])
		if err != nil || d.src.Port() != serverPort {
			continue
		}
		m, err := dhcpv4.FromBytes(d.payload)
		if err != nil {
			w.t.Fatalf("the server's reply: %v", err)
		}
		return m, d
	}
}

// nextFor is next with a long wait.
func (w *wire) nextFor(t *testing.T) (*dhcpv4.DHCPv4, datagram) {
	t.Helper()
	r, d := w.next(30 * time.Second)
	if r == nil {
		t.Fatal("the server does not answer any more")
	}
	return r, d
}

// ask sends a message and returns the reply to it.
func (w *wire) ask(st station, m *dhcpv4.DHCPv4) (*dhcpv4.DHCPv4, datagram) {
	w.t.Helper()
	w.send(st, m)
	for {
		r, d := w.next(30 * time.Second)
		if r == nil {
			w.t.Fatalf("no reply to %s", m.MessageType())
		}
		if r.TransactionID == m.TransactionID {
			return r, d
		}
	}
}

// silent checks that a message gets no reply: the server answers in order, and another message, sent later, is answered
// first.
func (w *wire) silent(st station, m *dhcpv4.DHCPv4) {
	w.t.Helper()
	w.send(st, m)
	probe := message(w.t, dhcpv4.MessageTypeInform, macOf(0xffffff), dhcpv4.WithClientIP(net.IP{10, 1, 0, 77}))
	w.send(station{mac: macOf(0xffffff), src: netip.MustParseAddr("10.1.0.77")}, probe)
	for {
		r, _ := w.next(30 * time.Second)
		switch {
		case r == nil:
			w.t.Fatal("the server does not answer any more")
		case r.TransactionID == m.TransactionID:
			w.t.Fatalf("%s to %s", r.MessageType(), m.MessageType())
		case r.TransactionID == probe.TransactionID:
			return
		}
	}
}

// macOf returns the MAC of device i.
func macOf(i int) MAC { return MAC{0x02, 0, 0, byte(i >> 16), byte(i >> 8), byte(i)} }

// message makes a message of a kind from a device; mods change it.
func message(t testing.TB, kind dhcpv4.MessageType, mac MAC, mods ...dhcpv4.Modifier) *dhcpv4.DHCPv4 {
	t.Helper()
	m, err := dhcpv4.New(append([]dhcpv4.Modifier{dhcpv4.WithHwAddr(mac[:]), dhcpv4.WithMessageType(kind)}, mods...)...)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// lease carries a client through DISCOVER and REQUEST.
func (w *wire) lease(mac MAC, mods ...dhcpv4.Modifier) *dhcpv4.DHCPv4 {
	w.t.Helper()
	st := station{mac: mac}
	offer, _ := w.ask(st, message(w.t, dhcpv4.MessageTypeDiscover, mac, mods...))
	if offer.MessageType() != dhcpv4.MessageTypeOffer {
		w.t.Fatalf("%s to a DISCOVER", offer.MessageType())
	}
	ack, _ := w.ask(st, message(w.t, dhcpv4.MessageTypeRequest, mac, append(mods,
		dhcpv4.WithOption(dhcpv4.OptServerIdentifier(offer.ServerIdentifier())),
		dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(offer.YourIPAddr)))...))
	if ack.MessageType() != dhcpv4.MessageTypeAck || !ack.YourIPAddr.Equal(offer.YourIPAddr) {
		w.t.Fatalf("%s of %s after an offer of %s", ack.MessageType(), ack.YourIPAddr, offer.YourIPAddr)
	}
	return ack
}
