package datapathtest

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// furtherAddr is Alice's second address.
var furtherAddr = netip.MustParseAddr("10.1.0.20")

// several: a client with two addresses is admitted, counted and limited as one, also by the next process, and packets
// of an address that it loses do not pass any more. Data paths with one address for each client refuse such a client.
func several(t *testing.T, w *World) {
	both := func(c *datapath.Client) { admitted(c); c.Addrs = append(c.Addrs, furtherAddr) }
	if !w.path.Several {
		if err := w.Set(w.Alice.client(both)); err == nil {
			t.Error("a data path with one address for each client accepts a client with two")
		}
		return
	}
	w.Alice.Run(t, "ip addr add "+furtherAddr.String()+"/32 dev c0")
	must(t, w.Set(w.Alice.client(both), w.Bob.client(admitted)))
	w.lists(t, w.Alice.Addr, w.Bob.Addr)
	second := NewFlow(t, w.Alice.Space, furtherAddr, w.Server, Server)
	first, down := w.Up(t, w.Alice), NewFlow(t, w.Server, Server, w.Alice.Space, furtherAddr)
	const packets = 100
	for _, f := range []*Flow{first, second, down} {
		f.Send(packets)
		f.Whole(t, "of a client with two addresses")
	}
	const size = headers + FlowBytes
	w.counts(t, w.Alice, tally{}, tally{2 * packets * size, 2 * packets, packets * size, packets})
	if c := w.Counters(t, furtherAddr); c.UpPackets != 0 || c.DownPackets != 0 {
		t.Errorf("the further address is counted by itself: %+v", c)
	}

	if w.path.Unattended {
		w.Kill(t)
		w.Start(t)
		must(t, w.Open())
		second.Send(packets)
		second.Whole(t, "by the next process's programs")
	}
	first.Begin()
	second.Begin()
	w.limitedTogether(t, first, second, both)
	w.comesAndGoes(t, first, second, both)
}

// limitedTogether: both addresses use up one quota.
func (w *World) limitedTogether(t *testing.T, first, second *Flow, both func(*datapath.Client)) {
	t.Helper()
	first.Passes(t, "from the first address")
	second.Passes(t, "from the further address")
	quota := w.Counters(t, w.Alice.Addr).UpBytes + 1
	must(t, w.Set(w.Alice.client(both, func(c *datapath.Client) { c.Limits.UpBytes = quota })))
	dropped := w.Counters(t, w.Alice.Addr).DroppedPackets
	netnstest.Await(t, "packets beyond the quota", func() error { // earlier packets have arrived when these are dropped
		if n := w.Counters(t, w.Alice.Addr).DroppedPackets; n < dropped+10 {
			return fmt.Errorf("%d are dropped", n)
		}
		return nil
	})
	first.Stops(t, "beyond the quota of both, from the first address")
	second.Stops(t, "beyond the quota of both, from the further address")
	must(t, w.Set(w.Alice.client(both)))
	first.Passes(t, "without a quota, from the first address")
	second.Passes(t, "without a quota, from the further address")
}

// comesAndGoes: packets of the further address pass only while it is an address of Alice, an admitted client.
func (w *World) comesAndGoes(t *testing.T, first, second *Flow, both func(*datapath.Client)) {
	t.Helper()
	must(t, w.Set(w.Alice.client(admitted)))
	second.Stops(t, "from an address that was taken away")
	first.Passes(t, "from the address that stays")
	must(t, w.Set(w.Alice.client(both)))
	second.Passes(t, "from an address that was given back")
	must(t, w.Set(datapath.Client{Addrs: []netip.Addr{furtherAddr}, MAC: w.Bob.MAC}))
	second.Stops(t, "from an address that another got")
	must(t, w.Set(w.Alice.client(both)))
	must(t, w.Remove(w.Alice.Addr))
	first.Stops(t, "from the first address of a client that is gone")
	second.Stops(t, "from the further address of a client that is gone")
	w.lists(t, w.Bob.Addr)
}
