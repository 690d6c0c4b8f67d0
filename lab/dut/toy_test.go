package dut

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"strings"
	"testing"
)

// toyPortal is a toy device: it drops all packets of clients but those to one TCP port.
type toyPortal struct{ port int }

func (toyPortal) Traits() Traits {
	return Traits{About: "a gate", Needs: []Need{{Program: "nft", Package: "nftables", Why: "its rule"}}}
}

func (g toyPortal) Start(ctx context.Context, env Env) error {
	const rules = `nft -f - <<EOF
table ip gate { chain forward { type filter hook forward priority 0; policy accept; iifname "$1" tcp dport != $2 drop; }; }
EOF`
	return shell(ctx, env.Host("router"), rules, env.Port("lan"), fmt.Sprint(g.port))
}

func (toyPortal) Stop(ctx context.Context, env Env) error {
	return shell(ctx, env.Host("router"), "nft delete table ip gate 2>/dev/null || :")
}

func (toyPortal) Counts(ctx context.Context, env Env) (map[string]int, error) {
	text, err := queryRouter(ctx, env, "nft", "list", "ruleset")
	return map[string]int{"rules": strings.Count(text, "drop")}, err
}

// TestNewDeviceNeedsOneTableLine: with one line of the table of devices, a device can be made by its name, and works in
// a real lab.
func TestNewDeviceNeedsOneTableLine(t *testing.T) {
	shipped := maps.Clone(builtin)
	t.Cleanup(func() { builtin = shipped })
	builtin["gate"] = func(int) DUT { return toyPortal{port: 9} }

	d, err := New("gate", 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := checkSupported(t, d); err != nil {
		t.Fatal(err)
	}
	l, _ := customLab(t)
	if err := d.Start(t.Context(), l.env); err != nil {
		t.Fatal(err)
	}
	if !l.reaches(t) {
		t.Error("the port that the gate leaves open is not reached")
	}
	if n, err := d.(Counted).Counts(t.Context(), l.env); err != nil || n["rules"] != 1 {
		t.Errorf("it counts %v: %v", n, err)
	}
	if err := errors.Join(d.Stop(t.Context(), l.env), d.Stop(t.Context(), l.env)); err != nil {
		t.Error(err)
	}
	builtin["gate"] = func(int) DUT { return toyPortal{port: 10} }
	if d, err = New("gate", 1, nil); err != nil {
		t.Fatal(err)
	}
	if err := d.Start(t.Context(), l.env); err != nil {
		t.Fatal(err)
	}
	if l.reaches(t) {
		t.Error("the gate lets through what it should drop")
	}
}

// TestHostsAndPortsAreAskedForByName: a host or port that the topology does not have is a fault of the device's code,
// and panics.
func TestHostsAndPortsAreAskedForByName(t *testing.T) {
	env := Env{Hosts: map[string]Host{"router": nil}, Ports: map[string]string{"lan": "r0"}, LAN: netip.Prefix{}}
	if env.Port("lan") != "r0" || env.Host("router") != nil {
		t.Error("a name of the topology is not found")
	}
	for what, ask := range map[string]func(){"host": func() { env.Host("gw2") }, "port": func() { env.Port("far") }} {
		func() {
			defer func() {
				if text := fmt.Sprint(recover()); !strings.Contains(text, what) {
					t.Errorf("an unknown %s: %s", what, text)
				}
			}()
			ask()
		}()
	}
}
