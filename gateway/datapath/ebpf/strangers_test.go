package ebpf

import (
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/datapath/datapathtest"
)

// TestHTTPFloodOfOneStranger: a device with two addresses opens 70,000 connections to port
// 80, more than the programs' table holds. Another client's connection stays in the table.
func TestHTTPFloodOfOneStranger(t *testing.T) {
	n := newNetwork(t)
	d := n.open(t)
	must(t, d.Portal(serve(t, "portal", "10.1.0.1:8080")))
	second := bob.Next()
	for a, m := range map[netip.Addr]datapath.MAC{alice: aliceMAC, bob: bobMAC, second: bobMAC} {
		must(t, d.Set(datapath.Client{Addr: a, MAC: m}))
	}
	lan := index(t, n.lan)
	d.try(t, d.objs.LanIn, lan, datapathtest.SYN(80))
	var theirs uint32
	hers := gatewayCaller{Addr: networkOrder(alice), Port: 40000<<8&0xffff | 40000>>8}
	must(t, d.objs.Called.Lookup(hers, &theirs))
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
	if most := 2 * (b.AtOnce + int(float64(b.EachSecond)*time.Since(began).Seconds()+1)); got["portal"] > uint64(most) || got["portal"]+got["throttled"] != 2*each {
		t.Errorf("of %d connections of two addresses, which may have %d: %v", 2*each, most, got)
	}
	if err := d.objs.Called.Lookup(hers, &theirs); err != nil {
		t.Errorf("another client's connection to the portal is lost: %v", err)
	}
}
