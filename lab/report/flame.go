package report

import (
	"cmp"
	_ "embed"
	"fmt"
	"html/template"
	"math"
	"slices"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/profile"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/words"
)

var (
	//go:embed flame.html.tmpl
	flameSource string
	//go:embed flame.css
	flameStyle string
	//go:embed flame.js
	flameScript string
)

// Limits of what a flame graph draws; the folded files keep everything.
const (
	flameLeast     = 0.001 // of the dearer router's cost: smaller frames are left out
	flameMostNodes = 3000  // a profile; beyond, the least is doubled until it fits
	flameFunctions = 15    // rows of the table beside it
	// Without JavaScript a drawing shows frames from this share on.
	flameStaticLeast = 0.005
)

// flames is the section of flame graphs.
type flames struct {
	Profiles []flameProfile
	Broken   string // profiles that could not be read
	Data     []flameData
	Script   template.JS
}

// flameProfile is what the page says of one profile without JavaScript.
type flameProfile struct {
	Title, Agreement, Coverage, About string
	Rows                              []flameRow
	SVG                               template.HTML
}

// flameRow is one row of the table of functions.
type flameRow struct {
	Name, Where, Difference, Margin, Share, DUT, Clean, WithCallees string
	Total                                                           bool // the rest, or the sum
}

// flameData is what the script draws from.
type flameData struct {
	Title string   `json:"title"`
	DUT   string   `json:"dut"`
	Names []string `json:"names"` // of frames
	Kinds []int    `json:"kinds"` // by name: see frameKind
	// Nodes has five numbers a frame, parents before their children: index of its
	// name, depth, ps per packet of the device and of the clean router, and shade.
	Nodes []int64 `json:"nodes"`
}

// Kinds of frame, for their colour.
const (
	kindAccount = iota
	kindKernel
	kindUser
)

func frameKind(f profile.Frame) int {
	switch {
	case f.Module == "":
		return kindAccount
	case f.InKernel():
		return kindKernel
	}
	return kindUser
}

// flameSection reads the run's profiles; nil when it has none.
func flameSection(dir string, s analysis.Summary) *flames {
	if dir == "" {
		return nil // records that never were in a folder
	}
	list, err := profile.ReadAll(dir)
	if err == nil && len(list) == 0 {
		return nil
	}
	slices.SortStableFunc(list, func(a, b profile.Profile) int {
		return cmp.Or(cmp.Compare(a.Cell.Text(result.DUT), b.Cell.Text(result.DUT)), cmp.Compare(a.Cell.Int(result.Clients), b.Cell.Int(result.Clients)), cmp.Compare(a.Cell.Number(result.OfferedMbps), b.Cell.Number(result.OfferedMbps)))
	})
	out := &flames{Script: template.JS(flameScript)}
	if err != nil {
		out.Broken = err.Error()
	}
	for i, p := range list {
		scaled, _ := atTrialsSpeed(p, measured(p.Cell, s))
		tree := profile.Tree(scaled)
		out.Profiles = append(out.Profiles, describeProfile(p, tree, s, i))
		out.Data = append(out.Data, flameOf(scaled, tree))
	}
	return out
}

func describeProfile(p profile.Profile, tree *profile.Node, s analysis.Summary, number int) flameProfile {
	e := Explain(p, s, flameFunctions)
	out := flameProfile{
		Title: profiledCell(p.Cell), Agreement: unbroken(e.agreement()), Coverage: unbroken(e.coverage()),
		About: fmt.Sprintf("%s at %d samples a second for %.0f s; user stacks by %s.", words.Or(p.Perf, "perf"), p.FrequencyHz, p.DUT.Seconds, p.UserStacks),
		SVG:   staticFlame(tree, p.Cell.Text(result.DUT), number),
	}
	for _, f := range e.Functions {
		out.Rows = append(out.Rows, flameRow{
			Name: f.Name, Where: f.Module, Difference: signedNs(f.Difference), Margin: "± " + ns(f.Margin), Share: sharePercent(f.Share),
			DUT: ns(f.DUT), Clean: ns(f.Clean), WithCallees: signedNs(f.WithCallees),
		})
	}
	if e.Rest.Count > 0 {
		out.Rows = append(out.Rows, flameRow{
			Name: words.Counted(e.Rest.Count, "more function"), Difference: signedNs(e.Rest.Difference), Margin: "± " + ns(e.Rest.Margin),
			Share: sharePercent(e.Rest.Share), DUT: ns(e.Rest.DUT), Clean: ns(e.Rest.Clean), Total: true,
		})
	}
	out.Rows = append(out.Rows, flameRow{
		Name: "sum", Difference: signedNs(e.Sum.Difference), Share: sharePercent(1), DUT: ns(e.Sum.DUT), Clean: ns(e.Sum.Clean), Total: true,
	})
	return out
}

// flameOf packs a tree for the script.
func flameOf(p profile.Profile, tree *profile.Node) flameData {
	d := flameData{Title: profiledCell(p.Cell), DUT: p.Cell.Text(result.DUT)}
	// A profile of nothing could hold any number of frames too.
	least := math.Max(flameLeast*math.Max(tree.DUT, tree.Clean), math.SmallestNonzeroFloat64)
	for countNodes(tree, least) > flameMostNodes {
		least *= 2
	}
	index := map[string]int64{}
	var pack func(n *profile.Node, depth int64)
	pack = func(n *profile.Node, depth int64) {
		name := n.Frame.String()
		i, ok := index[name]
		if !ok {
			i = int64(len(d.Names))
			index[name] = i
			d.Names = append(d.Names, name)
			d.Kinds = append(d.Kinds, frameKind(n.Frame))
		}
		d.Nodes = append(d.Nodes, i, depth, picoseconds(n.DUT), picoseconds(n.Clean), int64(shade(n.Cost)))
		for _, c := range n.Children {
			if worthDrawing(c, least) {
				pack(c, depth+1)
			}
		}
	}
	tree.Func = "router"
	pack(tree, 0)
	return d
}

func picoseconds(ns float64) int64 { return int64(math.Round(ns * 1000)) }

func worthDrawing(n *profile.Node, least float64) bool { return math.Max(n.DUT, n.Clean) >= least }

func countNodes(n *profile.Node, least float64) int {
	count := 1
	for _, c := range n.Children {
		if worthDrawing(c, least) {
			count += countNodes(c, least)
		}
	}
	return count
}

// shades to each side of "the same"; the last is for frames only one router has.
const shades = 4

// shade is the colour of a frame in the difference: from -shades (only the clean
// router has it) over 0 (the same, or within what sampling can tell) to +shades
// (only the device has it).
func shade(c profile.Cost) int {
	most := math.Max(c.DUT, c.Clean)
	if most <= 0 || math.Abs(c.Difference()) <= c.Margin() {
		return 0
	}
	s := shades
	if math.Min(c.DUT, c.Clean) > 0 {
		s = max(1, int(math.Ceil(math.Abs(c.Difference())/most*(shades-1))))
	}
	return int(math.Copysign(float64(s), c.Difference()))
}

// shadeClass is the style of a shade.
func shadeClass(s int) string {
	switch {
	case s > 0:
		return fmt.Sprintf("more%d", s)
	case s < 0:
		return fmt.Sprintf("less%d", -s)
	}
	return "same"
}
