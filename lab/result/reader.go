package result

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/gateweigh/gateweigh/textfile"
)

// ErrNewerVersion is wrapped when a file has a newer format than this program knows. A newer gateweigh can read it.
var ErrNewerVersion = errors.New("format is newer than this program reads")

// Head is the first part of every record of a measure's own kind. Such a record embeds it.
type Head struct {
	Version  int       `json:"version"`           // of the format: 1
	Kind     string    `json:"kind"`              // which record it is
	Block    int       `json:"block"`             // counts from 0 within its group
	Attempt  int       `json:"attempt"`           // 0, then 1 and 2 for repetitions
	Sitting  int       `json:"sitting,omitempty"` // how often the run had been resumed
	Node     string    `json:"node,omitempty"`    // of a campaign: the machine that measured it
	Start    time.Time `json:"start"`             // UTC
	Elapsed  float64   `json:"elapsed,omitempty"` // s since the sitting began, by the monotonic clock; 0: not known
	Seconds  float64   `json:"seconds"`           // duration with building and removing the lab
	Accepted bool      `json:"accepted"`          // all self-tests passed
	Rejects  []string  `json:"rejects,omitempty"` // one sentence a failed self-test
}

// Kind is a kind of record that only one measure has. With the name of trials or blocks, it is the type of a measure's
// figures in these records.
type Kind struct {
	Name string
	New  func() any // a pointer to an empty record, or to empty figures
	// Check returns an error for wrong figures of an accepted trial. nil: all figures are right.
	Check func(figures any) error
}

// Entry has the fields that records of all kinds share. Cell comes from the record's key "cell", or from dimensions
// that are keys of the record.
type Entry struct {
	Head
	Cell   Cell
	AA     bool
	Window int // 0 if the record is the only one of its block
	// Record was made by Kind.New. It is nil for trials, for blocks, and for kinds that the caller did not name.
	Record any
}

// Records are the contents of a trials.jsonl, in the order of the file.
type Records struct {
	Trials         []Trial
	Blocks         []Block
	MeasureRecords []Entry // records of the measures' own kinds
	// Torn is the length in bytes of a last line that a crash cut short. No list contains it. It is 0 when the file ends
	// with a whole line.
	Torn int
	// TornLine is the number of that line. The first line is 1.
	TornLine int
	// Repeated counts the records that are left out because the file contains them twice, such as after two copies of a
	// run were joined. A repeated measurement does not count here, because it has another start.
	Repeated int
}

// RecordsOf lists the records of type T among entries. It panics at an entry that was read without its kind, because
// otherwise the run would seem to have no such records.
func RecordsOf[T any](entries []Entry) (list []*T) {
	for _, e := range entries {
		if e.Record == nil {
			panic(fmt.Sprintf("records of kind %q were read without their kind", e.Kind))
		}
		if record, is := e.Record.(*T); is {
			list = append(list, record)
		}
	}
	return list
}

// Attempts lists all attempts at windows, from trials and from records of the measure's own kinds.
func Attempts(trials []Trial, ownRecords []Entry) (list []Entry) {
	for _, t := range trials {
		head := Head{Kind: KindTrial, Block: t.Block, Attempt: t.Attempt, Sitting: t.Sitting, Start: t.Start,
			Elapsed: t.Elapsed, Accepted: t.Accepted}
		list = append(list, Entry{Head: head, Cell: t.Cell, AA: t.AA, Window: t.Window})
	}
	return append(list, ownRecords...)
}

// ReadRecords reads a trials.jsonl. A last line without a newline is torn: it is left out, and its length is reported.
// Any other line that is not a valid record of a known version and kind is an error with the file (name) and the line.
// In that case the records before the line are returned too. Without kinds, every kind is accepted, and records of
// measures are read only as far as Entry.
func ReadRecords(r io.Reader, name string, kinds ...Kind) (Records, error) {
	follower := Follower{path: name, seen: map[any]bool{}}
	err := follower.read(r, kinds)
	return follower.records, err
}

// read reads whole lines and advances the Follower's place.
func (f *Follower) read(r io.Reader, kinds []Kind) error {
	buffered := bufio.NewReaderSize(r, 1<<16)
	f.records.Torn, f.records.TornLine = 0, 0
	for number := f.lines + 1; ; number++ {
		text, err := buffered.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			if f.records.Torn = len(text); f.records.Torn > 0 {
				f.records.TornLine = number
			}
			return nil
		}
		length := int64(len(text))
		if number == 1 {
			text = textfile.Trim(text)
		}
		if what := textfile.Foreign(text); number == 1 && err == nil && what != "" && text[0] >= 0xfe { // with a mark
			err = fmt.Errorf("it is %s text: an editor has saved it so; save it as UTF-8 (iconv -f %s -t UTF-8)", what, what)
		}
		if text = bytes.TrimSpace(text); err == nil && len(text) > 0 {
			err = f.records.add(text, kinds, f.seen)
		}
		if err != nil {
			return fmt.Errorf("read %s:%d: %w", f.path, number, err)
		}
		f.lines, f.offset = number, f.offset+length
	}
}

// ReadTrials reads the trials.jsonl at path (see ReadRecords).
func ReadTrials(path string, kinds ...Kind) (Records, error) {
	file, err := os.Open(path)
	if err != nil {
		return Records{}, fmt.Errorf("read trials: %w", err)
	}
	defer file.Close()
	return ReadRecords(file, path, kinds...)
}

// add decodes one line, unless the same line was read before.
func (r *Records) add(text []byte, kinds []Kind, seen map[any]bool) error {
	line, err := lineOf(text)
	if err != nil {
		return err
	}
	read := func(into any) {
		if err = decode(text, into); err != nil {
			err = fmt.Errorf("%s: %w", line.Kind, err)
		}
	}
	kindIndex := slices.IndexFunc(kinds, func(k Kind) bool { return k.Name == line.Kind })
	figures := func() (list any) {
		if kindIndex >= 0 {
			list = kinds[kindIndex].New()
			read(list)
		}
		return list
	}
	var keep func()
	switch {
	case line.Kind == KindTrial:
		var t Trial
		if read(&t); err == nil {
			t.Figures = figures()
		}
		if err == nil && t.Accepted && kindIndex >= 0 && kinds[kindIndex].Check != nil {
			err = kinds[kindIndex].Check(t.Figures)
		}
		keep = func() { r.Trials = append(r.Trials, t) }
	case line.Kind == KindBlock:
		var b Block
		if read(&b); err == nil {
			b.Figures = figures()
		}
		line = Entry{
			Head: Head{Kind: KindBlock, Block: b.Block, Start: b.Start, Elapsed: b.Elapsed}, AA: b.AA, Cell: b.Cell()}
		keep = func() { r.Blocks = append(r.Blocks, b) }
	case kindIndex < 0 && len(kinds) > 0:
		known := []string{KindTrial, KindBlock}
		for _, k := range kinds {
			if !slices.Contains(known, k.Name) {
				known = append(known, k.Name)
			}
		}
		return fmt.Errorf("record of unknown kind %q (known: %s)", line.Kind, strings.Join(known, ", "))
	default:
		line.Record = figures()
		if err == nil && line.Accepted && line.Seconds == 0 {
			err = fmt.Errorf("%s: it is accepted, and took no seconds", line.Kind)
		}
		keep = func() { r.MeasureRecords = append(r.MeasureRecords, line) }
	}
	if err != nil {
		return err
	}
	type identity struct {
		kind                   string
		cell                   Cell
		aa                     bool
		block, window, attempt int
		start                  int64
	}
	id := identity{line.Kind, line.Cell, line.AA, line.Block, line.Window, line.Attempt, line.Start.UnixNano()}
	if seen[id] {
		r.Repeated++
	} else {
		keep()
	}
	seen[id] = true
	return nil
}

// decode is json.Unmarshal with errors that name the JSON types in words.
func decode(data []byte, into any) error {
	err := json.Unmarshal(data, into)
	var wrong *json.UnmarshalTypeError
	if !errors.As(err, &wrong) {
		return err
	}
	want := "a number"
	switch wrong.Type.Kind() {
	case reflect.Struct, reflect.Map:
		want = "an object"
	case reflect.Slice:
		want = "a list"
	case reflect.String:
		want = "a text"
	case reflect.Bool:
		want = "true or false"
	}
	return fmt.Errorf(
		"%s: want %s, not %s", cmp.Or(strings.TrimPrefix(wrong.Field, "Head."), "the whole of it"), want, wrong.Value)
}

// versioned decodes a file that names its format version, if the version is known. It reads the version first, because
// the other keys of a newer format might cause puzzling type errors.
func versioned(data []byte, into any) error {
	var head struct {
		Version *int `json:"version"`
	}
	err := decode(data, &head)
	switch {
	case err != nil:
		return err
	case head.Version == nil:
		return errors.New("no version: not written by gateweigh")
	case *head.Version > Version:
		return fmt.Errorf("version %d, known up to %d: %w; use a newer gateweigh", *head.Version, Version, ErrNewerVersion)
	case *head.Version < 1:
		return fmt.Errorf("version %d is not a version", *head.Version)
	}
	return decode(data, into)
}

// lineOf reads the fields that records of all kinds share.
func lineOf(text []byte) (Entry, error) {
	var line struct {
		Head
		Cell   *Cell `json:"cell"`
		AA     bool  `json:"aa"`
		Window int   `json:"window"`
	}
	err := versioned(text, &line)
	if err == nil && line.Kind == "" {
		err = errors.New("no kind")
	}
	if err == nil && line.Cell == nil {
		line.Cell = new(Cell)
		if line.Kind != KindTrial && line.Kind != KindBlock {
			err = line.Cell.readKnown(text)
		}
	}
	if errors.As(err, new(*json.SyntaxError)) {
		err = fmt.Errorf("not a record: %w", err)
	}
	if err != nil {
		return Entry{}, err
	}
	for _, count := range []struct {
		key   string
		value float64
	}{
		{"block", float64(line.Block)}, {"window", float64(line.Window)}, {"attempt", float64(line.Attempt)},
		{"sitting", float64(line.Sitting)}, {"seconds", line.Seconds},
	} {
		if count.value < 0 {
			return Entry{}, fmt.Errorf("%s: %s is %g, less than 0", line.Kind, count.key, count.value)
		}
	}
	return Entry{Head: line.Head, Cell: *line.Cell, AA: line.AA, Window: line.Window}, nil
}

// readKnown reads the known dimensions among a record's keys.
func (c *Cell) readKnown(text []byte) error {
	var keys map[Dimension]json.RawMessage
	if err := json.Unmarshal(text, &keys); err != nil {
		return err
	}
	maps.DeleteFunc(keys, func(d Dimension, _ json.RawMessage) bool { return !slices.Contains(writtenOrder, d) })
	object, err := json.Marshal(keys)
	if err != nil {
		return err
	}
	return json.Unmarshal(object, c)
}
