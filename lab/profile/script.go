package profile

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"
)

// Recording is what perf saw: samples of all threads of the machine, and which
// process started which.
type Recording struct {
	Samples []Sample
	Frames  []Frame     // indexed by Sample.Stack
	Parents map[int]int // process id → that of its parent

	index   map[rawFrame]int32
	unnamed map[int32]location // frames perf has no symbol for
}

// Sample is one stack of one thread.
type Sample struct {
	PID, TID int
	TimeNs   int64 // by the clock perf was told to use
	PeriodNs int64
	Stack    []int32 // innermost first
}

// rawFrame is a frame as perf prints it, with its place in the file when there is
// no symbol.
type rawFrame struct {
	symbol, dso string
	location
}

// location is a place in a program file.
type location struct {
	path   string
	offset uint64
}

// scriptArgs make perf script print what ParseScript reads.
var scriptArgs = []string{"script", "--ns", "--no-inline", "--show-task-events", "--fields", "comm,pid,tid,time,period,ip,sym,dso"}

// maxLine bounds a line of perf's output: demangled names can be long.
const maxLine = 1 << 20

// ParseScript reads the output of perf script with the fields of scriptArgs.
// A sample is a line "comm pid/tid seconds.nanoseconds: period" followed by one
// line a frame, innermost first, "\taddress symbol (file)". The address is the
// kernel's own, or the offset in a user program's file. Task events stand between
// samples; of those, forks are read and others skipped. A line that is none of
// these is an error with its number.
func ParseScript(r io.Reader) (*Recording, error) {
	rec := &Recording{Parents: map[int]int{}, index: map[rawFrame]int32{}, unnamed: map[int32]location{}}
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 1<<16), maxLine)
	inSample := false
	for number := 1; lines.Scan(); number++ {
		line := lines.Text()
		var err error
		switch {
		case strings.TrimSpace(line) == "":
			inSample = false
		case line[0] == '\t' && inSample:
			err = rec.addFrame(line)
		case strings.Contains(line, ": PERF_RECORD_"):
			err = rec.addEvent(line)
			inSample = false
		default:
			err = rec.addSample(line)
			inSample = true
		}
		if err != nil {
			return nil, fmt.Errorf("output of perf script, line %d: %w", number, err)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("output of perf script: %w", err)
	}
	return rec, nil
}

var errHeader = errors.New("neither a sample nor an event")

// addSample begins a sample. The command name may hold blanks and digits, so
// the line is read from its end.
func (rec *Recording) addSample(line string) error {
	rest, period, ok := cutLast(strings.TrimRight(line, " "), ":")
	if !ok {
		return errHeader
	}
	f := strings.Fields(rest)
	if len(f) < 2 {
		return errHeader
	}
	pid, tid, ok := strings.Cut(f[len(f)-2], "/")
	if !ok {
		return errHeader
	}
	var s Sample
	var errs [4]error
	s.PID, errs[0] = strconv.Atoi(pid)
	s.TID, errs[1] = strconv.Atoi(tid)
	s.TimeNs, errs[2] = parseSeconds(f[len(f)-1])
	s.PeriodNs, errs[3] = strconv.ParseInt(strings.TrimSpace(period), 10, 64)
	if err := errors.Join(errs[:]...); err != nil {
		return fmt.Errorf("%w: %w", errHeader, err)
	}
	if s.PeriodNs < 0 {
		return fmt.Errorf("%w: negative period", errHeader)
	}
	rec.Samples = append(rec.Samples, s)
	return nil
}

// parseSeconds reads "5123.123456789" as nanoseconds.
func parseSeconds(s string) (int64, error) {
	whole, part, ok := strings.Cut(s, ".")
	if !ok || len(part) != 9 {
		return 0, fmt.Errorf("time %q: want seconds with nine decimals", s)
	}
	sec, err := strconv.ParseUint(whole, 10, 32)
	if err != nil {
		return 0, err
	}
	ns, err := strconv.ParseUint(part, 10, 32)
	return int64(sec)*1e9 + int64(ns), err
}

// addFrame adds one frame to the sample begun last.
func (rec *Recording) addFrame(line string) error {
	s := &rec.Samples[len(rec.Samples)-1]
	address, rest, _ := strings.Cut(strings.TrimLeft(line, "\t "), " ")
	at, err := strconv.ParseUint(address, 16, 64)
	if err != nil {
		return fmt.Errorf("frame %q: %w", line, err)
	}
	rest = strings.Replace(strings.TrimRight(rest, " "), " (deleted))", ")", 1)
	symbol, dso, ok := cutLast(rest, " (")
	if !ok || !strings.HasSuffix(dso, ")") {
		return fmt.Errorf("frame %q: no file in parentheses", line)
	}
	raw := rawFrame{symbol: strings.TrimSpace(symbol), dso: strings.TrimSuffix(dso, ")")}
	if raw.symbol == Unknown || raw.symbol == "" {
		raw.symbol = ""
		if strings.HasPrefix(raw.dso, "/") {
			raw.location = location{raw.dso, at}
		}
	}
	s.Stack = append(s.Stack, rec.intern(raw))
	return nil
}

// intern gives equal frames one index.
func (rec *Recording) intern(raw rawFrame) int32 {
	if i, ok := rec.index[raw]; ok {
		return i
	}
	i := int32(len(rec.Frames))
	f := Frame{shortName(plain.Replace(raw.symbol)), moduleOf(raw.dso)}
	if f.Func == "" {
		f.Func = Unknown
		if raw.path != "" {
			rec.unnamed[i] = raw.location
		}
	}
	rec.Frames = append(rec.Frames, f)
	rec.index[raw] = i
	return i
}

// plain takes from names what parts frames in folded files.
var plain = strings.NewReplacer(";", ":", " [", " (")

// shortName is a symbol without the path that Go puts in front of a package's name:
// "admission.(*Judge).Up".
func shortName(symbol string) string {
	if strings.Contains(symbol, "::") {
		return symbol // C++ divides by operators
	}
	head := symbol
	if i := strings.IndexAny(symbol, "(["); i >= 0 {
		head = symbol[:i]
	}
	return symbol[strings.LastIndexByte(head, '/')+1:]
}

// moduleOf is the short name of a file perf maps code to.
func moduleOf(dso string) string {
	name := plain.Replace(strings.Trim(filepath.Base(dso), "[]"))
	switch {
	case dso == "" || dso == Unknown:
		return "?"
	case dso == "[vdso]" || dso == "[vsyscall]":
		return name
	case dso == "[kernel.kallsyms]" || dso == "[guest.kernel.kallsyms]" || name == "vmlinux":
		return Kernel
	case strings.HasPrefix(dso, "bpf_prog_"):
		return Kernel + ":bpf"
	case strings.HasPrefix(dso, "["):
		return Kernel + ":" + name
	case strings.Contains(name, ".ko"):
		module, _, _ := strings.Cut(name, ".ko")
		return Kernel + ":" + module
	}
	return name
}

// addEvent takes which process started which from fork events.
func (rec *Recording) addEvent(line string) error {
	_, rest, fork := strings.Cut(line, ": PERF_RECORD_FORK")
	if !fork {
		return nil
	}
	var pid, tid, ppid, ptid int
	if _, err := fmt.Sscanf(rest, "(%d:%d):(%d:%d)", &pid, &tid, &ppid, &ptid); err != nil {
		return fmt.Errorf("fork event %q: %w", line, err)
	}
	if pid != ppid { // otherwise a thread
		rec.Parents[pid] = ppid
	}
	return nil
}

// maxAncestors bounds the way up to a process's ancestors: ids are used again,
// so that the records of a long recording might form a circle.
const maxAncestors = 64

// NameUnknown asks symbols for the names perf could not give.
func (rec *Recording) NameUnknown(symbols *Symbols) {
	for i, at := range rec.unnamed {
		rec.Frames[i].Func = symbols.Name(at.path, at.offset)
	}
}

// cutLast is strings.Cut around the last sep.
func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}
