package ebpf

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/gopacket/gopacket/layers"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/datapath/datapathtest"
	"github.com/gateweigh/gateweigh/gateway/flowlog"
	"github.com/gateweigh/gateweigh/gateway/netnstest"
)

// logged is a gateway with a flow log, which machines at its wires send frames through.
type logged struct {
	network
	w      *wire
	change func(*Config)
	folder string
	d      *Datapath
	log    *flowlog.Log
	close  func()

	sent map[netip.AddrPort]*datapath.Traffic // by the client's end
}

func newLogged(t *testing.T, rules string, change ...func(*Config)) *logged {
	t.Helper()
	netnstest.NeedTCX(t)
	l := &logged{network: newNetwork(t), folder: t.TempDir(), sent: map[netip.AddrPort]*datapath.Traffic{}}
	l.w = l.wire(t)
	l.change = func(c *Config) {
		c.FlowCache, c.Flows, c.Log = FlowCacheAuto, true, slog.New(slog.NewTextHandler(t.Output(), nil))
		for _, how := range change {
			how(c)
		}
	}
	run(t, `for n in $client $server; do ip netns exec $n `+mute+`; done; ip neigh replace 192.0.2.2 lladdr 02:00:00:00:02:02 dev $wan`, l.env()...)
	if rules != "" {
		run(t, rules, l.env()...)
		t.Cleanup(func() { run(t, "nft delete table ip isp") })
	}
	t.Cleanup(func() { l.close(); must(t, detach(l.d.cfg)) })
	l.start(t)
	return l
}

// start begins as a daemon does.
func (l *logged) start(t *testing.T) {
	t.Helper()
	cfg := l.config(t)
	l.change(&cfg)
	var err error
	l.d, err = Open(cfg)
	must(t, err)
	must(t, l.d.Set(datapath.Client{Addr: alice, MAC: aliceMAC, Admitted: true}))
	l.log, err = flowlog.Open(flowlog.Config{
		Folder: l.folder, Keep: time.Hour, LAN: lanPrefix, Gateway: gateway, Aside: l.d, Log: cfg.Log,
		Who: func(a netip.Addr, _ time.Time) flowlog.Who { return flowlog.Who{User: a.String()} },
	})
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- l.log.Run(ctx) }()
	l.close = sync.OnceFunc(func() {
		cancel()
		must(t, <-ended)
		must(t, l.log.Close())
		must(t, l.d.Close())
	})
	netnstest.Await(t, "the cache", func() error {
		if word, why := l.d.Forwarding(); word != "flow cache" && cfg.FlowCache != FlowCacheNever {
			return fmt.Errorf("%s: %s", word, why)
		}
		return nil
	})
}

// tcpFlow is a client's connection with port 443 of the server, which sees it as outside.
type tcpFlow struct{ client, outside netip.AddrPort }

func flags(set string) func(*datapathtest.Frame) {
	return func(f *datapathtest.Frame) {
		l := f.L4.(*layers.TCP)
		l.SYN, l.ACK, l.PSH, l.FIN, l.RST = strings.Contains(set, "S"), strings.Contains(set, "A"), false, strings.Contains(set, "F"), strings.Contains(set, "R")
		if set != "A" {
			f.Payload = nil
		}
	}
}

func macOf(a netip.Addr) datapath.MAC { return datapath.MAC{2, 0, 0, 0, 0, a.As4()[3]} }

func (f tcpFlow) up(bytes int, set string) []byte {
	return tcp(443, from(f.client.Addr(), macOf(f.client.Addr())), source(f.client.Port()), datapathtest.Carrying(make([]byte, bytes)), flags(set))
}

func (f tcpFlow) down(bytes int, set string) []byte {
	return tcp(f.outside.Port(), down, source(443), to(f.outside.Addr()), datapathtest.Carrying(make([]byte, bytes)), flags(set))
}

// send sends frames of a flow, and remembers them.
func (l *logged) send(t *testing.T, f tcpFlow, frames ...[]byte) {
	t.Helper()
	n := l.sent[f.client]
	if n == nil {
		n = &datapath.Traffic{}
		l.sent[f.client] = n
	}
	for _, b := range frames {
		fd := l.w.server
		if isUp(b) {
			fd = l.w.client
			n.UpBytes, n.UpPackets = n.UpBytes+uint64(len(b)-14), n.UpPackets+1
		} else {
			n.DownBytes, n.DownPackets = n.DownBytes+uint64(len(b)-14), n.DownPackets+1
		}
		if err := unix.Send(fd, b, 0); err != nil {
			t.Fatal(err)
		}
	}
}

// shake opens a connection.
func (l *logged) shake(t *testing.T, f tcpFlow) {
	t.Helper()
	l.send(t, f, f.up(0, "S"))
	l.arrive(t)
	l.send(t, f, f.down(0, "SA"))
	l.arrive(t)
	l.send(t, f, f.up(0, "A"))
	l.arrive(t)
}

// carry sends packets both ways.
func (l *logged) carry(t *testing.T, f tcpFlow, n int) {
	t.Helper()
	for i := range n {
		l.send(t, f, f.up(200-i, "A"), f.down(300-i, "A"))
	}
	l.arrive(t)
}

// pass sends packets until some have passed by the cache: it rests while rules are read, as the log's own.
func (l *logged) pass(t *testing.T, f tcpFlow) {
	t.Helper()
	netnstest.Await(t, "packets that pass by the cache", func() error {
		before := l.cached(t)
		l.carry(t, f, 10)
		if n := l.cached(t) - before; n < 10 {
			return fmt.Errorf("%d did", n)
		}
		return nil
	})
}

// arrive waits until the gateway has forwarded what was sent.
func (l *logged) arrive(t *testing.T) {
	t.Helper()
	var want datapath.Traffic
	for _, n := range l.sent {
		want = sumOf(want, *n)
	}
	netnstest.Await(t, "the packets", func() error {
		c, err := l.d.Total()
		if got := (datapath.Traffic{UpBytes: c.UpBytes, UpPackets: c.UpPackets, DownBytes: c.DownBytes, DownPackets: c.DownPackets}); err != nil || got != want {
			return fmt.Errorf("forwarded %+v of %+v, %v", got, want, err)
		}
		return nil
	})
	settle()
}

// cached is how many packets passed by the cache.
func (l *logged) cached(t *testing.T) uint64 { t.Helper(); return l.d.packets(t)["forwarded"] }

// record awaits that the log has the ends of all that was sent in a flow.
func (l *logged) record(t *testing.T, f tcpFlow) {
	t.Helper()
	netnstest.Await(t, "the end of "+f.client.String(), func() error {
		var got datapath.Traffic
		ends, err := l.ends()
		for _, end := range ends[f.client] {
			got = sumOf(got, trafficOf(end))
			outside := end.Outside
			if !outside.IsValid() {
				outside = end.Client
			}
			if end.User != f.client.Addr().String() || outside != f.outside || end.Peer != netip.AddrPortFrom(server, 443) {
				return fmt.Errorf("%+v, of %+v", end, f)
			}
		}
		if want := *l.sent[f.client]; err != nil || got != want {
			return fmt.Errorf("%+v of %+v, %v", got, want, err)
		}
		return nil
	})
}

// ends reads from the log which flows have ended, by the client's end.
func (l *logged) ends() (map[netip.AddrPort][]flowlog.Flow, error) {
	ends := map[netip.AddrPort][]flowlog.Flow{}
	text, err := try("cat " + l.folder + "/*.ndjson; zcat " + l.folder + "/*.gz 2>/dev/null || :") // a former daemon's
	for line := range strings.Lines(text) {
		var f flowlog.Flow
		if json.Unmarshal([]byte(line), &f) == nil && f.Event == flowlog.Ends { // the last line may be half written
			ends[f.Client] = append(ends[f.Client], f)
		}
	}
	return ends, err
}

// flushConnections has the kernel forget all connections, as conntrack -F does.
func flushConnections(t *testing.T) {
	t.Helper()
	must(t, netlink.ConntrackTableFlush(netlink.ConntrackTable))
}

const masquerading = `nft "table ip isp { chain out { type nat hook postrouting priority srcnat; oifname $wan masquerade; }; }"`

func plainFlow(port uint16) tcpFlow {
	return tcpFlow{netip.AddrPortFrom(alice, port), netip.AddrPortFrom(alice, port)}
}

func translatedFlow(port uint16) tcpFlow {
	return tcpFlow{netip.AddrPortFrom(alice, port), netip.AddrPortFrom(routerWAN, port)}
}

// TestLoggedToTheByte: the log has all packets of a cached flow, whatever becomes of the flow's entries in the cache.
func TestLoggedToTheByte(t *testing.T) {
	t.Run("translated", func(t *testing.T) { loggedToTheByte(t, masquerading, translatedFlow) })
	t.Run("without rules", func(t *testing.T) { loggedToTheByte(t, "", plainFlow) })
}

func loggedToTheByte(t *testing.T, rules string, flow func(uint16) tcpFlow) {
	l, port := newLogged(t, rules), uint16(40000)
	var f tcpFlow
	for _, c := range []struct {
		name string
		do   func()
	}{
		{"as it is", func() {}},
		{"evicted", func() {
			var k gatewayFlowKey
			for p, all := (gatewayFlowPath{}), l.d.objs.FlowPaths.Iterate(); all.Next(&k, &p); {
				must(t, l.d.objs.FlowPaths.Delete(k))
			}
		}},
		{"decided anew", l.d.voidFlows},
		{"deleted", func() {
			flushConnections(t)
			l.send(t, f, f.up(50, "A")) // begins another connection
			l.arrive(t)
		}},
		{"another daemon", func() { l.close(); l.start(t) }},
		{"finished", func() {
			l.send(t, f, f.up(0, "FA"))
			l.arrive(t)
			l.send(t, f, f.down(0, "FA"))
			l.arrive(t)
		}},
	} {
		port++
		f = flow(port)
		l.shake(t, f)
		l.pass(t, f)
		t.Log(c.name)
		c.do()
		l.carry(t, f, 10)
	}
	l.fill(t)
	f = flow(port + 1)
	l.shake(t, f)
	before := l.cached(t)
	l.carry(t, f, 10)
	if n := l.cached(t) - before; n != 0 {
		t.Errorf("without room for a tally %d packets passed by the cache", n)
	}
	flushConnections(t)
	for ; port >= 40000; port-- {
		l.record(t, flow(port+1))
	}
	if n := l.tallied(t); n != 0 {
		t.Errorf("%d connections are tallied still", n)
	}
}

// fill has no tally left for further connections.
func (l *logged) fill(t *testing.T) {
	t.Helper()
	must(t, l.d.flows.objs.FreshTallies.Set(uint64(l.d.objs.FlowTallies.MaxEntries())))
	for at := uint32(0); ; {
		if err := l.d.flows.objs.FreeTallies.LookupAndDelete(nil, &at); errors.Is(err, ebpf.ErrKeyNotExist) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

// tallied is the number of connections that have a tally.
func (l *logged) tallied(t *testing.T) (n int) {
	t.Helper()
	var k gatewayTallyKey
	all := l.d.objs.FlowTallied.Iterate()
	for at := uint32(0); all.Next(&k, &at); {
		n++
	}
	must(t, all.Err())
	return n
}

// TestConnectionCountersAreShort: connection tracking's own counters lack exactly what passed by the cache.
func TestConnectionCountersAreShort(t *testing.T) {
	l, f := newLogged(t, masquerading), translatedFlow(40000)
	l.shake(t, f)
	before := l.cached(t)
	l.pass(t, f)
	all, err := netlink.ConntrackTableList(netlink.ConntrackTable, netlink.InetFamily(unix.AF_INET))
	must(t, err)
	at := slices.IndexFunc(all, func(c *netlink.ConntrackFlow) bool { return c.Forward.SrcPort == 40000 })
	if at < 0 {
		t.Fatalf("the connection is not in %v", all)
	}
	c, sent := all[at], l.sent[f.client]
	if has, aside := c.Forward.Packets+c.Reverse.Packets, l.cached(t)-before; has+aside != sent.UpPackets+sent.DownPackets || aside < 10 {
		t.Errorf("it counts %d packets, %d passed by, of %+v", has, aside, sent)
	}
	if c.Forward.Bytes >= sent.UpBytes || c.Reverse.Bytes >= sent.DownBytes {
		t.Errorf("it counts %d bytes up and %d down, of %+v", c.Forward.Bytes, c.Reverse.Bytes, sent)
	}
}

// TestRedirectedFlowsAreLogged: while connections are logged they are cached, where they would be redirected
// whatever the rules are.
func TestRedirectedFlowsAreLogged(t *testing.T) {
	l, f := newLogged(t, "", func(c *Config) { c.Forward, c.FlowCache = ForwardRedirect, FlowCacheNever }), plainFlow(40000)
	l.shake(t, f)
	l.pass(t, f)
	flushConnections(t)
	l.record(t, f)
}

// TestNothingIsLostOfCachedFlows begins 20,000 connections, 10,000 a second, whose last packets pass by the cache, and
// has each recorded to the byte.
func TestNothingIsLostOfCachedFlows(t *testing.T) {
	const rate, flows, clients = 10_000, 20_000, 16
	l := newLogged(t, masquerading)
	onOneCPU(t)
	all := make([]tcpFlow, flows)
	frames := make([][][]byte, flows)
	for i := range all {
		addr := netip.AddrFrom4([4]byte{10, 1, 0, byte(100 + i%clients)})
		f := tcpFlow{netip.AddrPortFrom(addr, uint16(10_000+i)), netip.AddrPortFrom(routerWAN, uint16(10_000+i))}
		all[i], frames[i] = f, [][]byte{
			f.up(0, "S"), f.down(0, "SA"), f.up(0, "A"), f.up(200, "A"), f.down(100+i%100, "A"), f.up(i%200, "A"), f.down(i%100, "A"),
		}
		if i < clients {
			must(t, l.d.Set(datapath.Client{Addr: addr, MAC: macOf(addr), Admitted: true}))
		}
	}
	first := translatedFlow(9999)
	l.shake(t, first)
	l.pass(t, first)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	began := time.Now()
	for i, f := range all {
		if i%(rate/100) == 0 {
			<-tick.C
		}
		l.send(t, f, frames[i]...)
	}
	took := time.Since(began)
	l.arrive(t)
	flushConnections(t)
	netnstest.Await(t, "all ends", func() error {
		if s := l.log.Stats(); s.Ended <= flows {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	t.Logf("%d flows in %v, %d of %d packets by the cache: %+v", flows, took, l.cached(t), 7*flows, l.log.Stats())
	if n := l.cached(t); n < flows {
		t.Errorf("%d packets passed by the cache", n)
	}
	l.close()
	ends, err := l.ends()
	must(t, err)
	for _, f := range all {
		if got := ends[f.client]; len(got) != 1 || trafficOf(got[0]) != *l.sent[f.client] {
			t.Fatalf("%v: %+v, of %+v", f, got, l.sent[f.client])
		}
	}
}

func sumOf(a, b datapath.Traffic) datapath.Traffic {
	return datapath.Traffic{
		UpBytes: a.UpBytes + b.UpBytes, UpPackets: a.UpPackets + b.UpPackets, DownBytes: a.DownBytes + b.DownBytes, DownPackets: a.DownPackets + b.DownPackets,
	}
}

func trafficOf(f flowlog.Flow) datapath.Traffic {
	return datapath.Traffic{UpBytes: f.UpBytes, UpPackets: f.UpPkts, DownBytes: f.DownBytes, DownPackets: f.DownPkts}
}
