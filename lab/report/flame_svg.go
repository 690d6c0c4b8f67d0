package report

import (
	"fmt"
	"html"
	"html/template"
	"math"
	"strings"

	"github.com/gateweigh/gateweigh/lab/profile"
)

// Measures of the drawing without JavaScript, pixels.
const (
	flameWidth  = 1100
	flameRowPx  = 18
	flameCharPx = 6.3 // mean advance of its type
)

// flameSVG draws the difference for browsers without JavaScript: as wide as the
// device's cost, coloured by what the clean router's is.
type flameSVG struct {
	strings.Builder
	perNs   float64 // pixels
	least   float64 // ns per packet, below which nothing is drawn
	deepest int
}

func staticFlame(tree *profile.Node, dut string, number int) template.HTML {
	d := flameSVG{perNs: flameWidth / math.Max(tree.DUT, 1e-9), least: flameStaticLeast * tree.DUT}
	d.draw(tree, 0, 0)
	id := fmt.Sprintf("flame-static-%d", number)
	title := html.EscapeString("Flame graph of " + dut + ", coloured by the difference to the clean router")
	return template.HTML(fmt.Sprintf(`<svg class="flame-static" viewBox="0 0 %d %d" role="img" aria-labelledby="%s"><title id="%s">%s</title>%s</svg>`,
		flameWidth, (d.deepest+1)*flameRowPx, id, id, title, d.String()))
}

func (d *flameSVG) draw(n *profile.Node, x float64, depth int) {
	d.deepest = max(d.deepest, depth)
	width, y := n.DUT*d.perNs, depth*flameRowPx
	tip := html.EscapeString(fmt.Sprintf("%s: %.1f ns per packet, %+.1f", n.Frame, n.DUT, n.Difference()))
	fmt.Fprintf(d, `<g><title>%s</title><rect class="%s" x="%.1f" y="%d" width="%.1f" height="%d"/>`, tip, shadeClass(shade(n.Cost)), x, y, width, flameRowPx-1)
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
