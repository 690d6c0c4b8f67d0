// Reads the output of perf script, which prints a recording as text.

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

// Recording is what perf recorded: samples of all threads of the machine, and which process started which.
type Recording struct {
	Samples []Sample
	Frames  []Frame     // the frames that Sample.Stack has the indices of, with short names (see Distinguish)
	Whole   []Frame     // the same frames with the names that perf gave, and the paths of files
	Parents map[int]int // id of a process → id of its parent
}

// Sample is the stack of one thread at one moment.
type Sample struct {
	PID, TID int
	TimeNs   int64   // CLOCK_MONOTONIC, if Start made the recording
	PeriodNs int64   // CPU time that the sample stands for
	Stack    []int32 // indices in Recording.Frames, innermost first
}

// scriptReader reads the output of perf script, line by line.
type scriptReader struct {
	rec   *Recording
	name  func(path string, offset uint64) string // names a function in a program file (see ParseScript)
	index map[rawFrame]int32                      // index in Recording.Frames
}

// rawFrame is a frame as perf prints it: the function, and the file that has it (dso, dynamic shared object). offset is
// the place in the file. It is set only if perf knows no function there.
type rawFrame struct {
	symbol, dso string
	offset      uint64
}

// scriptArgs are the arguments of perf with which it prints what ParseScript reads.
var scriptArgs = []string{
	"script", "--ns", "--no-inline", "--show-task-events", "--fields", "comm,pid,tid,time,period,ip,sym,dso"}

// maxLine bounds a line of perf's output: demangled names can be long.
const maxLine = 1 << 20

// ParseScript reads the output of perf script with scriptArgs. A sample is a line "comm pid/tid seconds.nanoseconds:
// period", and a line "\taddress symbol (file)" for each frame, the innermost first. The address is one of the kernel,
// or an offset in the file of a program. Where perf has no symbol, name returns the function at an offset of a file.
// Between samples there are events. ParseScript reads forks and skips other events. For any other line it returns an
// error with the line's number.
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

// sampleLine matches the end of a sample's first line, because the command name before it may have blanks and digits.
// The numbers fit into an int64. The ids of a thread that has ended are -1.
var sampleLine = regexp.MustCompile(`(-?\d{1,10})/(-?\d{1,10})\s+(\d{1,9})\.(\d{9}):\s*(\d{1,18})\s*$`)

// addSample begins a new sample with its first line.
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

// addFrame adds the frame in a line to the last sample. Equal frames get the same index.
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

// folding replaces the texts that separate frames in folded files, which names may contain.
var folding = strings.NewReplacer(";", ":", " [", " (")

// kernelModule is the end of the name of a kernel module's file.
var kernelModule = regexp.MustCompile(`\.ko(\.(gz|xz|zst))?$`)

// moduleOf returns Frame.Module, with the short name of the file, for a file as perf prints it (dso).
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

// addEvent reads from a fork event which process started which. It skips other events.
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

// cutFile splits the text "symbol (file)" of a frame. Symbol and file may contain blanks and parentheses. The file
// begins at the parenthesis that the last one closes.
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
	// The file's name has a parenthesis without its counterpart, or is neither a path nor in brackets.
	if symbol, file, found = strings.Cut(rest[:end], " (/"); found {
		return symbol, "/" + file, true
	}
	return cutAroundLast(rest[:end], " (")
}

// isFile reports whether a name has the form in which perf prints files: a path, or a name in brackets for code that is
// in no file.
func isFile(name string) bool { return strings.HasPrefix(name, "/") || strings.HasPrefix(name, "[") }

// cutAroundLast is strings.Cut around the last sep.
func cutAroundLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}
