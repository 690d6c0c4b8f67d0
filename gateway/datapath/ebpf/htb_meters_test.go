// A test of the meters that follow the queues of clients with a rate (htb_meters.go). newNetwork makes a LAN with alice
// and bob and a WAN with a server, and open starts a data path between them (main_test.go). rated is a client with a
// rate, and shaped switches shaping on (shape_test.go).

package ebpf

import (
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/gateweigh/gateweigh/gateway/datapath"
)

// TestMetersFollowQueue: the daemon sets a client's meter in one direction by the packets that wait in its queue. That
// does not change the meter of the other direction, which the programs change at the same time. Long: the steps of one
// run, each of which needs the state that the one before left.
func TestMetersFollowQueue(t *testing.T) {
	n := newNetwork(t)
	run(t, "tc qdisc add dev $lan root handle 8: pfifo limit 50", n.env()...)
	d := n.open(t, shaped)
	d.stop() // the daemon would set meters too
	client := rated(0, 0)
	client.Limits = datapath.Limits{UpBps: 100_000, DownBps: 8000}
	must(t, d.Set(client))
	if d.holders()[0] != gatewayHolderHOLDER_CLASS {
		t.Attr("not-run", "meters that follow what waits: this kernel has fq, which needs none")
		return
	}
	place, err := d.placeOf(alice)
	must(t, err)
	const psPerByte = 1_000_000_000
	var m gatewayMeters
	m.Down.Ns = now() - 130e9 // nearly all of the burst is left
	must(t, d.objs.ClientMeters.Put(place, m))
	before := counters(t, d, alice)
	var sending sync.WaitGroup
	end := make(chan struct{})
	sending.Go(func() {
		frame := tcp(443, down)
		for range 1000 {
			select {
			case <-end:
				return
			default:
				d.objs.WanIn.Run(
					&ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+256), Context: skb{Ifindex: index(t, n.wan)}})
			}
		}
	})
	for range 200 {
		d.try(t, d.objs.LanIn, index(t, n.lan), tcp(443, payload(1300))) // waits in the queue
		d.shaping.mu.Lock()
		err := d.followClasses()
		d.shaping.mu.Unlock()
		must(t, err)
	}
	close(end)
	sending.Wait()
	passed := counters(t, d, alice).DownBytes - before.DownBytes
	earlier := m.Down.Ns
	must(t, d.objs.ClientMeters.Lookup(place, &m))
	if used := m.Down.Ns - earlier; passed == 0 || used != passed*psPerByte/1000 {
		t.Errorf("%d bytes have used %v of the rate, not %v", passed, time.Duration(used),
			time.Duration(passed*psPerByte/1000))
	}
}
