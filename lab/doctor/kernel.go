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

// Keys of the kernel's checks that other checks refer to.
const (
	keyNamespaces = "kernel.namespaces"
	keyVeth       = "kernel.veth"
	keyNftables   = "kernel.nftables"
	keyIptables   = "kernel.iptables-nft"
	keyTUN        = "kernel.tun"
)

// featureProbe describes a feature and how to try it. A probe changes only hosts that end with the examination.
type featureProbe struct {
	key, subject string
	requires     string // key of the attempt this one builds on
	means        string // for measurements, when it is there
	absent       State  // what its absence is: Missing, or Warn where nothing needs it yet
	needed       bool   // no experiment runs without it
	remedy       string // when it is not there
	try          func(*pair, context.Context) (found string, err error)
}

// featureProbes lists the features that the lab or its devices use.
var featureProbes = []featureProbe{
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
	optionalFeature("kernel.ipv6", machine.IPv6, "clients can have IPv6 (family = 6)",
		"start the kernel without ipv6.disable=1; only experiments with the key family need it"),
	optionalFeature("kernel.ppp", machine.PPP, "pppd can carry sessions",
		"modprobe ppp_generic ppp_async; only rp-pppoe-… needs it"),
	optionalFeature("kernel.pppoe", machine.PPPoE, "the kernel can carry PPPoE sessions",
		"modprobe pppoe; only accel-ppp, rp-pppoe-kernel and gateway-pppoe-kernel need it"),
	optionalFeature("kernel.token-bucket", machine.TokenBucket, "the link between gateways can have a rate",
		"modprobe sch_tbf; only link.mbps needs it"),
	optionalFeature("kernel.netem", machine.Netem, "that link can delay and lose frames",
		"modprobe sch_netem; only link.delay and link.loss_pct need it"),
	optionalFeature("kernel.ipip", machine.IPIP, tunnelMeans, "modprobe ipip; only ipip needs it"),
	optionalFeature("kernel.gre", machine.GRE, tunnelMeans, "modprobe ip_gre; only gre needs it"),
	optionalFeature("kernel.vxlan", machine.VXLAN, tunnelMeans, "modprobe vxlan; only vxlan needs it"),
	optionalFeature("kernel.wireguard", machine.WireGuard, tunnelMeans,
		"modprobe wireguard; only wireguard needs it, not wireguard-go"),
	optionalFeature(
		"kernel.ovpn-dco", machine.OpenVPNDCO, "OpenVPN can have the kernel encrypt", "only openvpn-dco needs it"),
	optionalFeature("kernel.esp-null", machine.ESPNull, tunnelMeans,
		"modprobe esp4 crypto_null; only ipsec-null needs it"),
	optionalFeature(
		"kernel.esp-aes-cbc", machine.ESPCBC, tunnelMeans, "modprobe esp4 cbc authenc; only ipsec-aes-cbc-sha1 needs it"),
	optionalFeature("kernel.esp-aes-gcm", machine.ESPGCM, tunnelMeans,
		"modprobe esp4 gcm seqiv; only ipsec-aes-gcm needs it"),
	optionalFeature("kernel.esp-chacha20", machine.ESPChaCha, tunnelMeans,
		"modprobe esp4 chacha20poly1305; only ipsec-chacha20 needs it"),
	optionalFeature("kernel.esp-blowfish", machine.ESPBlowfish, tunnelMeans,
		"modprobe esp4 blowfish_generic; only ipsec-blowfish needs it"),
}

// tunnelMeans is Check.Means of tunnels in the kernel.
const tunnelMeans = "gateways can have such a tunnel in the kernel"

// optionalFeature is the probe of a feature that only some devices need. It runs in a new network namespace. For a
// feature that distributions lack the remedy contains the feature's own advice.
func optionalFeature(key string, needed machine.Feature, means, do string) featureProbe {
	if needed.Advice() != "" {
		do = strings.TrimPrefix(do+": "+needed.Advice(), ": ")
	}
	return featureProbe{key, string(needed), keyNamespaces, means, Warn, false, do,
		shell("unshare", "--net", "sh", "-ec", needed.Script(), "sh", "lo")}
}

// linkNames returns the prefix of the names of the pair's interfaces. It contains this process's ID because others may
// examine the machine at the same time, and it is short because the name of a polling thread has room for ten bytes of
// the interface's name.
func linkNames() string { return "gd" + strconv.FormatInt(int64(os.Getpid()), 36) }

// pair is two linked hosts on which features are tried.
type pair struct {
	backend        backend.Backend
	router, client *backend.Host
	routerIf, peer string
}

// overlayScript fails when a host's /etc is a copy instead of an overlay.
const overlayScript = `t=$(stat -f -c %T /etc)
[ "$t" = overlayfs ] || { echo "/etc of a host is a copy ($t)" >&2; exit 1; }
echo "a host's /etc is an overlay"`

// kernel tries every feature. netnsSettings are settings of a new network namespace, as far as they could be read,
// by their names below /proc/sys.
func (x examination) kernel(ctx context.Context) (checks []Check, netnsSettings map[string]string) {
	checks = []Check{checkOf(
		"kernel.release", "release", x.machine.Release, "results hold for this kernel: keep it while you compare", "")}
	if x.machine.Root {
		tried, settings := x.probeFeatures(ctx)
		checks, netnsSettings = append(checks, tried...), settings
	} else {
		var names []string
		for _, probe := range featureProbes {
			names = append(names, probe.subject)
		}
		checks = append(checks,
			checkOf(keyNamespaces, "features", "not tried without root: "+strings.Join(names, ", "), "", needsRoot))
	}
	return append(checks, x.pressure(), x.perf(), x.tracefs()), netnsSettings
}

// probeFeatures tries all features of featureProbes on two hosts, which end when it returns.
func (x examination) probeFeatures(ctx context.Context) (checks []Check, netnsSettings map[string]string) {
	links := linkNames()
	hosts := &pair{backend: x.backend, routerIf: links + "r0", peer: links + "c0"}
	defer hosts.stop()
	absent := map[string]string{} // what by key
	for _, probe := range featureProbes {
		check := Check{Key: probe.key, Subject: probe.subject, State: probe.absent, Needed: probe.needed}
		if lacking := absent[probe.requires]; lacking != "" {
			check.Found, check.Remedy = "not tried: "+lacking+" is missing", "see "+lacking
			absent[probe.key] = lacking
			checks = append(checks, check)
			continue
		}
		limited, cancel := context.WithTimeout(ctx, probeTimeout)
		found, err := probe.try(hosts, limited)
		cancel()
		if err != nil {
			check.Found, check.Remedy = reason(err), x.explainRefusal(err)
			if check.noPermission = check.Remedy != ""; !check.noPermission {
				check.Remedy = probe.remedy + kernelWith(machine.Feature(probe.subject))
			}
			absent[probe.key] = probe.subject
		} else {
			check.State, check.Found, check.Means = OK, cmp.Or(found, "works"), probe.means
		}
		checks = append(checks, check)
	}
	return checks, hosts.settings(ctx)
}

// explainRefusal returns the remedy when the process's environment, such as a container, refuses a feature. It returns
// "" for other errors.
func (x examination) explainRefusal(err error) string {
	if bar, is := errors.AsType[refusal](err); is {
		return bar.remedy
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

// kernelWith returns advice to run with another kernel, when this machine's kernel was built without the feature and
// the lab knows a kernel that has it. Otherwise it returns "".
func kernelWith(needed machine.Feature) string {
	if other := dut.OtherKernel(needed); other != "" && needed.Unset() != "" {
		return "; or run with --kernel " + other
	}
	return ""
}

const probeTimeout = time.Minute // on an emulated machine modules load slowly

// start tries network, mount, process and UTS namespaces: it starts both hosts.
func (b *pair) start(ctx context.Context) (string, error) {
	open := func(name string, metered bool, into **backend.Host) func() error {
		return func() (err error) { *into, err = b.backend.Start(ctx, "doctor/"+name, metered); return err }
	}
	return "two hosts started: network, mount, process and name (UTS)", backend.Together(
		open("router", true, &b.router), open("client", false, &b.client))
}

// stop ends both hosts.
func (b *pair) stop() {
	for _, host := range []*backend.Host{b.router, b.client} {
		if host != nil {
			host.Stop()
		}
	}
}

// script tries a feature by a shell script on the router. The error quotes the first line of the script's errors.
func script(text string) func(*pair, context.Context) (string, error) {
	return func(hosts *pair, ctx context.Context) (string, error) {
		return shell("sh", "-ec", text, "sh", hosts.routerIf)(hosts, ctx)
	}
}

// refusal is the error of a feature for which the process lacks rights, with the remedy.
type refusal struct{ text, remedy string }

func (r refusal) Error() string { return r.text }

// feature tries a feature in the way that the lab checks the devices that need it.
func feature(program string, needed machine.Feature) func(*pair, context.Context) (string, error) {
	return func(hosts *pair, ctx context.Context) (string, error) {
		found, err := hosts.router.Find(ctx,
			machine.Query{Needs: []dut.Need{{Program: program, Feature: needed}}, Features: true})
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

// shell tries a feature by a command on the router. It returns the command's output.
func shell(argv ...string) func(*pair, context.Context) (string, error) {
	return func(hosts *pair, ctx context.Context) (string, error) {
		out, err := hosts.router.Run(ctx, agent.Command{Argv: argv})
		if err != nil {
			text, _, _ := strings.Cut(strings.TrimSpace(out.Stderr), "\n")
			return "", errors.New(cmp.Or(text, err.Error()))
		}
		return strings.TrimSpace(out.Stdout), nil
	}
}

// veth tries to connect both hosts by a pair of veths.
func (b *pair) veth(ctx context.Context) (string, error) {
	_, _, err := b.backend.Connect(
		ctx, backend.End{Host: b.router, If: b.routerIf}, backend.End{Host: b.client, If: b.peer})
	return "", err
}

// tryLink tries to configure both ends of the link as the lab does. aggregate is the key of agent.Link: false sets
// gro_max_size, true leaves aggregation on.
func tryLink(aggregate bool) func(*pair, context.Context) (string, error) {
	return func(hosts *pair, ctx context.Context) (string, error) {
		end := func(host *backend.Host, name, addr string) func() error {
			return func() error {
				return host.Apply(ctx, agent.Network{Links: []agent.Link{{
					Name: name, Addrs: []netip.Prefix{netip.MustParsePrefix(addr)}, TxChecksum: true, Aggregate: aggregate,
					QueueLen: 100, CPUs: host.CPUs,
				}}})
			}
		}
		return "", backend.Together(
			end(hosts.router, hosts.routerIf, "192.168.137.254/24"), end(hosts.client, hosts.peer, "192.168.137.253/24"))
	}
}

// taskClock tries to meter a polling thread by its task clock.
func (b *pair) taskClock(ctx context.Context) (string, error) {
	if err := b.router.OpenMeter(ctx, agent.Meter{IfNames: []string{b.routerIf}, Follow: true}); err != nil {
		return "", err
	}
	_, err := b.router.Sample(ctx)
	return "", err
}

// macvlan tries to make a client of kind macvlan.
func (b *pair) macvlan(ctx context.Context) (string, error) {
	return "", b.client.CreateClients(
		ctx, client.Config{Kind: client.KindMacvlan, Count: 1, Parent: b.peer, LAN: topology.DefaultLAN, Lab: 'd'})
}

// settings reads the settings with which each new network namespace begins, by their names below /proc/sys. A namespace
// does not inherit the machine's.
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

// pressure reports whether the kernel tells how long programs wait for a CPU (PSI).
func (x examination) pressure() Check {
	found, do := "no /proc/pressure/cpu", "nothing for measurements (CONFIG_PSI, or psi=1 on the kernel's command line)"
	if _, text, shown := strings.Cut(x.machine.Pressure, "avg10="); shown {
		avg, _, _ := strings.Cut(text, " ")
		found, do = fmt.Sprintf("something waited for a CPU in %s %% of the last 10 s", avg), ""
	}
	return checkOf("kernel.psi", "pressure (PSI)", found, "information: it is high while other programs run", do)
}

// perf checks whether perf may sample the router's CPU.
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

// tracefs reports whether the kernel's functions can be traced.
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
