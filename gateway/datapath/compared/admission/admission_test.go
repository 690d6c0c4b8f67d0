// Tests of the table of clients and its counters. newTable makes a table with alice, who is admitted, bob, who is not,
// and a garden; tcp and udp make a packet from alice to a server, changed by edits such as from, to and segments
// (judge_test.go).

package admission

import (
	"net/netip"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/gateway/datapath"
)

// The tests of Table: clients, limits, garden and newcomers. judge_test.go has the clients and the packets.

// TestNewRefuses: New refuses configurations that a table cannot have.
func TestNewRefuses(t *testing.T) {
	for name, cfg := range map[string]Config{
		"no LAN":          {},
		"an IPv6 LAN":     {Network: datapath.Network{Address: netip.MustParsePrefix("2001:db8::1/32")}},
		"a LAN too large": {Network: datapath.Network{Address: netip.MustParsePrefix("10.0.0.1/11")}},
		"too many ports": {Network: datapath.Network{Address: netip.PrefixFrom(gateway, lan.Bits())},
			PortalPorts: make([]uint16, 5)},
	} {
		if table, err := New(cfg); err == nil {
			t.Errorf("%s: made %v", name, table)
		}
	}
}

func total(t *testing.T, table *Table) datapath.Counters {
	t.Helper()
	c, err := table.Total()
	must(t, err)
	return c
}

// TestEpochsDiffer: the counters of each table have an epoch of their own.
func TestEpochsDiffer(t *testing.T) {
	a, _ := newTable(t)
	b, _ := newTable(t)
	if x, y := counters(t, a, alice).Epoch, counters(t, b, alice).Epoch; x == y || x == 0 || x != total(t, a).Epoch {
		t.Errorf("epochs %d and %d, total's %d", x, y, total(t, a).Epoch)
	}
}

// TestSetAndRemove: each change of a client counts for the next packet, and counters outlive the client. The gateway's
// address and addresses outside the LAN cannot be clients.
func TestSetAndRemove(t *testing.T) {
	table, judge := newTable(t)
	for _, a := range []netip.Addr{gateway, server} {
		if table.Set(datapath.Client{Addrs: []netip.Addr{a}, MAC: aliceMAC}) == nil || table.Remove(datapath.IDOf(a)) == nil {
			t.Errorf("%s can be set or removed", a)
		}
		if _, err := table.Counters(datapath.IDOf(a)); err == nil {
			t.Errorf("%s has counters", a)
		}
	}
	up := func() Verdict { return judge.JudgeUp(aliceMAC, tcp(443).packet(), Now()) }
	if v := up(); v != Forward {
		t.Fatalf("admitted: %d", v)
	}
	must(t, table.Set(datapath.Client{Addrs: []netip.Addr{alice}, MAC: bobMAC, Admitted: true}))
	if v := up(); v != Drop {
		t.Errorf("of the address's former owner: %d", v)
	}
	must(t, table.Set(datapath.Client{Addrs: []netip.Addr{alice}, MAC: aliceMAC}))
	if v := up(); v != Reject {
		t.Errorf("no longer admitted: %d", v)
	}
	must(t, table.Remove(datapath.IDOf(alice)))
	must(t, table.Remove(datapath.IDOf(alice)))
	if v := up(); v != Drop {
		t.Errorf("removed: %d", v)
	}
	if c := counters(t, table, alice); c.UpPackets != 1 || total(t, table).UpPackets != 1 {
		t.Errorf("counters after Remove: %+v", c)
	}
	if all, err := table.Clients(); err != nil || len(all) != 1 || all[0] != datapath.IDOf(bob) {
		t.Errorf("clients %v, want bob", all)
	}
	must(t, table.Close())
	must(t, table.Close())
	if table.Set(datapath.Client{Addrs: []netip.Addr{alice}, MAC: aliceMAC}) == nil {
		t.Error("a closed table takes a client")
	}
}

// TestUntil: a client's admission ends in time.
func TestUntil(t *testing.T) {
	table, judge := newTable(t)
	must(t, table.Set(datapath.Client{Addrs: []netip.Addr{alice}, MAC: aliceMAC, Admitted: true,
		Until: time.Now().Add(time.Minute)}))
	for _, c := range []struct {
		at       time.Duration
		up, down Verdict
	}{{0, Forward, Forward}, {59 * time.Second, Forward, Forward}, {61 * time.Second, Reject, Drop}} {
		now := Now() + c.at.Nanoseconds()
		if up := judge.JudgeUp(aliceMAC, tcp(443).packet(), now); up != c.up {
			t.Errorf("up after %s: verdict %d, want %d", c.at, up, c.up)
		}
		if d, _ := judge.JudgeDown(tcp(443, down).packet(), now); d != c.down {
			t.Errorf("down after %s: verdict %d, want %d", c.at, d, c.down)
		}
	}
}

// TestQuotas: the packet that reaches a quota passes, and later ones are dropped. First 10 packets go up, then 10 down.
func TestQuotas(t *testing.T) {
	for name, c := range map[string]struct {
		limits   datapath.Limits
		up, down int // packets of 140 bytes that pass
	}{
		"up":    {datapath.Limits{UpBytes: 281}, 3, 10},
		"down":  {datapath.Limits{DownBytes: 280}, 10, 2},
		"total": {datapath.Limits{TotalBytes: 700}, 5, 0},
	} {
		table, judge := newTable(t)
		must(t, table.Set(datapath.Client{Addrs: []netip.Addr{alice}, MAC: aliceMAC, Admitted: true, Limits: c.limits}))
		ups, downs := 0, 0
		for range 10 {
			if judge.JudgeUp(aliceMAC, tcp(443).packet(), Now()) == Forward {
				ups++
			}
		}
		for range 10 {
			if v, _ := judge.JudgeDown(tcp(443, down).packet(), Now()); v == Forward {
				downs++
			}
		}
		if ups != c.up || downs != c.down {
			t.Errorf("%s: %d up and %d down, want %d and %d", name, ups, downs, c.up, c.down)
		}
		lost := uint64(20 - ups - downs)
		if got := counters(t, table, alice); got.DroppedPackets != lost || counted(table)["quota"] != lost ||
			got.Seen.IsZero() {
			t.Errorf("%s: dropped %d, counted %d, want %d", name, got.DroppedPackets, counted(table)["quota"], lost)
		}
	}
}

// TestRate offers ten times a rate for ten seconds of the judges' clock, and sets the same limits again each second.
func TestRate(t *testing.T) {
	table, judge := newTable(t)
	const bps, seconds = 8_000_000, 10
	limited := datapath.Client{Addrs: []netip.Addr{alice}, MAC: aliceMAC, Admitted: true,
		Limits: datapath.Limits{UpBps: bps}}
	must(t, table.Set(limited))
	p := tcp(443, func(p *packet) { p.pay = make([]byte, 960) }).packet()
	now := Now()
	for i := range 10_000 * seconds {
		judge.JudgeUp(aliceMAC, p, now+int64(i)*100_000)
		if i%10_000 == 0 {
			must(t, table.Set(limited)) // gives the client no second burst
		}
	}
	if v, _ := judge.JudgeDown(tcp(443, down).packet(), now); v != Forward {
		t.Error("the other direction is limited, too")
	}
	got := counters(t, table, alice)
	want := uint64(bps / 8 * seconds)
	if got.UpBytes < want || got.UpBytes > want+bps/8*uint64(Burst/time.Second)+1000 {
		t.Errorf("%d bytes passed in %d s at %d bit/s, burst included", got.UpBytes, seconds, bps)
	}
	if counted(table)["rate"] == 0 || got.DroppedPackets != counted(table)["rate"] {
		t.Errorf("dropped %d, counted %v", got.DroppedPackets, counted(table))
	}
}

// TestMeterTellsInTime: beyond half of the burst one packet is dropped for each further sixteenth used, and none while
// the use shrinks.
func TestMeterTellsInTime(t *testing.T) {
	const bps, now = 20_000_000, int64(time.Hour)
	perByte, burst := rate(bps)
	var m meter
	for i, c := range []struct {
		used   float64 // share of the burst
		passes bool
	}{
		{0.1, true}, {0.49, true}, {0.55, true}, {0.58, false}, {0.59, true}, {0.62, true}, {0.65, false},
		{0.66, true}, {0.9, false}, // two steps at once give one drop
		{0.91, true}, {0.85, true}, {0.7, true}, {0.75, true}, {0.84, false}, // a rise after a fall
		{0.4, true}, {0.58, false}, {0.999, false}, {1.01, false},
	} {
		m.usedUntil.Store(now - int64((1-c.used)*float64(burst)))
		if passes := m.take(perByte, burst, 100, now); passes != c.passes {
			t.Errorf("packet %d, with %.2f of the burst used: passed %v, want %v", i, c.used, passes, c.passes)
		}
	}
}

// TestRateTakesAggregates: a packet of 64 KiB passes at the lowest rate.
func TestRateTakesAggregates(t *testing.T) {
	table, judge := newTable(t)
	must(t, table.Set(datapath.Client{Addrs: []netip.Addr{alice}, MAC: aliceMAC, Admitted: true,
		Limits: datapath.Limits{UpBps: 8000, DownBps: 8000}}))
	p := tcp(443, func(p *packet) { p.pay = make([]byte, 65000); p.segments = 45 }).packet()
	if v := judge.JudgeUp(aliceMAC, p, Now()+int64(time.Hour)); v != Forward {
		t.Errorf("verdict %d", v)
	}
}

// TestGarden: an address is in the garden as long as one of the prefixes that contain it is open.
func TestGarden(t *testing.T) {
	table, judge := newTable(t)
	addr := netip.MustParseAddr("192.0.2.77")
	host, net := netip.PrefixFrom(addr, 32), netip.PrefixFrom(addr, 28)
	open := func(after time.Duration) bool {
		return judge.JudgeUp(bobMAC, tcp(443, from(bob, bobMAC), to(addr)).packet(), Now()+after.Nanoseconds()) == Forward
	}
	if open(0) {
		t.Fatal("open without being opened")
	}
	must(t, table.Open(host, time.Now().Add(time.Minute)))
	if !open(0) || open(2*time.Minute) {
		t.Error("an address is not open for its time")
	}
	must(t, table.Open(net, time.Time{}))
	if !open(24 * time.Hour) {
		t.Error("the end of an address closes its network")
	}
	must(t, table.Open(net, time.Now().Add(-time.Second)))
	must(t, table.Open(host, time.Now().Add(-time.Second)))
	must(t, table.Open(host, time.Now().Add(-time.Second)))
	if open(0) {
		t.Error("open after being closed")
	}
	must(t, table.Open(netip.MustParsePrefix("0.0.0.0/0"), time.Time{}))
	if !open(0) {
		t.Error("not open although everything is")
	}
	if table.Open(netip.MustParsePrefix("2001:db8::/32"), time.Time{}) == nil {
		t.Error("the garden holds IPv6")
	}
}

// TestGardenIsBounded: expired prefixes are replaced, open ones are not.
func TestGardenIsBounded(t *testing.T) {
	table, _ := newTable(t)
	now := Now()
	for i := range uint32(maxGarden) {
		table.garden.open(32, i, now-1, false)
	}
	must(t, table.Open(netip.MustParsePrefix("192.0.2.0/24"), time.Time{}))
	for i := range uint32(maxGarden) {
		table.garden.open(32, i, 0, false)
	}
	if table.Open(netip.MustParsePrefix("192.0.3.0/24"), time.Time{}) == nil {
		t.Error("a full garden takes one more")
	}
	if !table.garden.contains(0xc0000201, now) {
		t.Error("a prefix that was opened without end is closed")
	}
}

// TestNewcomer: packets and ARP from addresses that were not leased are reported as newcomers, but not from the
// gateway's address or another client's.
func TestNewcomer(t *testing.T) {
	met := make(chan datapath.Client, 10)
	table, judge := newTable(t, func(c *Config) {
		c.Newcomer = func(a netip.Addr, m datapath.MAC) { met <- datapath.Client{Addrs: []netip.Addr{a}, MAC: m} }
	})
	if v := judge.JudgeUp(bobMAC, tcp(443, from(nobody, bobMAC)).packet(), Now()); v != Unknown {
		t.Errorf("verdict %d", v)
	}
	after := make(chan int, 1)
	if !table.ReportNewcomer(nobody, bobMAC, func() { after <- len(met) }) {
		t.Error("there is no room for a newcomer")
	}
	if n := <-after; n != 1 {
		t.Errorf("%d newcomers were reported before then was called, want 1", n)
	}
	if v := judge.ARP(aliceMAC, arp(nobody, aliceMAC), Now()); v != Local {
		t.Errorf("ARP: verdict %d", v)
	}
	if v := judge.ARP(bobMAC, arp(alice, bobMAC), Now()); v != Drop {
		t.Errorf("ARP for alice by bob: verdict %d", v)
	}
	if v := judge.JudgeUp(bobMAC, tcp(443, from(gateway, bobMAC)).packet(), Now()); v != Drop {
		t.Errorf("verdict %d on a packet with the gateway's address", v)
	}
	must(t, table.Close())
	close(met)
	var got []datapath.Client
	for c := range met {
		got = append(got, c)
	}
	want := []datapath.Client{{Addrs: []netip.Addr{nobody}, MAC: bobMAC}, {Addrs: []netip.Addr{nobody}, MAC: aliceMAC}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("met %v, want %v", got, want)
	}
}

// TestConcurrently changes an address's owner and bounds while several judges run: no packet is judged by parts of two
// entries.
func TestConcurrently(t *testing.T) {
	table, _ := newTable(t)
	over := time.Now().Add(-time.Hour)
	owners := []datapath.Client{
		{Addrs: []netip.Addr{alice}, MAC: aliceMAC, Admitted: true},
		{Addrs: []netip.Addr{alice}, MAC: bobMAC, Admitted: true, Until: over}, // never passes
		{Addrs: []netip.Addr{alice}, MAC: aliceMAC, Admitted: true, Limits: datapath.Limits{UpBps: 1e12}},
		{Addrs: []netip.Addr{alice}, MAC: bobMAC},
	}
	var stop atomic.Bool
	var passed atomic.Uint64
	var judging sync.WaitGroup
	for range 3 {
		judge := table.Judge()
		judging.Go(func() {
			ofAlice, ofBob := tcp(443).packet(), tcp(443, from(alice, bobMAC)).packet()
			for !stop.Load() {
				if judge.JudgeUp(aliceMAC, ofAlice, Now()) == Forward {
					passed.Add(1)
				}
				if judge.JudgeUp(bobMAC, ofBob, Now()) == Forward {
					t.Error("a client passes by another's entry")
					return
				}
			}
		})
	}
	for i := range 200_000 {
		must(t, table.Set(owners[i%len(owners)]))
	}
	stop.Store(true)
	judging.Wait()
	if c := counters(t, table, alice); c.UpPackets != passed.Load() || counted(table)["forwarded"] != passed.Load() {
		t.Errorf("%d packets passed, %d are counted, %d counted", passed.Load(), c.UpPackets, counted(table)["forwarded"])
	}
}

// TestJudgesAllocateNothing: judging a packet allocates no memory.
func TestJudgesAllocateNothing(t *testing.T) {
	table, judge := newTable(t)
	must(t, table.Set(datapath.Client{Addrs: []netip.Addr{alice}, MAC: aliceMAC, Admitted: true,
		Limits: datapath.Limits{UpBps: 1e9, DownBytes: 1 << 40}}))
	up, back, stranger, spoof := tcp(443).packet(), tcp(443, down).packet(), tcp(443,
		from(bob, bobMAC)).packet(), arp(alice, bobMAC)
	if n := testing.AllocsPerRun(100, func() {
		now := Now()
		judge.JudgeUp(aliceMAC, up, now)
		judge.JudgeDown(back, now)
		judge.JudgeUp(bobMAC, stranger, now)
		judge.ARP(bobMAC, spoof, now)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzUp: packets of an unauthenticated client reach only the gateway and the garden.
func FuzzUp(f *testing.F) {
	for _, p := range []packet{tcp(443, from(bob, bobMAC)), udp(53, from(bob, bobMAC), to(gateway)), icmp(8, from(bob,
		bobMAC)), tcp(80, from(bob, bobMAC), options)} {
		f.Add(p.bytes(), 0, 0)
	}
	f.Add([]byte{}, 5, -1)
	table, judge := newTable(f)
	f.Fuzz(func(t *testing.T, b []byte, length, segments int) {
		p := Packet{Bytes: b, Length: length, Segments: segments}
		if v := judge.JudgeUp(bobMAC, p, Now()); v == Forward &&
			!table.garden.contains(addrNumber(netip.AddrFrom4([4]byte(b[16:20]))), Now()) {
			t.Errorf("a stranger's packet is forwarded: %x", b)
		}
		if v := judge.JudgeUp(datapath.MAC{6}, p, Now()); v != Drop && v != Local {
			t.Errorf("the packet of one that is not known gets verdict %d: %x", v, b)
		}
		judge.ARP(datapath.MAC{6}, b, Now())
	})
}

// FuzzDown: an unauthenticated client gets packets only from the gateway and the garden.
func FuzzDown(f *testing.F) {
	for _, p := range []packet{
		tcp(443, down), tcp(443, down, to(bob)), udp(53, down, fragment, to(bob)), icmp(8, from(gateway, bobMAC), to(bob))} {
		f.Add(p.bytes(), 0, 0)
	}
	table, judge := newTable(f)
	f.Fuzz(func(t *testing.T, b []byte, length, segments int) {
		p := Packet{Bytes: b, Length: length, Segments: segments}
		v, mac := judge.JudgeDown(p, Now())
		if v == Drop {
			return
		}
		source := addrNumber(netip.AddrFrom4([4]byte(b[12:16])))
		if mac == bobMAC && source != table.gateway && !table.garden.contains(source, Now()) ||
			mac != aliceMAC && mac != bobMAC {
			t.Errorf("verdict %d to %x: %x", v, mac, b)
		}
		judge.JudgeAcross(p, Now())
	})
}

func BenchmarkUp(b *testing.B) {
	table, judge := newTable(b)
	must(b, table.Set(datapath.Client{Addrs: []netip.Addr{bob}, MAC: bobMAC, Admitted: true,
		Limits: datapath.Limits{UpBps: 1e12}}))
	for name, p := range map[string]packet{"admitted": tcp(443), "limited": tcp(443, from(bob, bobMAC)),
		"wrong-mac": tcp(443, from(alice, bobMAC))} {
		b.Run(name, func(b *testing.B) {
			packet := p.packet()
			for b.Loop() {
				judge.JudgeUp(p.mac, packet, Now())
			}
		})
	}
}
