package gateway

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/mdlayher/packet"
	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/control"
	"github.com/gateweigh/gateweigh/gateway/session"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// framesEnv makes the test binary send frames, as lines of hexadecimal digits on its standard input, on the interface
// that it names.
const framesEnv = "GATEWAY_TEST_FRAMES"

func sendFrames(name string) {
	ifi, err := net.InterfaceByName(name)
	if err == nil {
		var conn *packet.Conn
		if conn, err = packet.Listen(ifi, packet.Raw, unix.ETH_P_LOOPBACK, nil); err == nil {
			for lines := bufio.NewScanner(os.Stdin); lines.Scan() && err == nil; {
				var frame []byte
				if frame, err = hex.DecodeString(lines.Text()); err == nil {
					_, err = conn.WriteTo(frame, &packet.Addr{HardwareAddr: frame[:6]})
				}
			}
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// inject sends frames on an interface of a namespace.
func inject(t *testing.T, namespace, link string, frames ...[]byte) {
	t.Helper()
	must(t, injected(namespace, link, frames))
}

// injected is inject for goroutines.
func injected(namespace, link string, frames [][]byte) error {
	cmd := exec.Command("ip", "netns", "exec", namespace, "env", framesEnv+"="+link, os.Args[0])
	var lines strings.Builder
	for _, f := range frames {
		fmt.Fprintf(&lines, "%x\n", f)
	}
	cmd.Stdin = strings.NewReader(lines.String())
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("sending frames: %w\n%s", err, out)
	}
	return nil
}

// addIntruder plugs another client into network's hub, in the namespace "intruder".
func addIntruder(t *testing.T) net.HardwareAddr {
	t.Helper()
	own := net.HardwareAddr{2, 0, 0, 0, 0, 0x66}
	addClient(t, "intruder", "i", own)
	return own
}

// addClient plugs another client into network's hub, in a namespace of its own. Its link is letter and 0.
func addClient(t *testing.T, namespace, letter string, mac net.HardwareAddr) {
	t.Helper()
	sh(t, fmt.Sprintf(`ip netns add %[1]s
ip link add %[2]s0 netns %[1]s address %[3]s type veth peer name %[2]s1 netns hub
ip -n %[1]s link set %[2]s0 up; ip netns exec hub sh -ec '`+netnstest.Hub+`plug %[2]s1'; ip netns exec %[1]s sh -ec '`+
		netnstest.Up+`up %[2]s0' `, namespace, letter, mac))
	t.Cleanup(func() { sh(t, "ip netns del "+namespace) })
}

// dhcpFrame is a message to the gateway in a frame with any sender.
func dhcpFrame(t *testing.T, from net.HardwareAddr, source netip.Addr, to net.HardwareAddr, m *dhcpv4.DHCPv4) []byte {
	t.Helper()
	ip := &layers.IPv4{
		Version: 4, TTL: 64, Protocol: layers.IPProtocolUDP, SrcIP: source.AsSlice(), DstIP: net.IP{10, 1, 0, 1}}
	udp := &layers.UDP{SrcPort: 68, DstPort: 67}
	udp.SetNetworkLayerForChecksum(ip)
	b := gopacket.NewSerializeBuffer()
	must(t, gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true},
		&layers.Ethernet{SrcMAC: from, DstMAC: to, EthernetType: layers.EthernetTypeIPv4}, ip, udp,
		gopacket.Payload(m.ToBytes())))
	return b.Bytes()
}

// leaseEndFrames returns frames by which a client's lease would end, as sent by another device with its own MAC address
// in the frame, and as sent with the client's.
func leaseEndFrames(t *testing.T, kind dhcpv4.MessageType, victim session.Key, ownMAC, lan net.HardwareAddr) (
	frames [][]byte) {
	t.Helper()
	mac := net.HardwareAddr(victim.MAC[:])
	id := dhcpv4.WithOption(dhcpv4.OptClientIdentifier(append([]byte{1}, mac...)))
	for _, how := range []struct {
		from   net.HardwareAddr
		source netip.Addr
		more   []dhcpv4.Modifier
	}{
		{ownMAC, victim.Addr, []dhcpv4.Modifier{id}}, {ownMAC, netip.IPv4Unspecified(), []dhcpv4.Modifier{id}},
		{ownMAC, netip.MustParseAddr("10.1.0.66"), []dhcpv4.Modifier{id}},
		{mac, netip.IPv4Unspecified(), nil},
		{mac, victim.Addr, []dhcpv4.Modifier{dhcpv4.WithOption(dhcpv4.OptClientIdentifier([]byte("other")))}},
		{mac, netip.IPv4Unspecified(), []dhcpv4.Modifier{id}}, {mac, victim.Addr, []dhcpv4.Modifier{id}},
	} {
		m, err := dhcpv4.New(
			append(how.more, dhcpv4.WithHwAddr(mac), dhcpv4.WithMessageType(kind), dhcpv4.WithClientIP(victim.Addr.AsSlice()),
				dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(victim.Addr.AsSlice())),
				dhcpv4.WithOption(dhcpv4.OptServerIdentifier(net.IP{10, 1, 0, 1})))...)
		must(t, err)
		frames = append(frames, dhcpFrame(t, how.from, how.source, lan, m))
	}
	return frames
}

// TestForgedReleases: with no data path does a RELEASE or DECLINE that another device sends end the session of a client
// that is there. The client's own does, when it has left its address.
func TestForgedReleases(t *testing.T) {
	dir := t.TempDir()
	d := startWithAnn(t, dir)
	ownMAC := addIntruder(t)
	const onTUN, onNFQueue, fast = `kind = "tun"`, `kind = "nfqueue"`, "\nfast = true"
	kinds := []dhcpv4.MessageType{dhcpv4.MessageTypeRelease, dhcpv4.MessageTypeDecline}
	for _, keys := range []string{onNFQueue + fast, onTUN + fast, onEBPF} {
		must(t, d.stop())
		sh(t, "ip link del tun0 2>/dev/null || true; ip addr replace 10.1.0.1/24 dev lan0")
		if strings.HasPrefix(keys, onTUN) { // the device has the address
			sh(t, "ip addr flush dev lan0")
		}
		d = startOn(t, dir, keys)
		victim, lan := d.key(t), linkMAC(t, "lan0")
		c, err := control.Dial(d.cfg.ControlSocket())
		must(t, err)
		for n, kind := range kinds {
			inject(t, "intruder", "i0", leaseEndFrames(t, kind, victim, ownMAC, lan)...)
			netnstest.Await(t, "the gateway's decision about a forged "+kind.String(), func() error {
				s, err := c.Status(t.Context())
				if err == nil && s.DHCP["still-there"] <= uint64(n) {
					err = fmt.Errorf("%s: counted %v", keys, s.DHCP)
				}
				return err
			})
		}
		kinds = kinds[:1] // DECLINE takes the same way
		if got := d.client(t); got.State != session.Authenticated || !clientReachesServer() {
			t.Fatalf("%s: the client is %+v", keys, got)
		}
	}
	must(t, d.stop())
	d = start(t, dir) // it remembers for half a minute that the client was there
	victim, lan := d.key(t), linkMAC(t, "lan0")
	sh(t, "ip -n client addr flush dev c0")
	frames := leaseEndFrames(t, dhcpv4.MessageTypeRelease, victim, ownMAC, lan)
	inject(t, "client", "c0", frames[len(frames)-1])
	d.awaitClients(t, 0)
}

// key is the key of the gateway's only client.
func (d daemon) key(t *testing.T) session.Key {
	t.Helper()
	s := d.client(t)
	mac, err := net.ParseMAC(s.MAC)
	must(t, err)
	return session.Key{MAC: [6]byte(mac), Addr: s.Addr}
}

func linkMAC(t *testing.T, name string) net.HardwareAddr {
	t.Helper()
	ifi, err := net.InterfaceByName(name)
	must(t, err)
	return ifi.HardwareAddr
}
