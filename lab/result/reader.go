package result

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
)

// ErrNewerVersion is wrapped when a file was written in a newer format than
// this program knows. The remedy is a newer gateweigh.
var ErrNewerVersion = errors.New("format is newer than this program reads")

// Records are the contents of a trials.jsonl, in the order they were written.
type Records struct {
	Trials []Trial
	Blocks []Block
	Storms []Storm
	// Torn is the length in bytes of a last line cut short by a crash, which
	// is left out of all lists; 0 when the file ends well.
	Torn int
}

// ReadRecords reads a trials.jsonl. A last line without a newline is torn: it
// is left out and its length reported. Any other line that is not a record of
// a known version and kind is an error that names the file and the line; name
// is used for nothing else. On error the records before the line are returned too.
func ReadRecords(r io.Reader, name string) (Records, error) {
	var records Records
	buffered := bufio.NewReaderSize(r, 1<<16)
	for number := 1; ; number++ {
		line, err := buffered.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			records.Torn = len(line)
			return records, nil
		}
		if err != nil {
			return records, fmt.Errorf("read %s:%d: %w", name, number, err)
		}
		line = bytes.TrimSpace(line)
		if len(line) == 0 {
			continue
		}
		if err := records.add(line); err != nil {
			return records, fmt.Errorf("read %s:%d: %w", name, number, err)
		}
	}
}

// ReadTrials reads the trials.jsonl at path; see ReadRecords.
func ReadTrials(path string) (Records, error) {
	file, err := os.Open(path)
	if err != nil {
		return Records{}, fmt.Errorf("read trials: %w", err)
	}
	defer file.Close()
	return ReadRecords(file, path)
}

// add decodes one line. The version is looked at first: a newer record may
// differ in ways that would only show as puzzling type errors.
func (r *Records) add(line []byte) error {
	var head struct {
		Version *int   `json:"version"`
		Kind    string `json:"kind"`
	}
	if err := json.Unmarshal(line, &head); err != nil {
		return fmt.Errorf("not a record: %w", err)
	}
	if err := checkVersion(head.Version); err != nil {
		return err
	}
	switch head.Kind {
	case KindTrial:
		var t Trial
		if err := json.Unmarshal(line, &t); err != nil {
			return fmt.Errorf("trial: %w", err)
		}
		r.Trials = append(r.Trials, t)
	case KindBlock:
		var b Block
		if err := json.Unmarshal(line, &b); err != nil {
			return fmt.Errorf("block: %w", err)
		}
		r.Blocks = append(r.Blocks, b)
	case KindStorm:
		var s Storm
		if err := json.Unmarshal(line, &s); err != nil {
			return fmt.Errorf("storm: %w", err)
		}
		r.Storms = append(r.Storms, s)
	default:
		return fmt.Errorf("record of unknown kind %q (known: %s, %s, %s)", head.Kind, KindTrial, KindBlock, KindStorm)
	}
	return nil
}

// Attempt is one attempt at a window of the plan, whatever was measured in it.
type Attempt struct {
	Cell                           Cell
	AA                             bool
	Block, Window, Number, Sitting int // as in Trial, where Number is its attempt
	Accepted                       bool
}

// Attempts lists the attempts at windows.
func (r Records) Attempts() []Attempt {
	var list []Attempt
	for _, t := range r.Trials {
		list = append(list, Attempt{t.Cell, t.AA, t.Block, t.Window, t.Attempt, t.Sitting, t.Accepted})
	}
	for _, s := range r.Storms { // the only window of its block
		list = append(list, Attempt{s.Cell(), false, s.Block, 0, s.Attempt, s.Sitting, s.Accepted})
	}
	return list
}

// dropRepeated leaves out records that stand in the file a second time, as after
// two copies were joined, and returns how many. What was measured again has
// another start.
func (r *Records) dropRepeated() int {
	type identity struct {
		cell                   Cell
		aa                     bool
		block, window, attempt int
		start                  int64
	}
	seen := map[identity]bool{}
	repeated := func(id identity) bool {
		was := seen[id]
		seen[id] = true
		return was
	}
	before := len(r.Trials) + len(r.Blocks) + len(r.Storms)
	r.Trials = slices.DeleteFunc(r.Trials, func(t Trial) bool {
		return repeated(identity{t.Cell, t.AA, t.Block, t.Window, t.Attempt, t.Start.UnixNano()})
	})
	r.Blocks = slices.DeleteFunc(r.Blocks, func(b Block) bool {
		return repeated(identity{b.Cell(), b.AA, b.Block, -1, -1, b.Start.UnixNano()})
	})
	r.Storms = slices.DeleteFunc(r.Storms, func(s Storm) bool {
		return repeated(identity{s.Cell(), false, s.Block, 0, s.Attempt, s.Start.UnixNano()})
	})
	return before - len(r.Trials) - len(r.Blocks) - len(r.Storms)
}

func checkVersion(version *int) error {
	switch {
	case version == nil:
		return errors.New("no version: not a record of a run")
	case *version > Version:
		return fmt.Errorf("version %d, known up to %d: %w; use a newer gateweigh", *version, Version, ErrNewerVersion)
	case *version < 1:
		return fmt.Errorf("version %d is not a version", *version)
	}
	return nil
}
