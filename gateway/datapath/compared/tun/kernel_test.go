// A test that the kernel splits the coalescer's packets into the ones that were joined. tcp and udp make a packet from
// the client to the site, changed by edits (packets_test.go).

package tun

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// These tests send the packets that a coalescer aggregated through this machine's kernel, and check that the kernel
// splits them into the packets that went in.

// mixed returns a round of packets from a client: bursts of up to 20 flows in random order.
func mixed(random *rand.Rand) (all [][]byte) {
	var flows [][][]byte
	for port := range random.IntN(20) + 1 {
		var sizes []int
		for range random.IntN(30) + 1 {
			sizes = append(sizes, []int{0, 1, 500, 1448, 1448, 1448}[random.IntN(6)])
		}
		flow := stream(uint16(port), sizes...)
		if random.IntN(4) == 0 {
			for i, n := range sizes {
				flow[i] = udp(ports(uint16(port), 443), id(uint16(i)), carrying(text(min(n, 1400))))
			}
		}
		flows = append(flows, flow)
	}
	for len(flows) > 0 {
		i := random.IntN(len(flows))
		n := min(random.IntN(30)+1, len(flows[i]))
		all = append(all, flows[i][:n]...)
		if flows[i] = flows[i][n:]; len(flows[i]) == 0 {
			flows = append(flows[:i], flows[i+1:]...)
		}
	}
	return all
}

// checkArrival has a coalescer send rounds of packets, and takes what arrives at the far end of a link without
// offloads. These must be the packets that were sent, each as changed makes it.
func checkArrival(t *testing.T, w *wire, co *coalescer, changed func(ip []byte)) {
	t.Helper()
	netnstest.OnOneCPU(t)
	random := rand.New(rand.NewPCG(5, 6))

	for range 20 {
		sent := mixed(random)
		for _, ip := range sent {
			co.add(bytes.Clone(ip), virtio{}, datapath.MAC{2, 0, 0, 0, 1, 1})
		}

		co.flush()
		if co.unsent != 0 {
			t.Fatalf("%d packets found no room", co.unsent)
		}
		var got [][]byte
		for range sent {
			frame, queued := w.take(t)
			ip, ok := ipv4(frame[packetStart:])
			if queued || !ok || readVirtio(frame).gso != unix.VIRTIO_NET_HDR_GSO_NONE {
				t.Fatalf("no packet of the wire: queued %v, %+v, %d bytes", queued, readVirtio(frame), len(frame))
			}
			got = append(got, bytes.Clone(ip))
		}
		w.ring.give()
		for _, ip := range sent {
			changed(ip)
		}
		comparePackets(t, got, sent)
	}
	if frame, _ := w.ring.take(); frame != nil {
		t.Errorf("one more came: %x", frame)
	}
}

const noOffloads = "ethtool -K a0 tx off tso off gso off >/dev/null"

// TestKernelSplitsForLAN: packets that a coalescer sends to a link leave it as the original packets, to the byte.
func TestKernelSplitsForLAN(t *testing.T) {
	w := newWire(t)
	w.Run(t, noOffloads)
	checkArrival(t, w, &coalescer{fd: w.out, udp: joinsUDP(), headerBytes: ethernetLen, srcMAC: [6]byte{2, 0, 0, 0, 1, 2}},
		func([]byte) {})
}

// TestKernelSplitsFromDevice: packets that a coalescer writes into the TUN device leave the machine as the original
// packets after one hop.
func TestKernelSplitsFromDevice(t *testing.T) {
	w := newWire(t)
	w.Run(t, noOffloads+`
sysctl -qw net.ipv4.ip_forward=1 net.ipv4.conf.b0.forwarding=0 net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.default.rp_filter=0
ip addr add 192.0.2.1/24 dev a0; ip neigh replace 192.0.2.2 lladdr 02:00:00:00:01:01 dev a0 nud permanent`)
	var fd int
	var udp bool
	w.Do(func() {
		var err error
		if fd, err = attach("tun7", unix.IFF_TUN|unix.IFF_NO_PI|unix.IFF_VNET_HDR); err == nil {
			udp, err = offload(fd)
		}
		must(t, err)
	})
	t.Cleanup(func() { unix.Close(fd) })
	w.Run(t, "ip addr add 10.1.0.1/24 dev tun7; ip link set tun7 up")
	checkArrival(t, w, &coalescer{fd: fd, udp: udp}, func(ip []byte) {
		ip[8]--
		sumHeader(ip)
	})
}
