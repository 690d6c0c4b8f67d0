package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/report/chart"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/words"
)

// ranking has the devices of a run in the order of the run's main figure, the best first.
type ranking struct {
	Title string
	Load  string // load of all rows; empty where they differ
	// LoadAlone is true if the sentence above the picture does not name the load. A phone then shows Load too.
	LoadAlone bool
	Order     string
	Rows      []rankedDevice
	// Reference is a line across all rows. 0: none.
	Reference     analysis.Number
	ReferenceName string
	Floor         analysis.Estimate // noise floor, a band across all rows
	Key           []keyEntry        // meanings of the marks' shapes
	ReachText     string            // meaning of the lines
	Notes         []string
}

// rankedDevice is one device, with a row in the picture and one in the table below.
type rankedDevice struct {
	DUT, Key, Style string
	// Figure gives the place of the mark and the ends of its line. A device without a mean has no place.
	Figure          analysis.Estimate
	Value, Interval string // texts next to the mark
	Shape           string // CSS class of the mark
	Word            string // name of the shape, for readers who cannot see it
	Note            string
	Facts           []fact
}

// keyEntry is one shape with its meaning.
type keyEntry struct{ Shape, Text string }

// picture is a ranking prepared for the template. Places are per cent of the axis.
type picture struct {
	ranking
	Devices  []pictureRow
	Ticks    []chart.RulerTick
	Line     *pictureLine // reference
	Band     *pictureSpan // noise floor
	BandText string
	Skipped  string
	Heads    []string // of the table below: the names of all facts
	Mark     string   // mark of the run, after the table's caption
}

// pictureRow is a device with its marks. Stem joins the mark to the reference.
type pictureRow struct {
	rankedDevice
	Placed      bool
	Mark        float64
	Reach, Stem *pictureSpan
}

type pictureSpan struct {
	From, Width float64
	Cut         string // CSS class of a line that continues beyond the axis
}

// pictureLine is the reference. Side is the side with room for its name.
type pictureLine struct {
	Place      float64
	Name, Side string
}

// rankBy sorts a list by a figure, the smallest first. Elements without a figure come last.
func rankBy[T any](list []T, figure func(T) analysis.Number) {
	place := func(v T) float64 {
		if n := figure(v); n.Known() {
			return float64(n)
		}
		return math.Inf(1)
	}
	slices.SortStableFunc(list, func(a, b T) int { return cmp.Compare(place(a), place(b)) })
}

// picture prepares a ranking for the template.
func (r ranking) picture(skipped []result.Skip) picture {
	if r.asEstimated() {
		r.Order += ", as estimated"
	}
	p := picture{ranking: r}
	var points []chart.Point
	for i, row := range r.Rows {
		if row.Figure.Mean > 0 {
			points = append(points, meanPoint("", 0, row.Figure, ""))
		}
		r.Rows[i].Value, r.Rows[i].Interval, r.Rows[i].Note = keepTogether(row.Value), keepTogether(row.Interval),
			keepTogether(row.Note)
		for _, f := range row.Facts {
			p.Heads = append(p.Heads, f.Name)
		}
	}
	p.Heads = distinct(p.Heads)
	ruler := chart.NewRuler(points, float64(r.Reference), float64(r.Floor.Lo), float64(r.Floor.Hi))
	for _, row := range r.Rows {
		p.Devices = append(p.Devices, row.placeMarks(ruler, r.Reference))
	}
	for _, s := range skipped {
		p.Skipped = words.Joined(", ", p.Skipped, s.DUT)
	}
	p.Key = slices.DeleteFunc(slices.Clone(r.Key), func(k keyEntry) bool {
		return !slices.ContainsFunc(p.Devices, func(row pictureRow) bool { return row.Placed && row.Shape == k.Shape })
	})
	if !slices.ContainsFunc(p.Devices, func(row pictureRow) bool { return row.Reach != nil }) {
		p.ReachText = ""
	}
	if len(points) == 0 {
		p.Order = "no device has a figure"
		return p
	}
	p.layAxis(ruler)
	return p
}

// layAxis fills in what goes across all rows.
func (p *picture) layAxis(ruler chart.Ruler) {
	p.Ticks = ruler.Ticks()
	if r := p.Reference; r > 0 {
		p.Line = &pictureLine{Place: ruler.Position(float64(r)), Name: p.ReferenceName}
		switch {
		case p.Line.Place < 25:
			p.Line.Side = "start"
		case p.Line.Place > 75:
			p.Line.Side = "end"
		}
	}
	if f := p.Floor; p.Line != nil && !(f.Lo > 0) {
		p.BandText = "noise floor: not known"
	} else if f.Lo > 0 {
		p.Band = spanBetween(ruler, f.Lo, f.Hi)
		p.BandText = fmt.Sprintf("noise floor: two clean routers, %s to %s", digits3OfRatio(f.Lo), digits3OfRatio(f.Hi))
	}
}

// Fact returns a fact of the device by its name.
func (row rankedDevice) Fact(name string) string {
	for _, f := range row.Facts {
		if f.Name == name {
			return keepTogether(f.Value)
		}
	}
	return absentFigure
}

// placeMarks places the marks of a device.
func (row rankedDevice) placeMarks(ruler chart.Ruler, reference analysis.Number) pictureRow {
	out := pictureRow{rankedDevice: row, Placed: row.Figure.Mean > 0}
	if !out.Placed {
		return out
	}
	out.Mark = ruler.Position(float64(row.Figure.Mean))
	if reference > 0 {
		out.Stem = spanBetween(ruler, min(reference, row.Figure.Mean), max(reference, row.Figure.Mean))
	}
	if row.Figure.HasInterval() && !isOpenInterval(row.Figure) {
		out.Reach = spanBetween(ruler, row.Figure.Lo, row.Figure.Hi)
	}
	return out
}

func spanBetween(ruler chart.Ruler, lo, hi analysis.Number) *pictureSpan {
	from, to := ruler.Position(float64(lo)), ruler.Position(float64(hi))
	out := &pictureSpan{From: from, Width: math.Round(100*(to-from)) / 100}
	if !ruler.Holds(float64(lo)) || !ruler.Holds(float64(hi)) {
		out.Cut = "cut"
	}
	return out
}
