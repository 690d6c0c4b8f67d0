// Package report shows the result of a run: a table for the terminal, a
// self-contained HTML page, JSON and CSV. It measures and computes nothing.
package report

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/measure"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/studies"
)

// Names of the files that Write makes in a run folder.
const (
	SummaryFile = "summary.json"
	CSVFile     = "summary.csv"
	HTMLFile    = "report.html"
)

// Options of WriteWith; the zero value is usable.
type Options struct {
	Analysis analysis.Options
	// With are summaries of further runs that complete the comparison with published studies: one run sweeps bandwidth,
	// another clients. If several runs have the same figure, the one of the report's own run is used.
	With []analysis.Summary
	// Dir is the folder to write into. It is created when absent. Default: the run's folder.
	Dir string
}

// output is a file that WriteWith writes.
type output struct {
	name  string
	write func(io.Writer) error
}

// Write reads a run folder and writes summary.json, summary.csv and
// report.html into it, each whole or not at all. A run without accepted trials
// gives a report that says so. The summary is returned for the terminal.
func Write(runDir string) (analysis.Summary, error) { return WriteWith(runDir, Options{}) }

// WriteWith is Write with options. If only writing the files failed, it returns the whole summary with the error.
func WriteWith(runDir string, opts Options) (analysis.Summary, error) {
	run, err := measure.ReadRun(runDir)
	if err != nil {
		return analysis.Summary{}, err
	}
	s := measure.Summarise(run, opts.Analysis)
	for _, study := range studies.Beside(append([]analysis.Summary{s}, opts.With...)...) {
		s.Findings = append(s.Findings, study.Findings...)
	}
	dir := cmp.Or(opts.Dir, runDir)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return s, fmt.Errorf("make the folder of the report: %w", err)
	}
	files := []output{
		{SummaryFile, func(w io.Writer) error { return JSON(w, s) }},
		{CSVFile, func(w io.Writer) error { return CSV(w, s) }},
		{HTMLFile, func(w io.Writer) error { return HTML(w, run, s, opts.With...) }},
	}
	if courses, err := coursesOf(run); err != nil {
		return s, err
	} else if len(courses) > 0 {
		files = append(files, output{CourseCSVFile, func(w io.Writer) error { return CourseCSV(w, courses) }})
	}
	for _, file := range files {
		var b bytes.Buffer
		if err := file.write(&b); err != nil {
			return s, fmt.Errorf("make %s: %w", file.name, err)
		}
		if err := result.ReplaceFile(filepath.Join(dir, file.name), b.Bytes()); err != nil {
			return s, err
		}
	}
	return s, nil
}

// JSON writes a summary as summary.json has it, or any other answer of a command in the same form.
func JSON(w io.Writer, v any) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(v)
}
