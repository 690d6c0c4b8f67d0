package studies

import (
	"embed"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/gateweigh/gateweigh/lab/analysis"
)

//go:embed published/*.csv
var publishedFiles embed.FS

// publishedSweep is one experiment as the study printed it: by scenario, the
// rows in ascending order of level.
type publishedSweep struct {
	Along string // analysis.AlongLoad or analysis.AlongClients
	Rows  map[string][]publishedRow
}

// publishedRow is a row of tables A.1 to A.6. CPU is % of the study's machine.
type publishedRow struct {
	Level         float64 // Mbit/s, or clients
	LinkMbps      float64 // sampled bandwidth
	CPUSampled    float64
	CPUNormalised float64 // equation 5.1
}

// Columns of a published file; the second names what the sweep goes along.
var (
	publishedColumns = []string{"scenario", "level", "sampled_mbps", "cpu_sampled_pct", "cpu_normalised_pct"}
	publishedLevels  = map[string]string{"limit_mbps": analysis.AlongLoad, "clients": analysis.AlongClients}
)

// readPublished reads a published file that ships with the package, whose
// contents its tests hold.
func readPublished(name string) publishedSweep {
	file, err := publishedFiles.Open("published/" + name)
	if err != nil {
		panic(err)
	}
	defer file.Close()
	sweep, err := parsePublished(file)
	if err != nil {
		panic(fmt.Errorf("read published/%s: %w", name, err))
	}
	return sweep
}

// parsePublished reads a CSV of published values: comment lines with #, one
// header, one row for each scenario and level. Anything else is an error with
// its line: another header, an unknown scenario, a figure that is not positive
// and finite, a level that does not ascend within its scenario.
func parsePublished(r io.Reader) (publishedSweep, error) {
	records := csv.NewReader(r)
	records.Comment = '#'
	header, err := records.Read()
	if errors.Is(err, io.EOF) {
		return publishedSweep{}, errors.New("no header")
	}
	if err != nil {
		return publishedSweep{}, err
	}
	along, err := parseHeader(header)
	if err != nil {
		return publishedSweep{}, err
	}
	sweep := publishedSweep{Along: along, Rows: map[string][]publishedRow{}}
	for {
		record, err := records.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return publishedSweep{}, err
		}
		if err := sweep.add(record); err != nil {
			line, _ := records.FieldPos(0)
			return publishedSweep{}, fmt.Errorf("line %d: %w", line, err)
		}
	}
	if len(sweep.Rows) == 0 {
		return publishedSweep{}, errors.New("no rows")
	}
	return sweep, nil
}

// parseHeader returns the quantity the sweep goes along.
func parseHeader(header []string) (string, error) {
	want := slices.Clone(publishedColumns)
	if len(header) == len(want) {
		want[1] = header[1]
	}
	along, known := publishedLevels[want[1]]
	if !known || !slices.Equal(header, want) {
		want[1] = "limit_mbps|clients"
		return "", fmt.Errorf("header %q: want %q", strings.Join(header, ","), strings.Join(want, ","))
	}
	return along, nil
}

func (p publishedSweep) add(record []string) error {
	name := record[0]
	if !slices.ContainsFunc(scenarios, func(s scenario) bool { return s.Published == name }) {
		return fmt.Errorf("scenario %q is not one of study 1", name)
	}
	var values [4]float64
	for i, text := range record[1:] {
		v, err := strconv.ParseFloat(text, 64)
		if err != nil || math.IsInf(v, 0) || !(v > 0) {
			return fmt.Errorf("%s: %q is not a positive number", publishedColumns[i+1], text)
		}
		values[i] = v
	}
	row := publishedRow{Level: values[0], LinkMbps: values[1], CPUSampled: values[2], CPUNormalised: values[3]}
	rows := p.Rows[name]
	if n := len(rows); n > 0 && row.Level <= rows[n-1].Level {
		return fmt.Errorf("level %g of %s does not ascend", row.Level, name)
	}
	p.Rows[name] = append(rows, row)
	return nil
}
