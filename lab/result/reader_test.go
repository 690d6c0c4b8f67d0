package result_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gateweigh/gateweigh/lab/result"
)

// A whole record of each kind. The figures of a trial (the types figures and sideFigures in writer_test.go) stand here
// for those of a measure.
const (
	goodTrial = `{"version":1,"kind":"trial","cell":{"dut":"x"},"accepted":true,"dut":{"seconds":1},"clean":{"seconds":1}}` +
		"\n"
	goodBlock = `{"version":1,"kind":"block","dut":"x"}` + "\n"
)

// secondTrial is another attempt at the same window.
var secondTrial = strings.Replace(goodTrial, `"accepted"`, `"attempt":1,"accepted"`, 1)

// ownRecord is a record of a measure's own kind.
type ownRecord struct {
	result.Head
	DUT  string `json:"dut"`
	Text string `json:"text"`
}

// hasSeconds refuses figures of windows without a length.
func hasSeconds(of any) error {
	if of.(*figures).DUT.Seconds == 0 {
		return errors.New("trial: it has no seconds")
	}
	return nil
}

// TestReadRecords reads texts of trials.jsonl: whole, torn at the end, damaged and of newer versions. Errors name file
// and line, and the records before the line are returned.
func TestReadRecords(t *testing.T) {
	tests := []struct {
		name, in       string
		trials, blocks int
		torn           int
		err            string // part of the message; "" for none
		newer          bool
	}{
		{name: "empty"},
		{name: "both kinds", in: goodTrial + goodBlock + secondTrial, trials: 2, blocks: 1},
		{name: "blank lines and CRLF", in: "\n" + strings.TrimSuffix(goodTrial, "\n") + "\r\n\n", trials: 1},
		{name: "unknown keys", in: `{"version":1,"kind":"block","later":{"a":[1]}}` + "\n", blocks: 1},
		{name: "torn", in: goodTrial + `{"version":1,"ki`, trials: 1, torn: 16},
		{name: "torn though whole", in: goodTrial + strings.TrimSuffix(goodTrial, "\n"), trials: 1, torn: len(goodTrial) - 1},
		{name: "newer", in: goodTrial + `{"version":2,"kind":"trial","accepted":"perhaps"}` + "\n", trials: 1,
			err: "f.jsonl:2: version 2, known up to 1", newer: true},
		{name: "no version", in: `{"kind":"trial"}` + "\n", err: "f.jsonl:1: no version"},
		{name: "version zero", in: `{"version":0,"kind":"trial"}` + "\n", err: "f.jsonl:1: version 0"},
		{name: "unknown kind", in: goodTrial + secondTrial + `{"version":1,"kind":"tail"}` + "\n", trials: 2,
			err: `f.jsonl:3: record of unknown kind "tail" (known: trial, block, own)`},
		{name: "kind of a measure's own", in: `{"version":1,"kind":"own","dut":"x","text":"a"}` + "\n" + goodBlock,
			blocks: 1},
		{name: "own kind of a wrong type", in: `{"version":1,"kind":"own","text":5}` + "\n", err: "f.jsonl:1: own: "},
		{name: "own kind without time", in: `{"version":1,"kind":"own","accepted":true}` + "\n",
			err: "f.jsonl:1: own: it is accepted, and took no seconds"},
		{name: "block below 0", in: goodTrial + strings.Replace(goodBlock, `"dut"`, `"block":-7,"dut"`, 1), trials: 1,
			err: "f.jsonl:2: block: block is -7, less than 0"},
		{name: "trial below 0", in: strings.Replace(goodTrial, `"accepted"`, `"window":-1,"accepted"`, 1),
			err: "f.jsonl:1: trial: window is -1"},
		{name: "window without time", in: strings.Replace(goodTrial, `"seconds":1`, `"seconds":0`, 1),
			err: "f.jsonl:1: trial: it has no seconds"},
		{name: "rejected window without time",
			in: `{"version":1,"kind":"trial","cell":{"dut":"x"},"dut":{"seconds":0}}` + "\n", trials: 1},
		{name: "merged lines", in: `{"version":1,"ki` + goodTrial, err: "f.jsonl:1: not a record"},
		{name: "wrong type", in: `{"version":1,"kind":"trial","block":"one"}` + "\n",
			err: "f.jsonl:1: block: want a number, not string"},
		{name: "zeros of a lost write", in: goodTrial + "\x00\x00\x00\n", trials: 1, err: "f.jsonl:2: not a record"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := result.ReadRecords(
				strings.NewReader(tt.in), "f.jsonl", result.Kind{Name: "own", New: func() any { return new(ownRecord) }},
				result.Kind{Name: result.KindTrial, New: func() any { return new(figures) }, Check: hasSeconds})
			if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("error %v, want %q", err, tt.err)
			}
			if errors.Is(err, result.ErrNewerVersion) != tt.newer {
				t.Errorf("ErrNewerVersion in %v, want %v", err, tt.newer)
			}
			if len(got.Trials) != tt.trials || len(got.Blocks) != tt.blocks || got.Torn != tt.torn {
				t.Errorf("got %d trials, %d blocks, %d torn", len(got.Trials), len(got.Blocks), got.Torn)
			}
		})
	}
}

// FuzzReadRecords: records that were read can be written, and the same number of records is read again.
func FuzzReadRecords(f *testing.F) {
	f.Add([]byte(goodTrial + goodBlock))
	f.Add([]byte(goodTrial + `{"version":1`))
	f.Add([]byte(`{"version":1,"kind":"trial","dut":{"seconds":1e308,"extra":{"a":-0.0}},"start":"2026-03-01T09:00:00Z"}` +
		"\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		first, err := result.ReadRecords(bytes.NewReader(data), "fuzz")
		if err != nil && !strings.HasPrefix(err.Error(), "read fuzz:") {
			t.Errorf("error without file and line: %v", err)
		}
		var again bytes.Buffer
		encoder := json.NewEncoder(&again)
		for _, r := range first.Trials {
			if err := encoder.Encode(r); err != nil {
				t.Fatal(err)
			}
		}
		for _, b := range first.Blocks {
			if err := encoder.Encode(b); err != nil {
				t.Fatal(err)
			}
		}
		written := again.String()
		second, err := result.ReadRecords(&again, "fuzz")
		if err != nil || second.Torn != 0 || len(second.Trials) != len(first.Trials) ||
			len(second.Blocks) != len(first.Blocks) {
			t.Fatalf("read again: %v\n%s", err, written)
		}
	})
}

// TestEnvironmentAndRun: a folder with environment.json alone is a run without trials. An empty folder is none.
func TestEnvironmentAndRun(t *testing.T) {
	dir := t.TempDir()
	if _, err := result.ReadRun(dir); err == nil || !strings.Contains(err.Error(), "not a run folder") {
		t.Errorf("an empty folder: %v", err)
	}
	env := result.Environment{
		Experiment: "quick", Mode: result.ModeDuet, CPUs: 2, Tools: map[string]string{"iperf3": "3.12"},
		Skipped: []result.Skip{{DUT: "coovachilli", Reason: "chilli is not on PATH"}}, Interrupted: true,
	}
	if err := result.WriteEnvironment(dir, env); err != nil {
		t.Fatal(err)
	}
	run, err := result.ReadRun(dir)
	if err != nil {
		t.Fatal(err)
	}
	env.Version = result.Version
	if diff := cmp.Diff(result.Run{Dir: dir, Environment: env, Skipped: env.Skipped, Missing: []string{
		result.ExperimentFile}}, run); diff != "" {
		t.Errorf("run without trials (-want +got):\n%s", diff)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("files left behind: %v, %v", entries, err)
	}
}

// TestRunWithoutEnvironment: a run without environment.json can be read, and Missing names that file.
func TestRunWithoutEnvironment(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, result.TrialsFile), []byte(goodTrial+"{"), 0o644); err != nil {
		t.Fatal(err)
	}
	run, err := result.ReadRun(dir)
	if err != nil || len(run.Trials) != 1 || run.Torn != 1 || !slices.Contains(run.Missing, result.EnvironmentFile) {
		t.Errorf("got %+v, %v", run, err)
	}
}

// TestEnvironmentOfWrongTypes: an error about a value of the wrong type does not name types of Go.
func TestEnvironmentOfWrongTypes(t *testing.T) {
	path := filepath.Join(t.TempDir(), result.EnvironmentFile)
	for text, want := range map[string]string{
		"[]":                          "the whole of it: want an object, not array",
		`{"version":1,"cpus":"many"}`: "cpus: want a number, not string",
		`{"version":1,"sides":3}`:     "sides: want an object, not number",
		`{"version":1,"notes":true}`:  "notes: want a list, not bool",
	} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := result.ReadEnvironment(path); err == nil || !strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "Go ") {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
		_, err := result.ReadRecords(strings.NewReader(text+"\n"), "f.jsonl")
		if err == nil || strings.Contains(err.Error(), "Go ") {
			t.Errorf("%s as a record: %v", text, err)
		}
	}
}

// TestNewerEnvironment: an environment.json of a newer format is refused by its version, whatever its other keys are.
func TestNewerEnvironment(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(
		filepath.Join(dir, result.EnvironmentFile), []byte(`{"version":2,"cpus":"many"}`), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := result.ReadRun(dir); !errors.Is(err, result.ErrNewerVersion) {
		t.Errorf("got %v", err)
	}
}

// TestRepeatedRecordsAreLeftOut: a file that was joined with a copy of itself has each record once.
func TestRepeatedRecordsAreLeftOut(t *testing.T) {
	dir := t.TempDir()
	once := goodTrial + secondTrial + goodBlock
	if err := os.WriteFile(filepath.Join(dir, result.TrialsFile), []byte(once+once), 0o644); err != nil {
		t.Fatal(err)
	}
	run, err := result.ReadRun(dir)
	if err != nil || len(run.Trials) != 2 || len(run.Blocks) != 1 || run.Repeated != 3 {
		t.Errorf("%d trials, %d blocks, %d repeated, %v", len(run.Trials), len(run.Blocks), run.Repeated, err)
	}
}

// TestRecordsOfUnknownKind: when the caller names no kinds, a record of a measure is read as far as all kinds have the
// same fields. Resuming and bundling need no more.
func TestRecordsOfUnknownKind(t *testing.T) {
	const text = `{"version":1,"kind":"own","dut":"x","clients":3,"later":[1],"block":2,"attempt":1,"seconds":1.5,"accepted":true}` +
		"\n"
	records, err := result.ReadRecords(strings.NewReader(text+text), "f.jsonl")
	if err != nil || len(records.MeasureRecords) != 1 || records.Repeated != 1 {
		t.Fatalf("%+v, %v", records, err)
	}
	l := records.MeasureRecords[0]
	if want := result.NewCell(result.DUT, "x", result.Clients, 3); l.Cell != want || l.Block != 2 || l.Attempt != 1 ||
		l.Seconds != 1.5 || !l.Accepted || l.Record != nil {
		t.Errorf("%+v", l)
	}
}

// TestMeasuredFor: a record that began within a recorded block is part of the block's time and does not count again.
// at(seconds, took) is a record that began this number of seconds after began.
func TestMeasuredFor(t *testing.T) {
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(seconds, took float64) result.Entry {
		return result.Entry{Head: result.Head{Start: began.Add(time.Duration(seconds * float64(time.Second))), Seconds: took}}
	}
	run := result.Run{
		Blocks:         []result.Block{{Start: began.Add(10 * time.Second), Seconds: 20}},
		MeasureRecords: []result.Entry{at(2, 10), at(11, 5), at(16, 5), at(30, 7)},
	}
	if got := run.MeasuredFor(); got != 37*time.Second {
		t.Errorf("%v", got)
	}
}
