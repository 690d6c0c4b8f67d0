// Tests of gatewayd as a device with personas: clients that share one network namespace, each with a hardware address
// and a lease of its own. newTestLab makes a lab of a client host, a router with the device, and a server
// (lab_test.go).

package dut

import (
	"encoding/json"
	"errors"
	"net"
	"net/netip"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/labtest"
	"github.com/gateweigh/gateweigh/lab/traffic"
)

// Personas are clients that share one network namespace of the client host, so one host can have thousands.

// personas gives a lab n personas with leases from the device.
func (l *testLab) personas(t testing.TB, n int) []client.Address {
	t.Helper()
	return l.createLeased(t, client.Config{Kind: client.KindPersona, Count: n})
}

// createLeased gives a lab clients with addresses from the device.
func (l *testLab) createLeased(t testing.TB, cfg client.Config) []client.Address {
	t.Helper()
	host := l.clientHost
	cfg.Parent, cfg.LAN, cfg.Gateway, cfg.Lab = host.Ifs[0], l.env.LAN, l.env.Gateway, 'a'
	cfg.LAN6, cfg.Gateway6, cfg.Sessions6 = l.env.LAN6, l.env.Gateway6, l.env.Sessions6
	if err := host.CreateClients(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	leased, err := host.Lease(t.Context(), client.Pace{Parallel: 32})
	if err != nil || client.FirstFailure(leased) != nil {
		t.Fatal(err, client.FirstFailure(leased))
	}
	addrs, err := host.Clients(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return addrs
}

// gatewayStatus has counts that gatewayd reports of itself.
type gatewayStatus struct {
	Packets map[string]uint64 // packets by their verdict
	Ident   map[string]uint64 // ident queries; nil: it answers none
}

// status asks gatewayd for its counts.
func (l *testLab) status(t testing.TB, g *Gateway) (status gatewayStatus) {
	t.Helper()
	out := l.router.must(
		t, `"$1" status --json --socket "$2"`, g.program, path.Join(l.env.Scratch, "gatewayd/control.sock"))
	if err := json.Unmarshal([]byte(out), &status); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return status
}

// TestPersonasAtTheGateway: 1200 personas lease, log in at the real portal with a real RADIUS server, send and log out.
// That is more than a kernel's neighbour table holds by default (1024). Packets with a forged hardware address are
// dropped.
func TestPersonasAtTheGateway(t *testing.T) {
	t.Parallel()
	withGatewayd(t)
	const n = 1200
	d := NewGateway(experiment.Variant{}, n)
	l := newTestLab(t, d, n)
	l.start(t, d)
	if _, err := l.server.End(t.Context(), agent.Ending{Name: "traffic"}); err != nil { // streams want its port
		t.Fatal(err)
	}
	addrs := l.personas(t, n)
	host, adm, pace := l.clientHost, d.Traits().Admission, client.Pace{Parallel: 32}
	if before, err := host.Status(t.Context(), adm, pace); err != nil || before[0].Succeeded() {
		t.Fatalf("before its login client 1 is %+v, %v", before[0], err)
	}
	for _, turn := range []string{"first", "second"} { // a client that logs in again stays logged in
		in, err := host.Login(t.Context(), adm, pace)
		if err != nil || client.FirstFailure(in) != nil {
			t.Fatalf("%s login: %v, %v", turn, err, client.FirstFailure(in))
		}
	}
	l.checkAllSend(t, n)
	l.checkForgedMAC(t, d, addrs[0], addrs[1])
	if err := host.Logout(t.Context(), adm); err != nil {
		t.Fatal(err)
	}
	after, err := host.Status(t.Context(), adm, pace)
	if err != nil {
		t.Fatal(err)
	}
	for i, o := range after {
		if o.Succeeded() {
			t.Errorf("client %d at %s is in after its log-out", o.Num, addrs[i].IP)
		}
	}
	if err := host.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// checkAllSend makes all n clients send for a while.
func (l *testLab) checkAllSend(t *testing.T, n int) {
	t.Helper()
	l.awaitPayload(t, agent.Traffic{Direction: "up", Clients: n, OfferedMbps: 50}, 10e6)
}

// awaitPayload runs a load until a number of bytes of payload has arrived.
func (l *testLab) awaitPayload(t *testing.T, load agent.Traffic, bytes int64) {
	t.Helper()
	load.Kind, load.MaxSeconds = traffic.KindStreams, 60
	if load.Server == (agent.Server{}) {
		load.Server.Addr4 = l.env.ServerIP
	}
	to := l.server
	if load.Direction == "down" {
		to = l.clientHost
	}
	if err := l.server.ServeTraffic(t.Context(), load); err != nil {
		t.Fatal(err)
	}
	if err := l.clientHost.StartTraffic(t.Context(), load); err != nil {
		t.Fatal(err)
	}
	var got agent.TrafficStats
	labtest.Await(t, "the payload", func() bool {
		var err error
		if got, err = to.TrafficStats(t.Context()); err != nil {
			t.Fatal(err)
		}
		return got.ReceivedBytes > bytes
	})
	if err := l.clientHost.StopTraffic(t.Context()); err != nil || got.Broken > 0 {
		t.Errorf("stopping the traffic: %v; %d streams broke: %s", err, got.Broken, got.FirstError)
	}
}

// checkForgedMAC sends packets with the hardware address of one client and the IP address of another. The gateway drops
// them, because the hardware address is not the lease's.
func (l *testLab) checkForgedMAC(t *testing.T, d *Gateway, one, two client.Address) {
	t.Helper()
	const packets = 20
	before := l.status(t, d).Packets["wrong-mac"]
	router := strings.TrimSpace(l.router.must(t, `cat "/sys/class/net/$1/address"`, l.env.Port("lan")))
	hello, err := l.clientHost.Hello(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ns, err := client.NamespaceOf(hello.PID)
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	for _, f := range [][]byte{
		udpFrame(t, one.MAC, router, two.IP, l.env.ServerIP), udpFrame(t, two.MAC, router, one.IP, l.env.ServerIP)} {
		if err := ns.Do(func() error { return sendFrame(l.clientHost.Ifs[0], f, packets) }); err != nil {
			t.Fatal(err)
		}
	}
	labtest.Await(t, "the gateway to drop the forged packets", func() bool {
		return l.status(t, d).Packets["wrong-mac"] >= before+2*packets
	})
}

// udpFrame returns a frame with a datagram between the discard ports (RFC 863) of two addresses.
func udpFrame(t *testing.T, fromMAC, toMAC string, from, to netip.Addr) []byte {
	t.Helper()
	eth := &layers.Ethernet{EthernetType: layers.EthernetTypeIPv4}
	var err1, err2 error
	eth.SrcMAC, err1 = net.ParseMAC(fromMAC)
	eth.DstMAC, err2 = net.ParseMAC(toMAC)
	ip := &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolUDP, SrcIP: from.AsSlice(), DstIP: to.AsSlice()}
	udp := &layers.UDP{SrcPort: 9, DstPort: 9}
	err3 := udp.SetNetworkLayerForChecksum(ip)
	b := gopacket.NewSerializeBuffer()
	err4 := gopacket.SerializeLayers(
		b, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, eth, ip, udp, gopacket.Payload("forged"))
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// sendFrame sends a frame n times past the interface's queueing discipline (PACKET_QDISC_BYPASS, packet(7)). The lab's
// program at tc, which would correct the frame's addresses, then does not see it.
func sendFrame(name string, frame []byte, n int) error {
	ifi, err := net.InterfaceByName(name)
	if err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0) // protocol zero: it receives nothing
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 1); err != nil {
		return err
	}
	for refused := 0; n > 0; {
		switch err := unix.Sendto(fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: ifi.Index}); {
		case err == nil:
			n--
		case errors.Is(err, unix.ENOBUFS) && refused < 1000: // the interface is busy, and no queue keeps the frame
			refused++
			time.Sleep(time.Millisecond)
		default:
			return err
		}
	}
	return nil
}
