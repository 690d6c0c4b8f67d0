// Tests of the choice between redirecting packets and leaving them to the stack (choose.go). newNetwork makes a LAN
// with alice and bob and a WAN with a server, and open starts a data path between them (main_test.go). becomes waits
// until a data path names a way of forwarding.

package ebpf

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/datapath/datapathtest"
	"github.com/gateweigh/gateweigh/internal/logtest"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// TestForeignProgramsAfterOurs: programs of others that are attached after gatewayd's at tc, in either way of
// attaching, see every packet of admitted clients, and the status names them. Long: each step needs the state that the
// one before left.
func TestForeignProgramsAfterOurs(t *testing.T) {
	for _, p := range paths() {
		if p.Name != "auto" && p.Name != "clsact" {
			continue
		}
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			w := datapathtest.NewWorld(t, p, datapathtest.Shape{})
			must(t, w.Set(datapath.Client{Addrs: []netip.Addr{w.Alice.Addr}, MAC: w.Alice.MAC, Admitted: true}))
			up, down := w.Up(t, w.Alice), w.Down(t, w.Alice)
			send := func(n int) {
				up.Send(n)
				down.Send(n)
				up.Whole(t, "up")
				down.Whole(t, "down")
			}
			send(20)
			for name, attach := range map[string]func(dev int, other *ebpf.Program) (remove func() error, err error){
				"tcx": atTail, "a filter": byFilter} {
				if name == "tcx" && (p.Name == "clsact" || !netnstest.HasTCX()) {
					continue // programs at tcx come before those at clsact
				}
				other, seen := counting(t)
				var undo []func() error
				w.Router.Do(func() {
					for _, dev := range []string{"lan0", "wan0"} {
						remove, err := attach(attackedGateway{World: w}.dev(t, dev).Index, other)
						if err != nil {
							t.Error(err)
							return
						}
						undo = append(undo, remove)
					}
				})
				becomes(t, w, "stack", "programs of others")
				before := seen()
				send(20)
				if n := seen() - before; n != 40 {
					t.Errorf("%s: it saw %d of 40 packets", name, n)
				}
				w.Router.Do(func() {
					for _, remove := range undo {
						if err := remove(); err != nil {
							t.Error(err)
						}
					}
				})
				becomes(t, w, "redirect", "")
			}
		})
	}
}

// TestForeignProgramsBetweenChecks: the daemon checks tc's programs at intervals (reattach), and where netlink reports
// a change of routes (reroute). A program that came or went between two checks is noticed at the next one, even where
// reroute has seen the programs meanwhile.
func TestForeignProgramsBetweenChecks(t *testing.T) {
	if !netnstest.HasTCX() {
		t.Skip("the kernel lacks tcx: Linux 6.6")
	}
	n := newNetwork(t)
	d := n.open(t)
	d.stop() // the test itself calls reattach and reroute
	is := func(phase, want string) {
		t.Helper()
		d.reattach()
		if word, reason := d.Forwarding(); word != want {
			t.Errorf("%s: %s (%s)", phase, word, reason)
		}
	}
	is("alone", "redirect")
	other, _ := counting(t)
	remove, err := atTail(int(index(t, n.wan)), other)
	must(t, err)
	d.reroute()
	must(t, remove())
	is("gone before the check", "redirect")

	// A program that is attached without a bpf_link has the same IDs when it is attached again.
	at := link.RawAttachProgramOptions{
		Target: int(index(t, n.wan)), Program: other, Attach: ebpf.AttachTCXIngress, Anchor: link.Tail()}
	must(t, link.RawAttachProgram(at))
	is("there", "stack")
	must(t, link.RawDetachProgram(link.RawDetachProgramOptions{Target: at.Target, Program: other, Attach: at.Attach}))
	d.reroute()
	must(t, link.RawAttachProgram(at))
	is("there again", "stack")
}

// TestUnchangedProgramsCheckedOnce: while no foreign program joins gatewayd's, a check does not examine them again,
// also where the programs for PPPoE are attached.
func TestUnchangedProgramsCheckedOnce(t *testing.T) {
	if !netnstest.HasTCX() {
		t.Skip("the kernel lacks tcx: Linux 6.6")
	}
	for name, pppoe := range map[string]bool{"without PPPoE": false, "with PPPoE": true} {
		n := newNetwork(t)
		d := n.open(t, func(c *Config) { c.PPPoE = pppoe })
		d.stop()
		d.reattach()
		if d.programsChanged() {
			t.Errorf("%s: the next check would examine again", name)
		}
		other, _ := counting(t)
		remove, err := atTail(int(index(t, n.wan)), other)
		must(t, err)
		// missing reads the list of attached programs.
		if _, err := d.missing(); err != nil || !d.programsChanged() {
			t.Errorf("%s: a program that joins is not seen: %v", name, err)
		}
		must(t, remove())
	}
}

// becomes waits until the data path names a way of forwarding, with a reason that contains a text.
func becomes(t *testing.T, w *datapathtest.World, word, reason string) {
	t.Helper()
	netnstest.Await(t, word, func() error {
		if current, because := w.ForwardingWhy(t); current != word || !strings.Contains(because, reason) {
			return fmt.Errorf("it is %s: %s", current, because)
		}
		return nil
	})
}

func atTail(dev int, p *ebpf.Program) (func() error, error) {
	l, err := link.AttachTCX(
		link.TCXOptions{Program: p, Interface: dev, Attach: ebpf.AttachTCXIngress, Anchor: link.Tail()})
	if err != nil {
		return nil, err
	}
	return l.Close, nil
}

func byFilter(dev int, p *ebpf.Program) (func() error, error) {
	at := netlink.FilterAttrs{
		LinkIndex: dev, Parent: netlink.HANDLE_MIN_INGRESS, Handle: 7, Priority: 7, Protocol: unix.ETH_P_ALL}
	qdisc := &netlink.GenericQdisc{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: dev, Handle: netlink.MakeHandle(0xffff, 0),
		Parent: netlink.HANDLE_CLSACT}, QdiscType: "clsact"}
	if err := netlink.QdiscAdd(qdisc); err != nil && !errors.Is(err, unix.EEXIST) {
		return nil, err
	}
	f := &netlink.BpfFilter{FilterAttrs: at, Fd: p.FD(), Name: "other", DirectAction: true}
	return func() error { return netlink.FilterDel(f) }, netlink.FilterAdd(f)
}

// counting returns a program that counts UDP packets.
func counting(t *testing.T) (*ebpf.Program, func() uint64) {
	t.Helper()
	n, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1})
	must(t, err)
	t.Cleanup(func() { n.Close() })
	p, err := ebpf.NewProgram(
		&ebpf.ProgramSpec{Name: "other", Type: ebpf.SchedCLS, License: "GPL", Instructions: asm.Instructions{
			asm.Mov.Reg(asm.R6, asm.R1), asm.LoadAbs(23, asm.Byte), // the IP header's protocol
			asm.JNE.Imm(asm.R0, unix.IPPROTO_UDP, "on"),
			asm.StoreImm(asm.RFP, -4, 0, asm.Word), asm.LoadMapPtr(asm.R1, n.FD()), asm.Mov.Reg(asm.R2, asm.RFP),
			asm.Add.Imm(asm.R2, -4),
			asm.FnMapLookupElem.Call(),
			asm.JEq.Imm(asm.R0, 0, "on"),
			asm.Mov.Imm(asm.R1, 1), asm.StoreXAdd(asm.R0, asm.R1, asm.DWord),
			asm.Mov.Imm(asm.R0, -1).WithSymbol("on"), asm.Return(),
		}})
	must(t, err)
	t.Cleanup(func() { p.Close() })
	return p, func() (count uint64) {
		must(t, n.Lookup(uint32(0), &count))
		return count
	}
}

// TestStamp: programs redirect only while the daemon's stamp is young.
func TestStamp(t *testing.T) {
	n := newNetwork(t)
	n.neighbour(t)
	d := n.open(t)
	must(t, d.Set(datapath.Client{Addrs: []netip.Addr{alice}, MAC: aliceMAC, Admitted: true}))
	d.stop() // ends the stamp's renewal
	must(t, d.set(func(s *gatewaySettings) { s.RedirectUntil = now() + 1e9*3600 }))
	lan, wan, answer := index(t, n.lan), index(t, n.wan), tcp(40000, source(443), down)
	up, _ := d.tryRedirected(t, d.objs.LanIn, lan, tcp(443), func() {})
	if back, _, _ := d.try(t, d.objs.WanIn, wan, answer); up != redirect || back != redirect {
		t.Errorf("with a young stamp: verdicts %d and %d", up, back)
	}
	must(t, d.set(func(s *gatewaySettings) { s.RedirectUntil = now() - 1e9 }))
	up, _, _ = d.try(t, d.objs.LanIn, lan, tcp(443))
	if back, _, _ := d.try(t, d.objs.WanIn, wan, answer); up != ok || back != ok {
		t.Errorf("with an old stamp: verdicts %d and %d", up, back)
	}
}

// TestStampAfterPausedDaemon: a daemon did not run for longer than the stamp lasts, while a rule was added. Whether it
// misses the messages about the rule or reads them, no packet is redirected past the rule, and it says that it did not
// run.
func TestStampAfterPausedDaemon(t *testing.T) {
	n := newNetwork(t)
	for _, heard := range []bool{false, true} {
		var logs logtest.Log
		d := n.open(t, logTo(&logs))
		d.stop() // no message is read
		d.renew()
		if word, reason := d.Forwarding(); word != "redirect" || d.settings.RedirectUntil <= now() {
			t.Fatalf("before the rule: %s (%s)", word, reason)
		}
		rule := netlink.NewRule()
		rule.Table, rule.Priority, rule.Mark = unix.RT_TABLE_MAIN, 100, 7
		must(t, netlink.RuleAdd(rule))
		must(t, d.set(func(s *gatewaySettings) { s.RedirectUntil = now() - 1 }))
		if heard {
			d.reroute()
		}
		d.renew()
		if word, reason := d.Forwarding(); word != "stack" || !strings.Contains(reason, "rules of routing") ||
			d.settings.RedirectUntil != 0 {
			t.Errorf("after the rule: %s (%s), redirecting until %d", word, reason, d.settings.RedirectUntil)
		}
		if logs.Count("did not run") != 1 {
			t.Errorf("heard of the rule %v, not said once that the daemon did not run:\n%s", heard, logs.String())
		}
		must(t, netlink.RuleDel(rule))
		must(t, d.Close())
	}
}

// TestDaemonAfterPartialDetach: after a detach that ended early, a running daemon restores nothing, and says so in log
// and status.
func TestDaemonAfterPartialDetach(t *testing.T) {
	n := newNetwork(t)
	var logs logtest.Log
	d := n.open(t, logTo(&logs))
	must(t, freezeDaemon(d.cfg.PinDir))
	netnstest.Await(t, "the word detached", func() error {
		if word, _ := d.Forwarding(); word != "detached" {
			return errors.New(word)
		}
		return nil
	})
	for range 3 { // after further checks
		d.lookNow <- struct{}{}
	}
	if n := logs.Count("puts nothing back"); n != 1 || !strings.Contains(logs.String(), "level=ERROR") {
		t.Errorf("it said so %d times:\n%s", n, logs.String())
	}
}

// TestRepeatedErrorLoggedOnce: an error that stays the same is logged once, and once more after a success.
func TestRepeatedErrorLoggedOnce(t *testing.T) {
	settings := func() *ebpf.Map {
		m, err := ebpf.NewMap(
			&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: uint32(unsafe.Sizeof(gatewaySettings{})), MaxEntries: 1})
		must(t, err)
		return m
	}
	var logs logtest.Log
	d := &Datapath{cfg: Config{Log: logs.Logger()}, stackReason: "as configured",
		loggedErrors: map[string]string{}}
	for range 2 {
		d.objs.GatewaySettings = settings()
		d.renew()
		must(t, d.objs.GatewaySettings.Close())
		for range 3 {
			d.renew()
		}
	}
	if n := logs.Count("renewing the redirect"); n != 2 || logs.Count("\n") != 2 {
		t.Errorf("it said:\n%s", logs.String())
	}
}
