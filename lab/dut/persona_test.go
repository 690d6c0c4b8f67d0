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

// personas gives a lab n of them, with leases from the device.
func (l *testLab) personas(t testing.TB, n int) []client.Address {
	t.Helper()
	return l.createLeased(t, client.Config{Kind: client.KindPersona, Count: n})
}

// createLeased gives a lab clients with addresses from the device.
func (l *testLab) createLeased(t testing.TB, cfg client.Config) []client.Address {
	t.Helper()
	host := l.clientHost
	cfg.Parent, cfg.LAN, cfg.Gateway, cfg.Lab = host.Ifs[0], l.env.LAN, l.env.Gateway, 'a'
	cfg.LAN6, cfg.Gateway6 = l.env.LAN6, l.env.Gateway6
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

// gatewayStatus is what gatewayd says of itself.
type gatewayStatus struct {
	Packets map[string]uint64 // and what became of them
	Ident   map[string]uint64 // nil: it answers no queries
}

func (l *testLab) status(t testing.TB, g *Gateway) (status gatewayStatus) {
	t.Helper()
	out := l.router.must(
		t, `"$1" status --json --socket "$2"`, g.program, path.Join(l.env.Scratch, "gatewayd/control.sock"))
	if err := json.Unmarshal([]byte(out), &status); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return status
}

// TestPersonasAtTheGateway: more than the kernel's neighbour table may learn, 1024 on a machine
// that nobody has set up, lease, log in at the real portal with a real RADIUS server, and
// send; who poses as another gets nowhere.
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
	for _, turn := range []string{"first", "second"} { // a client that logs in twice stays in
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

// checkAllSend has all n clients send for a while.
func (l *testLab) checkAllSend(t *testing.T, n int) {
	t.Helper()
	l.awaitPayload(t, agent.Traffic{Direction: "up", Clients: n, OfferedMbps: 50}, 10e6)
}

// awaitPayload has a load on until so many bytes of its payload have come to their end.
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

// checkForgedMAC has packets sent under the hardware address of one client and the IP address of
// another: the gateway drops them, for they carry a hardware address that is not the lease's.
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

// udpFrame is a datagram between the discard ports (RFC 863) of two addresses.
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

// sendFrame sends a frame n times past the queue of the interface, and so past the program
// there that would correct its addresses (PACKET_QDISC_BYPASS, packet(7)).
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
