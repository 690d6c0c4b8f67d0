package nfqueue

import (
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/gateway/datapath"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestFirst(t *testing.T) {
	n := newNetwork(t)
	d := n.open(t, func(c *Config) { c.Fast = true })
	must(t, d.Set(datapath.Client{Addr: alice, MAC: aliceMAC, Admitted: true}))
	must(t, d.Set(datapath.Client{Addr: nobody, MAC: aliceMAC}))
	out0, _ := try("for t in ip ip6 arp; do nft list table $t gatewayd_$lan || :; done; cat /proc/net/netfilter/nfnetlink_queue", n.env()...)
	t.Log(out0)
	out, err := try(`ip netns exec $client ping -c 3 -i 0.1 -W 1 -q 192.0.2.2`, n.env()...)
	t.Log(out, err)
	out, err = try(`ip netns exec $client ping -c 1 -W 1 -I 10.1.0.77 192.0.2.2`, n.env()...)
	t.Log(out, err)
	if !strings.Contains(out, "Packet filtered") {
		t.Error("not rejected")
	}
	c, err := d.Counters(alice)
	t.Logf("%+v %v", c, err)
	p, err := d.Packets()
	t.Log(p, err)
	t.Log(run(t, `ip netns exec $server iperf3 -s -D --pidfile /run/$server.pid; sleep 0.2; ip netns exec $client iperf3 -c 192.0.2.2 -t 2; ip netns exec $client iperf3 -R -c 192.0.2.2 -t 2;  kill $(tr -d '\0' </run/$server.pid)`, n.env()...))
	c, err = d.Counters(alice)
	t.Logf("%+v %v", c, err)
	p, err = d.Packets()
	t.Log(p, err)
}
