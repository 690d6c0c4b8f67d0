package routeradv

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mdlayher/ndp"
	"github.com/mdlayher/packet"
	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// TestMain runs the tests in a network namespace of their own, which is the gateway.
func TestMain(m *testing.M) { netnstest.Main(m, "echo 1 >/proc/sys/net/ipv6/conf/all/forwarding") }

var (
	linkLocal  = netip.MustParseAddr("fe80::1")
	gatewayMAC = MAC{2, 0, 0, 0, 0, 1}
)

// lan is a gateway's interface gw0 and clients behind a bridge with the kernel's defaults.
type lan struct {
	hub     *netnstest.Space
	clients []*client
}

// client is a host with the interface c0.
type client struct {
	*netnstest.Space
	t    testing.TB
	mac  MAC
	hub  *netnstest.Space
	port string // of the hub
}

// newLAN makes the network. The clients' interfaces are down, so that each test says when they solicit.
func newLAN(t testing.TB, clients int) *lan {
	t.Helper()
	l := &lan{hub: netnstest.NewSpace(t)}
	l.hub.Set(t, "ipv6/conf/default/disable_ipv6", "1")
	l.hub.Run(t, "ip link add br0 type bridge; ip link set br0 up")
	l.plugGateway(t)
	t.Cleanup(func() { netnstest.Try("ip link del gw0") })
	for i := range clients {
		c := &client{Space: netnstest.NewSpace(t), t: t, mac: macOf(i + 16), hub: l.hub, port: fmt.Sprintf("port%d", i)}
		l.hub.Veth(t, netnstest.End{Name: c.port}, c.Space, netnstest.End{Name: "c0", MAC: c.mac[:]})
		l.clients = append(l.clients, c)
	}
	return l
}

// plugGateway makes gw0 and connects it.
func (l *lan) plugGateway(t testing.TB) {
	t.Helper()
	netnstest.Run(t, `ip link add gw0 address 02:00:00:00:00:01 type veth peer name lan netns $hub
ip addr add fe80::1/64 dev gw0 nodad; ip link set gw0 up`, fmt.Sprintf("hub=%d", l.hub.TID()))
	l.hub.Plug(t, "lan")
	netnstest.Run(t, netnstest.Up+"up gw0")
}

func macOf(i int) MAC { return MAC{2, 0, 0, byte(i >> 16), byte(i >> 8), byte(i)} }

// up connects the client, whose kernel then makes its link-local address and solicits.
func (c *client) up() {
	c.t.Helper()
	c.Run(c.t, "ip link set c0 up")
	c.hub.Plug(c.t, c.port)
	c.Run(c.t, netnstest.Up+"up c0")
}

// silence keeps the client's kernel from sending packets on its own.
func (c *client) silence() {
	c.t.Helper()
	c.Run(c.t, "echo 1 >/proc/sys/net/ipv6/conf/c0/disable_ipv6")
}

// shows waits until a command in the client's namespace prints all of some texts in one line, and none of others, which
// begin with "!".
func (c *client) shows(command string, texts ...string) {
	c.t.Helper()
	netnstest.Await(c.t, command, func() error {
		out, err := c.Try(command)
		if err != nil {
			return err
		}
		for line := range strings.Lines(out) {
			if fits(line, texts) {
				return nil
			}
		}
		return errors.New(strings.Join(texts, " … ") + " is not in\n" + out)
	})
}

func fits(line string, texts []string) bool {
	for _, text := range texts {
		without, no := strings.CutPrefix(text, "!")
		if strings.Contains(line, without) == no {
			return false
		}
	}
	return true
}

func config() Config {
	return Config{Interface: "gw0", LinkLocal: linkLocal, Log: slog.New(slog.DiscardHandler)}
}

// slaac is what tests advertise.
func slaac(prefix string) Advertisement {
	return Advertisement{
		RouterLifetime: 30 * time.Minute,
		Prefixes: []Prefix{{Prefix: netip.MustParsePrefix(prefix), Preferred: time.Hour, Valid: 4 * time.Hour, OnLink: true,
			Autonomous: true}},
	}
}

// start runs a server until the test ends.
func start(t testing.TB, cfg Config) *Server {
	t.Helper()
	s, err := New(cfg)
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
	return s
}

// wire sends and receives frames at a client's interface.
type wire struct {
	t    testing.TB
	conn *packet.Conn
}

func (c *client) wire() *wire {
	c.t.Helper()
	var conn *packet.Conn
	var err error
	c.Do(func() {
		var ifi *net.Interface
		if ifi, err = net.InterfaceByName("c0"); err == nil {
			conn, err = packet.Listen(ifi, packet.Raw, unix.ETH_P_IPV6, nil)
		}
	})
	netnstest.Must(c.t, err)
	c.t.Cleanup(func() { conn.Close() })
	return &wire{c.t, conn}
}

// advert is a router advertisement as it was on the wire.
type advert struct {
	to      MAC
	toAddr  netip.Addr
	message *ndp.RouterAdvertisement
}

// next returns the next advertisement; false: none comes in time.
func (w *wire) next(wait time.Duration) (advert, bool) {
	w.t.Helper()
	w.conn.SetReadDeadline(time.Now().Add(wait))
	b := make([]byte, 2048)
	for {
		n, _, err := w.conn.ReadFrom(b)
		if err != nil {
			return advert{}, false
		}
		frame := b[:n]
		if h, err := parseFrame(frame); err != nil || !h.advert || h.src != linkLocal {
			continue
		}
		m, err := ndp.ParseMessage(frame[ethernetLen+ipv6Len:])
		if err != nil {
			w.t.Fatal(err)
		}
		return advert{MAC(frame), netip.AddrFrom16([16]byte(frame[38:])), m.(*ndp.RouterAdvertisement)}, true
	}
}

// pause is for what has arrived already.
const pause = 50 * time.Millisecond

// await returns the next advertisement, which must come.
func (w *wire) await() advert {
	w.t.Helper()
	a, ok := w.next(2 * time.Minute)
	if !ok {
		w.t.Fatal("no advertisement comes")
	}
	return a
}

// send sends an ICMPv6 message in a frame to a group.
func (w *wire) send(from MAC, src, dst netip.Addr, message []byte) {
	w.t.Helper()
	frame := frameOf(from, src, dst, message)
	if _, err := w.conn.WriteTo(frame, &packet.Addr{HardwareAddr: frame[:6]}); err != nil {
		w.t.Fatal(err)
	}
}

// solicit sends a router solicitation without a source address.
func (w *wire) solicit(from MAC) {
	w.t.Helper()
	w.send(from, netip.IPv6Unspecified(), allRouters, solicitation())
}

func solicitation(options ...byte) []byte {
	return append([]byte{typeRS, 0, 0, 0, 0, 0, 0, 0}, options...)
}

// frameOf is an Ethernet frame to a multicast group.
func frameOf(from MAC, src, dst netip.Addr, message []byte) []byte {
	to := groupMAC(dst.As16())
	return slices.Concat(to[:], from[:], []byte{0x86, 0xdd}, Packet(src, dst, message))
}

// prefixes of an advertisement, with their lifetimes in seconds.
func (a advert) prefixes() map[string][2]int {
	found := map[string][2]int{}
	for _, option := range a.message.Options {
		if p, ok := option.(*ndp.PrefixInformation); ok {
			found[netip.PrefixFrom(p.Prefix, int(p.PrefixLength)).String()] =
				[2]int{int(p.PreferredLifetime.Seconds()), int(p.ValidLifetime.Seconds())}
		}
	}
	return found
}
