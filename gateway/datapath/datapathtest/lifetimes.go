package datapathtest

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// lifetimes are the behaviours around the daemon's start and end: what stays when it is closed, killed, stopped by a
// signal or detached, and what a successor finds.
var lifetimes = []behaviour{
	{"OpenShutsOut", openShutsOut, Shape{Without: true}},
	{"ClosedToStrangers", func(t *testing.T, w *World) {
		w.outlives(t, "Close", func() { must(t, w.Close()) })
	}, Shape{}},
	{"KilledClosedToStrangers", func(t *testing.T, w *World) {
		w.outlives(t, "kill -9", func() { w.Kill(t); time.Sleep(w.path.Lingers); w.Start(t) })
	}, Shape{}},
	{"FrozenClosedToStrangers", frozen, Shape{}},
	{"InterfacesMadeAgain", interfacesMadeAgain, Shape{}},
	{"RulesFlushed", rulesFlushed, Shape{}},
	{"RulesFlushedWithoutDaemon", rulesFlushedAlone, Shape{}},
	{"SecondGatewayIsRefused", second, Shape{}},
	{"GatewaysShareTheWAN", beside, Shape{}},
	{"DetachLeavesNothing", detachLeavesNothing, Shape{Without: true}},
	{"DetachAfterInterfacesWent", detachWithoutLinks, Shape{}},
}

// openShutsOut: traffic that the machine forwarded before the gateway started ends with its start.
func openShutsOut(t *testing.T, w *World) {
	if w.path.OwnAddress {
		t.Log("without it the machine has no address in the LAN")
		return
	}
	up, down := w.Up(t, w.Bob), w.Down(t, w.Bob)
	up.Begin()
	down.Begin()
	up.Passes(t, "up, without a gateway")
	down.Passes(t, "down, without a gateway")
	must(t, w.Open())
	up.Stops(t, "up, of an unknown client")
	down.Stops(t, "down, of an unknown client")
	w.lease(t, w.Bob)
	up.Stops(t, "up, before login")
	w.admit(t, w.Bob)
	up.Passes(t, "up, admitted")
	down.Passes(t, "down, admitted")
}

// strangers returns flows from and to stations whose packets may not pass: Bob, before login, and the intruder, without
// a lease.
func (w *World) strangers(t *testing.T) (all []*Flow) {
	t.Helper()
	for _, s := range []Station{w.Bob, w.Intruder} {
		all = append(all, w.Up(t, s), w.Down(t, s))
	}
	return all
}

// noneCame checks that flows have sent packets and none arrived.
func noneCame(t *testing.T, flows []*Flow) {
	t.Helper()
	for i, f := range flows {
		if f.Came() > 0 || f.Sent() == 0 {
			t.Errorf("%d of %d packets of flow %d of strangers arrived", f.Came(), f.Sent(), i)
		}
	}
}

// frozen: while the daemon's process is stopped, as by a debugger, packets of unauthenticated clients do not pass,
// neither then nor from the backlog afterwards. Admitted clients' traffic resumes.
func frozen(t *testing.T, w *World) {
	up, down, strange := w.sending(t)
	up.Passes(t, "before the stop")
	down.Passes(t, "before the stop")
	for range 2 {
		must(t, w.cmd.Process.Signal(unix.SIGSTOP))
		if w.path.Unattended {
			up.Passes(t, "up, stopped")
			down.Passes(t, "down, stopped")
		}
		time.Sleep(500 * time.Millisecond) // fills the kernel's queues
		must(t, w.cmd.Process.Signal(unix.SIGCONT))
		up.Passes(t, "up, going on")
		down.Passes(t, "down, going on")
	}
	must(t, w.Set(w.Alice.client()))
	up.Stops(t, "up, after logout")
	down.Stops(t, "down, after logout")
	for _, f := range append(strange, up, down) {
		f.Halt()
	}
	noneCame(t, strange)
}

// second: another gateway for the same interfaces fails, and the first continues.
func second(t *testing.T, w *World) {
	w.admit(t, w.Alice)
	f := w.Up(t, w.Alice)
	f.Begin()
	f.Passes(t, "alone")
	other := &Process{router: w.Router, path: w.path, orders: w.orders}
	other.Start(t)
	for range 3 {
		if err := other.Open(); !errors.Is(err, datapath.ErrBusy) {
			t.Errorf("a second gateway: %v", err)
		}
		if err := other.Detach(); !errors.Is(err, datapath.ErrBusy) {
			t.Errorf("detach while one runs: %v", err)
		}
	}
	other.Kill(t)
	f.Passes(t, "after another was refused")
	f.Halt()
	f.Whole(t, "of the first gateway's client")
	w.lists(t, w.Alice.Addr)
}

// footprint lists everything that a data path could leave behind, without values that change by themselves and state of
// the machine rather than the namespace.
const footprint = `ip -d link | sed "s/_timer *[0-9.]*//g"; ip addr; ip rule; ip -6 rule; ip route show table all; ip maddr; ip netns
for d in lan0 wan0; do tc qdisc show dev $d; tc filter show dev $d ingress; tc filter show dev $d egress; ethtool -k $d; cat /proc/sys/net/ipv4/conf/$d/*; done
nft list ruleset; ls -R /sys/fs/bpf/$pins 2>/dev/null || :; cat /proc/net/packet /proc/net/netfilter/nfnetlink_queue 2>/dev/null || :
sysctl -a -r '^net' 2>/dev/null | grep -v -e conntrack_count -e conntrack_max -e conntrack_buckets -e nf_log -e tcp_mem -e udp_mem -e random`

// detachLeavesNothing: after detach the machine is as before, and forwards for everybody.
func detachLeavesNothing(t *testing.T, w *World) {
	look := func() string { return w.Router.Run(t, footprint, "pins="+tid(w.Router)) }
	must(t, w.Detach()) // without anything to remove
	for _, manner := range []string{"closed", "killed", "closed twice"} {
		before := look()
		must(t, w.Open())
		w.admit(t, w.Alice)
		w.lease(t, w.Bob)
		must(t, w.OpenGarden("198.51.100.9/32", time.Time{}))
		f := w.Up(t, w.Alice)
		f.Begin()
		f.Passes(t, "while it runs")
		if !w.path.PPPoEOnly { // these have no portal
			if _, err := get(w.Bob, Server); err != nil {
				t.Error(err)
			}
		}
		f.Halt()
		if manner == "killed" {
			w.Kill(t)
			w.Start(t)
		}
		must(t, w.Close())
		must(t, w.Close())
		if manner == "closed twice" {
			must(t, w.Open())
			must(t, w.Close())
		}
		must(t, w.Detach())
		must(t, w.Detach()) // a second call has no effect
		if after := look(); after != before {
			t.Errorf("%s: left behind (+) or taken away (-):\n%s", manner, difference(before, after))
		}
	}
	w.Router.Run(t, "ip addr replace 10.1.0.1/24 dev lan0")
	free := w.Up(t, w.Intruder)
	free.Begin()
	free.Passes(t, "detached: the machine forwards for everybody")
}

// difference returns the lines in which two texts differ.
func difference(before, after string) string {
	count := map[string]int{}
	for l := range strings.Lines(after) {
		count[l]++
	}
	for l := range strings.Lines(before) {
		count[l]--
	}
	var out strings.Builder
	for l, n := range count {
		for ; n > 0; n-- {
			out.WriteString("+ " + l)
		}
		for ; n < 0; n++ {
			out.WriteString("- " + l)
		}
	}
	return out.String()
}

// detachWithoutLinks: a gateway whose interfaces are gone can be closed and detached, and opened again with new
// interfaces.
func detachWithoutLinks(t *testing.T, w *World) {
	w.admit(t, w.Alice)
	w.Router.Run(t, "ip link del lan0")
	must(t, w.Close())
	must(t, w.Detach())
	must(t, w.Detach())
	w.Router.Run(t, "ip link add lan0 type veth peer name other; ip link set lan0 up; ip link set other up")
	if !w.path.OwnAddress {
		w.Router.Run(t, "ip addr add 10.1.0.1/24 dev lan0")
	}
	must(t, w.Open())
	w.lists(t)
}

// interfacesMadeAgain: interfaces that replace others, with their names and addresses, do not bypass the gateway while
// no process runs.
func interfacesMadeAgain(t *testing.T, w *World) {
	up, down, strange := w.sending(t)
	for _, c := range []struct {
		name     string
		lan, wan bool
	}{{"the LAN's", true, false}, {"the WAN's", false, true}, {"both", true, true}} {
		up.Passes(t, "up before it is "+c.name)
		down.Passes(t, "down before it is "+c.name)
		w.Kill(t)
		time.Sleep(w.path.Lingers)
		w.makeAgain(t, c.lan, c.wan)
		if c.lan || !w.path.Unattended {
			up.Stops(t, "up, made again: "+c.name)
			down.Stops(t, "down, made again: "+c.name)
		} else {
			up.Passes(t, "up, made again: "+c.name)
			down.Passes(t, "down, made again: "+c.name)
		}
		for i, f := range strange {
			f.Stops(t, fmt.Sprintf("strangers' flow %d, made again: %s", i, c.name))
		}
		w.Start(t)
		must(t, w.Open())
		if !w.path.Unattended || w.path.Keeps && c.lan { // clients' own interfaces went with the LAN's
			w.lists(t)
			w.admit(t, w.Alice)
			w.lease(t, w.Bob)
		}
	}
	up.Passes(t, "up in the end")
	down.Passes(t, "down in the end")
	for i, f := range strange {
		f.Halt()
		if f.Came() != 0 {
			t.Errorf("%d of %d packets of flow %d of strangers arrived", f.Came(), f.Sent(), i)
		}
	}
}

// rulesFlushed: flushing all rules of the machine, as programs do that load theirs anew, opens the gateway no longer
// than the daemon takes to notice, and neither blocks admitted clients nor loses their counts.
func rulesFlushed(t *testing.T, w *World) {
	if !w.path.Restores {
		t.Log("it does not promise to restore rules")
		return
	}
	up, down, strange := w.sending(t)
	for range 2 {
		up.Passes(t, "up before the rules are flushed")
		down.Passes(t, "down before the rules are flushed")
		before := w.tally(t, w.Alice)
		// That no packet of a stranger arrives does not show that the rules are back: the stranger may be asking for the
		// gateway's MAC address.
		const tables = `nft list tables | grep -F gatewayd- | sort || :`
		rules := w.Router.Run(t, tables)
		w.Router.Run(t, "nft flush ruleset")
		netnstest.Await(t, "the rules to be back", func() error {
			if now := w.Router.Run(t, tables); now != rules {
				return fmt.Errorf("tables %q, not %q", now, rules)
			}
			return nil
		})
		for i, f := range strange {
			f.Stops(t, fmt.Sprintf("strangers' flow %d after the rules were flushed", i))
		}
		up.Passes(t, "up after the rules were flushed")
		down.Passes(t, "down after the rules were flushed")
		if now := w.tally(t, w.Alice); now.upPackets < before.upPackets+20 || now.downPackets < before.downPackets+20 {
			t.Errorf("the count was %+v and is %+v", before, now)
		}
	}
	for i, f := range strange {
		t.Logf("of strangers' flow %d, %d of %d packets arrived", i, f.Came(), f.Sent())
	}
	if !w.path.PPPoEOnly { // these have no portal
		if got, err := get(w.Bob, Server); !strings.Contains(got, "portal: ") || err != nil {
			t.Errorf("HTTP after the rules were flushed: %q, %v", got, err)
		}
	}
	w.lease(t, w.Alice)
	up.Stops(t, "up after logout")
	down.Stops(t, "down after logout")
}

// rulesFlushedAlone: rules that are flushed while no daemon runs are not restored. On a machine that forwards, the
// packets of strangers pass then or not, as the manual says of each data path. A daemon that starts closes the LAN
// again.
func rulesFlushedAlone(t *testing.T, w *World) {
	w.admit(t, w.Alice)
	w.lease(t, w.Bob)
	up, down, strangeUp, strangeDown := w.Up(t, w.Alice), w.Down(t, w.Alice), w.Up(t, w.Bob), w.Down(t, w.Bob)
	all := []*Flow{up, down, strangeUp, strangeDown}
	for _, f := range all {
		f.Begin()
	}
	up.Passes(t, "up, with the daemon")
	w.Kill(t)
	w.Router.Run(t, "nft flush ruleset")
	up.Passes(t, "up, without daemon and rules")
	switch {
	case w.path.Unattended: // eBPF programs go on judging
		down.Passes(t, "down, without daemon and rules")
		strangeUp.Stops(t, "a stranger's, up")
		strangeDown.Stops(t, "a stranger's, down")
	case w.path.OwnAddress: // no route leads to the LAN
		strangeUp.Passes(t, "a stranger's, up")
		strangeDown.Stops(t, "a stranger's, down")
	default:
		strangeUp.Passes(t, "a stranger's, up")
		strangeDown.Passes(t, "a stranger's, down")
	}
	w.Start(t)
	must(t, w.Open())
	w.admit(t, w.Alice)
	w.lease(t, w.Bob)
	strangeUp.Ends(t, "a stranger's, up, with a daemon again")
	strangeDown.Ends(t, "a stranger's, down, with a daemon again")
	up.Passes(t, "up, with a daemon again")
	down.Passes(t, "down, with a daemon again")
}

// makeAgain removes the gateway's interface to the LAN, to the WAN or both, and creates new ones of the same names. It
// removes a bridge's ports with the bridge: the machine would take the frames that they receive for its own.
func (w *World) makeAgain(t *testing.T, lan, wan bool) {
	t.Helper()
	if lan {
		w.Router.Run(t, `for p in $ports; do ip link del $p; done`, "ports="+w.lanLinks())
	}
	if wan {
		w.Router.Run(t, "ip link del wan0")
		w.linkWAN(t)
	}
	if lan {
		w.linkLAN(t)
	}
}
