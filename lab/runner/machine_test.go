package runner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/lab/bench"
	"github.com/gateweigh/gateweigh/lab/burn"
	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/dut"
	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/machine"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/traffic"
)

// shipped is a catalogue with three measures. They have only the traits that concern labs.
var shipped = experiment.Catalogue{Measures: []experiment.Measure{{Name: "cost"}, {Name: "logins", Alone: true}, {
	Name: "throughput", Alone: true, Clean: true}}}

// TestFits: fits says why a device does not work with an experiment's kind of client or topology, and how it would.
func TestFits(t *testing.T) {
	ownPrefix := netip.MustParsePrefix("10.1.0.0/24")
	for name, c := range map[string]struct {
		kind   string
		traits dut.Traits
		want   string // part of the reason; empty: it fits
	}{
		"static clients, no leases":     {client.KindVeth, dut.Traits{}, ""},
		"static clients, leases":        {client.KindVeth, dut.Traits{DHCP: true}, "use kind macvlan"},
		"own network without leases":    {client.KindMacvlan, dut.Traits{LAN: ownPrefix}, "dhcp = true"},
		"own network with leases":       {client.KindMacvlan, dut.Traits{LAN: ownPrefix, DHCP: true}, ""},
		"study's network, lab's leases": {client.KindMacvlan, dut.Traits{}, ""},
		"no concentrator":               {client.KindPPPoE, dut.Traits{DHCP: true}, "no PPPoE concentrator"},
		"a concentrator":                {client.KindPPPoE, dut.Traits{DHCP: true, PPPoE: true}, ""},
		"a concentrator, no PPPoE":      {client.KindPersona, dut.Traits{DHCP: true, PPPoE: true}, "client.kind = \"pppoe\""},
		"a tunnel, one router":          {client.KindMacvlan, dut.Traits{Tunnel: true}, "topology = \"tunnel\""},
		"takes the frames away":         {client.KindMacvlan, dut.Traits{TakesFrames: true}, "gateweigh run capture-systems"},
	} {
		err := fits(&experiment.Experiment{Topology: "portal", Client: experiment.Client{Kind: c.kind}}, "", c.traits)
		if c.want == "" && err != nil ||
			c.want != "" && (!errors.Is(err, dut.ErrNotSupported) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	gateways := &experiment.Experiment{Topology: "tunnel", Client: experiment.Client{Kind: client.KindMacvlan}}
	if err := fits(gateways, "", dut.Traits{}); !errors.Is(err, dut.ErrNotSupported) ||
		!strings.Contains(err.Error(), "no tunnel") {
		t.Errorf("no tunnel between gateways: %v", err)
	}
	if err := cmp.Or(
		fits(gateways, "", dut.Traits{Tunnel: true}), fits(gateways, experiment.Clean, dut.Traits{})); err != nil {
		t.Errorf("a tunnel and the direct path: %v", err)
	}
	if err := fits(&experiment.Experiment{Topology: "portal", Client: experiment.Client{Kind: client.KindPPPoE}},
		experiment.Clean, dut.Traits{}); err != nil {
		t.Errorf("the clean router beside a concentrator: %v", err)
	}
}

// here is this machine, without an agent.
type here struct{}

func (here) Machine(context.Context) (machine.Machine, error) { return machine.Read() }

func (here) Find(ctx context.Context, q machine.Query) ([]machine.Found, error) {
	return machine.Find(ctx, q), nil
}

// TestToolsAreRecorded: the record of a run has the versions of the programs that its lab and its devices start, and no
// others.
func TestToolsAreRecorded(t *testing.T) {
	e, err := shipped.Builtin("allowlist")
	if err != nil {
		t.Fatal(err)
	}
	found, err := tools(t.Context(), here{}, e)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"ethtool": "ethtool version", "dnsmasq": "Dnsmasq version", "nft": "nftables v",
		"device allowlist": "nftables allow-list", "device clean": "clean router",
	} {
		if !strings.HasPrefix(found[name], want) {
			t.Errorf("%s: %q, want %q", name, found[name], want)
		}
	}
	if len(found) != 5 {
		t.Errorf("recorded: %v", found)
	}
}

// TestLackingProgramsAreNamedWithTheirPackages: without any program on PATH, a run is refused with the packages that it
// needs.
func TestLackingProgramsAreNamedWithTheirPackages(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	e, err := shipped.Builtin("quick")
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Set("traffic.kind", traffic.KindIperf3); err != nil {
		t.Fatal(err)
	}
	_, err = checkMachine(t.Context(), here{}, e, Demand{})
	for _, want := range []string{"ethtool is not on PATH: install the package ethtool",
		"dnsmasq is not on PATH: install the package dnsmasq-base", "iperf3 is not"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in: %v", want, err)
		}
	}
}

// TestBothLabsAreAskedFor: the needs and the record of a run include what only the clean router's lab needs.
func TestBothLabsAreAskedFor(t *testing.T) {
	e, err := shipped.Builtin("persona-check")
	if err != nil {
		t.Fatal(err)
	}
	var programs []string
	for _, n := range Needs(e) {
		programs = append(programs, n.Program)
	}
	if !slices.Contains(programs, "iperf3") || !slices.Contains(programs, "dnsmasq") {
		t.Errorf("it needs %v", programs)
	}
	if text := strings.Join(offloads(e), "\n"); !strings.Contains(
		text, "traffic: streams (iperf3 at the clean router beside a device)") {
		t.Errorf("recorded: %s", text)
	}
	many, err := shipped.Builtin("scale-check")
	if err != nil {
		t.Fatal(err)
	}
	with, without := many.Sides(10_000)
	if !bench.EntersNeighbours(with, without) || bench.EntersNeighbours(without) ||
		bench.EntersNeighbours(experiment.Side{Client: client.KindMacvlan, Clients: 1000}) {
		t.Error("neighbours are entered in both labs when one has thousands of personas, and only then")
	}
}

// TestBlocksOfSeveralDevices: a block loses the cells of devices that cannot run here. A block without cells is left
// out.
func TestBlocksOfSeveralDevices(t *testing.T) {
	cell := func(dut string) result.Cell { return result.NewCell(result.DUT, dut, result.OfferedMbps, 1) }
	plan := []experiment.Block{
		{Cell: cell("a"), Cells: []result.Cell{cell("a"), cell("b")}}, {Cell: cell("a"), Cells: []result.Cell{cell("a")}}}
	left := without(plan, map[string]bool{"a": true})
	if len(left) != 1 || left[0].DUT() != "b" || len(left[0].Cells) != 1 || left[0].Cells[0] != cell("b") ||
		len(plan[0].Cells) != 2 {
		t.Errorf("left are %+v", left)
	}
}

// TestBurnerIsNoted: a run without router.speed notes once that another program loads the CPUs.
func TestBurnerIsNoted(t *testing.T) {
	var messages []string
	// sitting returns a session with this router.speed (0: none) that has looked for a burner twice. A burner is a process
	// that takes a share of the CPUs; it holds the lock of the package burn.
	sitting := func(speed float64) *Session {
		e := &experiment.Experiment{}
		e.Router.Speed = speed
		s := &Session{Experiment: e, cfg: Config{Status: func(p Progress) { messages = append(messages, p.Text) }}}
		s.noteBurner()
		s.noteBurner()
		return s
	}
	if s := sitting(0); len(messages)+len(s.env.Notes) > 0 {
		t.Errorf("without a burner: %q", messages)
	}
	lock, err := burn.Lock(10 * time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if s := sitting(0.5); len(messages)+len(s.env.Notes) > 0 {
		t.Errorf("with router.speed, which has the lock: %q", messages)
	}
	s := sitting(0)
	if want := fmt.Sprintf("(process %d)", os.Getpid()); len(s.env.Notes) != 1 || !slices.Equal(messages, s.env.Notes) ||
		!strings.Contains(messages[0], want) {
		t.Errorf("notes %q, said %q, want %s once", s.env.Notes, messages, want)
	}
}
