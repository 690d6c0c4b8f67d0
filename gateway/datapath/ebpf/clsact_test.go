// A test that filters at clsact, which kernels before 6.6 need in place of tcx, are removed from former interfaces.
// newNetwork makes a LAN with alice and bob and a WAN with a server, and open starts a data path between them
// (main_test.go).

package ebpf

import (
	"strings"
	"testing"
)

// TestFiltersRemovedFromFormerInterface: on kernels before 6.6, the next start and detach remove gatewayd's filters and
// its clsact from an interface that is no longer the LAN's or the WAN's, also if the interface has another name by then
// or is gone, and if the two have changed their roles. Filters of others stay. Long: the steps of one run, each of
// which needs the state that the one before left.
func TestFiltersRemovedFromFormerInterface(t *testing.T) {
	n := newNetwork(t)
	run(t, `for p in a:b c:d; do ip link add ${wan}${p%:*} type veth peer name ${wan}${p#*:}; ip link set ${wan}${p%:*} up; ip link set ${wan}${p#*:} up; done`,
		n.env()...)
	t.Cleanup(func() { run(t, "ip link del ${wan}b; ip link del ${wan}d", n.env()...) })
	cfg := n.config(t)
	cfg.clsact = true
	start := func(lan, wan string) {
		t.Helper()
		cfg.Networks, cfg.WAN = networksOf(lan), wan
		d, err := Open(cfg)
		must(t, err)
		must(t, d.Close())
	}
	// at lists gatewayd's filters and qdisc at an interface, by their names.
	address := func(dev string) string {
		t.Helper()
		out := run(t, `tc qdisc show dev $dev clsact; tc filter show dev $dev ingress; tc filter show dev $dev egress`,
			"dev="+dev)
		var all []string
		for _, word := range []string{"clsact", "lan_in", "lan_out", "wan_in", "others"} {
			if strings.Contains(out, word) {
				all = append(all, word)
			}
		}
		return strings.Join(all, " ")
	}
	has := func(phase string, want map[string]string) {
		t.Helper()
		for dev, label := range want {
			if current := address(dev); current != label {
				t.Errorf("%s: at %s are %q, want %q", phase, dev, current, label)
			}
		}
	}
	t.Cleanup(func() { detach(cfg) })
	wan := n.wan
	start(n.lan, wan)
	start(n.lan, wan+"a")
	has("another WAN", map[string]string{wan: "", wan + "a": "clsact wan_in", n.lan: "clsact lan_in lan_out"})
	run(t, "ip link set ${wan}a down; ip link set ${wan}a name ${wan}e", n.env()...)
	start(n.lan, wan)
	has("the former had another name", map[string]string{wan: "clsact wan_in", wan + "e": ""})
	start(wan, n.lan)
	has("changed roles", map[string]string{wan: "clsact lan_in lan_out", n.lan: "clsact wan_in"})
	must(t, detach(cfg))
	has("detach", map[string]string{wan: "", n.lan: ""})
	start(n.lan, wan+"c")
	run(t, "ip link del ${wan}c; ip link add ${wan}c type veth peer name ${wan}d; ip link set ${wan}c up", n.env()...)
	start(n.lan, wan)
	has("the former is gone", map[string]string{wan: "clsact wan_in", wan + "c": ""})
	run(t, "tc filter add dev $wan ingress prio 8 bpf bytecode '1,6 0 0 0,' flowid 1:7; tc qdisc add dev ${wan}c "+
		"clsact; tc filter add dev ${wan}c ingress prio 8 bpf bytecode '1,6 0 0 0,' flowid 1:7", n.env()...)
	start(n.lan, wan+"c")
	start(n.lan, wan+"e")
	for _, dev := range []string{wan, wan + "c"} {
		if out := run(t, "tc qdisc show dev $dev clsact; tc filter show dev $dev ingress", "dev="+dev); !strings.Contains(
			out, "clsact") || !strings.Contains(out, "bytecode") || strings.Contains(out, "wan_in") {
			t.Errorf("beside what others have at %s: %s", dev, out)
		}
	}
	run(t, "tc filter del dev $wan ingress", n.env()...)
	cfg.WAN = n.wan + "e"
	must(t, detach(cfg))
	has("detach beside former ones", map[string]string{wan: "", wan + "e": "", n.lan: ""})
}
