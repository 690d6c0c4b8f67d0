package neighbour

import (
	"encoding/binary"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/datapath/machine/stack"
	"github.com/gateweigh/gateweigh/internal/logtest"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

func TestMain(m *testing.M) {
	netnstest.Main(m, `ip link add lan0 type veth peer name c0; ip addr add 10.1.0.1/16 dev lan0; ip link set lan0 up`)
}

// client returns the address and the MAC address of client n.
func client(n int) (netip.Addr, datapath.MAC) {
	mac := datapath.MAC{2}
	binary.BigEndian.PutUint32(mac[2:], uint32(n))
	return netip.AddrFrom4([4]byte{10, 1, byte((n + 2) >> 8), byte(n + 2)}), mac
}

// table opens the table of lan0 with clients, and returns its log too.
func table(t testing.TB, clients map[netip.Addr]datapath.MAC) (*Table, *logtest.Log) {
	t.Helper()
	var logs logtest.Log
	out, err := Open(index(t), clients, logs.Logger())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := out.Close(); err != nil {
			t.Error(err)
		}
		if err := Remove("lan0"); err != nil {
			t.Error(err)
		}
	})
	return out, &logs
}

func index(t testing.TB) int {
	t.Helper()
	dev, err := net.InterfaceByName("lan0")
	if err != nil {
		t.Fatal(err)
	}
	return dev.Index
}

// checkEntries fails the test unless gatewayd's entries in the kernel are those of the clients wanted.
func checkEntries(t *testing.T, want map[netip.Addr]datapath.MAC) {
	t.Helper()
	have, err := list(index(t))
	if err != nil || !maps.Equal(have, want) {
		t.Errorf("the kernel has %d neighbours, want %d: %v", len(have), len(want), err)
	}
}

// TestMoreClientsThanKernelLimit: 10,000 clients have entries, which 16 goroutines enter, change and remove at once.
// The kernel makes at most net.ipv4.neigh.default.gc_thresh3 entries itself: 1024 unless it is set.
func TestMoreClientsThanKernelLimit(t *testing.T) {
	const many = 10_000
	n, logs := table(t, nil)
	want := map[netip.Addr]datapath.MAC{}
	for i := range many {
		addr, mac := client(i)
		want[addr] = mac
	}
	inLanes(many, func(i int) {
		addr, mac := client(i)
		n.Set(addr, mac)
		n.Flush()
	})
	checkEntries(t, want)
	for i := range many {
		addr, mac := client(i)
		switch i % 3 {
		case 0:
			delete(want, addr)
		case 1:
			mac[0] = 6
			want[addr] = mac
		}
	}
	inLanes(many, func(i int) {
		addr, mac := client(i)
		switch i % 3 {
		case 0:
			n.Remove(addr)
			n.Flush()
		case 1:
			n.Set(addr, datapath.MAC{1, 2, 3, 4, 5, 6}) // replaced by the next Set, before it is sent or after
			mac[0] = 6
			n.Set(addr, mac)
			n.Flush()
		}
	})
	checkEntries(t, want)
	if logs.String() != "" {
		t.Errorf("it logged:\n%s", logs)
	}
}

// inLanes calls f for each number below n in 16 goroutines, as the DHCP server reports leases.
func inLanes(n int, f func(int)) {
	const lanes = 16
	var all sync.WaitGroup
	for lane := range lanes {
		all.Go(func() {
			for i := lane; i < n; i += lanes {
				f(i)
			}
		})
	}
	all.Wait()
}

// TestSuccessor: Open keeps a former table's entries that are right, corrects wrong ones, and removes entries whose
// address is no client's. It leaves the administrator's entries alone.
func TestSuccessor(t *testing.T) {
	former, _ := table(t, nil)
	for i := range 3 {
		former.Set(client(i))
	}
	former.Flush()
	if err := former.Close(); err != nil {
		t.Fatal(err)
	}
	run(t, "ip neigh add 10.1.9.9 lladdr 02:00:00:00:09:09 dev lan0 nud permanent")
	// Client 0 has its entry, client 1 now has another MAC address, client 2 is gone, and address c is new.
	a, mac := client(0)
	b, _ := client(1)
	c, other := client(4)
	want := map[netip.Addr]datapath.MAC{a: mac, b: other, c: other}
	n, _ := table(t, want)
	checkEntries(t, want)
	for _, script := range []string{
		"ip link set lan0 down; ip link set lan0 up", "ip neigh flush dev lan0 nud permanent", "true"} {
		run(t, script)
		n.Check()
		checkEntries(t, want)
	}
	run(t, "ip neigh replace 10.1.9.9 lladdr 02:00:00:00:09:09 dev lan0 nud permanent")
	if err := Remove("lan0"); err != nil {
		t.Fatal(err)
	}
	if out := run(t, "ip neigh show nud permanent"); !strings.HasPrefix(out, "10.1.9.9 ") || strings.Contains(out, "\n") {
		t.Errorf("left are\n%s", out)
	}
	run(t, "ip neigh del 10.1.9.9 dev lan0")
}

// TestForeignStaticEntry: a static entry that the administrator made for a client's address stays, also after the
// client is removed. If it has another MAC address, that is logged once. An entry that the kernel learned is replaced.
func TestForeignStaticEntry(t *testing.T) {
	n, logs := table(t, nil)
	a, mac := client(0)
	b, same := client(1)
	c, learned := client(2)
	run(t, fmt.Sprintf(
		"ip neigh add %s lladdr 02:00:00:00:09:09 dev lan0 nud permanent; ip neigh add %s lladdr %s dev lan0 nud "+
			"permanent; ip neigh add %s lladdr 02:00:00:00:09:08 dev lan0 nud reachable",
		a, b, net.HardwareAddr(same[:]), c))
	t.Cleanup(func() { run(t, fmt.Sprintf("ip neigh del %s dev lan0; ip neigh del %s dev lan0", a, b)) })
	before := run(t, "ip neigh show dev lan0 proto static; ip neigh show nud permanent | grep -v 'proto 103' | sort")
	for range 3 {
		n.Set(a, mac)
		n.Set(b, same)
		n.Set(c, learned)
		n.Flush()
		checkEntries(t, map[netip.Addr]datapath.MAC{c: learned})
		n.Check()
		n.Remove(a)
		n.Remove(b)
		n.Flush()
		if now := run(t,
			"ip neigh show dev lan0 proto static; ip neigh show nud permanent | grep -v 'proto 103' | sort"); now != before {
			t.Errorf("the administrator's entries are\n%swant\n%s", now, before)
		}
	}
	if got := logs.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "client="+a.String()+" ") ||
		!strings.Contains(got, "entry=02:00:00:00:09:09") {
		t.Errorf("it said:\n%s", got)
	}
	run(t, fmt.Sprintf("ip neigh del %s dev lan0", a))
	n.Set(a, mac)
	n.Flush()
	checkEntries(t, map[netip.Addr]datapath.MAC{a: mac, c: learned})
	n.Remove(a)
	n.Flush()
	run(t, fmt.Sprintf("ip neigh add %s lladdr 02:00:00:00:09:09 dev lan0 nud permanent", a)) // for the clean-up
}

// TestChangedList: a list that the kernel marks as changed while it was read is read again.
func TestChangedList(t *testing.T) {
	reads := 0
	got, err := stack.ConsistentList(func() ([]netlink.Message, error) {
		reads++
		all := make([]netlink.Message, 2)
		if reads == 1 {
			all[1].Header.Flags = netlink.DumpInterrupted
		}
		return wholeList(all, nil)
	})
	if err != nil || len(got) != 2 || reads != 2 {
		t.Errorf("%d messages after %d reads, %v", len(got), reads, err)
	}
}

// TestRefused: entries that the kernel refuses, here because the interface is gone, are logged once, and the table's
// methods go on.
func TestRefused(t *testing.T) {
	run(t, "ip link add gone0 type veth peer name gone1")
	dev, err := net.InterfaceByName("gone0")
	if err != nil {
		t.Fatal(err)
	}
	var logs logtest.Log
	n, err := Open(dev.Index, nil, logs.Logger())
	if err != nil {
		t.Fatal(err)
	}
	run(t, "ip link del gone0")
	for i := range 300 {
		n.Set(client(i))
		n.Flush()
	}
	n.Check()
	if got := logs.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "gc_thresh3") ||
		!strings.Contains(got, unix.ENODEV.Error()) {
		t.Errorf("it said:\n%s", got)
	}
	for range 2 {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	}
	n.Set(client(1000))
	n.Flush()
	if err := Remove("gone0"); err != nil {
		t.Errorf("removing the entries of an interface that is gone: %v", err)
	}
}

var run = netnstest.Run

// FuzzParse: no message of the kernel's crashes the daemon, and the address that is read from it has its family.
func FuzzParse(f *testing.F) {
	addr, mac := client(1)
	f.Add(change(3, entry{addr: addr, mac: mac}).Data)
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		f, ok := parse(b, 3)
		if !ok && !f.isGatewayd {
			return
		}
		if (b[0] != unix.AF_INET || !f.addr.Is4()) && (b[0] != unix.AF_INET6 || !f.addr.Is6()) {
			t.Errorf("%x has the address %s", b, f.addr)
		}
	})
}

// BenchmarkLease measures entering a client beside many others, 16 at a time.
func BenchmarkLease(b *testing.B) {
	n, _ := table(b, nil)
	b.ResetTimer()
	inLanes(b.N, func(i int) {
		addr, _ := client(i % 60_000)
		_, mac := client(i)
		n.Set(addr, mac)
		n.Flush()
	})
}

// BenchmarkCheck is what a change of routes costs with 60,000 clients.
func BenchmarkCheck(b *testing.B) {
	n, _ := table(b, nil)
	for i := range 60_000 {
		n.Set(client(i))
	}
	n.Flush()
	b.ResetTimer()
	for range b.N {
		n.Check()
	}
}
