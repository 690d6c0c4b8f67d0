// Tests that the daemon restores programs and pins that others remove (keep.go). attackedGateway is a gateway with
// traffic whose programs the test removes.

package ebpf

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/datapath/datapathtest"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// TestRemovedProgramsRestored: a running daemon restores programs and pins that others remove, and logs that. Then no
// packet of strangers passes, and those of admitted clients do.
func TestRemovedProgramsRestored(t *testing.T) {
	for _, p := range paths() {
		switch {
		case p.Name == "redirect": // the path "auto" does the same without rules
		case p.Name == "clsact" || !netnstest.HasTCX():
			for label, script := range map[string]string{
				"QdiscOfLAN": "tc qdisc del dev lan0 clsact", "QdiscOfWAN": "tc qdisc del dev wan0 clsact",
				"FilterOfLAN": "tc filter del dev lan0 ingress", "FilterToLAN": "tc filter del dev lan0 egress",
				"Pins": "",
			} {
				t.Run(p.Name+"/"+label, func(t *testing.T) {
					t.Parallel()
					w := newAttacked(t, p)
					if script == "" {
						w.removePins(t)
						return
					}
					w.takenOff(t, func() { w.Router.Run(t, script) })
				})
			}
		default:
			for program, address := range map[string]struct {
				dev    string
				attach ebpf.AttachType
			}{
				"lan_in": {"lan0", ebpf.AttachTCXIngress}, "lan_out": {"lan0", ebpf.AttachTCXEgress},
				"wan_in": {"wan0", ebpf.AttachTCXIngress},
			} {
				t.Run(p.Name+"/Link/"+program, func(t *testing.T) {
					t.Parallel()
					w := newAttacked(t, p)
					w.takenOff(t, func() { w.links(t, address.dev, address.attach, link.Link.Detach) })
				})
			}
			t.Run(p.Name+"/Replaced", func(t *testing.T) {
				t.Parallel()
				w, idle := newAttacked(t, p), passing(t)
				w.takenOff(t, func() {
					w.links(t, "lan0", ebpf.AttachTCXIngress, func(l link.Link) error { return l.Update(idle) })
				})
			})
			t.Run(p.Name+"/Pins", func(t *testing.T) {
				t.Parallel()
				newAttacked(t, p).removePins(t)
			})
		}
	}
}

// TestGuardClosedWithoutPrograms: while one of the programs cannot be attached, the guard drops all packets that the
// other programs leave to the stack, and the status says so.
func TestGuardClosedWithoutPrograms(t *testing.T) {
	for _, p := range paths() {
		if p.Name != "clsact" {
			continue
		}
		w := newAttacked(t, p)
		netnstest.Await(t, "a qdisc in the place of clsact", func() error { // again, because the daemon may have been faster
			_, err := w.Router.Try("tc qdisc del dev lan0 clsact; tc qdisc add dev lan0 ingress")
			return err
		})
		netnstest.Await(t, "the word closed", func() error {
			if word := w.Forwarding(t); word != "closed" || !strings.Contains(w.Said(), "closed=true") {
				return errors.New(word)
			}
			return nil
		})
		for i, f := range w.strange {
			f.Ends(t, fmt.Sprintf("flow %d of strangers", i))
		}
		w.Router.Run(t, "tc qdisc del dev wan0 clsact") // the guard does not see packets that wan_in redirects
		w.Router.Run(t, "nft delete table inet gatewayd-lan0")
		netnstest.Await(t, "a guard that knows nobody", func() error {
			rules, err := w.Router.Try("nft list table inet gatewayd-lan0")
			if err != nil || strings.Contains(rules, "elements") || strings.Contains(rules, " accept\n") {
				return errors.New(rules)
			}
			return nil
		})
		w.Router.Run(t, "tc qdisc del dev lan0 ingress")
		netnstest.Await(t, "the end of it", func() error {
			if word := w.Forwarding(t); word != "redirect" {
				return errors.New(word)
			}
			return nil
		})
		w.holds(t)
	}
}

// attackedGateway is a gateway whose programs the test removes, with traffic of an admitted client and of two
// strangers.
type attackedGateway struct {
	*datapathtest.World
	up, down *datapathtest.Flow
	strange  []*datapathtest.Flow
}

func newAttacked(t *testing.T, p datapathtest.Path) attackedGateway {
	t.Helper()
	w := attackedGateway{World: datapathtest.NewWorld(t, p, datapathtest.Shape{Switch: true})}
	must(t, w.Set(datapath.Client{Addrs: []netip.Addr{w.Alice.Addr}, MAC: w.Alice.MAC, Admitted: true},
		datapath.Client{Addrs: []netip.Addr{w.Bob.Addr}, MAC: w.Bob.MAC}))
	w.up, w.down = w.Up(t, w.Alice), w.Down(t, w.Alice)
	for _, s := range []datapathtest.Station{w.Bob, w.Intruder} {
		w.strange = append(w.strange, w.Up(t, s), w.Down(t, s))
	}
	for _, f := range append(w.strange, w.up, w.down) {
		f.Begin()
	}
	w.up.Passes(t, "up, before the attack")
	w.down.Passes(t, "down, before the attack")
	return w
}

// takenOff attacks twice, because the first attack may have changed what the second one meets, and waits each time
// until the gateway is as before.
func (w attackedGateway) takenOff(t *testing.T, attack func()) {
	t.Helper()
	if n := w.programs(t); n != 3 {
		t.Fatalf("%d programs before the attack", n)
	}
	for n := range 2 {
		attack()
		netnstest.Await(t, "the programs", func() error {
			if present, logged := w.programs(t), strings.Count(w.Said(), "attached again"); present != 3 || logged <= n {
				return fmt.Errorf("%d are attached, %d times it said so", present, logged)
			}
			return nil
		})
		w.holds(t)
	}
	for _, word := range []string{"level=ERROR", "was taken off"} {
		if !strings.Contains(w.Said(), word) {
			t.Errorf("it did not say %q", word)
		}
	}
}

// holds checks that the gateway admits one client and no other.
func (w attackedGateway) holds(t *testing.T) {
	t.Helper()
	for i, f := range w.strange {
		f.Ends(t, fmt.Sprintf("flow %d of strangers", i))
	}
	w.up.Passes(t, "up, afterwards")
	w.down.Passes(t, "down, afterwards")
}

// programs counts gatewayd's programs at the interfaces, at tcx and at clsact.
func (w attackedGateway) programs(t *testing.T) (n int) {
	t.Helper()
	w.Router.Do(func() {
		for _, h := range (&Datapath{}).hooks(w.dev(t, "lan0"), w.dev(t, "wan0")) {
			attached, err := link.QueryPrograms(link.QueryOptions{Target: h.dev.Index, Attach: h.attachType()})
			if err == nil {
				n += len(attached.Programs)
			}
		}
	})
	filters := w.Router.Run(
		t, "for at in 'lan0 ingress' 'lan0 egress' 'wan0 ingress'; do tc filter show dev $at || :; done")
	return n + strings.Count(filters, "direct-action")
}

func (w attackedGateway) dev(t *testing.T, name string) *net.Interface {
	dev, err := net.InterfaceByName(name)
	if err != nil {
		t.Error(err)
		return &net.Interface{}
	}
	return dev
}

// passing returns a program that passes every packet on.
func passing(t *testing.T) *ebpf.Program {
	t.Helper()
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "GPL", Instructions: asm.Instructions{
		asm.Mov.Imm(asm.R0, 0), asm.Return()}})
	must(t, err)
	t.Cleanup(func() { p.Close() })
	return p
}

// links calls action for each link at a hook of an interface. It opens the links by their IDs, as bpftool does:
// "bpftool link detach" is link.Link.Detach.
func (w attackedGateway) links(t *testing.T, name string, attach ebpf.AttachType, action func(link.Link) error) {
	t.Helper()
	var all error
	w.Router.Do(func() {
		attached, err := link.QueryPrograms(link.QueryOptions{Target: w.dev(t, name).Index, Attach: attach})
		if err != nil || len(attached.Programs) == 0 {
			all = fmt.Errorf("%s has no programs: %w", name, err)
			return
		}
		for _, p := range attached.Programs {
			id, _ := p.LinkID()
			l, err := link.NewFromID(id)
			if err == nil {
				err = errors.Join(action(l), l.Close())
			}
			all = errors.Join(all, err)
		}
	})
	must(t, all)
}

// removePins removes all pins, and waits until the daemon has made them again, for the next daemon to find. The
// programs go on meanwhile.
func (w attackedGateway) removePins(t *testing.T) {
	t.Helper()
	dir := fmt.Sprint("/sys/fs/bpf/", w.Router.TID())
	before := listed(t, dir)
	for n := range 2 {
		must(t, os.RemoveAll(dir))
		netnstest.Await(t, "the pins", func() error {
			if now := listed(t, dir); now != before || strings.Count(w.Said(), "pinned again") <= n {
				return fmt.Errorf("%s, not %s", now, before)
			}
			return nil
		})
		w.holds(t)
	}
	epoch := w.Total(t).Epoch
	w.Kill(t)
	w.up.Passes(t, "up, without a daemon")
	w.Start(t)
	must(t, w.Open())
	if now := w.Total(t).Epoch; now != epoch {
		t.Error("the successor counts anew")
	}
	w.holds(t)
	if !strings.Contains(w.Said(), "level=ERROR") {
		t.Error("removed pins are no error")
	}
}

func listed(t *testing.T, dir string) string {
	t.Helper()
	all, err := filepath.Glob(dir + "/*")
	must(t, err)
	return strings.Join(all, " ")
}
