// Benchmarks of what the cache of flows costs: CPU time for flows that are too short to be cached, and memory. twins
// are two gateways between wires, one with the cache of flows and one without, to which a test sends the same frames
// (twins_test.go). A flow is a connection that makes its packets with fromClient and fromPeer (flow_test.go).

package ebpf

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/gateweigh/gateweigh/gateway/datapath/datapathtest"
)

// BenchmarkNewFlows begins 500 flows through a gateway with a cache and as many through one without, by turns, and
// reports how many each handles in a second. A flow is one packet, which costs the cache's programs time and cannot be
// cached.
func BenchmarkNewFlows(b *testing.B) {
	tw := newTwins(b)
	tw.rules(b, "round1", trackedMasquerade)
	const turn = 500
	var cached, plain time.Duration
	turns := 0
	for ; b.Loop(); turns++ {
		frames := make([][]byte, turn)
		for j := range frames {
			n := turns*turn + j
			frames[j] = udp(uint16(1000+n%50000), source(uint16(1000+n/50000)))
		}
		marker := tw.marker(func(*datapathtest.Frame) {})
		for k := range 2 {
			w, took := tw.cached, &cached
			if (turns+k)%2 == 1 {
				w, took = tw.plain, &plain
			}
			began := time.Now()
			w.client.Send(b, frames...)
			w.client.Send(b, marker)
			awaitMarker(b, w.server, w.serverSeen, marker)
			*took += time.Since(began)
			if all := tw.fresh(w.server, &w.serverSeen, wanMAC); len(all) != turn {
				b.Errorf("of %d flows %d arrived", turn, len(all))
			}
		}
	}
	b.ReportMetric(float64(turns*turn)/cached.Seconds(), "cached-flows/s")
	b.ReportMetric(float64(turns*turn)/plain.Seconds(), "plain-flows/s")
}

// BenchmarkMillionFlows makes a cache for 1,000,000 flows, two entries each, and reports its memory as the kernel
// accounts for it, whether they are used or not.
func BenchmarkMillionFlows(b *testing.B) {
	spec, err := loadGateway()
	if err != nil {
		b.Fatal(err)
	}
	const flows = 1_000_000
	m := spec.Maps["flow_paths"]
	m.MaxEntries = 2 * flows
	for b.Loop() {
		table, err := ebpf.NewMap(m)
		if err != nil {
			b.Fatal(err)
		}
		text, err := os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", table.FD()))
		if err != nil {
			b.Fatal(err)
		}
		var memory uint64
		_, after, _ := strings.Cut(string(text), "memlock:")
		if _, err := fmt.Sscan(after, &memory); err != nil {
			b.Fatalf("%v in %s", err, text)
		}
		b.ReportMetric(float64(memory)/flows, "bytes/flow")
		b.ReportMetric(float64(memory)/1e6, "MB")
		table.Close()
	}
}
