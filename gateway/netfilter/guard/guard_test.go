package guard

import (
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/internal/netnstest"
)

func TestMain(m *testing.M) { netnstest.Main(m, "ip link set lo up") }

// TestNames: for every interface name that the kernel allows, the guard concerns exactly
// that name and can be removed. The data paths' tests show its effect.
func TestNames(t *testing.T) {
	for name, text := range map[string]string{
		"eth1": `iifname "eth1" iif != @known drop`, "eth1.5": `iifname "eth1.5" iif != @known drop`,
		"br-lan@x": `iifname "br-lan@x" iif != @known drop`, "wl*": `iifname "wl\*" iif != @known drop`,
		"drop": `iifname "drop" iif != @known drop`, `a"b\c`: `iifname "a"b\c" iif != @known drop`,
	} {
		t.Run(name, func(t *testing.T) {
			g := Guard{LAN: name, WAN: "wan0", Prefix: netip.MustParsePrefix("10.1.0.0/24"),
				Gateway: netip.MustParseAddr("10.1.0.1")}
			for range 2 { // a second call has no effect
				must(t, g.Shut())
				must(t, g.Know(7, 12))
			}
			must(t, g.Shut())
			rules := ruleset(t)
			if strings.Count(rules, text) != 1 || !strings.Contains(rules, "elements = { 7, 12 }") {
				t.Errorf("not %s once, with what is known, in\n%s", text, rules)
			}
			must(t, g.Know(7, 12))
			if rules := ruleset(t); strings.Count(rules, "iif 7 oif 12 accept") != 1 ||
				strings.Count(rules, "iif 12 oif 7 accept") != 1 || strings.Count(rules, " accept\n") != 2 {
				t.Errorf("what is known does not pass by its indexes alone:\n%s", rules)
			}
			must(t, g.Know())
			if rules := ruleset(t); strings.Contains(rules, "elements") || strings.Contains(rules, " accept\n") {
				t.Errorf("known still, after nothing is:\n%s", rules)
			}
			must(t, Guard{LAN: name}.Shut()) // like a data path of another kind in its place
			if rules := ruleset(t); strings.Count(rules, text) != 1 || strings.Count(rules, "hook") != 1 ||
				strings.Contains(rules, "wan0") {
				t.Errorf("not the LAN's rules alone:\n%s", rules)
			}
			must(t, Remove(name))
			must(t, Remove(name))
			if rules := ruleset(t); rules != "" {
				t.Errorf("left behind:\n%s", rules)
			}
		})
	}
}

// TestKnownByIndex: packets between two known interfaces are accepted before names are
// compared.
func TestKnownByIndex(t *testing.T) {
	g := Guard{LAN: "lan0"}
	for _, tt := range []struct {
		known []int
		want  string
	}{
		{[]int{7, 12}, "iif 7 oif 12 accept\n\t\tiif 12 oif 7 accept\n\t\tiifname \"lan0\" iif != @known drop"},
		{[]int{7}, "policy accept;\n\t\tiifname \"lan0\" iif != @known drop"},
	} {
		must(t, g.Shut())
		must(t, g.Know(tt.known...))
		if rules := ruleset(t); !strings.Contains(rules, tt.want) {
			t.Errorf("%v: not\n\t\t%s\nin\n%s", tt.known, tt.want, rules)
		}
	}
	must(t, Remove("lan0"))
}

var must = netnstest.Must

func ruleset(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("nft", "list", "ruleset").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}
