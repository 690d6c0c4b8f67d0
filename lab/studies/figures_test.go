// Tests of the figures of studies. simulate makes a run from a description and a course (measuredCourse), which says
// how much dearer a bit is in a cell than proportional; bandwidth and clients are such runs over loads and over numbers
// of clients (simulated_test.go).

package studies_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/lab/studies"
)

func figureByID(t *testing.T, figures []studies.Figure, id string) studies.Figure {
	t.Helper()
	for _, f := range figures {
		if f.ID == id {
			return f
		}
	}
	t.Fatalf("no %s", id)
	return studies.Figure{}
}

// seriesNames of a panel's series; published ones in brackets, guides in braces.
func seriesNames(p studies.Panel) string {
	var out []string
	for _, s := range p.Series {
		switch {
		case s.Guide:
			out = append(out, "{"+s.Name+"}")
		case s.Published:
			out = append(out, "("+s.DUT+")")
		default:
			out = append(out, s.DUT)
		}
	}
	return strings.Join(out, " ")
}

func TestFigures(t *testing.T) {
	figures := study1Outcome(
		bandwidth(proportional, portal("coovachilli", 5), portal("opennds", 2.5)),
		clients(proportional, portal("coovachilli", 5))).Figures
	var ids []string
	for _, f := range figures {
		ids = append(ids, strings.TrimPrefix(f.ID, "figure-"))
	}
	if want := []string{"5.5", "5.6", "A.1", "A.2"}; !slices.Equal(ids, want) {
		t.Fatalf("figures %q", ids)
	}
	const published = "(clean) (coovachilli) (gateway-nfqueue)"
	for _, tt := range []struct {
		id     string
		panels []string
	}{
		{"figure-5.5", []string{"clean coovachilli opennds", published, "coovachilli opennds (coovachilli) (gateway-nfqueue)",
			"clean coovachilli opennds " + published + " {proportional to bandwidth}"}},
		{"figure-5.6", []string{
			"clean coovachilli", published, "coovachilli (coovachilli) (gateway-nfqueue)", "clean coovachilli " + published}},
		{"figure-A.1", []string{
			"clean coovachilli opennds", published, "clean coovachilli opennds " + published + " {proportional to bandwidth}"}},
		{"figure-A.2", []string{"clean coovachilli", published, "clean coovachilli " + published}},
	} {
		var got []string
		for _, p := range figureByID(t, figures, tt.id).Panels {
			got = append(got, seriesNames(p))
		}
		if !slices.Equal(got, tt.panels) {
			t.Errorf("%s: panels %q\nwant %q", tt.id, got, tt.panels)
		}
	}
}

func TestFigurePoints(t *testing.T) {
	panels := figureByID(t, study1Outcome(bandwidth(proportional, portal("coovachilli", 5))).Figures, "figure-5.5").Panels
	here, published, over, own := panels[0], panels[1], panels[2], panels[3]
	if p := here.Series[1].Points; len(p) != 5 || !p[4].Y.HasInterval() || here.Series[1].Run != "portal-bandwidth" {
		t.Errorf("points here %+v", here.Series[1])
	}
	checkNear(t, "published", published.Series[1].Points[4].Y.Mean, 22.76, 0)
	if !over.LogY || over.Reference != 1 {
		t.Errorf("panel of ratios %+v", over)
	}
	checkNear(t, "ratio here", over.Series[0].Points[2].Y.Mean, 5, 0.2)
	checkNear(t, "ratio published", over.Series[1].Points[4].Y.Mean, 22.76/9.22, 1e-9)
	if own.Title != "Over its own value at 1000 Mbit/s" {
		t.Errorf("panel %q", own.Title)
	}
	checkNear(t, "course here", own.Series[1].Points[0].Y.Mean, 0.1, 0.01)
	checkNear(t, "course at the level it refers to", own.Series[1].Points[4].Y.Mean, 1, 1e-12)
	checkNear(t, "course published", own.Series[3].Points[0].Y.Mean, 1.93/22.76, 1e-9)
	guide := own.Series[len(own.Series)-1]
	checkNear(t, "guide", guide.Points[1].Y.Mean, 0.2, 1e-12)
	sampled := figureByID(t, study1Outcome(bandwidth(proportional, portal("coovachilli", 5))).Figures, "figure-A.1").Panels
	checkNear(t, "published, sampled", sampled[1].Series[1].Points[4].Y.Mean, 21.97, 0)
}

// TestReferenceLevelOfCourses: a device at its limit moves the level the
// courses refer to, and one that is always at its limit has no course.
func TestReferenceLevelOfCourses(t *testing.T) {
	chilli := portal("coovachilli", 5)
	chilli.MaxMbps = 500
	load := figureByID(t, study1Outcome(bandwidth(proportional, chilli)).Figures, "figure-5.5").Panels[3]
	if load.Title != "Over its own value at 400 Mbit/s" || len(load.Series[1].Points[4].Flags) == 0 {
		t.Errorf("panel %q, points %+v", load.Title, load.Series[1].Points)
	}
	many := figureByID(t, study1Outcome(clients(proportional, chilli)).Figures, "figure-5.6").Panels[3]
	if seriesNames(many) != "clean (clean) (coovachilli) (gateway-nfqueue)" ||
		many.Title != "Over its own value with 100 clients" {
		t.Errorf("panel %q: %s", many.Title, seriesNames(many))
	}
	spec := bandwidthSpec(chilli)
	spec.Offered = []float64{100, 300}
	figures := study1Outcome(simulate("mine", spec, proportional)).Figures
	if len(figures) != 2 {
		t.Fatalf("%d figures", len(figures))
	}
	for _, f := range figures {
		if strings.Contains(f.Panels[len(f.Panels)-1].Title, "own value") ||
			!strings.Contains(f.Note, "courses are not compared") {
			t.Errorf("one level of the study: %d panels, note %q", len(f.Panels), f.Note)
		}
	}
}
