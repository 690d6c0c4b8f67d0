package studies

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/result"
)

// published are the study's courses by scenario. The file ships with the package,
// and its tests hold what is in it.
func (s Sweep) published(scenarios []Scenario) map[string]course {
	p, err := readPublished(strings.NewReader(s.Published), s, scenarios)
	if err != nil {
		panic(fmt.Errorf("read the published values that %s repeats: %w", s.Run, err))
	}
	return p
}

// readPublished reads a CSV of published values: comment lines with #, a header
// that names scenario, dimensions and metrics, one row for each scenario and level.
// Rows of other values of what the sweep holds are left out. Anything else is an
// error with its line: an unknown column or scenario, a figure that is not positive
// and finite, a level that does not ascend within its scenario.
func readPublished(r io.Reader, s Sweep, scenarios []Scenario) (map[string]course, error) {
	records := csv.NewReader(r)
	records.Comment = '#'
	header, err := records.Read()
	if errors.Is(err, io.EOF) {
		return nil, errors.New("no header")
	}
	if err == nil {
		err = checkHeader(header, s.Along)
	}
	out := map[string]course{}
	for err == nil {
		var record []string
		if record, err = records.Read(); err == nil {
			if err = s.addPublished(out, header, record, scenarios); err != nil {
				line, _ := records.FieldPos(0)
				return nil, fmt.Errorf("line %d: %w", line, err)
			}
		}
	}
	switch {
	case !errors.Is(err, io.EOF):
		return nil, err
	case len(out) == 0:
		return nil, errors.New("no rows")
	}
	return out, nil
}

func checkHeader(header []string, along result.Dimension) error {
	for i, name := range header {
		_, dimension := dimensions[result.Dimension(name)]
		if name != "scenario" && !dimension && !slices.Contains(metrics, name) || slices.Contains(header[:i], name) {
			return fmt.Errorf("header %q: %s is no metric (%s) and no dimension, or there twice", strings.Join(header, ","), name, strings.Join(metrics, ", "))
		}
	}
	if !slices.Contains(header, "scenario") || !slices.Contains(header, string(along)) || len(header) < 3 {
		return fmt.Errorf("header %q: want scenario, %s and metrics", strings.Join(header, ","), along)
	}
	return nil
}

func (s Sweep) addPublished(out map[string]course, header, record []string, scenarios []Scenario) error {
	name, at, figures := "", 0.0, map[string]analysis.Estimate{}
	for i, column := range header {
		_, dimension := dimensions[result.Dimension(column)]
		switch {
		case column == "scenario":
			if name = record[i]; !slices.ContainsFunc(scenarios, func(s Scenario) bool { return s.Published == name }) {
				return fmt.Errorf("scenario %q is not one of the study", name)
			}
			continue
		case dimension && column != string(s.Along):
			if record[i] != s.At.Text(result.Dimension(column)) {
				return nil
			}
			continue
		}
		v, err := strconv.ParseFloat(record[i], 64)
		if err != nil || math.IsInf(v, 0) || !(v > 0) {
			return fmt.Errorf("%s: %q is not a positive number", column, record[i])
		}
		if figures[column] = exact(analysis.Number(v)); dimension {
			at = v
		}
	}
	c, ok := out[name]
	if !ok {
		c.figures = map[float64]map[string]analysis.Estimate{}
	}
	if n := len(c.levels); n > 0 && at <= c.levels[n-1] {
		return fmt.Errorf("level %g of %s does not ascend", at, name)
	}
	c.levels, c.figures[at] = append(c.levels, at), figures
	out[name] = c
	return nil
}
