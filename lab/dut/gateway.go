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
	about    string // an experiment's description of it, for reports; empty: none
	sessions int    // number of sessions, those of the lab's clients included; 0: only these
	program  string // path of gatewayd on the router
	shared   *sharedLines
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

// NFTQueue is gatewayd with data path "nfqueue" whose packets must reach it through nftables' queue statement. A plain
// Gateway with that data path also accepts iptables' NFQUEUE target, which gatewayd uses on kernels without the
// statement. Measured as a device of its own, NFTQueue shows what the statement costs.
type NFTQueue struct{ *Gateway }

var (
	_ Counted  = NFTQueue{}
	_ Provable = NFTQueue{}
)

// NewNFTQueue makes one for a number of clients.
func NewNFTQueue(clients int) NFTQueue {
	return NFTQueue{NewGateway(experiment.Variant{Path: experiment.PathNFQueue}, clients)}
}

// Traits are gatewayd's; the kernel must have nftables' queue statement.
func (q NFTQueue) Traits() Traits {
	t := q.Gateway.Traits()
	t.Needs = slices.Clone(t.Needs)
	t.Needs[0].Feature = machine.NFTQueue
	t.Needs = append(t.Needs, Need{Program: "nft", Package: "nftables", Why: "seeing that nftables queues"})
	t.About = "gatewayd, each packet queued by nftables (nft queue), RADIUS accounts (CHAP)"
	return t
}

// queueStatement matches nftables' queue statement in the output of nft: "queue num 0", "queue flags fanout to 0-1".
var queueStatement = regexp.MustCompile(`(?m)(^|\s)queue (flags \S+ )?(num|to) `)

// FailedProof checks that a rule has nftables' queue statement. On a kernel without it, gatewayd uses iptables' NFQUEUE
// target instead.
func (q NFTQueue) FailedProof(ctx context.Context, env Env) (string, error) {
	rules, err := queryRouter(ctx, env, "nft", "list", "ruleset", "ip")
	if err != nil || queueStatement.MatchString(rules) {
		return "", err
	}
	return "none of the router's rules is nftables' queue statement", nil
}

// UsesDnsmasq reports whether dnsmasq serves DHCP and DNS instead of gatewayd, as in study 1's proprietary portal. The
// template of gatewayd's configuration calls it.
func (g *Gateway) UsesDnsmasq() bool { return g.Datapath() == experiment.PathNFQueue }

// gatewaydNeed is the program gatewayd, on PATH or in the folder of the lab's own program, where make build puts it.
var gatewaydNeed = Need{Program: "gatewayd", NextToLab: true,
	Advice: "make build in Gateweigh's source, and its bin directory on PATH", Why: "the gateway"}

// dataPathNeeds are the kernel features that gatewayd's data paths need.
var dataPathNeeds = map[string]machine.Feature{
	"ebpf": machine.BPFAtTC, "nfqueue": machine.PacketQueue, "tun": machine.TUN, "kernel": machine.PPPoE}

// Traits depend on the variant. gatewayd, or the dnsmasq beside it, always leases the addresses.
func (g *Gateway) Traits() Traits {
	about := "gatewayd, data path " + g.Path + ", RADIUS accounts (CHAP)"
	if g.sessions > 0 {
		about += fmt.Sprintf(", %d sessions", g.sessions)
	}
	if g.PPPoE {
		about = g.aboutPPPoE()
	} else if g.NAT {
		about += ", masquerade"
	}
	gatewayd := gatewaydNeed
	gatewayd.Feature = dataPathNeeds[g.Datapath()]
	needs := []Need{gatewayd}
	if g.UsesDnsmasq() {
		needs = append(needs, Need{Program: "dnsmasq", Package: "dnsmasq-base", Why: "leases and names"})
	}
	var threads []string
	if g.Path == experiment.PathKernel {
		threads = pppThreads
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
	return g.withFamilies(Traits{
		LAN:           g.lan(),
		DHCP:          true,
		PPPoE:         g.PPPoE,
		Neighbours:    true, // with "tun" there are none: clients are behind a device without
		KernelThreads: threads,
		Aggregates:    g.Path == experiment.PathTUNFast || g.cachesFlows(g.NAT),
		Admission:     g.Admission,
		Needs:         append(needs, radiusNeeds...),
		About:         about,
		Login:         3 * time.Millisecond, PersonaLogin: 900 * time.Microsecond, // 65,000 took 52 to 58 s
	})
}

// withFamilies returns the traits with the families that the variant forwards.
func (g *Gateway) withFamilies(t Traits) Traits {
	if t.NoIPv6 = g.noIPv6(); t.NoIPv6 == "" {
		t.Families, t.LeasesIPv4 = bothFamilies, true
	}
	return t
}

// noIPv6 says why the variant forwards no IPv6, as the end of a sentence; empty: it forwards it.
func (g *Gateway) noIPv6() string {
	switch {
	case g.Ident != "":
		return "the lab's ident queries are of IPv4 connections"
	case g.Path == experiment.PathKernel:
		return "the lab gives clients IPv6 in sessions with gatewayd's data path \"ebpf\" alone"
	case g.Datapath() != experiment.PathEBPF:
		return fmt.Sprintf("gatewayd's data path %q has no IPv6", g.Datapath())
	case g.NAT:
		return "what is measured is masquerading, and gatewayd translates no IPv6"
	}
	return ""
}

// Address6 is the address of the LAN's interface in the clients' IPv6 network, "ADDRESS/64"; empty: they have none.
func (g *Gateway) Address6() string {
	if !g.Gateway6.IsValid() {
		return ""
	}
	return netip.PrefixFrom(g.Gateway6, g.LAN6.Bits()).String()
}

// cachesFlows reports whether gatewayd forwards by its flow cache while some packets still pass the kernel's IP layer.
// That is so for data path "ebpf" on a router with netfilter rules (ruled): one packet a second of each flow takes the
// IP layer, and the others go past it.
//
// The lab usually finds aggregation by dividing the frames of the links by the packets of the IP layer. With a flow
// cache that quotient is wrong, so Traits.Aggregates turns the check off. Nothing is lost by that: gatewayd does not
// change the links' offloads, and the clean router's links, which have the same settings, are still checked. Without
// rules the IP layer counts either all packets or nearly none, and the check recognises both.
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

// Pool is the range of addresses that gatewayd leases, "FIRST-LAST"; empty: the whole network.
func (g *Gateway) Pool() string {
	if g.sessions == 0 {
		return ""
	}
	return fmt.Sprintf("%s-%s", g.Gateway.Next(), hostOf(g.LAN, firstSilent-1))
}

// Shared is what the gateway shares with others; nil: nothing.
func (g *Gateway) Shared() *sharedLines { return g.shared }

// Start starts FreeRADIUS on the server and gatewayd on the router, and returns
// once the portal's port and the control socket answer.
func (g *Gateway) Start(ctx context.Context, env Env) error {
	g.setEnv(env, "gatewayd")
	if err := g.startRADIUS(ctx); err != nil {
		return err
	}
	if err := g.configure(ctx); err != nil {
		return fmt.Errorf("configuring gatewayd: %w", err)
	}
	probes := []probe{
		{"its control socket does not answer", g.program + " status --socket " + path.Join(g.Dir, "control.sock")}}
	if !g.PPPoE {
		probes = append(probes, listens("its portal does not listen", "t", g.WebPort))
	}
	err := g.run(ctx, daemon{host: g.Host("router"), name: "gatewayd"},
		[]string{g.program, "run", "-c", path.Join(g.Dir, "gatewayd.toml")},
		probes...)
	if err != nil {
		return err
	}
	if err := g.logInSilent(ctx); err != nil {
		return err
	}
	if g.PPPoE {
		return nil
	}
	g.setLogin(32)
	const api = "/api/captive-portal"
	g.Admission.API = "http://" + g.Admission.Portal + api
	if g.Admission.Portal6 != "" {
		g.Admission.API6 = "http://" + g.Admission.Portal6 + api
	}
	return nil
}

// configure makes gatewayd's folders, sets up the LAN's interface, and writes the files. Where dnsmasq serves leases
// and names (UsesDnsmasq), it starts that. gatewayd's pinned eBPF programs are in a file system that ends with the
// host.
func (g *Gateway) configure(ctx context.Context) (err error) {
	address := ""
	if g.Datapath() != experiment.PathTUN { // that data path gives the address to its TUN device
		address = netip.PrefixFrom(g.Gateway, g.LAN.Bits()).String()
	}
	err = g.shell(ctx, `mkdir -p "$1/state" "$1/bpf" && mount -t bpf bpf "$1/bpf" && ip link set "$2" up
[ -z "$3" ] || ip addr replace "$3" dev "$2"`, address)
	if err != nil {
		return err
	}
	// To limit rates, data path "ebpf" replaces an interface's queue where the kernel made it, and leaves one that
	// somebody added, which has a number. So added ones are removed. Other data paths use no queues.
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
	if err := g.write(ctx, g.Host("router"), g, "gatewayd.toml"); err != nil || !g.UsesDnsmasq() {
		return err
	}
	lan := g.LAN
	if g.sessions > 0 { // below the addresses of silent clients
		lan = netip.PrefixFrom(lan.Masked().Addr(), 32-bits.TrailingZeros(firstSilent))
	}
	page := fmt.Sprintf("http://%s:%d/api/captive-portal", g.Gateway, g.WebPort)
	return g.lease(ctx, lan, dnsmasq{Leases: path.Join(g.Dir, "leases"), URI: page})
}

// Stop ends gatewayd and the RADIUS server, and removes the eBPF programs from the kernel ("gatewayd detach"). detach
// runs with accounting turned off, because the RADIUS server has ended by then.
func (g *Gateway) Stop(ctx context.Context, env Env) error {
	return g.stop(ctx, `if [ -e "$1/gatewayd.toml" ]; then
	sed -i '/^acct/d; s/^\[radius\]$/&\naccounting = false/' "$1/gatewayd.toml"
	"$3" detach -c "$1/gatewayd.toml"
fi
umount "$1/bpf" 2>/dev/null || :
ip addr del "$4" dev "$2" 2>/dev/null || :`, g.program, netip.PrefixFrom(env.Gateway, env.LAN.Bits()).String())
}

// firstSilent is the host number in the LAN of the first silent client. The clients of the lab have the numbers below
// it. A silent client has a session and never sends.
const firstSilent = 4096

// This does not compile unless the clients of the lab fit below firstSilent, beside three other addresses: the
// network's, the router's and the last one.
const _ = uint(firstSilent - 3 - experiment.MaxAmongSessions)

// Fill sets how many sessions gatewayd shall have in all. Start then logs in silent clients for those that the lab's
// own clients do not take. Call Fill before Traits and Start.
func (g *Gateway) Fill(sessions int) { g.sessions = sessions }

// logInSilent logs the silent clients in, within five minutes. It returns when the accounting server has acknowledged
// all of them, because until then the daemon has work that must not be measured.
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

// Counts reads gatewayd's status over its control socket: "sessions", "clients" and "leases".
func (g *Gateway) Counts(ctx context.Context, env Env) (map[string]int, error) {
	text, err := queryRouter(
		ctx, env, g.program, "status", "--json", "--socket", path.Join(env.Scratch, "gatewayd/control.sock"))
	if err != nil {
		return nil, err
	}
	return gatewayCounts(text)
}

// gatewayCounts reads the output of "gatewayd status --json".
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
