package nfqueue

import (
	"net"
	"os/exec"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/gateway/datapath/nfqueue/nftables"
	"github.com/gateweigh/gateweigh/gateway/datapath/stack"
)

// TestWatch tells of the interface that goes, whichever it is and whatever has its
// name by then, and of no other. It is in the namespace of the tests themselves.
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
	sh("ip link add lan0 type veth peer name c0; ip link add wan0 type veth peer name s0; ip link add other type veth peer name o0")
	quiet, err := watch(find("lan0"), find("wan0"))
	must(t, err)
	sh("ip link del other; ip link set lan0 up; ip link set lan0 mtu 1400 down")
	must(t, quiet.close())
	if len(quiet.lost) > 0 {
		t.Error("told of an interface that is there: ", <-quiet.lost)
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

// TestOwnChangesAreNoNews: what the daemon itself changes wakes nobody, and what
// anybody else does, does.
func TestOwnChangesAreNoNews(t *testing.T) {
	own, other := dialNftables(t), dialNftables(t)
	port, err := own.Port()
	must(t, err)
	f, err := stack.Follow()
	must(t, err)
	told := make(chan struct{}, 10)
	must(t, f.Run(stack.Changes{Own: port, Routing: func() {}, Rules: func() { told <- struct{}{} }}))
	for _, c := range []*nftables.Conn{own, own, other} {
		add, drop := new(nftables.Batch), new(nftables.Batch)
		table := nftables.Table{Family: nftables.IPv4, Name: "t"}
		add.AddTable(table)
		must(t, c.Commit(add))
		if c == own {
			drop.DeleteTable(table)
			must(t, c.Commit(drop))
		}
	}
	<-told
	must(t, f.Close())
	// The other's one change comes as what was changed, and as a new generation.
	if n := len(told); n > 1 {
		t.Errorf("told %d times of one change", n+1)
	}
	var b nftables.Batch
	b.DeleteTable(nftables.Table{Family: nftables.IPv4, Name: "t"})
	must(t, own.Commit(&b))
}

func dialNftables(t *testing.T) *nftables.Conn {
	t.Helper()
	c, err := nftables.Dial()
	must(t, err)
	t.Cleanup(func() { must(t, c.Close()) })
	return c
}
