package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/machine"
	"github.com/gateweigh/gateweigh/lab/testbed"
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
	try       func(*bench, context.Context) (found string, err error)
}

// attempts are all features that the lab, its devices or coming data paths use.
var attempts = []attempt{
	{keyNamespaces, "namespaces", "", "a lab's hosts are namespaces without names: they end with the run", Missing, true,
		"run as root on the machine itself, or in a container started with --privileged; the kernel needs CONFIG_NET_NS, CONFIG_PID_NS and CONFIG_UTS_NS", (*bench).start},
	{"kernel.overlayfs", "overlayfs", keyNamespaces, "a gateway that rewrites /etc reaches a private view of it", Warn, false,
		"modprobe overlay; until then each host copies /etc and /var/lib, which takes longer", (*bench).overlay},
	{keyVeth, "veth", keyNamespaces, "links of the lab", Missing, true, "modprobe veth, or a kernel with CONFIG_VETH", (*bench).veth},
	{"kernel.threaded-napi", "threaded NAPI", keyVeth, "forwarding runs on threads of its own: the router's CPU is exact", Missing, true,
		"a kernel from 5.12 on, and the package ethtool", (*bench).threaded},
	{"kernel.gro-max-size", "gro_max_size", "kernel.threaded-napi", "profile per-packet: each packet handled alone", Missing, true, "a kernel from 5.19 on", (*bench).perPacket},
	{"kernel.task-clock", "task clock", "kernel.threaded-napi", "CPU time by thread, from switch to switch", Missing, true,
		"a kernel with CONFIG_PERF_EVENTS and CONFIG_SCHED_INFO, as distributions build it; in a container the capability CAP_PERFMON", (*bench).taskClock},
	{"kernel.macvlan", "macvlan", keyVeth, "each client has a MAC address and a lease of its own", Missing, true, "modprobe macvlan, or a kernel with CONFIG_MACVLAN", (*bench).macvlan},
	{"kernel.bridge", "bridge", keyNamespaces, "several client hosts can share a router's link", Warn, false, "modprobe bridge; only experiments with several client hosts need it", (*bench).bridge},
	{keyNftables, string(machine.Nftables), keyVeth, "rules of openNDS and of allow-lists can be set", Missing, false, "modprobe nf_tables, or a kernel with CONFIG_NF_TABLES; the package nftables", feature(machine.Nftables)},
	{keyIptables, string(machine.IptablesNFT), keyVeth, "rules of openNDS and CoovaChilli can be set", Missing, false,
		"the package iptables, with iptables-nft as its default (update-alternatives --config iptables); modules nft_compat, xt_conntrack and xt_TCPMSS", feature(machine.IptablesNFT)},
	{keyTUN, string(machine.TUN), keyNamespaces, "CoovaChilli can take packets to user space", Missing, false, "modprobe tun, or a kernel with CONFIG_TUN; in a container give it /dev/net/tun", feature(machine.TUN)},
	{"kernel.nfqueue", string(machine.NFQUEUE), keyIptables, "packets can be decided in user space", Warn, false, "modprobe xt_NFQUEUE; only gateway-nfqueue and gateway-nfqueue-fast need it", feature(machine.NFQUEUE)},
	{"kernel.bpf-tc", string(machine.BPFAtTC), keyVeth, "programs can forward packets before the network stack", Warn, false,
		"only gateway-ebpf needs it (modules sch_ingress and cls_bpf)", feature(machine.BPFAtTC)},
}

// bench is two linked hosts to try things on.
type bench struct {
	backend        testbed.Backend
	router, client *testbed.Host
	routerIf, peer string
}

// kernel tries every feature. inside are settings of a new network namespace
// by their name below /proc/sys, as far as they could be read.
func (x examination) kernel(ctx context.Context) (lines []Line, inside map[string]string) {
	lines = []Line{x.release()}
	if x.machine.Root {
		tried, settings := x.attempt(ctx)
		lines, inside = append(lines, tried...), settings
	} else {
		var names []string
		for _, a := range attempts {
			names = append(names, a.what)
		}
		lines = append(lines, Line{
			Key: keyNamespaces, State: Warn, What: "features", Found: "not tried without root: " + strings.Join(names, ", "), Do: needsRoot,
		})
	}
	return append(lines, x.pressure(), x.perf(), x.tracefs()), inside
}

func (x examination) attempt(ctx context.Context) (lines []Line, inside map[string]string) {
	b := &bench{backend: x.backend, routerIf: "gwdoc-r0", peer: "gwdoc-c0"}
	defer b.stop()
	absent := map[string]string{} // what by key
	for _, a := range attempts {
		l := Line{Key: a.key, What: a.what, Means: a.means, Needed: a.needed}
		if lacking := absent[a.after]; lacking != "" {
			l.State, l.Found, l.Do, l.Means = a.missing, "not tried: "+lacking+" is missing", "see "+lacking, ""
			absent[a.key] = lacking
			lines = append(lines, l)
			continue
		}
		limited, cancel := context.WithTimeout(ctx, attemptTimeout)
		found, err := a.try(b, limited)
		cancel()
		l.State, l.Found = OK, cmp.Or(found, "works")
		if err != nil {
			l.State, l.Found, l.Do, l.Means = a.missing, reason(err, nil), a.do, ""
			absent[a.key] = a.what
		}
		lines = append(lines, l)
	}
	return lines, b.settings(ctx)
}

const attemptTimeout = 15 * time.Second

func (b *bench) start(ctx context.Context) (string, error) {
	open := func(name string, metered bool, into **testbed.Host) func() error {
		return func() (err error) { *into, err = b.backend.Start(ctx, "doctor/"+name, metered); return err }
	}
	return "two hosts started: network, mount, process and name (UTS)", testbed.Together(
		open("router", true, &b.router), open("client", false, &b.client))
}

func (b *bench) stop() {
	for _, h := range []*testbed.Host{b.router, b.client} {
		if h != nil {
			h.Stop()
		}
	}
}

// shell runs a script on the router; its error carries what the script said.
func (b *bench) shell(ctx context.Context, script string) (string, error) {
	out, err := b.router.Run(ctx, agent.Command{Argv: []string{"sh", "-ec", script, "sh", b.routerIf}})
	if err != nil {
		said := strings.TrimSpace(out.Stderr)
		if first, _, more := strings.Cut(said, "\n"); more {
			said = first
		}
		return "", errors.New(cmp.Or(said, err.Error()))
	}
	return strings.TrimSpace(out.Stdout), nil
}

func (b *bench) overlay(ctx context.Context) (string, error) {
	mounts, err := b.shell(ctx, "cat /proc/self/mounts")
	if err != nil {
		return "", err
	}
	if fstype := mountedOn(mounts, "/etc"); fstype != "overlay" {
		return "", fmt.Errorf("/etc of a host is a copy (%s)", cmp.Or(fstype, "no mount"))
	}
	return "a host's /etc is an overlay", nil
}

// mountedOn is the type of the last file system mounted on a directory, from
// /proc/self/mounts; empty when there is none.
func mountedOn(mounts, dir string) (fstype string) {
	for line := range strings.Lines(mounts) {
		if f := strings.Fields(line); len(f) > 2 && f[1] == dir {
			fstype = f[2]
		}
	}
	return fstype
}

func (b *bench) veth(ctx context.Context) (string, error) {
	_, _, err := b.backend.Connect(ctx, testbed.End{Host: b.router, If: b.routerIf}, testbed.End{Host: b.client, If: b.peer})
	return "", err
}

// link configures both ends as the lab does.
func (b *bench) link(ctx context.Context, aggregate bool) error {
	end := func(h *testbed.Host, name, addr string) error {
		return h.Apply(ctx, agent.Network{Links: []agent.Link{{
			Name: name, Addrs: []netip.Prefix{netip.MustParsePrefix(addr)}, TxChecksum: true, Aggregate: aggregate, QueueLen: 100, CPUs: h.CPUs,
		}}})
	}
	return testbed.Together(
		func() error { return end(b.router, b.routerIf, "192.168.137.254/24") },
		func() error { return end(b.client, b.peer, "192.168.137.253/24") })
}

func (b *bench) threaded(ctx context.Context) (string, error) { return "", b.link(ctx, true) }

func (b *bench) perPacket(ctx context.Context) (string, error) { return "", b.link(ctx, false) }

func (b *bench) taskClock(ctx context.Context) (string, error) {
	if err := b.router.OpenMeter(ctx, agent.Meter{IfNames: []string{b.routerIf}, Follow: true}); err != nil {
		return "", err
	}
	_, err := b.router.Sample(ctx)
	return "", err
}

func (b *bench) macvlan(ctx context.Context) (string, error) {
	return "", b.client.CreateClients(ctx, client.Config{Kind: client.KindMacvlan, Count: 1, Parent: b.peer, LAN: testbed.DefaultLAN, Lab: 'd'})
}

func (b *bench) bridge(ctx context.Context) (string, error) {
	return b.shell(ctx, "ip link add gwdoc-br type bridge")
}

// feature tries what devices need of the kernel, as their Check does.
func feature(f machine.Feature) func(*bench, context.Context) (string, error) {
	return func(b *bench, ctx context.Context) (string, error) { return b.shell(ctx, f.Script()) }
}

// settings reads what each new network namespace begins with: the machine's own
// values are not inherited.
func (b *bench) settings(ctx context.Context) map[string]string {
	found := map[string]string{}
	if b.router == nil {
		return found
	}
	for _, name := range []string{machine.PortRange, machine.Backlog} {
		if text, err := b.shell(ctx, "cat /proc/sys/"+name); err == nil {
			found[name] = text
		}
	}
	return found
}

func (x examination) release() Line {
	return Line{Key: "kernel.release", State: OK, What: "release", Found: x.machine.Release,
		Means: "results hold for this kernel: keep it while you compare"}
}

func (x examination) pressure() Line {
	l := Line{Key: "kernel.psi", State: OK, What: "pressure (PSI)", Means: "information: it is high while other programs run"}
	text := x.machine.Pressure
	if text == "" {
		l.State, l.Found, l.Means = Warn, "no /proc/pressure/cpu", ""
		l.Do = "nothing for measurements (CONFIG_PSI, or psi=1 on the kernel's command line)"
		return l
	}
	l.Found = fmt.Sprintf("something waited for a CPU in %s %% of the last 10 s", firstField(text, "avg10="))
	return l
}

// firstField is the value of the first field with a prefix.
func firstField(text, prefix string) string {
	fields := strings.Fields(text)
	if i := slices.IndexFunc(fields, func(f string) bool { return strings.HasPrefix(f, prefix) }); i >= 0 {
		return strings.TrimPrefix(fields[i], prefix)
	}
	return ""
}

func (x examination) perf() Line {
	l := Line{Key: "kernel.perf", State: OK, What: "perf events", Means: "run --profile can sample the router's CPU"}
	level := x.machine.PerfParanoid
	if level == nil {
		l.State, l.Found, l.Means = Warn, "the kernel has no perf events", ""
		l.Do = "a kernel with CONFIG_PERF_EVENTS, which the task clocks need as well"
		return l
	}
	l.Found = fmt.Sprintf("perf_event_paranoid is %d", *level)
	switch {
	case x.machine.Root:
		l.Found += ", which does not bind root"
	case *level > 0:
		l.State, l.Means, l.Do = Warn, "", "measure as root, as runs ask for anyway"
	}
	return l
}

func (x examination) tracefs() Line {
	l := Line{Key: "kernel.tracefs", State: OK, What: "tracefs", Found: "mounted on /sys/kernel/tracing", Means: "kernel functions can be traced by name"}
	switch x.machine.Tracing {
	case machine.TracingDenied:
		l.State, l.Found, l.Means, l.Do = Warn, "only root sees it", "", needsRoot
	case machine.TracingAbsent:
		l.State, l.Found, l.Means = Warn, "not mounted", ""
		l.Do = "nothing for measurements; to trace the kernel: sudo mount -t tracefs tracefs /sys/kernel/tracing"
	}
	return l
}
