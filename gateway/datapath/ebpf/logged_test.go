// Helpers for tests of the flow log beside the cache of flows: loggingGateway is a data path with a log, send and carry
// send packets of a flow, and record waits until the log has them all. newNetwork makes a LAN with alice and bob and a
// WAN with a server, and open starts a data path between them (main_test.go).

package ebpf

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gopacket/gopacket/layers"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/datapath/datapathtest"
	"github.com/gateweigh/gateweigh/gateway/datapath/machine/stack"
	"github.com/gateweigh/gateweigh/gateway/flowlog"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// loggingGateway is a gateway that caches flows and writes a flow log, between two wires.
type loggingGateway struct {
	network
	w           *wire
	change      func(*Config)
	folder      string
	d           *Datapath
	log         *flowlog.Log
	close       func()
	duringStart func() // unless nil: called from Keep while the log starts, so that a test can end flows then

	sent map[netip.AddrPort]*datapath.Traffic // by the client's address and port

	mu    sync.Mutex
	taken datapath.Traffic // the sum of what the log has taken
}

// Keep and Take make the gateway the log's source for the packets that the cache forwards past connection tracking
// (flowlog.Config.Bypassed). They call the data path's methods, and Take sums what it returned.
func (l *loggingGateway) Keep(present []datapath.Tracked) error {
	if l.duringStart != nil {
		l.duringStart()
	}
	return l.d.Keep(present)
}

func (l *loggingGateway) Take(ended []datapath.Tracked) ([]datapath.Traffic, error) {
	all, err := l.d.Take(ended)
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, t := range all {
		l.taken = sumOf(l.taken, t)
	}
	return all, err
}

func newLogged(t *testing.T, rules string, change ...func(*Config)) *loggingGateway {
	t.Helper()
	netnstest.NeedTCX(t)
	l := &loggingGateway{network: newNetwork(t), folder: t.TempDir(), sent: map[netip.AddrPort]*datapath.Traffic{}}
	l.w = l.wire(t)
	l.change = func(c *Config) {
		c.FlowCache, c.Flows, c.Log = FlowCacheAuto, true, slog.New(slog.NewTextHandler(t.Output(), nil))
		for _, edit := range change {
			edit(c)
		}
	}
	run(t, `for n in $client $server; do ip netns exec $n `+mute+
		`; done; ip neigh replace 192.0.2.2 lladdr 02:00:00:00:02:02 dev $wan`, l.env()...)
	if rules != "" {
		run(t, rules, l.env()...)
		t.Cleanup(func() { run(t, "nft delete table ip isp") })
	}
	t.Cleanup(func() { l.close(); must(t, detach(l.d.cfg)) })
	l.start(t)
	return l
}

// start opens the data path and starts the log, as a daemon does.
func (l *loggingGateway) start(t *testing.T) {
	t.Helper()
	cfg := l.config(t)
	l.change(&cfg)
	var err error
	l.d, err = Open(cfg)
	must(t, err)
	must(t, l.d.Set(datapath.Client{Addrs: []netip.Addr{alice}, MAC: aliceMAC, Admitted: true}))
	l.log, err = flowlog.Open(flowlog.Config{
		Folder: l.folder, KeepFor: time.Hour, Interface: "lan0", LAN: lanPrefix, Gateway: gateway, Bypassed: l, Log: cfg.Log,
		HolderOf: func(a netip.Addr, _ time.Time) flowlog.Holder { return flowlog.Holder{User: a.String()} },
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
		if word, reason := l.d.Forwarding(); word != "flow cache" && cfg.FlowCache != FlowCacheNever {
			return fmt.Errorf("%s: %s", word, reason)
		}
		return nil
	})
}

// tcpFlow is a client's connection to port 443 of the server, with the client's address and port as the server sees
// them.
type tcpFlow struct{ client, outside netip.AddrPort }

// flags sets a segment's TCP flags from the letters S, A, F and R. Only a plain A keeps its payload.
func flags(set string) func(*datapathtest.Frame) {
	return func(f *datapathtest.Frame) {
		l := f.L4.(*layers.TCP)
		l.SYN, l.ACK, l.PSH, l.FIN, l.RST = strings.Contains(set, "S"), strings.Contains(set, "A"), false,
			strings.Contains(set, "F"), strings.Contains(set, "R")
		if set != "A" {
			f.Payload = nil
		}
	}
}

func macOf(a netip.Addr) datapath.MAC { return datapath.MAC{2, 0, 0, 0, 0, a.As4()[3]} }

func (f tcpFlow) up(bytes int, set string) []byte {
	return tcp(443, from(f.client.Addr(), macOf(f.client.Addr())), source(f.client.Port()),
		datapathtest.Carrying(make([]byte, bytes)), flags(set))
}

func (f tcpFlow) down(bytes int, set string) []byte {
	return tcp(f.outside.Port(), down, source(443), to(f.outside.Addr()), datapathtest.Carrying(make([]byte, bytes)),
		flags(set))
}

// send sends frames of a flow, and counts them in sent.
func (l *loggingGateway) send(t *testing.T, f tcpFlow, frames ...[]byte) {
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
func (l *loggingGateway) shake(t *testing.T, f tcpFlow) {
	t.Helper()
	l.send(t, f, f.up(0, "S"))
	l.arrive(t)
	l.send(t, f, f.down(0, "SA"))
	l.arrive(t)
	l.send(t, f, f.up(0, "A"))
	l.arrive(t)
}

// carry sends n packets in each direction.
func (l *loggingGateway) carry(t *testing.T, f tcpFlow, n int) {
	t.Helper()
	for i := range n {
		l.send(t, f, f.up(200-i, "A"), f.down(300-i, "A"))
	}
	l.arrive(t)
}

// pass sends packets until ten at a time go through the cache of flows. The data path does not use the cache while it
// reads nftables rules that have changed, such as those that the log adds.
func (l *loggingGateway) pass(t *testing.T, f tcpFlow) {
	t.Helper()
	netnstest.Await(t, "packets that go through the cache", func() error {
		before := l.cached(t)
		l.carry(t, f, 10)
		if n := l.cached(t) - before; n < 10 {
			return fmt.Errorf("%d did", n)
		}
		return nil
	})
}

// arrive waits until the gateway has forwarded all packets that were sent.
func (l *loggingGateway) arrive(t *testing.T) {
	t.Helper()
	var want datapath.Traffic
	for _, n := range l.sent {
		want = sumOf(want, *n)
	}
	netnstest.Await(t, "the packets", func() error {
		c, err := l.d.Total()
		if got := (datapath.Traffic{UpBytes: c.UpBytes, UpPackets: c.UpPackets, DownBytes: c.DownBytes,
			DownPackets: c.DownPackets}); err != nil || got != want {
			return fmt.Errorf("forwarded %+v of %+v, %v", got, want, err)
		}
		return nil
	})
	stack.AwaitCPUs()
}

// cached returns how many packets have gone through the cache.
func (l *loggingGateway) cached(t *testing.T) uint64 { t.Helper(); return l.d.packets(t)["forwarded"] }

// record waits until the log's records of a flow have all packets that were sent in it.
func (l *loggingGateway) record(t *testing.T, f tcpFlow) {
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

// ends reads the log's records of flows that have ended, by the client's address and port.
func (l *loggingGateway) ends() (map[netip.AddrPort][]flowlog.Flow, error) {
	ends := map[netip.AddrPort][]flowlog.Flow{}
	text, err := try("cat " + l.folder + "/*.ndjson; zcat " + l.folder + "/*.gz 2>/dev/null || :") // packed: older
	for line := range strings.Lines(text) {
		var f flowlog.Flow
		if json.Unmarshal([]byte(line), &f) == nil && f.Event == flowlog.Ends && f.Peer.Port() != sentinelPort {
			// The last line may be incomplete.
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

const translates = `nft "table ip isp { chain out { type nat hook postrouting priority srcnat; oifname $wan masquerade; }; }"`

func plainFlow(port uint16) tcpFlow {
	return tcpFlow{netip.AddrPortFrom(alice, port), netip.AddrPortFrom(alice, port)}
}

func translatedFlow(port uint16) tcpFlow {
	return tcpFlow{netip.AddrPortFrom(alice, port), netip.AddrPortFrom(routerWAN, port)}
}
