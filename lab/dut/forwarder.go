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

// Forwarder is a router whose kernel forwards with nftables rules. It has no portal: every client's traffic is
// forwarded.
//
// The flowtable is at the ingress hook of both interfaces. The kernel tracks a connection, and the rule adds it to the
// table with the first packet after both ends have sent. From then on its packets pass no chain and no routing.
type Forwarder struct {
	Flowtable  bool // established connections are forwarded by a software flowtable
	Masquerade bool // clients share the router's address towards the server
}

var _ Provable = Forwarder{}

// forwarderTable is the nftables table that holds the rules.
const forwarderTable = "gateweigh_forwarder"

// Traits name the kernel features that the rules need. Clients need no admission, and the lab leases their addresses.
func (f Forwarder) Traits() Traits {
	nft := Need{Program: "nft", Package: "nftables", Why: "the rules"}
	t := Traits{About: "router that masquerades (nftables)", NoIPv6: "its rules are of nftables' family ip"}
	if f.Flowtable {
		t.About = "router with a software flowtable (nftables)"
		if f.Masquerade {
			t.About = "router that masquerades, with a software flowtable (nftables)"
		}
		nft.Feature, t.Aggregates = machine.Flowtables, true
	}
	t.Needs = []Need{nft}
	if f.Masquerade {
		nft.Feature, nft.Why = machine.NAT, "clients that share an address"
		t.Needs = append(t.Needs, nft)
	}
	return t
}

// rules returns the table in nft's language. lan is the interface towards the clients, wan the one towards the server.
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

// minOffloaded is the share of the load's connections that must be in the flowtable. It is less than 1 because a new
// connection enters the table with its third packet only.
const minOffloaded = 0.9

// FailedProof reads the connections that the router's kernel tracks. Connections with the server must be in the
// flowtable, and those that clients opened must show the router's address to the server.
func (f Forwarder) FailedProof(ctx context.Context, env Env) (string, error) {
	text, err := queryRouter(
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
	case f.Masquerade && c.untranslated > 0:
		return fmt.Sprintf("%d of %d connections show the client's own address to the server", c.untranslated, c.open), nil
	}
	return "", nil
}

// connections counts the connections that the kernel tracks.
type connections struct {
	open         int // established TCP connections, and UDP flows
	offloaded    int // open connections that are in a flowtable
	untranslated int // open connections from clients that are not masqueraded: answers go to the client's address
}

// countConnections counts the lines of /proc/net/nf_conntrack. A line is one connection: protocol, state, the addresses
// of the direction that opened it, those of the answers, flags. A connection in a flowtable has a flag instead of a
// state. lan is the clients' network, router the address that masquerading uses.
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
			c.untranslated++
		}
	}
	return c
}

// valuesOf returns the values of the fields that begin with a key such as "src=", in their order.
func valuesOf(fields []string, key string) (values []string) {
	for _, field := range fields {
		if value, ok := strings.CutPrefix(field, key); ok {
			values = append(values, value)
		}
	}
	return values
}
