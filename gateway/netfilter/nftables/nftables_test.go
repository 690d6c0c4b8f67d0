// Tests of expressions and batches against the kernel and nft's output. dial connects to nftables in a namespace of the
// test.

package nftables

import (
	"encoding/binary"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/internal/netnstest"
)

func TestMain(m *testing.M) { netnstest.Main(m, `mount -t tmpfs none /run; ip link set lo up`) }

var must = netnstest.Must

var table = Table{IPv4, "test"}

// dial connects in a namespace of the test.
func dial(t *testing.T) (*Conn, *netnstest.Space) {
	t.Helper()
	s := netnstest.NewSpace(t)
	var c *Conn
	var err error
	s.Do(func() { c, err = Dial() })
	must(t, err)
	t.Cleanup(func() { must(t, c.Close()) })
	return c, s
}

func commit(t *testing.T, c *Conn, fill func(*Batch)) {
	t.Helper()
	var b Batch
	fill(&b)
	must(t, c.Commit(&b))
}

var (
	loopback = []byte{127, 0, 0, 1}
	nine     = binary.BigEndian.AppendUint16(nil, 9)
	mark     = binary.NativeEndian.AppendUint32(nil, 7)
)

// toNine continues with UDP to port 9.
func toNine(more ...Expr) []Expr {
	return append([]Expr{
		Meta(0, unix.NFT_META_L4PROTO), Equal(0, []byte{unix.IPPROTO_UDP}), Payload(0, TransportHeader, 2, 2), Equal(0, nine),
	}, more...)
}

// TestRulesAreWhatNftReads compares every expression with nft's output. Long: most lines are the table of cases.
func TestRulesAreWhatNftReads(t *testing.T) {
	c, s := dial(t)
	ask := Queue
	if out, err := s.Try("nft 'add table ip probe; add chain ip probe c; add rule ip probe c queue num 1'"); err != nil {
		t.Log("this kernel asks user space by way of iptables only: ", out)
		ask = QueueTarget
	}
	s.Try("nft delete table ip probe")
	commit(t, c, func(b *Batch) {
		b.AddTable(table)
		b.AddCounter(table, "some")
		b.AddSet(table, Set{Name: "pairs", KeyType: Concat(TypeIPv4, TypeEthernet), KeyBytes: 12, Size: 100})
		b.AddSet(table, Set{Name: "counters", KeyType: TypeIPv4, KeyBytes: 4, Counters: true})
		b.AddSet(table, Set{Name: "ways", KeyType: TypeIPv4, KeyBytes: 4, Verdicts: true, Timeouts: true})
		b.AddSet(table, Set{
			Name: "kept", KeyType: Concat(TypeIPv4, TypePort), KeyBytes: 8, DataType: TypeIPv4, Timeouts: true, Dynamic: true})
		b.AddChain(table, "other", nil)
		b.AddChain(table, "in", &Hook{Type: "filter", Number: unix.NF_INET_LOCAL_IN, Priority: -5})
		b.AddChain(table, "nat", &Hook{Type: "nat", Number: unix.NF_INET_PRE_ROUTING, Priority: -100})
		b.AddElements(table, "pairs", Element{Key: append(loopback, 2, 0, 0, 0, 0, 1, 0, 0)})
		b.AddElements(table, "counters", Element{Key: loopback, Counter: "some"})
		b.AddElements(table, "ways", Element{Key: loopback, Jump: "other", Timeout: time.Hour})
		from, port := Payload(0, NetworkHeader, 12, 4), Payload(1, TransportHeader, 0, 2)
		for _, exprs := range [][]Expr{
			{from, Equal(0, loopback), Accept()}, {from, Differs(0, loopback), Drop()},
			{from, Less(0, loopback), Goto("other")},
			{from, And(0, []byte{255, 0, 0, 0}), Equal(0, []byte{127, 0, 0, 0}), Goto("other")},
			{from, Payload(1, LinkHeader, 6, 6), InSet("pairs", 0)}, {from, Payload(1, LinkHeader, 6, 6), NotIn("pairs", 0)},
			{from, Decide("ways", 0)}, {from, CountBy("counters", 0)}, {Count("some")},
			toNine(from, port, Payload(2, NetworkHeader, 16, 4), Store("kept", 0, 2, time.Minute)),
			toNine(from, port, Delete("kept", 0)),
			toNine(from, port, Lookup("kept", 0, 2), Write(2, NetworkHeader, 16, 4, Sum{Offset: 10, Pseudo: true})),
			toNine(Load(0, nine), Write(0, TransportHeader, 0, 2, Sum{Offset: 6})),
			{Load(0, mark), SetMark(0)}, {Meta(0, unix.NFT_META_MARK), Equal(0, mark), Prohibited()},
			{Meta(0, unix.NFT_META_L4PROTO), Equal(0, []byte{unix.IPPROTO_TCP}), Reset()},
			{State(0), And(0, binary.NativeEndian.AppendUint32(nil, Invalid|Untracked)), Differs(0, make([]byte, 4)), Drop()},
			{Load(0, binary.NativeEndian.AppendUint16(nil, 5)), SetZone(0)},
			{Zone(0), Equal(0, binary.NativeEndian.AppendUint16(nil, 5)), Accept()},
			{ask(Queues{First: 10, Count: 2, PerCPU: true})},
		} {
			b.AddRule(table, "in", exprs...)
		}
		b.AddChain(table, "through", &Hook{Type: "filter", Number: unix.NF_INET_FORWARD})
		b.AddRule(table, "through",
			append([]Expr{Meta(0, unix.NFT_META_L4PROTO), Equal(0, []byte{unix.IPPROTO_TCP})}, LowerMSS(0)...)...)
		b.AddRule(table, "nat",
			toNine(Load(0, loopback), Load(1, nine), Destination(Span{Addr: RegisterAt(0), Port: RegisterAt(1)}))...)
	})
	listed := s.Run(t, "nft list table ip test")
	for _, want := range []string{
		"type ipv4_addr . ether_addr", "size 100", "elements = { 127.0.0.1 . 02:00:00:00:00:01 }",
		`elements = { 127.0.0.1 : "some" }`, "127.0.0.1 timeout 1h",
		"type filter hook input priority filter - 5", "type nat hook prerouting priority dstnat",
		"ip saddr 127.0.0.1 accept", "ip saddr != 127.0.0.1 drop", "ip saddr < 127.0.0.1 goto other",
		"ip saddr 127.0.0.0/8 goto other",
		"@pairs", "!= @pairs", "ip saddr vmap @ways", "counter name ip saddr map @counters", `counter name "some"`,
		"update @kept { ip saddr . udp sport timeout 1m : ip daddr }", "delete @kept { ip saddr . udp sport",
		"ip daddr set ip saddr . udp sport map @kept", "udp sport set 9", "meta mark set 0x00000007",
		"meta mark 0x00000007 reject with icmp admin-prohibited",
		"ct state invalid,untracked drop", "ct original zone set 5", "ct original zone 5 accept",
		"reject with tcp reset", "10-11", "fanout", "tcp option maxseg size set rt mtu", "dnat to 127.0.0.1:9",
	} {
		if !strings.Contains(listed, want) {
			t.Errorf("nft does not read %q in\n%s", want, listed)
		}
	}
}

// TestDeviceRulesAreWhatNftReads is the same comparison with nft's output for rules about frames of a device, and for
// cleared chains.
func TestDeviceRulesAreWhatNftReads(t *testing.T) {
	c, s := dial(t)
	dev := Table{NetDev, "test"}
	index := binary.NativeEndian.AppendUint32(nil, 1)
	commit(t, c, func(b *Batch) {
		b.AddTable(dev)
		b.AddSet(dev, Set{Name: "ports", KeyType: TypePort, KeyBytes: 2})
		b.AddElements(dev, "ports", Element{Key: nine})
		b.AddChain(dev, "in", &Hook{Type: "filter", Number: unix.NF_NETDEV_INGRESS, Priority: 5, Device: "lo"})
		b.AddRule(dev, "in", Payload(0, NetworkHeader, 16, 4), Load(1, index), SendTo(1, 0))
	})
	listed := s.Run(t, "nft list table netdev test")
	for _, want := range []string{
		`type filter hook ingress device "lo" priority`, `fwd ip to @nh,128,32 device "lo"`, "elements = { 9 }"} {
		if !strings.Contains(listed, want) {
			t.Errorf("nft does not read %q in\n%s", want, listed)
		}
	}
	commit(t, c, func(b *Batch) { b.ClearChain(dev, "in"); b.ClearSet(dev, "ports") })
	if listed := s.Run(t, "nft list table netdev test"); strings.Contains(listed, "fwd") ||
		strings.Contains(listed, "elements") {
		t.Errorf("cleared, there is\n%s", listed)
	}
}

// TestCounters counts packets by element and by name, and reads them one by one and all at once. A deleted element
// counts no more packets, and its named counter stays.
func TestCounters(t *testing.T) {
	c, s := dial(t)
	commit(t, c, func(b *Batch) {
		b.AddTable(table)
		b.AddCounter(table, "all")
		b.AddCounter(table, "home")
		b.AddSet(table, Set{Name: "counters", KeyType: TypeIPv4, KeyBytes: 4, Counters: true})
		b.AddElements(table, "counters", Element{Key: loopback, Counter: "home"})
		b.AddChain(table, "out", &Hook{Type: "filter", Number: unix.NF_INET_LOCAL_OUT})
		b.AddRule(table, "out", toNine(Count("all"), Payload(0, NetworkHeader, 16, 4), CountBy("counters", 0))...)
	})
	send := func(packets int) {
		s.Do(func() {
			in, err := net.ListenPacket("udp4", "127.0.0.1:9")
			must(t, err)
			defer in.Close()
			out, err := net.Dial("udp4", "127.0.0.1:9")
			must(t, err)
			defer out.Close()
			for range packets {
				_, err := out.Write(make([]byte, 72))
				must(t, err)
			}
		})
	}
	send(5)
	got := map[string]Counted{}
	must(t, c.Counters(table, func(name string, n Counted) { got[name] = n }))
	if want := (Counted{5, 500}); len(got) != 2 || got["all"] != want || got["home"] != want {
		t.Errorf("counted %v, want %v twice", got, want)
	}
	commit(t, c, func(b *Batch) { b.DeleteElements(table, "counters", Element{Key: loopback}) })
	send(1)
	for name, want := range map[string]Counted{"all": {6, 600}, "home": {5, 500}} {
		if n, err := c.Counter(table, name); err != nil || n != want {
			t.Errorf("%s: %v, %v; want %v", name, n, err, want)
		}
	}
	if n, err := c.Counter(table, "none"); !errors.Is(err, unix.ENOENT) {
		t.Errorf("a counter that is not there: %v, %v", n, err)
	}
	if n, err := c.Counter(table, "all"); err != nil || n.Packets != 6 {
		t.Errorf("after an error: %v, %v", n, err)
	}
}

// TestBatchIsOneChange: either everything in a batch takes effect or nothing.
func TestBatchIsOneChange(t *testing.T) {
	c, s := dial(t)
	element := Element{Key: loopback}
	commit(t, c, func(b *Batch) {
		b.AddTable(table)
		b.AddSet(table, Set{Name: "addrs", KeyType: TypeIPv4, KeyBytes: 4})
		b.AddElements(table, "addrs", element)
	})
	before := s.Run(t, "nft list ruleset")
	for name, fill := range map[string]func(*Batch){
		"an element twice":    func(b *Batch) { b.AddElements(table, "addrs", element) },
		"no such set":         func(b *Batch) { b.AddElements(table, "none", element) },
		"no such element":     func(b *Batch) { b.DeleteElements(table, "addrs", Element{Key: []byte{1, 2, 3, 4}}) },
		"no such chain":       func(b *Batch) { b.AddRule(table, "none", Accept()) },
		"nowhere to go":       func(b *Batch) { b.AddChain(table, "c", nil); b.AddRule(table, "c", Goto("none")) },
		"a register too high": func(b *Batch) { b.AddChain(table, "c", nil); b.AddRule(table, "c", SetMark(99)) },
	} {
		var b Batch
		b.AddChain(table, "added", nil)
		fill(&b)
		b.AddChain(table, "added_too", nil)
		if err := c.Commit(&b); err == nil {
			t.Errorf("%s is no error", name)
		}
		if after := s.Run(t, "nft list ruleset"); after != before {
			t.Errorf("%s has changed\n%s\nto\n%s", name, before, after)
		}
	}
	commit(t, c, func(b *Batch) { b.DeleteElements(table, "addrs", element); b.AddElements(table, "addrs", element) })
	commit(t, c, func(b *Batch) { b.DeleteTable(table); b.DeleteTable(Table{IPv6, "never"}) })
	if left := s.Run(t, "nft list ruleset"); left != "" {
		t.Errorf("left over:\n%s", left)
	}
	commit(t, c, func(*Batch) {})
}

// TestManyElements: more than one message can hold.
func TestManyElements(t *testing.T) {
	c, s := dial(t)
	const many = 3000
	all := make([]Element, many)
	for i := range all {
		all[i].Key = binary.BigEndian.AppendUint32(nil, 0x0a000000+uint32(i))
	}
	commit(t, c, func(b *Batch) {
		b.AddTable(table)
		b.AddSet(table, Set{Name: "addrs", KeyType: TypeIPv4, KeyBytes: 4})
		b.AddElements(table, "addrs", all...)
	})
	if n := strings.Count(s.Run(t, "nft list set ip test addrs"), "10.0."); n != many {
		t.Errorf("%d elements, want %d", n, many)
	}
	commit(t, c, func(b *Batch) { b.DeleteElements(table, "addrs", all...) })
	if left := s.Run(t, "nft list set ip test addrs"); strings.Contains(left, "10.0.") {
		t.Errorf("left over:\n%s", left)
	}
}

// TestElementsEnd when their time is up.
func TestElementsEnd(t *testing.T) {
	c, s := dial(t)
	commit(t, c, func(b *Batch) {
		b.AddTable(table)
		b.AddChain(table, "c", nil)
		b.AddSet(table, Set{Name: "ways", KeyType: TypeIPv4, KeyBytes: 4, Verdicts: true, Timeouts: true})
		b.AddElements(table, "ways", Element{Key: loopback, Jump: "c", Timeout: 50 * time.Millisecond})
	})
	netnstest.Await(t, "the end", func() error {
		if left := s.Run(t, "nft list map ip test ways"); strings.Contains(left, "127.0.0.1") {
			return errors.New(left)
		}
		return nil
	})
}

func FuzzReadCounter(f *testing.F) {
	f.Add([]byte{2, 0, 0, 0, 8, 0, 2, 0, 'a', 'b', 'c', 0})
	f.Fuzz(func(_ *testing.T, b []byte) { readCounter(b) })
}
