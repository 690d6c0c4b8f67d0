package compare

import (
	_ "embed"
	"html/template"
	"io"
	"strings"

	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/words"
)

var (
	//go:embed compare.html.tmpl
	htmlSource string
	//go:embed compare.css
	htmlStyle string
)

var htmlForm = template.Must(template.New("compare").Parse(htmlSource))

// linkedSide is a run with the address of its page.
type linkedSide struct{ Letter, Line, Link, Name string }

// htmlComparison has a comparison in the form that the template needs.
type htmlComparison struct {
	page
	Title string
	Runs  []linkedSide
	Heads []string
	Rows  [][]htmlCell
}

// htmlCell is a cell of the table. Head is its column's heading, which a narrow page shows beside the cell.
type htmlCell struct{ Head, Text string }

// comparisons is the data of the template.
type comparisons struct {
	Style       template.CSS
	Title       string
	Differences string
	All         []htmlComparison
}

// HTML writes one self-contained page that compares runs with each other or with limits. The page loads nothing from
// the network or from other files. link returns the address of a run's page by the run's name.
func HTML(w io.Writer, all []Comparison, link func(name string) string) error {
	return fill(w, "compare", all, link)
}

// Sections writes one section for each comparison, without the beginning and the end of a page. The caller puts them
// into its page.
func Sections(w io.Writer, all []Comparison, link func(name string) string) error {
	return fill(w, "comparisons", all, link)
}

// fill executes the template named form, with all comparisons.
func fill(w io.Writer, form string, all []Comparison, link func(name string) string) error {
	data := comparisons{Style: template.CSS(htmlStyle), Differences: differencesHead}
	for i := range all {
		c := &all[i]
		data.Title = words.Or(c.B.Experiment, "Runs")
		data.All = append(data.All, c.html(link))
	}
	var b strings.Builder
	err := htmlForm.ExecuteTemplate(&b, form, data)
	if err == nil {
		_, err = io.WriteString(w, result.PrintablePage(b.String()))
	}
	return err
}

// html prepares a comparison for the template.
func (c *Comparison) html(link func(name string) string) htmlComparison {
	one := htmlComparison{page: c.page(), Title: result.OneLine(c.B.Name)}
	if c.A != nil {
		one.Title = result.OneLine(c.B.Name + " over " + c.A.Name)
		one.Runs = append(one.Runs, linkedSide{"A", c.A.facts(), link(c.A.Name), c.A.Name})
	}
	one.Runs = append(one.Runs, linkedSide{"B", c.B.facts(), link(c.B.Name), c.B.Name})
	for n, row := range one.Table {
		if n == 0 {
			one.Heads = row
			continue
		}
		var cells []htmlCell
		for k, text := range row {
			cells = append(cells, htmlCell{one.Heads[k], text})
		}
		one.Rows = append(one.Rows, cells)
	}
	return one
}
