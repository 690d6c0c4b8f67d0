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

// ranking is the devices of a run in the order of the figure that the run is about,
// the best first.
type ranking struct {
	Title string
	Load  string // the load of all rows; empty where they differ
	// LoadAlone: the sentence above the picture does not say the load, so a phone shows it too.
	LoadAlone bool
	Order     string
	Rows      []rankedDevice
	// Reference is a line across all rows; 0: none.
	Reference     analysis.Number
	ReferenceName string
	Floor         analysis.Estimate // the noise floor, a band across all rows
	Key           []keyEntry        // what the shapes of the marks mean
	ReachText     string            // and what the lines mean
	Notes         []string
}

// rankedDevice is one device: a row of the picture, and one of the table below.
type rankedDevice struct {
	DUT, Key, Style string
	// At is the place of the mark, with the ends of its line. Without a mean the
	// device has no place.
	At              analysis.Estimate
	Value, Interval string // as written next to the mark
	Shape           string // CSS class of the mark
	Word            string // the shape, for those who do not see it
	Note            string
	Facts           []fact
}

// keyEntry is one shape with its meaning.
type keyEntry struct{ Shape, Text string }

// picture is a ranking as the template lays it out. Places are per cent of the axis.
type picture struct {
	ranking
	Devices  []pictureRow
	Ticks    []chart.RulerTick
	Line     *pictureLine // the reference
	Band     *pictureSpan // the noise floor
	BandText string
	Skipped  string
	Heads    []string // of the table below, the names of all facts
	Mark     string   // of the run, behind the table's caption
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
	Cut         string // CSS class of a line that goes on beyond the axis
}

// pictureLine is the reference. Side is where its name fits.
type pictureLine struct {
	At         float64
	Name, Side string
}

// rankBy puts devices in order by a figure, the smallest first. What has none comes last.
func rankBy[T any](list []T, figure func(T) analysis.Number) {
	place := func(v T) float64 {
		if n := figure(v); n.Known() {
			return float64(n)
		}
		return math.Inf(1)
	}
	slices.SortStableFunc(list, func(a, b T) int { return cmp.Compare(place(a), place(b)) })
}

// picture lays a ranking out.
func (r ranking) picture(skipped []result.Skip) picture {
	if r.asEstimated() {
		r.Order += ", as estimated"
	}
	p := picture{ranking: r}
	var points []chart.Point
	for i, row := range r.Rows {
		if row.At.Mean > 0 {
			points = append(points, meanPoint("", 0, row.At, ""))
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
		p.Line = &pictureLine{At: ruler.At(float64(r)), Name: p.ReferenceName}
		switch {
		case p.Line.At < 25:
			p.Line.Side = "start"
		case p.Line.At > 75:
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

// Fact is a fact of the device by its name.
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
	out := pictureRow{rankedDevice: row, Placed: row.At.Mean > 0}
	if !out.Placed {
		return out
	}
	out.Mark = ruler.At(float64(row.At.Mean))
	if reference > 0 {
		out.Stem = spanBetween(ruler, min(reference, row.At.Mean), max(reference, row.At.Mean))
	}
	if row.At.HasInterval() && !isOpenInterval(row.At) {
		out.Reach = spanBetween(ruler, row.At.Lo, row.At.Hi)
	}
	return out
}

func spanBetween(ruler chart.Ruler, lo, hi analysis.Number) *pictureSpan {
	from, to := ruler.At(float64(lo)), ruler.At(float64(hi))
	out := &pictureSpan{From: from, Width: math.Round(100*(to-from)) / 100}
	if !ruler.Holds(float64(lo)) || !ruler.Holds(float64(hi)) {
		out.Cut = "cut"
	}
	return out
}
