package dut

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/machine"
)

// Forwarder is a router without a portal whose kernel forwards with rules of nftables: its connections are in a
// software flowtable, or its clients share its address, or both.
//
// The flowtable is at the ingress hook of both interfaces. The kernel tracks a connection, and the rule adds it to the
// table with the first packet after both ends have sent. From then on its packets pass no chain and no routing.
type Forwarder struct{ Flowtable, Masquerade bool }

var _ Proven = Forwarder{}

// forwarderTable is the table of the rules.
const forwarderTable = "gateweigh_forwarder"

// Traits: nothing is admitted, and the lab leases the addresses.
func (f Forwarder) Traits() Traits {
	nft := Need{Program: "nft", Package: "nftables", Why: "the rules"}
	t := Traits{About: "router that masquerades (nftables)"}
	if f.Flowtable {
		t.About = "router with a software flowtable (nftables)"
		if f.Masquerade {
			t.About = "router that masquerades, with a software flowtable (nftables)"
		}
		nft.Feature, t.Gathers = machine.Flowtables, true
	}
	t.Needs = []Need{nft}
	if f.Masquerade {
		nft.Feature, nft.Why = machine.NAT, "clients that share an address"
		t.Needs = append(t.Needs, nft)
	}
	return t
}

// rules are the rules in nft's language, for the interfaces towards clients and server.
func (f Forwarder) rules(lan, wan string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "table ip %s {\n", forwarderTable)
	if f.Flowtable {
		fmt.Fprintf(&b, `flowtable connections { hook ingress priority filter; devices = { "%s", "%s" }; }
chain forward { type filter hook forward priority filter; meta l4proto { tcp, udp } flow add @connections; }
`, lan, wan)
	}
	if f.Masquerade {
		fmt.Fprintf(&b, "chain out { type nat hook postrouting priority srcnat; oifname \"%s\" masquerade; }\n", wan)
	}
	return b.String() + "}\n"
}

// Start sets the rules.
func (f Forwarder) Start(ctx context.Context, env Env) error {
	_, err := env.Host("router").Run(
		ctx, agent.Command{Argv: []string{"nft", "-f", "-"}, Stdin: f.rules(env.Port("lan"), env.Port("wan"))})
	if err != nil {
		return fmt.Errorf("setting the router's rules: %w", err)
	}
	return nil
}

// Stop removes the rules.
func (Forwarder) Stop(ctx context.Context, env Env) error {
	return shell(ctx, env.Host("router"), "nft delete table ip "+forwarderTable+" 2>/dev/null || :")
}

// minOffloaded is the share of the connections that carry the load which must be in the flowtable. New ones get there
// with their third packet.
const minOffloaded = 0.9

// Unlike reads the router's list of connections: those with the server are to be in the flowtable, and those that
// clients opened are to come from the router's address.
func (f Forwarder) Unlike(ctx context.Context, env Env) (string, error) {
	text, err := ask(
		ctx, env, "sh", "-c", "grep -F \"$0\" /proc/net/nf_conntrack || [ $? = 1 ]", "="+env.ServerIP.String()+" ")
	if err != nil {
		return "", err
	}
	c := countConnections(text, env.LAN, env.RouterWAN)
	switch {
	case c.open == 0:
		return "the kernel tracks no connection with " + env.ServerIP.String(), nil
	case f.Flowtable && float64(c.offloaded) < minOffloaded*float64(c.open):
		return fmt.Sprintf("%d of %d connections are in the flowtable, limit %.0f %%", c.offloaded, c.open, 100*minOffloaded),
			nil
	case f.Masquerade && c.own > 0:
		return fmt.Sprintf("%d of %d connections show the client's own address to the server", c.own, c.open), nil
	}
	return "", nil
}

// connections are counts of the kernel's list.
type connections struct {
	open      int // they carry packets: TCP between its two handshakes, UDP
	offloaded int // of those, in a flowtable
	own       int // of those that clients opened, not answered to the router's address
}

// countConnections reads /proc/net/nf_conntrack, one connection a line: protocol, state, the addresses of the direction
// that opened it, those of the answers, flags. The state of a connection in a flowtable is not shown.
func countConnections(text string, lan netip.Prefix, router netip.Addr) (c connections) {
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		offloaded := slices.Contains(fields, "[OFFLOAD]") || slices.Contains(fields, "[HW_OFFLOAD]")
		if len(fields) < 4 || !offloaded && fields[2] != "udp" && !slices.Contains(fields, "ESTABLISHED") {
			continue
		}
		c.open++
		if offloaded {
			c.offloaded++
		}
		sources, destinations := valuesOf(fields, "src="), valuesOf(fields, "dst=")
		if len(sources) == 0 || len(destinations) < 2 {
			continue
		}
		if from, err := netip.ParseAddr(sources[0]); err == nil && lan.Contains(from) && destinations[1] != router.String() {
			c.own++
		}
	}
	return c
}

// valuesOf are the values of the fields that begin with a key, in their order.
func valuesOf(fields []string, key string) (values []string) {
	for _, field := range fields {
		if value, ok := strings.CutPrefix(field, key); ok {
			values = append(values, value)
		}
	}
	return values
}
