package dut

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math/bits"
	"net/netip"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/machine"
)

// Gateway is gatewayd, the gateway of this project, with accounts at a
// FreeRADIUS. To the lab it is a program like any other.
type Gateway struct {
	portal
	experiment.Variant
	about    string // begins the line for reports; empty: it says what gatewayd is
	sessions int    // admitted in all, clients among them; 0: clients only
	program  string // gatewayd on the router
}

var _ Counted = (*Gateway)(nil)

// NewGateway makes a gatewayd with parameters, for a number of clients.
func NewGateway(v experiment.Variant, clients int) *Gateway {
	v.Path = cmp.Or(v.Path, experiment.PathEBPF)
	admission := client.Admission{Kind: client.AdmitForm}
	g := &Gateway{portal: portal{clients: clients, WebPort: 8080, Admission: admission}, Variant: v}
	if v.PPPoE {
		g.Admission.Kind = client.AdmitNone
	}
	return g
}

// fastSuffix ends the names of data paths that are optimised, instead of as studied.
const fastSuffix = "-fast"

// Datapath is the kind of the data path, and Fast its mode, as gatewayd's configuration has them.
func (g *Gateway) Datapath() string { return strings.TrimSuffix(g.Path, fastSuffix) }
func (g *Gateway) Fast() bool       { return strings.HasSuffix(g.Path, fastSuffix) }

// NFTQueue is gatewayd with its data path "nfqueue" where nftables itself queues every packet of a client for it. The
// same gateway without that asks for its own way, and uses iptables' target where the kernel has no other.
type NFTQueue struct{ *Gateway }

var (
	_ Counted = NFTQueue{}
	_ Proven  = NFTQueue{}
)

// NewNFTQueue makes one for a number of clients.
func NewNFTQueue(clients int) NFTQueue {
	return NFTQueue{NewGateway(experiment.Variant{Path: experiment.PathNFQueue}, clients)}
}

// Traits are gatewayd's, with another feature of the kernel.
func (q NFTQueue) Traits() Traits {
	t := q.Gateway.Traits()
	t.Needs = slices.Clone(t.Needs)
	t.Needs[0].Feature = machine.NFTQueue
	t.Needs = append(t.Needs, Need{Program: "nft", Package: "nftables", Why: "seeing that nftables queues"})
	t.About = "gatewayd, each packet queued by nftables (nft queue), RADIUS accounts (CHAP)"
	return t
}

// queueStatement is nftables' own, as nft lists it: "queue num 0", "queue flags fanout to 0-1".
var queueStatement = regexp.MustCompile(`(?m)(^|\s)queue (flags \S+ )?(num|to) `)

// Unlike looks for the rule that queues. Where the kernel lacks it, gatewayd's rules have iptables' target.
func (q NFTQueue) Unlike(ctx context.Context, env Env) (string, error) {
	rules, err := ask(ctx, env, "nft", "list", "ruleset", "ip")
	if err != nil || queueStatement.MatchString(rules) {
		return "", err
	}
	return "none of the router's rules is nftables' queue statement", nil
}

// External says whether leases and names are another program's, as study 1's
// proprietary portal had them.
func (g *Gateway) External() bool { return g.Datapath() == experiment.PathNFQueue }

// gatewaydNeed is gatewayd on PATH or, as make build leaves it, beside the lab's own program.
var gatewaydNeed = Need{Program: "gatewayd", NextToLab: true,
	Advice: "make build in Gateweigh's source, and its bin directory on PATH", Why: "the gateway"}

// dataPathNeeds are the kernel's features that data paths are of no use without.
var dataPathNeeds = map[string]machine.Feature{
	"ebpf": machine.BPFAtTC, "nfqueue": machine.PacketQueue, "tun": machine.TUN, "kernel": machine.PPPoE}

// Traits: gatewayd, or its dnsmasq, leases addresses, and needs nothing of its links.
func (g *Gateway) Traits() Traits {
	about := "gatewayd, data path " + g.Path + ", RADIUS accounts (CHAP)"
	if g.sessions > 0 {
		about += fmt.Sprintf(", %d sessions", g.sessions)
	}
	if g.PPPoE {
		about = g.aboutLines()
	} else if g.NAT {
		about += ", masquerade"
	}
	gatewayd := gatewaydNeed
	gatewayd.Feature = dataPathNeeds[g.Datapath()]
	needs := []Need{gatewayd}
	if g.External() {
		needs = append(needs, Need{Program: "dnsmasq", Package: "dnsmasq-base", Why: "leases and names"})
	}
	var threads []string
	if g.Path == experiment.PathKernel {
		threads = kernelOfPPP
	}
	if g.Limited != "" {
		about += ", each client limited to " + g.Limited + "bit/s"
		if g.Datapath() == experiment.PathEBPF {
			needs = append(needs, Need{Program: "tc", Package: "iproute2", Why: "giving gatewayd the links' queues"})
		}
	}
	if g.about != "" {
		about = fmt.Sprintf("%s (%s)", g.about, about)
	}
	return Traits{
		LAN:           g.lan(),
		DHCP:          true,
		Lines:         g.PPPoE,
		Neighbours:    true, // with "tun" there are none: clients are behind a device without
		KernelThreads: threads,
		Gathers:       g.Path == experiment.PathTUNFast || g.cachesFlows(g.NAT),
		Admission:     g.Admission,
		Needs:         append(needs, radiusNeeds...),
		About:         about,
		Login:         3 * time.Millisecond, PersonaLogin: 900 * time.Microsecond, // 65,000 took 52 to 58 s
	}
}

// cachesFlows reports whether gatewayd caches flows, on a router with rules of netfilter or without. A packet a second
// of each flow then takes the IP layer, and the others pass it by: what the layer counts says nothing of the frames in
// a packet. Without rules it counts next to nothing, which is known to mean that (see cost's aggregation), or all
// packets, which are then held to the profile. What the test misses with rules, a device that has the kernel gather the
// packets of a profile per-packet, gatewayd does not do: it changes no link's offloads, and the clean router's links,
// which are set alike, are held to the profile.
func (g *Gateway) cachesFlows(ruled bool) bool { return g.Path == experiment.PathEBPF && ruled }

// lan is a network with addresses for all clients.
func (g *Gateway) lan() netip.Prefix {
	switch n := max(g.clients, g.sessions); {
	case n+firstSilent >= 1<<16:
		return netip.MustParsePrefix("10.0.0.0/14")
	case n > 200, g.sessions > 0:
		return netip.MustParsePrefix("10.1.0.0/16")
	}
	return netip.MustParsePrefix("10.1.0.0/24")
}

// Pool are the addresses that gatewayd leases; empty: all.
func (g *Gateway) Pool() string {
	if g.sessions == 0 {
		return ""
	}
	return fmt.Sprintf("%s-%s", g.Gateway.Next(), hostOf(g.LAN, firstSilent-1))
}

// Start starts FreeRADIUS on the server and gatewayd on the router, and returns
// once the portal's port and the control socket answer.
func (g *Gateway) Start(ctx context.Context, env Env) error {
	g.open(env, "gatewayd")
	if err := g.startRADIUS(ctx); err != nil {
		return err
	}
	if err := g.configure(ctx); err != nil {
		return fmt.Errorf("configuring gatewayd: %w", err)
	}
	signs := []probe{
		{"its control socket does not answer", g.program + " status --socket " + path.Join(g.Dir, "control.sock")}}
	if !g.PPPoE {
		signs = append(signs, listens("its portal does not listen", "t", g.WebPort))
	}
	err := g.run(ctx, daemon{host: g.Host("router"), name: "gatewayd"},
		[]string{g.program, "run", "-c", path.Join(g.Dir, "gatewayd.toml")},
		signs...)
	if err != nil {
		return err
	}
	if err := g.logInSilent(ctx); err != nil {
		return err
	}
	if g.PPPoE {
		return nil
	}
	g.admits(32)
	g.Admission.API = "http://" + g.Admission.Portal + "/api/captive-portal"
	return nil
}

// configure makes gatewayd's folders, sets up the LAN's interface, writes the files and,
// where gatewayd leaves leases and names to another program, starts that. Pins live in a
// file system of their own, which ends with the host.
func (g *Gateway) configure(ctx context.Context) (err error) {
	address := ""
	if g.Datapath() != experiment.PathTUN { // which has a device of its own for the address
		address = netip.PrefixFrom(g.Gateway, g.LAN.Bits()).String()
	}
	err = g.shell(ctx, `mkdir -p "$1/state" "$1/bpf" && mount -t bpf bpf "$1/bpf" && ip link set "$2" up
[ -z "$3" ] || ip addr replace "$3" dev "$2"`, address)
	if err != nil {
		return err
	}
	// gatewayd's ebpf replaces a queue that the kernel made, and leaves one that has a number; the others have no queues.
	if g.Limited != "" && g.Datapath() == experiment.PathEBPF {
		for _, port := range []string{"lan", "wan"} {
			if err = g.shell(ctx, `tc qdisc del dev "$3" root 2>/dev/null || :`, g.Port(port)); err != nil {
				return err
			}
		}
	}
	if g.program, err = g.Install(ctx, gatewaydNeed, g.Dir); err != nil {
		return err
	}
	if err := g.write(ctx, g.Host("router"), g, "gatewayd.toml"); err != nil || !g.External() {
		return err
	}
	lan := g.LAN
	if g.sessions > 0 { // below the addresses of those that never send
		lan = netip.PrefixFrom(lan.Masked().Addr(), 32-bits.TrailingZeros(firstSilent))
	}
	page := fmt.Sprintf("http://%s:%d/api/captive-portal", g.Gateway, g.WebPort)
	return g.lease(ctx, lan, dnsmasq{Leases: path.Join(g.Dir, "leases"), URI: page})
}

// Stop ends gatewayd and its RADIUS server, and takes the programs out of the kernel. The server has gone
// by then, so detach need not tell it that the sessions have ended.
func (g *Gateway) Stop(ctx context.Context, env Env) error {
	return g.stop(ctx, `if [ -e "$1/gatewayd.toml" ]; then
	sed -i '/^acct/d; s/^\[radius\]$/&\naccounting = false/' "$1/gatewayd.toml"
	"$3" detach -c "$1/gatewayd.toml"
fi
umount "$1/bpf" 2>/dev/null || :
ip addr del "$4" dev "$2" 2>/dev/null || :`, g.program, netip.PrefixFrom(env.Gateway, env.LAN.Bits()).String())
}

// firstSilent is the place in the LAN of the first client that never sends. The clients
// that the lab brings have the places below.
const firstSilent = 4096

// The clients fit there, besides the network, the router and the last address.
const _ = uint(firstSilent - 3 - experiment.MaxAmongSessions)

// Fill has Start return with so many clients admitted, less those that the lab will
// bring: clients that never send. It is called before anything else.
func (g *Gateway) Fill(sessions int) { g.sessions = sessions }

// logInSilent logs the silent clients in, within five minutes. It returns when the accounting
// server has acknowledged all of them, because the daemon works for them until then.
func (g *Gateway) logInSilent(ctx context.Context) error {
	silent := g.sessions - g.clients
	if silent <= 0 {
		return nil
	}
	var list strings.Builder
	for i := range silent {
		fmt.Fprintf(&list, "%s silent 06:00:00:%02x:%02x:%02x\n", hostOf(g.LAN, firstSilent+i), i>>16, i>>8&0xff, i&0xff)
	}
	const login = `cat >"$2/silent"; "$1" login --list "$2/silent" --socket "$2/control.sock" > /dev/null
until "$1" status --json --socket "$2/control.sock" | grep -q '"outbox": 0,'; do sleep 0.5; done`
	_, err := g.Host("router").Run(ctx, agent.Command{
		Argv: []string{"sh", "-ec", login, "sh", g.program, g.Dir}, Stdin: list.String(), Timeout: 5 * time.Minute,
	})
	if err != nil {
		return fmt.Errorf("logging %d clients in that never send: %w", silent, err)
	}
	return nil
}

// Counts asks gatewayd over its control socket.
func (g *Gateway) Counts(ctx context.Context, env Env) (map[string]int, error) {
	text, err := ask(ctx, env, g.program, "status", "--json", "--socket", path.Join(env.Scratch, "gatewayd/control.sock"))
	if err != nil {
		return nil, err
	}
	return gatewayCounts(text)
}

func gatewayCounts(text string) (map[string]int, error) {
	var status struct {
		Sessions map[string]int
		Leases   int
	}
	if err := json.Unmarshal([]byte(text), &status); err != nil {
		return nil, fmt.Errorf("reading gatewayd's status: %w", err)
	}
	known := 0
	for _, n := range status.Sessions {
		known += n
	}
	return map[string]int{"sessions": status.Sessions["authenticated"], "clients": known, "leases": status.Leases}, nil
}
