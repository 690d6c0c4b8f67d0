package report

import (
	_ "embed"
	"fmt"
	"html"
	"html/template"
	"math"
	"slices"
	"strings"

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

// Limits of a flame graph. The folded files have everything.
const (
	flameLeast     = 0.001 // share of the more expensive router's cost; smaller frames are left out
	flameMostNodes = 3000  // frames of a profile; with more, the least is doubled until they fit
	flameFunctions = 15    // rows of the table of functions
	// Without JavaScript a drawing shows frames with at least this share.
	flameStaticLeast = 0.005
)

// flames is the section of flame graphs.
type flames struct {
	Profiles []flameProfile
	Broken   string // names of profiles that could not be read
	Data     []flameData
	Script   template.JS
}

// flameProfile is the text about one profile, shown also without JavaScript.
type flameProfile struct {
	Title, Weakness, Agreement, Coverage, About string
	Rows                                        []functionRow
	SVG                                         template.HTML
}

// flameData is the data that the script draws.
type flameData struct {
	Title string   `json:"title"`
	DUT   string   `json:"dut"`
	Names []string `json:"names"` // of frames
	Kinds []int    `json:"kinds"` // by name: see frameKind
	// Nodes has five numbers for each frame, parents before their children: index of its name, depth, cost of the device
	// and of the clean router (ps per packet), and shade.
	Nodes []int64 `json:"nodes"`
}

// Kinds of frame. Each has a colour.
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

// flameSection reads the run's profiles. It returns nil when there are none.
func flameSection(dir string, s analysis.Summary) *flames {
	if dir == "" {
		return nil // a run that is not in a folder
	}
	list, err := profile.ReadAll(dir)
	if err == nil && len(list) == 0 {
		return nil
	}
	slices.SortStableFunc(list, func(a, b profile.Profile) int {
		return result.CompareCells(a.Cell, b.Cell, result.DUT, result.Clients, result.OfferedMbps)
	})
	out := &flames{Script: template.JS(flameScript)}
	if err != nil {
		out.Broken = err.Error()
	}
	for i, p := range list {
		scaled, _ := atTrialsSpeed(p, measuredInCell(p.Cell, s))
		tree := profile.Tree(scaled)
		out.Profiles = append(out.Profiles, describeProfile(p, tree, s, i))
		out.Data = append(out.Data, flameOf(scaled, tree))
	}
	return out
}

func describeProfile(p profile.Profile, tree *profile.Node, s analysis.Summary, number int) flameProfile {
	e := Explain(p, s, flameFunctions)
	return flameProfile{
		Title: profiledCell(p.Cell), Weakness: e.Weakness, Agreement: keepTogether(e.agreement()),
		Coverage: keepTogether(e.coverage()),
		About: fmt.Sprintf("%s at %d samples a second for %.0f s; user stacks by %s.", words.Or(p.Perf, "perf"),
			p.FrequencyHz, p.DUT.Seconds, p.UserStacks),
		SVG: staticFlame(tree, p.Cell.Text(result.DUT), number), Rows: e.rows(),
	}
}

// flameOf packs a tree for the script.
func flameOf(p profile.Profile, tree *profile.Node) flameData {
	d := flameData{Title: profiledCell(p.Cell), DUT: p.Cell.Text(result.DUT)}
	// In an empty profile every frame would reach a least of 0.
	least := math.Max(flameLeast*math.Max(tree.DUT, tree.Clean), math.SmallestNonzeroFloat64)
	for countNodes(tree, least) > flameMostNodes {
		least *= 2
	}
	index := map[string]int64{}
	picoseconds := func(ns float64) int64 { return int64(math.Round(ns * 1000)) }
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
		d.Nodes = append(d.Nodes, i, depth, picoseconds(n.DUT), picoseconds(n.Clean), int64(shadeOf(n.Cost)))
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

func countNodes(n *profile.Node, least float64) int {
	count := 1
	for _, c := range n.Children {
		if worthDrawing(c, least) {
			count += countNodes(c, least)
		}
	}
	return count
}

func worthDrawing(n *profile.Node, least float64) bool { return math.Max(n.DUT, n.Clean) >= least }

// shades is the number of shades on each side of "the same". The last one is for frames that only one router has.
const shades = 4

// shadeOf returns the shade of a frame: from -shades (only the clean router has it) over 0 (the same, as far as the
// samples can tell) to +shades (only the device has it).
func shadeOf(c profile.Cost) int {
	most := math.Max(c.DUT, c.Clean)
	if most <= 0 || math.Abs(c.Difference()) <= c.Margin() {
		return 0
	}
	s := float64(shades)
	if math.Min(c.DUT, c.Clean) > 0 {
		s = max(1, math.Ceil(math.Abs(c.Difference())/most*(shades-1)))
	}
	return int(math.Copysign(s, c.Difference()))
}

// shadeClasses are the CSS classes of the shades from -shades on.
var shadeClasses = [...]string{"less4", "less3", "less2", "less1", "same", "more1", "more2", "more3", "more4"}

// Sizes in the drawing without JavaScript, pixels.
const (
	flameWidth  = 1100
	flameRowPx  = 18
	flameCharPx = 6.3 // mean width of a character of its type
)

// flameSVG draws the difference for browsers without JavaScript. A frame's width is the device's cost, its colour the
// difference from the clean router's.
type flameSVG struct {
	strings.Builder
	perNs   float64 // pixels
	least   float64 // frames below are not drawn, ns per packet
	deepest int
}

func staticFlame(tree *profile.Node, dut string, number int) template.HTML {
	d := flameSVG{perNs: flameWidth / math.Max(tree.DUT, 1e-9), least: flameStaticLeast * tree.DUT}
	d.draw(tree, 0, 0)
	id := fmt.Sprintf("flame-static-%d", number)
	title := html.EscapeString("Flame graph of " + dut + ", coloured by the difference to the clean router")
	return template.HTML(fmt.Sprintf(
		`<svg class="flame-static" viewBox="0 0 %d %d" role="img" aria-labelledby="%s"><title id="%s">%s</title>%s</svg>`,
		flameWidth, (d.deepest+1)*flameRowPx, id, id, title, d.String()))
}

func (d *flameSVG) draw(n *profile.Node, x float64, depth int) {
	d.deepest = max(d.deepest, depth)
	width, y := n.DUT*d.perNs, depth*flameRowPx
	tip := html.EscapeString(fmt.Sprintf("%s: %.1f ns per packet, %+.1f", n.Frame, n.DUT, n.Difference()))
	fmt.Fprintf(d, `<g><title>%s</title><rect class="%s" x="%.1f" y="%d" width="%.1f" height="%d"/>`, tip,
		shadeClasses[shades+shadeOf(n.Cost)], x, y, width, flameRowPx-1)
	if fits := int(width/flameCharPx) - 1; fits >= 3 {
		name := []rune(n.Func)
		fmt.Fprintf(d, `<text x="%.1f" y="%d">%s</text>`, x+3, y+13, html.EscapeString(string(name[:min(fits, len(name))])))
	}
	d.WriteString("</g>\n")
	for _, c := range n.Children {
		if c.DUT >= d.least {
			d.draw(c, x, depth+1)
		}
		x += c.DUT * d.perNs
	}
}
