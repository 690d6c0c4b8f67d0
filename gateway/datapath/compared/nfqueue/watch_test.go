// Tests of the data path when other programs change its nftables tables (watch.go).

package nfqueue

import (
	"net"
	"os/exec"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/gateway/datapath/machine/stack"
	"github.com/gateweigh/gateweigh/gateway/netfilter/nftables"
)

// TestWatch: exactly the watched interfaces are reported when they disappear, also when another interface has their
// name by then.
func TestWatch(t *testing.T) {
	sh := func(script string) {
		t.Helper()
		if out, err := exec.Command("sh", "-ec", script).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", script, err, out)
		}
	}
	find := func(name string) *net.Interface {
		t.Helper()
		dev, err := net.InterfaceByName(name)
		must(t, err)
		return dev
	}
	t.Cleanup(func() { sh("ip link del lan0; ip link del wan0") })
	sh("ip link add lan0 type veth peer name c0; ip link add wan0 type veth peer name s0; ip link add other type veth " +
		"peer name o0")
	quiet, err := watch(find("lan0"), find("wan0"))
	must(t, err)
	sh("ip link del other; ip link set lan0 up; ip link set lan0 mtu 1400 down")
	must(t, quiet.close())
	if len(quiet.lost) > 0 {
		t.Error("an interface that exists is reported as lost: ", <-quiet.lost)
	}
	for name, peer := range map[string]string{"lan0": "c0", "wan0": "s0"} {
		w, err := watch(find("lan0"), find("wan0"))
		must(t, err)
		sh("ip link del " + name + "; ip link add " + name + " type veth peer name " + peer)
		if err := <-w.lost; !strings.Contains(err.Error(), name+" is gone") {
			t.Errorf("without %s: %v", name, err)
		}
		must(t, w.close())
	}
}

// TestOwnChangesNotReported: the daemon's own changes are not reported, and others' are. A second follower gets all
// changes.
func TestOwnChangesNotReported(t *testing.T) {
	ownPort, other := dialNftables(t), dialNftables(t)
	port, err := ownPort.Port()
	must(t, err)
	follow := func(ownPort uint32) (f *stack.Follower, reports chan struct{}) {
		f, err := stack.Follow()
		must(t, err)
		reports = make(chan struct{}, 100)
		must(t, f.Run(stack.Changes{OwnPort: ownPort, Routing: func() {}, Rules: func() { reports <- struct{}{} }}))
		return f, reports
	}
	deaf, reports := follow(port)
	keen, all := follow(0)
	table := nftables.Table{Family: nftables.IPv4, Name: "t"}
	for range 3 {
		add, drop := new(nftables.Batch), new(nftables.Batch)
		add.AddTable(table)
		drop.DeleteTable(table)
		must(t, ownPort.Commit(add))
		must(t, ownPort.Commit(drop))
	}
	<-all // changes that come together are reported once
	if n := len(reports); n > 0 {
		t.Errorf("the daemon's own changes are reported %d times", n)
	}
	add, drop := new(nftables.Batch), new(nftables.Batch)
	add.AddTable(table)
	drop.DeleteTable(table)
	must(t, other.Commit(add))
	must(t, other.Commit(drop))
	<-reports
	must(t, deaf.Close())
	must(t, keen.Close())
}

func dialNftables(t *testing.T) *nftables.Conn {
	t.Helper()
	c, err := nftables.Dial()
	must(t, err)
	t.Cleanup(func() { must(t, c.Close()) })
	return c
}
