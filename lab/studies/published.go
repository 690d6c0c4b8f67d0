package studies

import (
	"bytes"
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

// published returns the sweep with the published values only. The files ship with the program, and tests read all of
// them. So an error in them is a mistake of the program, and published panics.
func (s *Sweep) published(scenarios []Scenario) repetition {
	courses := s.emptyCourses(scenarios)
	if s.File != "" {
		data, err := fs.ReadFile(files, s.File)
		if err == nil {
			courses, err = s.readPublished(bytes.NewReader(data), scenarios)
		}
		if err != nil {
			panic(err)
		}
	}
	first := courses[scenarios[0].Published]
	x := repetition{Sweep: *s, Levels: first.levels}
	for _, sc := range scenarios {
		c := courses[sc.Published]
		for _, m := range s.Metrics {
			for _, level := range c.levels {
				if over := (Metric{Name: m.Over}); c != first {
					c.setMetric(m.Name, level, quotient(c.estimate(over, level), first.estimate(over, level)))
				}
			}
		}
		r := router{Scenario: sc, published: *c}
		for _, name := range s.Systems {
			if c := courses[sc.Published+"/"+name]; len(c.levels) > 0 {
				r.systems = append(r.systems, system{name, *c})
			}
		}
		x.Routers = append(x.Routers, r)
	}
	return x
}

// emptyCourses returns a course without figures for each scenario, and for each "scenario/system".
func (s Sweep) emptyCourses(scenarios []Scenario) map[string]*measuredCourse {
	out := map[string]*measuredCourse{}
	for _, sc := range scenarios {
		out[sc.Published] = newCourse(s.Fixed)
		for _, name := range s.Systems {
			out[sc.Published+"/"+name] = newCourse(s.Fixed)
		}
	}
	return out
}

// readPublished reads a CSV of published values. It has comment lines with #, a header with the names of scenario,
// dimensions and metrics, and a row for each scenario and level. Rows at other values of the fixed dimensions are left
// out. An error names file, line and column. Errors are an unknown column or scenario, a figure that is not positive
// and finite, and a level that does not ascend within its scenario.
func (s Sweep) readPublished(r io.Reader, scenarios []Scenario) (map[string]*measuredCourse, error) {
	out := s.emptyCourses(scenarios)
	records := csv.NewReader(r)
	records.Comment = '#'
	header, err := records.Read()
	if err == nil {
		err = s.checkHeader(header)
	}
	for err == nil {
		var record []string
		if record, err = records.Read(); err == nil {
			if err = s.addPublished(out, header, record); err != nil {
				line, _ := records.FieldPos(0)
				err = fmt.Errorf("line %d: %w", line, err)
			}
		}
	}
	if !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: %w", s.File, err)
	}
	if !s.Free && len(out[scenarios[0].Published].levels) == 0 {
		return nil, fmt.Errorf("%s: no rows of %s below a header", s.File, scenarios[0].Published)
	}
	return out, nil
}

// dimension reports whether a column is the sweep's dimension or one of its fixed ones.
func (s Sweep) dimension(column string) bool {
	return column == string(s.Along) || s.Fixed.HasDimension(result.Dimension(column))
}

func (s Sweep) checkHeader(header []string) error {
	for i, column := range header {
		metric := slices.ContainsFunc(s.Metrics, func(m Metric) bool { return m.Name == column })
		if column != "scenario" && (column != "system" || s.Systems == nil) && !s.dimension(column) && !metric ||
			slices.Contains(header[:i], column) {
			return fmt.Errorf("header: %s is no metric and no dimension of the sweep, or there twice", column)
		}
	}
	if !slices.Contains(header, "scenario") || !slices.Contains(header, string(s.Along)) || len(header) < 3 {
		return fmt.Errorf("header %q: want scenario, %s and metrics", strings.Join(header, ","), s.Along)
	}
	return nil
}

func (s Sweep) addPublished(out map[string]*measuredCourse, header, record []string) error {
	name, system, figures := "", "", map[string]float64{}
	for i, column := range header {
		d := result.Dimension(column)
		switch v, err := strconv.ParseFloat(record[i], 64); {
		case column == "scenario":
			name = record[i]
		case column == "system":
			system = "/" + record[i]
		case d != s.Along && s.dimension(column):
			if record[i] != s.Fixed.Text(d) {
				return nil
			}
		case s.Free && record[i] == "":
		case err != nil || math.IsInf(v, 0) || !(v > 0 || s.Free && v == 0):
			return fmt.Errorf("%s: %q is not a positive number", column, record[i])
		default:
			figures[column] = v
		}
	}
	c, level := out[name+system], figures[string(s.Along)]
	if c == nil {
		return fmt.Errorf("scenario %q is not one of the study", name+system)
	}
	if n := len(c.levels); n > 0 && level <= c.levels[n-1] {
		return fmt.Errorf("%s: level %g of %s does not ascend", s.Along, level, name+system)
	}
	for metric, v := range figures {
		c.setMetric(metric, level, exactEstimate(analysis.Number(v)))
	}
	return nil
}
