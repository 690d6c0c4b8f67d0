package profile

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// Recording is what perf saw: samples of all threads of the machine, and which
// process started which.
type Recording struct {
	Samples []Sample
	Frames  []Frame     // indexed by Sample.Stack, with short names that tell functions apart
	Whole   []Frame     // the same with the names that perf gave, and the paths of files
	Parents map[int]int // process id → that of its parent
}

// Sample is one stack of one thread.
type Sample struct {
	PID, TID int
	TimeNs   int64 // by the clock of perf record
	PeriodNs int64
	Stack    []int32 // innermost first
}

// scriptReader reads the output of perf script, line by line.
type scriptReader struct {
	rec   *Recording
	name  func(path string, offset uint64) string // of a function in a program file
	index map[rawFrame]int32
}

// rawFrame is a frame as perf prints it; its place in the file is set only where perf has no symbol.
type rawFrame struct {
	symbol, dso string
	offset      uint64
}

// scriptArgs make perf script print what ParseScript reads.
var scriptArgs = []string{
	"script", "--ns", "--no-inline", "--show-task-events", "--fields", "comm,pid,tid,time,period,ip,sym,dso"}

// maxLine bounds a line of perf's output: demangled names can be long.
const maxLine = 1 << 20

// ParseScript reads the output of perf script with the fields of scriptArgs.
// A sample is a line "comm pid/tid seconds.nanoseconds: period" followed by one
// line a frame, innermost first, "\taddress symbol (file)". The address is the
// kernel's own, or the offset in a user program's file, of which name gives the function
// where perf has no symbol. Task events stand between samples; of those, forks are read
// and others skipped. A line that is none of these is an error with its number.
func ParseScript(r io.Reader, name func(path string, offset uint64) string) (*Recording, error) {
	p := scriptReader{&Recording{Parents: map[int]int{}}, name, map[rawFrame]int32{}}
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
			err = p.addFrame(line)
		case strings.Contains(line, ": PERF_RECORD_"):
			err = p.addEvent(line)
			inSample = false
		default:
			err = p.addSample(line)
			inSample = true
		}
		if err != nil {
			return nil, fmt.Errorf("output of perf script, line %d: %w", number, err)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("output of perf script: %w", err)
	}
	Distinguish(p.rec)
	return p.rec, nil
}

// sampleLine is read from its end: the command name may hold blanks and digits. Its
// numbers fit into an int64; threads that have ended have the number -1.
var sampleLine = regexp.MustCompile(`(-?\d{1,10})/(-?\d{1,10})\s+(\d{1,9})\.(\d{9}):\s*(\d{1,18})\s*$`)

// addSample begins a sample.
func (p scriptReader) addSample(line string) error {
	f := sampleLine.FindStringSubmatch(line)
	if f == nil {
		return errors.New("neither a sample nor an event")
	}
	var n [6]int64
	for i := range n[1:] {
		n[i+1], _ = strconv.ParseInt(f[i+1], 10, 64)
	}
	p.rec.Samples = append(p.rec.Samples, Sample{PID: int(n[1]), TID: int(n[2]), TimeNs: n[3]*1e9 + n[4], PeriodNs: n[5]})
	return nil
}

// addFrame adds one frame to the sample begun last; equal frames have one index.
func (p scriptReader) addFrame(line string) error {
	address, rest, _ := strings.Cut(strings.TrimLeft(line, "\t "), " ")
	at, err := strconv.ParseUint(address, 16, 64)
	if err != nil {
		return fmt.Errorf("frame %q: %w", line, err)
	}
	symbol, dso, ok := cutFile(strings.TrimRight(rest, " "))
	if !ok {
		return fmt.Errorf("frame %q: no file in parentheses", line)
	}
	raw := rawFrame{symbol: strings.TrimSpace(symbol), dso: strings.TrimSuffix(dso, " (deleted)")}
	inFile := strings.HasPrefix(raw.dso, "/")
	if raw.symbol == Unknown || raw.symbol == "" {
		raw.symbol = ""
		if inFile {
			raw.offset = at
		}
	}
	i, known := p.index[raw]
	if !known {
		i = int32(len(p.rec.Frames))
		name := raw.symbol
		if name == "" && inFile {
			name = p.name(raw.dso, at)
		}
		whole := Frame{folding.Replace(cmp.Or(name, Unknown)), moduleOf(raw.dso)}
		if inFile && !whole.InKernel() {
			whole.Module = folding.Replace(raw.dso)
		}
		p.rec.Whole = append(p.rec.Whole, whole)
		p.rec.Frames = append(p.rec.Frames, whole)
		p.index[raw] = i
	}
	s := &p.rec.Samples[len(p.rec.Samples)-1]
	s.Stack = append(s.Stack, i)
	return nil
}

// folding takes from names what parts frames in folded files.
var folding = strings.NewReplacer(";", ":", " [", " (")

// kernelModule is the end of the name of a kernel module's file.
var kernelModule = regexp.MustCompile(`\.ko(\.(gz|xz|zst))?$`)

// moduleOf is the short name of a file perf maps code to.
func moduleOf(dso string) string {
	name := folding.Replace(strings.Trim(filepath.Base(dso), "[]"))
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
	case kernelModule.MatchString(name):
		return Kernel + ":" + kernelModule.ReplaceAllString(name, "")
	}
	return name
}

// addEvent takes which process started which from fork events.
func (p scriptReader) addEvent(line string) error {
	_, rest, fork := strings.Cut(line, ": PERF_RECORD_FORK")
	if !fork {
		return nil
	}
	var pid, tid, ppid, ptid int
	if _, err := fmt.Sscanf(rest, "(%d:%d):(%d:%d)", &pid, &tid, &ppid, &ptid); err != nil {
		return fmt.Errorf("fork event %q: %w", line, err)
	}
	if pid != ppid { // otherwise a thread
		p.rec.Parents[pid] = ppid
	}
	return nil
}

// cutFile takes a frame's last parentheses, which hold a file, from its symbol. Names of both may have blanks and
// parentheses: those of the file are the ones that its last one closes.
func cutFile(rest string) (symbol, file string, found bool) {
	if !strings.HasSuffix(rest, ")") {
		return "", "", false
	}
	end, depth := len(rest)-1, 0
	for index := end; index >= 0; index-- {
		switch rest[index] {
		case ')':
			depth++
		case '(':
			depth--
		}
		if depth == 0 && index > 0 && rest[index-1] == ' ' && isFile(rest[index+1:end]) {
			return rest[:index-1], rest[index+1 : end], true
		}
		if depth <= 0 {
			break
		}
	}
	// The parentheses of the file's name are no pairs, or it is none that a file has.
	if symbol, file, found = strings.Cut(rest[:end], " (/"); found {
		return symbol, "/" + file, true
	}
	return cutAroundLast(rest[:end], " (")
}

// isFile reports whether perf writes a file so: by its path, or what is none in brackets.
func isFile(name string) bool { return strings.HasPrefix(name, "/") || strings.HasPrefix(name, "[") }

// cutAroundLast is strings.Cut around the last sep.
func cutAroundLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}
