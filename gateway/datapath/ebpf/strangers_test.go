// Tests of the bounds on what clients before login make the gateway do (strangers.h). newNetwork makes a LAN with alice
// and bob and a WAN with a server, and open starts a data path between them (main_test.go). tcp and udp make a frame
// from alice to the server, changed by edits; try runs one program over a frame, and packets and change tell which
// counts grew (programs_test.go).

package ebpf

import (
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/gateweigh/gateweigh/gateway/budget"
	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/datapath/datapathtest"
)

// TestHTTPFloodOfOneStranger: a device with two addresses opens 70,000 connections to port 80, more than the programs'
// table holds. As many are accepted as one device may have, and another client's connection stays in the table.
func TestHTTPFloodOfOneStranger(t *testing.T) {
	n := newNetwork(t)
	d := n.open(t)
	must(t, d.Portal(serve(t, "portal", "10.1.0.1:8080")))
	second := bob.Next()
	for a, m := range map[netip.Addr]datapath.MAC{alice: aliceMAC, bob: bobMAC, second: bobMAC} {
		must(t, d.Set(datapath.Client{Addrs: []netip.Addr{a}, MAC: m}))
	}
	lan := index(t, n.lan)
	d.try(t, d.objs.LanIn, lan, datapathtest.SYN(80))
	var theirs uint32
	aliceCaller := gatewayCaller{Addr: networkOrder(alice), Port: 40000<<8&0xffff | 40000>>8}
	must(t, d.objs.Called.Lookup(aliceCaller, &theirs))
	began, before := time.Now(), d.packets(t)
	const each = 35_000
	for _, a := range []netip.Addr{bob, second} {
		frame := datapathtest.SYN(80, from(a, bobMAC))
		for port := range uint16(each) {
			binary.BigEndian.PutUint16(frame[34:], 1024+port)
			if _, err := d.objs.LanIn.Run(&ebpf.RunOptions{Data: frame, Context: skb{Ifindex: lan}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	got, b := change(before, d.packets(t)), datapath.Budgets[datapath.Capture]
	if most := b.AtOnce + int(b.EachSecond*time.Since(began).Seconds()+1); got["portal"] > uint64(most) ||
		got["portal"]+got["throttled"] != 2*each {
		t.Errorf("of %d connections of a device that may have %d: %v", 2*each, most, got)
	}
	if err := d.objs.Called.Lookup(aliceCaller, &theirs); err != nil {
		t.Errorf("another client's connection to the portal is lost: %v", err)
	}
}

// TestMadeUpSenders: a device that makes up a MAC address for each frame gets no more answers to DHCP requests and ARP
// probes than all unknown MAC addresses share. Clients, and devices that were there before, are still answered. Long:
// the steps of one run, each of which needs the state that the one before left.
func TestMadeUpSenders(t *testing.T) {
	n := newNetwork(t)
	d := n.open(t, func(c *Config) { c.DHCP = true })
	must(t, d.Set(datapath.Client{Addrs: []netip.Addr{bob}, MAC: bobMAC}))
	lan, all := index(t, n.lan), netip.MustParseAddr("255.255.255.255")
	most := budget.Newcomers(datapath.Senders, datapath.MostSenders)
	send := func(frame []byte, m datapath.MAC) bool {
		before := d.packets(t)["throttled"]
		copy(frame[6:], m[:])
		if frame[12] == 8 && frame[13] == 6 {
			copy(frame[22:], m[:])
		}
		d.try(t, d.objs.LanIn, lan, frame)
		return d.packets(t)["throttled"] == before
	}
	for name, c := range map[string]struct {
		made, kept []byte // frames of a device without a lease, and of a client
	}{
		"DHCP": {udp(67, source(68), from(netip.IPv4Unspecified(), aliceMAC), to(all)),
			udp(67, source(68), from(bob, bobMAC), to(gateway))},
		"ARP probe": {arpFrame(netip.IPv4Unspecified(), aliceMAC), arpFrame(bob, bobMAC)},
	} {
		t.Run(name, func(t *testing.T) {
			if !send(c.made, aliceMAC) {
				t.Error("a first device's frame was dropped")
			}
			began, before, sent := time.Now(), d.packets(t)["throttled"], 0
			const tick = 0.01 // seconds: the programs' clock is coarse
			allowed := func() int { return most.AtOnce + int(most.EachSecond*(time.Since(began).Seconds()+tick)) + 1 }
			for ; sent < allowed()+most.AtOnce/4; sent++ {
				copy(c.made[6:], []byte{2, 9, byte(sent >> 24), byte(sent >> 16), byte(sent >> 8), byte(sent)})
				if name != "DHCP" {
					copy(c.made[22:], c.made[6:12])
				}
				if _, err := d.objs.LanIn.Run(&ebpf.RunOptions{Data: c.made, Context: skb{Ifindex: lan}}); err != nil {
					t.Fatal(err)
				}
			}
			if passed := sent - int(d.packets(t)["throttled"]-before); passed > allowed() {
				t.Errorf("%d of %d passed, want at most %d", passed, sent, allowed())
			}
			if !send(c.kept, bobMAC) {
				t.Error("a client's frame was dropped")
			}
			if !send(c.made, aliceMAC) {
				t.Error("the frame of a device that was there before was dropped")
			}
		})
	}
}

// TestLongTrackedConnectionBudget: a device that has used up its budget of connections which the kernel may remember
// for days gets no further connections to the garden, and can still send datagrams there.
func TestLongTrackedConnectionBudget(t *testing.T) {
	n := newNetwork(t)
	d := n.open(t)
	must(t, d.Set(datapath.Client{Addrs: []netip.Addr{bob}, MAC: bobMAC}))
	must(t, d.Open(netip.PrefixFrom(server, 32), time.Time{}))
	lan, isBob := index(t, n.lan), from(bob, bobMAC)
	before := d.packets(t)
	d.try(t, d.objs.LanIn, lan, tcp(443, isBob))
	var used gatewayBuckets
	key := gatewayDevice{Mac: bobMAC}
	must(t, d.objs.Devices.Lookup(key, &used))
	rate := datapath.Budgets[datapath.LongTracked]
	used.Until[gatewayWorkWORK_LASTING] += uint64(rate.BucketSize() - rate.Cost())
	must(t, d.objs.Devices.Put(key, used))
	d.try(t, d.objs.LanIn, lan, tcp(443, isBob, source(40001)))
	d.try(t, d.objs.LanIn, lan, udp(443, isBob))
	d.try(t, d.objs.LanIn, lan, tcp(443, isBob)) // a packet of a connection that it has
	if got := change(before, d.packets(t)); got["garden"] != 3 || got["throttled"] != 1 {
		t.Errorf("counted as %v, want 3 packets to the garden and 1 too many", got)
	}
}
