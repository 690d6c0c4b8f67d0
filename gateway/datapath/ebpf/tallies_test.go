// Tests that the flow log counts every byte of packets which the cache forwards (tally.h). loggingGateway is a data
// path with a log (logged_test.go).

package ebpf

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/flowlog"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// A tally counts the packets of a connection that the cache of flows forwards, past connection tracking, for the flow
// log.

// TestLoggedToTheByte: the log counts all packets of a cached flow, whatever becomes of the flow's entries in the
// cache.
func TestLoggedToTheByte(t *testing.T) {
	t.Run("translated", func(t *testing.T) { loggedToTheByte(t, translates, translatedFlow) })
	t.Run("without rules", func(t *testing.T) { loggedToTheByte(t, "", plainFlow) })
}

func loggedToTheByte(t *testing.T, rules string, flow func(uint16) tcpFlow) {
	l := newLogged(t, rules)
	flows := append(l.changing(t, flow), l.untallied(t, flow)...)
	flushConnections(t)
	for _, f := range flows {
		l.record(t, f)
	}
	if n := l.tallied(t); n != 0 {
		t.Errorf("%d connections are tallied still", n)
	}
}

// changing sends packets of flows before and after an event: entries are evicted or void, connections deleted or ended.
func (l *loggingGateway) changing(t *testing.T, flow func(uint16) tcpFlow) (flows []tcpFlow) {
	var f tcpFlow
	for i, c := range []struct {
		name   string
		action func()
	}{
		{"as it is", func() {}},
		{"evicted", func() {
			var k gatewayFlowKey
			for p, all := (gatewayFlowPath{}), l.d.objs.FlowPaths.Iterate(); all.Next(&k, &p); {
				must(t, l.d.objs.FlowPaths.Delete(k))
			}
		}},
		{"decided anew", l.d.voidFlows},
		{"deleted", func() { flushConnections(t); l.again(t, f) }},
		{"another daemon", func() { l.close(); l.start(t) }},
		{"another daemon, while it ends", func() {
			l.close()
			l.duringStart = func() { flushConnections(t) }
			l.start(t)
			l.duringStart = nil
			l.record(t, f)
			l.again(t, f)
		}},
		{"finished", func() {
			l.send(t, f, f.up(0, "FA"))
			l.arrive(t)
			l.send(t, f, f.down(0, "FA"))
			l.arrive(t)
		}},
	} {
		f = flow(uint16(40000 + i))
		l.shake(t, f)
		l.pass(t, f)
		t.Log(c.name)
		c.action()
		l.carry(t, f, 10)
		flows = append(flows, f)
	}
	return flows
}

// again opens another connection of a flow whose connection is gone.
func (l *loggingGateway) again(t *testing.T, f tcpFlow) {
	t.Helper()
	l.send(t, f, f.up(50, "A"))
	l.arrive(t)
}

// untallied sends packets of flows that get no tally and are therefore not cached. Before the last of them other
// connections take all tallies.
func (l *loggingGateway) untallied(t *testing.T, flow func(uint16) tcpFlow) (flows []tcpFlow) {
	for i, c := range []struct {
		name         string
		before, then func()
	}{
		{"a connection without a time", func() { run(t, "sysctl -qw net.netfilter.nf_conntrack_timestamp=0") },
			func() { run(t, "sysctl -qw net.netfilter.nf_conntrack_timestamp=1") }},
		{"one without room for a tally", func() { l.fill(t) }, func() {}},
	} {
		f := flow(uint16(41000 + i))
		c.before()
		l.shake(t, f)
		c.then()
		before := l.cached(t)
		l.carry(t, f, 10)
		if n := l.cached(t) - before; n != 0 {
			t.Errorf("of %s %d packets passed by the cache", c.name, n)
		}
		flows = append(flows, f)
	}
	return flows
}

// fill takes all tallies, so that none is left for further connections.
func (l *loggingGateway) fill(t *testing.T) {
	t.Helper()
	must(t, l.d.flows.objs.FreshTallies.Set(uint64(l.d.objs.FlowTallies.MaxEntries())))
	for place := uint32(0); ; {
		if err := l.d.flows.objs.FreeTallies.LookupAndDelete(nil, &place); errors.Is(err, ebpf.ErrKeyNotExist) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

// tallied returns the number of connections that have a tally.
func (l *loggingGateway) tallied(t *testing.T) (n int) {
	t.Helper()
	var k gatewayTallyKey
	all := l.d.objs.FlowTallied.Iterate()
	for place := uint32(0); all.Next(&k, &place); {
		n++
	}
	must(t, all.Err())
	return n
}

// TestConnectionCountersAreShort: connection tracking's own counters lack exactly the packets that the cache forwarded.
func TestConnectionCountersAreShort(t *testing.T) {
	l, f := newLogged(t, translates), translatedFlow(40000)
	l.shake(t, f)
	before := l.cached(t)
	l.pass(t, f)
	all, err := netlink.ConntrackTableList(netlink.ConntrackTable, netlink.InetFamily(unix.AF_INET))
	must(t, err)
	position := slices.IndexFunc(all, func(c *netlink.ConntrackFlow) bool { return c.Forward.SrcPort == 40000 })
	if position < 0 {
		t.Fatalf("the connection is not in %v", all)
	}
	c, sent := all[position], l.sent[f.client]
	if held, aside := c.Forward.Packets+c.Reverse.Packets,
		l.cached(t)-before; held+aside != sent.UpPackets+sent.DownPackets || aside < 10 {
		t.Errorf("it counts %d packets, %d passed by, of %+v", held, aside, sent)
	}
	if c.Forward.Bytes >= sent.UpBytes || c.Reverse.Bytes >= sent.DownBytes {
		t.Errorf("it counts %d bytes up and %d down, of %+v", c.Forward.Bytes, c.Reverse.Bytes, sent)
	}
}

// TestRedirectedFlowsAreLogged: on a data path that redirects whatever the rules are, flows are cached instead while
// the log is enabled, because redirected packets could not be logged.
func TestRedirectedFlowsAreLogged(t *testing.T) {
	l, f := newLogged(t, "", func(c *Config) { c.Forward, c.FlowCache = ForwardRedirect, FlowCacheNever }),
		plainFlow(40000)
	l.shake(t, f)
	l.pass(t, f)
	flushConnections(t)
	l.record(t, f)
}

// TestCachedFlowsFullyLogged: of 10,000 connections that begin in a second, and whose last packets the cache forwards,
// the log counts every byte. Long: the steps of one run, each of which needs the state that the one before left.
func TestCachedFlowsFullyLogged(t *testing.T) {
	const rate, flows, clients = 10_000, 10_000, 16
	l := newLogged(t, translates)
	netnstest.OnOneCPU(t)
	all := make([]tcpFlow, flows)
	frames := make([][][]byte, flows)
	for i := range all {
		addr := netip.AddrFrom4([4]byte{10, 1, 0, byte(100 + i%clients)})
		f := tcpFlow{netip.AddrPortFrom(addr, uint16(10_000+i)), netip.AddrPortFrom(routerWAN, uint16(10_000+i))}
		all[i], frames[i] = f, [][]byte{
			f.up(0, "S"), f.down(0, "SA"), f.up(0, "A"), f.up(200, "A"), f.down(100+i%100, "A"), f.up(i%200, "A"),
			f.down(i%100, "A"),
		}
		if i < clients {
			must(t, l.d.Set(datapath.Client{Addrs: []netip.Addr{addr}, MAC: macOf(addr), Admitted: true}))
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
		UpBytes: a.UpBytes + b.UpBytes, UpPackets: a.UpPackets + b.UpPackets, DownBytes: a.DownBytes + b.DownBytes,
		DownPackets: a.DownPackets + b.DownPackets,
	}
}

func trafficOf(f flowlog.Flow) datapath.Traffic {
	return datapath.Traffic{UpBytes: f.UpBytes, UpPackets: f.UpPkts, DownBytes: f.DownBytes, DownPackets: f.DownPkts}
}

// TestDeletedConnectionsFullyLogged: while connections are deleted again and again, the log counts every packet that
// the cache forwards. Long: the steps of one run, each of which needs the state that the one before left.
func TestDeletedConnectionsFullyLogged(t *testing.T) {
	l := newLogged(t, "")
	var up, down [][]byte
	for port := uint16(40000); port < 40050; port++ {
		f := plainFlow(port)
		l.shake(t, f)
		up, down = append(up, f.up(20, "A")), append(down, f.down(20, "A"))
	}
	var sending sync.WaitGroup
	end, failed := make(chan struct{}), make(chan error, 2)
	for fd, frames := range map[int][][]byte{l.w.client: up, l.w.server: down} {
		sending.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-end:
					return
				default:
				}
				if err := unix.Send(fd, frames[i%len(frames)], 0); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	for range 25 {
		before := l.cached(t)
		flushConnections(t)
		netnstest.Await(t, "packets that pass by the cache", func() error {
			if l.cached(t) == before {
				return errors.New("none did")
			}
			return nil
		})
	}
	close(end)
	sending.Wait()
	netnstest.Await(t, "all packets in records", func() error {
		flushConnections(t)
		cached := l.cached(t)
		l.mu.Lock()
		defer l.mu.Unlock()
		if n := l.taken.UpPackets + l.taken.DownPackets; n != cached || cached == 0 || len(failed) > 0 {
			return fmt.Errorf("%d of %d", n, cached)
		}
		return nil
	})
	if n := l.tallied(t); n != 0 {
		t.Errorf("%d connections are tallied still", n)
	}
	t.Logf("%+v passed by the cache, of %d connections", l.taken, l.log.Stats().Ended)
}
