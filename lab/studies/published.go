package studies

import (
	"embed"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/result"
)

//go:embed published/*.csv
var shipped embed.FS

var files fs.FS = shipped

// published are the study's courses by scenario. The files ship with the program
// and tests read all of them, so that an error here is a mistake of the program.
func (s Sweep) published(scenarios []Scenario) map[string]course {
	f, err := files.Open(s.File)
	if err == nil {
		defer f.Close()
		var out map[string]course
		if out, err = s.readPublished(f, scenarios); err == nil {
			return out
		}
	}
	panic(err)
}

// readPublished reads a CSV of published values: comment lines with #, a header that
// names scenario, dimensions and metrics, and a row for each scenario and level. Rows
// at other values of what the sweep holds are left out. Anything else is an error with
// file, line and column: an unknown column or scenario, a figure that is not positive
// and finite, a level that does not ascend within its scenario.
func (s Sweep) readPublished(r io.Reader, scenarios []Scenario) (map[string]course, error) {
	records := csv.NewReader(r)
	records.Comment = '#'
	header, err := records.Read()
	if err == nil {
		err = s.checkHeader(header)
	}
	out := map[string]course{}
	for line := 0; err == nil; {
		var record []string
		if record, err = records.Read(); err == nil {
			line, _ = records.FieldPos(0)
			if err := s.addPublished(out, header, record, scenarios); err != nil {
				return nil, fmt.Errorf("%s: line %d: %w", s.File, line, err)
			}
		}
	}
	switch {
	case !errors.Is(err, io.EOF):
		return nil, fmt.Errorf("%s: %w", s.File, err)
	case len(out) == 0:
		return nil, fmt.Errorf("%s: no rows below a header", s.File)
	}
	return out, nil
}

// dimension reports whether a column is what the sweep goes along or holds.
func (s Sweep) dimension(column string) bool {
	return column == string(s.Along) || s.At.Has(result.Dimension(column))
}

func (s Sweep) checkHeader(header []string) error {
	for i, column := range header {
		metric := slices.ContainsFunc(s.Metrics, func(m Metric) bool { return m.Name == column })
		if column != "scenario" && !s.dimension(column) && !metric || slices.Contains(header[:i], column) {
			return fmt.Errorf("header: %s is no metric and no dimension of the sweep, or there twice", column)
		}
	}
	if !slices.Contains(header, "scenario") || !slices.Contains(header, string(s.Along)) || len(header) < 3 {
		return fmt.Errorf("header %q: want scenario, %s and metrics", strings.Join(header, ","), s.Along)
	}
	return nil
}

func (s Sweep) addPublished(out map[string]course, header, record []string, scenarios []Scenario) error {
	name, at, figures := "", 0.0, map[string]analysis.Estimate{}
	for i, column := range header {
		switch {
		case column == "scenario":
			if name = record[i]; !slices.ContainsFunc(scenarios, func(s Scenario) bool { return s.Published == name }) {
				return fmt.Errorf("scenario %q is not one of the study", name)
			}
			continue
		case column != string(s.Along) && s.dimension(column):
			if record[i] != s.At.Text(result.Dimension(column)) {
				return nil
			}
			continue
		}
		v, err := strconv.ParseFloat(record[i], 64)
		if err != nil || math.IsInf(v, 0) || !(v > 0) {
			return fmt.Errorf("%s: %q is not a positive number", column, record[i])
		}
		if figures[column] = exact(analysis.Number(v)); column == string(s.Along) {
			at = v
		}
	}
	if out[name].points == nil {
		out[name] = course{points: map[float64]*point{}}
	}
	for level := range out[name].points {
		if at <= level {
			return fmt.Errorf("%s: level %g of %s does not ascend", s.Along, at, name)
		}
	}
	out[name].points[at] = &point{figures: figures}
	return nil
}
