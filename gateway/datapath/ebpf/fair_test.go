// Tests that packets which wait because of one client's rate do not delay those of others (fair.go). newNetwork makes a
// LAN with alice and bob and a WAN with a server, and open starts a data path between them (main_test.go). rated is a
// client with a rate, and shaped switches shaping on (shape_test.go).

package ebpf

import (
	"errors"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/internal/logtest"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// sockets opens UDP sockets at an address of a namespace.
func sockets(t *testing.T, ns string, addr netip.Addr, count int) (all []*net.UDPConn) {
	t.Helper()
	in(t, ns, func() error {
		for range count {
			c, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(addr, 0)))
			if err != nil {
				return err
			}
			t.Cleanup(func() { c.Close() })
			all = append(all, c)
		}
		return nil
	})
	return all
}

// TestQueuedClientDelaysNoOther: while packets of some hundred connections of one client wait, another client's packets
// arrive in the order in which they were sent. Long: the steps of one run, each of which needs the state that the one
// before left.
func TestQueuedClientDelaysNoOther(t *testing.T) {
	n := newNetwork(t)
	d := n.open(t, shaped)
	must(t, d.Set(rated(1, 1)))
	if d.holders()[0] != gatewayHolderHOLDER_TIME {
		t.Skip("the kernel lacks fq (CONFIG_NET_SCH_FQ, Linux 5.18)")
	}
	run(t, "ip -n $client addr add 10.1.0.11/24 dev c0", n.env()...)
	must(t, d.Set(datapath.Client{Addrs: []netip.Addr{bob}, MAC: aliceMAC, Admitted: true}))
	receiver, sink := sockets(t, n.server, server, 1)[0], sockets(t, n.server, server, 1)[0]
	held, others := sockets(t, n.client, alice, 200), sockets(t, n.client, bob, 600)
	port := func(c *net.UDPConn) netip.AddrPort {
		return netip.AddrPortFrom(server, c.LocalAddr().(*net.UDPAddr).AddrPort().Port())
	}
	end := make(chan struct{})
	var sending sync.WaitGroup
	sending.Go(func() {
		b := make([]byte, 1400)
		for i := 0; ; i++ {
			select {
			case <-end:
				return
			case <-time.After(2 * time.Millisecond):
			}
			held[i%len(held)].WriteToUDPAddrPort(b, port(sink))
		}
	})
	defer sending.Wait()
	defer close(end)
	netnstest.Await(t, "a client's queue is full", func() error {
		if counters(t, d, alice).DroppedPackets == 0 {
			return errors.New("nothing is dropped")
		}
		return nil
	})
	must(t, receiver.SetReadDeadline(time.Now().Add(2*time.Minute)))
	sending.Go(func() {
		for i, c := range others {
			c.WriteToUDPAddrPort([]byte{byte(i >> 8), byte(i)}, port(receiver))
			time.Sleep(100 * time.Microsecond) // the socket's buffer is short
		}
	})
	late, worst := 0, 0
	for place := range others {
		b := make([]byte, 2)
		if _, err := receiver.Read(b); err != nil {
			t.Fatalf("after %d packets: %v", place, err)
		}
		const slack = 20 // packets of one sender may be handled by two CPUs
		if by := place - (int(b[0])<<8 | int(b[1])); by > slack {
			late, worst = late+1, max(worst, by)
		}
	}
	if late > len(others)/100 { // some are late on a busy CPU
		t.Errorf("%d of %d packets of a client without a rate waited with another's; %d passed one", late, len(others), worst)
	}
}

// masks returns the orphan masks of the fq queues of an interface.
func masks(t *testing.T, q *queue) (all []uint32) {
	t.Helper()
	fqs, err := q.fqs()
	must(t, err)
	for _, f := range fqs {
		all = append(all, f.mask)
	}
	return all
}

// TestFQBuckets: after an upgrade, fq queues that an earlier version made tell as many flows apart as new ones. An
// operator's own fq stays, and the log names it.
func TestFQBuckets(t *testing.T) {
	n := newNetwork(t)
	if _, err := try("tc qdisc add dev $wan root handle 6a77: fq", n.env()...); err != nil {
		t.Skip("the kernel lacks fq (CONFIG_NET_SCH_FQ)")
	}
	run(t, `ip link add ${wan}q numtxqueues 2 numrxqueues 2 type veth peer name ${wan}p numtxqueues 2 numrxqueues 2; ethtool -L ${wan}q rx 2 tx 2; ip link set ${wan}q up; ip link set ${wan}p up`,
		n.env()...)
	t.Cleanup(func() { run(t, "ip link del ${wan}q", n.env()...) })
	run(t, "tc qdisc add dev $lan root handle 7: fq", n.env()...)
	var logs logtest.Log
	d := n.open(t, shaped, logTo(&logs))
	must(t, d.Set(rated(5, 5)))
	if holder := d.holders(); holder != [2]gatewayHolder{gatewayHolderHOLDER_TIME, gatewayHolderHOLDER_TIME} {
		t.Skipf("the kernel lacks times of departure that programs set (Linux 5.18): %v hold packets", holder)
	}
	if current := masks(t, &d.shaping.wan); len(current) != 1 || current[0] != fqMask {
		t.Errorf("the former version's fq has the masks %d", current)
	}
	if current := masks(t, &d.shaping.lan); len(current) != 1 || current[0] == fqMask {
		t.Errorf("the operator's fq has the masks %d", current)
	}
	if !strings.Contains(logs.String(), "tc qdisc change dev "+n.lan+" root fq orphan_mask") {
		t.Errorf("the operator reads %s", logs.String())
	}
	dev, err := net.InterfaceByName(n.wan + "q")
	must(t, err)
	q := &queue{dev: dev, major: wanQueue}
	must(t, q.makeFQ(true))
	for range 2 {
		must(t, q.open(true))
		if current := masks(t, q); len(current) != 2 || current[0] != fqMask || current[1] != fqMask {
			t.Fatalf("fqs of transmit queues have the masks %d", current)
		}
		run(t, "tc qdisc replace dev ${wan}q parent 6a77:1 fq", n.env()...)
	}
}
