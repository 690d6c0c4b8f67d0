package ebpf

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/gateweigh/gateweigh/gateway/datapath/datapathtest"
)

var newFlows = flag.Int("new.flows", 4000, "flows that TestNewFlows begins through each gateway")

// TestNewFlows begins flows through a gateway with a cache and through one without, by turns, and logs how many each
// takes in a second: one packet a flow, which the cache's programs see and which nobody can cache.
func TestNewFlows(t *testing.T) {
	tw := newTwins(t)
	tw.rules(t, "round1", trackedMasquerade)
	const turn = 500
	var cached, plain time.Duration
	for i := range *newFlows / turn {
		frames := make([][]byte, turn)
		for j := range frames {
			n := i*turn + j
			frames[j] = udp(uint16(1000+n%50000), source(uint16(1000+n/50000)))
		}
		marker := tw.marker(func(*datapathtest.Frame) {})
		for k := range 2 {
			w, took := tw.cached, &cached
			if (i+k)%2 == 1 {
				w, took = tw.plain, &plain
			}
			began := time.Now()
			w.client.Send(t, frames...)
			w.client.Send(t, marker)
			awaitMarker(t, w.server, w.serverSeen, marker)
			*took += time.Since(began)
			if all := fresh(w.server, &w.serverSeen, wanMAC); len(all) != turn {
				t.Errorf("of %d flows %d arrived", turn, len(all))
			}
		}
	}
	persecond := func(d time.Duration) float64 { return float64(*newFlows) / d.Seconds() }
	t.Logf("%.0f new flows a second with the cache, %.0f without: %.2f times", persecond(cached), persecond(plain), persecond(cached)/persecond(plain))
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
