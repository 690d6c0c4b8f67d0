package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/backend"
	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/dut"
	"github.com/gateweigh/gateweigh/lab/machine"
	"github.com/gateweigh/gateweigh/lab/topology"
)

// Keys of the kernel's lines that other parts refer to.
const (
	keyNamespaces = "kernel.namespaces"
	keyVeth       = "kernel.veth"
	keyNftables   = "kernel.nftables"
	keyIptables   = "kernel.iptables-nft"
	keyTUN        = "kernel.tun"
)

// attempt is one feature and how to try it. What it changes, it changes in
// hosts that end with the examination.
type attempt struct {
	key, what string
	after     string // key of the attempt this one builds on
	means     string // for measurements, when it is there
	missing   State  // what its absence is: Missing, or Warn where nothing needs it yet
	needed    bool   // no experiment runs without it
	do        string // when it is not there
	try       func(*pair, context.Context) (found string, err error)
}

// attempts are all features that the lab, its devices or coming data paths use.
var attempts = []attempt{
	{keyNamespaces, string(machine.Namespaces), "", "a lab's hosts are namespaces without names: they end with the run",
		Missing, true,
		"run as root on the machine itself, or in a container started with --privileged; the kernel needs CONFIG_NET_NS, " +
			"CONFIG_PID_NS and CONFIG_UTS_NS", (*pair).start},
	{"kernel.overlayfs", string(machine.OverlayFS), keyNamespaces,
		"a gateway that rewrites /etc reaches a private view of it", Warn, false,
		"modprobe overlay; until then each host copies /etc and /var/lib, which takes longer", script(overlayScript)},
	{keyVeth, string(machine.Veth), keyNamespaces, "links of the lab", Missing, true,
		"modprobe veth, or a kernel with CONFIG_VETH", (*pair).veth},
	{"kernel.threaded-napi", "threaded NAPI", keyVeth, "forwarding runs on threads of its own: the router's CPU is exact",
		Missing, true,
		"a kernel from 5.12 on, and the package ethtool", tryLink(true)},
	{"kernel.gro-max-size", "gro_max_size", "kernel.threaded-napi", "profile per-packet: each packet handled alone",
		Missing, true, "a kernel from 5.19 on", tryLink(false)},
	{"kernel.task-clock", "task clock", "kernel.threaded-napi", "CPU time by thread, from switch to switch", Missing, true,
		"a kernel with CONFIG_PERF_EVENTS and CONFIG_SCHED_INFO, as distributions build it; in a container the capability " +
			"CAP_PERFMON", (*pair).taskClock},
	{"kernel.macvlan", string(machine.Macvlan), keyVeth, "each client has a MAC address and a lease of its own", Missing,
		true, "modprobe macvlan, or a kernel with CONFIG_MACVLAN", (*pair).macvlan},
	{"kernel.bridge", string(machine.Bridge), keyNamespaces, "several client hosts can share a router's link", Warn, false,
		"modprobe bridge; only experiments with several client hosts need it", script("ip link add gwdoc-br type bridge")},
	{keyNftables, string(machine.Nftables), keyVeth, "rules of openNDS and of allow-lists can be set", Missing, false,
		"modprobe nf_tables, or a kernel with CONFIG_NF_TABLES; the package nftables", script(machine.Nftables.Script())},
	{keyIptables, string(machine.IptablesNFT), keyVeth, "rules of openNDS and CoovaChilli can be set", Missing, false,
		"the package iptables, with iptables-nft as its default (update-alternatives --config iptables); modules " +
			"nft_compat, xt_conntrack and xt_TCPMSS", script(machine.IptablesNFT.Script())},
	{keyTUN, string(machine.TUN), keyNamespaces, "CoovaChilli can take packets to user space", Missing, false,
		"modprobe tun, or a kernel with CONFIG_TUN; in a container give it /dev/net/tun", script(machine.TUN.Script())},
	{"kernel.nfqueue", string(machine.NFQUEUE), keyIptables, "packets can be decided in user space", Warn, false,
		"modprobe xt_NFQUEUE; only gateway-nfqueue and gateway-nfqueue-fast need it, and only without nft queue",
		script(machine.NFQUEUE.Script())},
	{"kernel.nft-queue", string(machine.NFTQueue), keyNftables, "nftables can have packets decided in user space", Warn,
		false, "modprobe nft_queue, or a kernel with CONFIG_NFT_QUEUE; only nft-queue needs it; gateway-nfqueue and " +
			"gateway-nfqueue-fast use it, or NFQUEUE", script(machine.NFTQueue.Script())},
	{"kernel.flowtables", string(machine.Flowtables), keyNftables,
		"nftables can forward connections past the network stack", Warn, false,
		"modprobe nft_flow_offload, or a kernel with CONFIG_NF_FLOW_TABLE, CONFIG_NF_FLOW_TABLE_INET, " +
			"CONFIG_NFT_FLOW_OFFLOAD and CONFIG_NF_CONNTRACK_PROCFS; only nftables-flowtable and flowtable-masquerade need it",
		script(machine.Flowtables.Script())},
	{"kernel.bpf-tc", string(machine.BPFAtTC), keyVeth, "programs can forward packets before the network stack", Warn,
		false,
		"only gateway-ebpf and sink-ebpf need it (modules sch_ingress and cls_bpf)", feature("tc", machine.BPFAtTC)},
	{"kernel.af-xdp", string(machine.AFXDP), keyNamespaces, "frames can be captured before the network stack", Warn, false,
		"a kernel with CONFIG_XDP_SOCKETS; only sink-xdp needs it", feature("ip", machine.AFXDP)},
	optionalFeature("kernel.nat", machine.NAT, "clients can share the router's address",
		"a kernel with CONFIG_NFT_NAT and CONFIG_NFT_MASQ; only devices with NAT need it"),
	optionalFeature(
		"kernel.flow-cache", machine.FlowCache, "gatewayd can redirect flows that netfilter has decided on", ""),
	optionalFeature("kernel.ppp", machine.PPP, "pppd can carry sessions",
		"modprobe ppp_generic ppp_async; only rp-pppoe-… needs it"),
	optionalFeature("kernel.pppoe", machine.PPPoE, "the kernel can carry PPPoE sessions",
		"modprobe pppoe; only accel-ppp, rp-pppoe-kernel and gateway-pppoe-kernel need it"),
	optionalFeature("kernel.token-bucket", machine.TokenBucket, "the link between gateways can have a rate",
		"modprobe sch_tbf; only link.mbps needs it"),
	optionalFeature("kernel.netem", machine.Netem, "that link can delay and lose frames",
		"modprobe sch_netem; only link.delay and link.loss_pct need it"),
	optionalFeature("kernel.ipip", machine.IPIP, tunnels, "modprobe ipip; only ipip needs it"),
	optionalFeature("kernel.gre", machine.GRE, tunnels, "modprobe ip_gre; only gre needs it"),
	optionalFeature("kernel.vxlan", machine.VXLAN, tunnels, "modprobe vxlan; only vxlan needs it"),
	optionalFeature("kernel.wireguard", machine.WireGuard, tunnels,
		"modprobe wireguard; only wireguard needs it, not wireguard-go"),
	optionalFeature(
		"kernel.ovpn-dco", machine.OpenVPNDCO, "OpenVPN can have the kernel encrypt", "only openvpn-dco needs it"),
	optionalFeature("kernel.esp-null", machine.ESPNull, tunnels, "modprobe esp4 crypto_null; only ipsec-null needs it"),
	optionalFeature(
		"kernel.esp-aes-cbc", machine.ESPCBC, tunnels, "modprobe esp4 cbc authenc; only ipsec-aes-cbc-sha1 needs it"),
	optionalFeature("kernel.esp-aes-gcm", machine.ESPGCM, tunnels, "modprobe esp4 gcm seqiv; only ipsec-aes-gcm needs it"),
	optionalFeature("kernel.esp-chacha20", machine.ESPChaCha, tunnels,
		"modprobe esp4 chacha20poly1305; only ipsec-chacha20 needs it"),
	optionalFeature("kernel.esp-blowfish", machine.ESPBlowfish, tunnels,
		"modprobe esp4 blowfish_generic; only ipsec-blowfish needs it"),
}

// tunnels is the Means of checks of tunnels in the kernel.
const tunnels = "gateways can have such a tunnel in the kernel"

// optionalFeature is a feature that single devices need, which is tried in a network namespace of its own. What
// distributions lack says itself how to get it.
func optionalFeature(key string, f machine.Feature, means, do string) attempt {
	if f.Advice() != "" {
		do = strings.TrimPrefix(do+": "+f.Advice(), ": ")
	}
	return attempt{key, string(f), keyNamespaces, means, Warn, false, do,
		shell("unshare", "--net", "sh", "-ec", f.Script(), "sh", "lo")}
}

// linkNames is how the names of the pair's link begin, with this process's ID: polling threads of all networks of the
// machine are told apart by at most ten bytes of their names, and others may examine the machine at the same time.
func linkNames() string { return "gd" + strconv.FormatInt(int64(os.Getpid()), 36) }

// pair is two linked hosts to try things on.
type pair struct {
	backend        backend.Backend
	router, client *backend.Host
	routerIf, peer string
}

// overlayScript tells whether a host's /etc is an overlay, or a copy.
const overlayScript = `t=$(stat -f -c %T /etc)
[ "$t" = overlayfs ] || { echo "/etc of a host is a copy ($t)" >&2; exit 1; }
echo "a host's /etc is an overlay"`

// kernel tries every feature. inside are settings of a new network namespace
// by their name below /proc/sys, as far as they could be read.
func (x examination) kernel(ctx context.Context) (lines []Check, inside map[string]string) {
	lines = []Check{checkOf(
		"kernel.release", "release", x.machine.Release, "results hold for this kernel: keep it while you compare", "")}
	if x.machine.Root {
		tried, settings := x.attempt(ctx)
		lines, inside = append(lines, tried...), settings
	} else {
		var names []string
		for _, a := range attempts {
			names = append(names, a.what)
		}
		lines = append(lines,
			checkOf(keyNamespaces, "features", "not tried without root: "+strings.Join(names, ", "), "", needsRoot))
	}
	return append(lines, x.pressure(), x.perf(), x.tracefs()), inside
}

func (x examination) attempt(ctx context.Context) (lines []Check, inside map[string]string) {
	links := linkNames()
	b := &pair{backend: x.backend, routerIf: links + "r0", peer: links + "c0"}
	defer b.stop()
	absent := map[string]string{} // what by key
	for _, a := range attempts {
		l := Check{Key: a.key, What: a.what, State: a.missing, Needed: a.needed}
		if lacking := absent[a.after]; lacking != "" {
			l.Found, l.Do = "not tried: "+lacking+" is missing", "see "+lacking
			absent[a.key] = lacking
			lines = append(lines, l)
			continue
		}
		limited, cancel := context.WithTimeout(ctx, attemptTimeout)
		found, err := a.try(b, limited)
		cancel()
		if err != nil {
			l.Found, l.Do = reason(err), x.explainRefusal(err)
			if l.refused = l.Do != ""; !l.refused {
				l.Do = a.do + kernelWith(machine.Feature(a.what))
			}
			absent[a.key] = a.what
		} else {
			l.State, l.Found, l.Means = OK, cmp.Or(found, "works"), a.means
		}
		lines = append(lines, l)
	}
	return lines, b.settings(ctx)
}

// explainRefusal returns the remedy for a refusal that comes from this process's environment, such as a container. It
// is "" for other errors.
func (x examination) explainRefusal(err error) string {
	if bar, is := errors.AsType[refusal](err); is {
		return bar.do
	}
	text := err.Error()
	if len(x.machine.Bars) == 0 || !slices.ContainsFunc([]string{"not permitted", "ermission denied",
		machine.HiddenThreads}, func(word string) bool { return strings.Contains(text, word) }) {
		return ""
	}
	var steps []string
	for _, b := range x.machine.Bars {
		if strings.Contains(text, b.What) {
			steps = append(steps, b.Do)
		} else {
			steps = append(steps, b.String())
		}
	}
	return strings.Join(steps, "; ")
}

// kernelWith names a kernel that has what this machine's kernel was built without, "" where none is known.
func kernelWith(f machine.Feature) string {
	if other := dut.OtherKernel(f); other != "" && f.Unset() != "" {
		return "; or run with --kernel " + other
	}
	return ""
}

const attemptTimeout = time.Minute // as long as modules take to load in an emulated machine

func (b *pair) start(ctx context.Context) (string, error) {
	open := func(name string, metered bool, into **backend.Host) func() error {
		return func() (err error) { *into, err = b.backend.Start(ctx, "doctor/"+name, metered); return err }
	}
	return "two hosts started: network, mount, process and name (UTS)", backend.Together(
		open("router", true, &b.router), open("client", false, &b.client))
}

func (b *pair) stop() {
	for _, h := range []*backend.Host{b.router, b.client} {
		if h != nil {
			h.Stop()
		}
	}
}

// script tries a feature by a shell script on the router; the error carries what the script said.
func script(text string) func(*pair, context.Context) (string, error) {
	return func(b *pair, ctx context.Context) (string, error) {
		return shell("sh", "-ec", text, "sh", b.routerIf)(b, ctx)
	}
}

// refusal is the error of a feature that rights are missing for, with what to do.
type refusal struct{ what, do string }

func (r refusal) Error() string { return r.what }

// feature tries a feature as devices that need it are checked, with the rights that it takes.
func feature(program string, f machine.Feature) func(*pair, context.Context) (string, error) {
	return func(b *pair, ctx context.Context) (string, error) {
		found, err := b.router.Find(ctx, machine.Query{Needs: []dut.Need{{Program: program, Feature: f}}, Features: true})
		if err == nil {
			switch what, do, refused := strings.Cut(found[0].NotPermitted, machine.Arrow); {
			case refused:
				err = refusal{what, do}
			case found[0].Path == "":
				err = errors.New(program + " is not on PATH")
			case found[0].FeatureError != "":
				err = errors.New(found[0].FeatureError)
			}
		}
		return "", err
	}
}

// shell tries a feature by a command on the router.
func shell(argv ...string) func(*pair, context.Context) (string, error) {
	return func(b *pair, ctx context.Context) (string, error) {
		out, err := b.router.Run(ctx, agent.Command{Argv: argv})
		if err != nil {
			text, _, _ := strings.Cut(strings.TrimSpace(out.Stderr), "\n")
			return "", errors.New(cmp.Or(text, err.Error()))
		}
		return strings.TrimSpace(out.Stdout), nil
	}
}

func (b *pair) veth(ctx context.Context) (string, error) {
	_, _, err := b.backend.Connect(
		ctx, backend.End{Host: b.router, If: b.routerIf}, backend.End{Host: b.client, If: b.peer})
	return "", err
}

// tryLink tries to configure both ends of the link as the lab does.
func tryLink(aggregate bool) func(*pair, context.Context) (string, error) {
	return func(b *pair, ctx context.Context) (string, error) {
		end := func(h *backend.Host, name, addr string) func() error {
			return func() error {
				return h.Apply(ctx, agent.Network{Links: []agent.Link{{
					Name: name, Addrs: []netip.Prefix{netip.MustParsePrefix(addr)}, TxChecksum: true, Aggregate: aggregate,
					QueueLen: 100, CPUs: h.CPUs,
				}}})
			}
		}
		return "", backend.Together(
			end(b.router, b.routerIf, "192.168.137.254/24"), end(b.client, b.peer, "192.168.137.253/24"))
	}
}

func (b *pair) taskClock(ctx context.Context) (string, error) {
	if err := b.router.OpenMeter(ctx, agent.Meter{IfNames: []string{b.routerIf}, Follow: true}); err != nil {
		return "", err
	}
	_, err := b.router.Sample(ctx)
	return "", err
}

func (b *pair) macvlan(ctx context.Context) (string, error) {
	return "", b.client.CreateClients(
		ctx, client.Config{Kind: client.KindMacvlan, Count: 1, Parent: b.peer, LAN: topology.DefaultLAN, Lab: 'd'})
}

// settings reads what each new network namespace begins with: the machine's own
// values are not inherited.
func (b *pair) settings(ctx context.Context) map[string]string {
	found := map[string]string{}
	for _, name := range []string{machine.PortRange, machine.Backlog} {
		if b.router == nil {
			break
		}
		if text, err := script("cat /proc/sys/"+name)(b, ctx); err == nil {
			found[name] = text
		}
	}
	return found
}

func (x examination) pressure() Check {
	found, do := "no /proc/pressure/cpu", "nothing for measurements (CONFIG_PSI, or psi=1 on the kernel's command line)"
	if _, text, shown := strings.Cut(x.machine.Pressure, "avg10="); shown {
		avg, _, _ := strings.Cut(text, " ")
		found, do = fmt.Sprintf("something waited for a CPU in %s %% of the last 10 s", avg), ""
	}
	return checkOf("kernel.psi", "pressure (PSI)", found, "information: it is high while other programs run", do)
}

func (x examination) perf() Check {
	found, do := "the kernel has no perf events", "a kernel with CONFIG_PERF_EVENTS, which the task clocks need as well"
	if level := x.machine.PerfParanoid; level != nil {
		found, do = fmt.Sprintf("perf_event_paranoid is %d", *level), ""
		if x.machine.Root {
			found += ", which does not bind root"
		} else if *level > 0 {
			do = "measure as root, as runs ask for anyway"
		}
		if x.machine.Root && x.machine.Hidden != "" {
			do = x.machine.Hidden
		}
	}
	return checkOf("kernel.perf", "perf events", found, "run --profile can sample the router's CPU", do)
}

func (x examination) tracefs() Check {
	found, do := "mounted on /sys/kernel/tracing", ""
	switch x.machine.Tracing {
	case machine.TracingDenied:
		found, do = "only root sees it", needsRoot
	case machine.TracingAbsent:
		found, do = "not mounted",
			"nothing for measurements; to trace the kernel: sudo mount -t tracefs tracefs /sys/kernel/tracing"
	}
	return checkOf("kernel.tracefs", "tracefs", found, "kernel functions can be traced by name", do)
}
