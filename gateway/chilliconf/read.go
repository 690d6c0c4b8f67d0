// Package chilliconf turns a configuration of CoovaChilli into one of gatewayd, and says of each option that has no
// counterpart what to do instead.
//
// It reads both forms: options ("uamserver https://…", chilli.conf and main.conf, with includes), and the shell
// variables of the start scripts ("HS_UAMSECRET=…", defaults and config). A shell's file is read and not executed:
// plain assignments, the last of each variable, and in them variables that were set before. Behind a backslash, those
// that are set at the end: the start scripts evaluate such values once more.
package chilliconf

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"unicode/utf8"
)

// option is one setting, by its name in chilli.conf.
type option struct {
	name, value string
	file        string
	line        int
	as          string // the name in the file
	literal     bool   // of the shell, in single quotes
}

// Note is what a person has to know about a line, or about an option that is missing.
type Note struct {
	File   string
	Line   int    // 0: the option is missing
	Option string // as it is in the file
	Text   string
}

// String is "FILE:LINE: OPTION: what to do".
func (n Note) String() string {
	if n.Line == 0 {
		return fmt.Sprintf("%s: %s: %s", n.File, n.Option, n.Text)
	}
	return fmt.Sprintf("%s:%d: %s: %s", n.File, n.Line, n.Option, n.Text)
}

// Limits of what is read.
const (
	maxFiles = 50
	maxBytes = 1 << 20
	maxValue = 4096         // of a variable of the shell, bytes
	maxAll   = 4 * maxBytes // of all variables together
)

// reader reads files.
type reader struct {
	options []option
	notes   []Note
	shell   map[string]int // variables so far: where the last assignment of each is in options
	length  int            // of all variables' values, bytes
	files   int
}

// assignment is a line of a shell's file.
var assignment = regexp.MustCompile(`^(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)=(.*)$`)

// file reads a file and those that it includes. from says who includes it; its line is 0 for the first one.
func (r *reader) file(path string, from option) error {
	info, err := os.Stat(path)
	if err == nil && (info.Size() > maxBytes || !info.Mode().IsRegular()) {
		err = fmt.Errorf("%s is no configuration: no file, or more than 1 MiB", path)
	}
	var data []byte
	if err == nil {
		data, err = os.ReadFile(path)
	}
	if r.files++; err == nil && r.files > maxFiles {
		err = fmt.Errorf("more than %d files are included: in a circle, perhaps", maxFiles)
	}
	if err == nil && !utf8.Valid(data) {
		err = fmt.Errorf("%s is no text", path)
	}
	if err != nil && from.line == 0 {
		return fmt.Errorf("reading CoovaChilli's configuration: %w", err)
	} else if err != nil {
		r.notes = append(r.notes, Note{from.file, from.line, from.as, "was not read: " + err.Error()})
		return nil
	}
	shell := regexp.MustCompile(`(?m)^\s*(export\s+)?HS_[A-Z0-9_]+=`).Match(data)
	for i, text := range strings.Split(string(data), "\n") {
		text = strings.TrimSpace(text)
		if text == "" || text[0] == '#' {
			continue
		}
		o := option{file: path, line: i + 1}
		if shell {
			r.shellLine(o, text)
			continue
		}
		if o.name, o.value = split(text); o.name == "include" {
			o.as = o.name
			inner := o.value
			if !filepath.IsAbs(inner) {
				inner = filepath.Join(filepath.Dir(path), inner)
			}
			if err := r.file(inner, o); err != nil {
				return err
			}
			continue
		}
		o.as = o.name
		r.options = append(r.options, o)
	}
	return nil
}

// split splits a line of options: a name, then "=" or blanks, then a value, perhaps in quotes.
func split(text string) (name, value string) {
	end := strings.IndexAny(text, " \t=")
	if end < 0 {
		return strings.ToLower(text), ""
	}
	value = strings.TrimSpace(text[end:])
	value = strings.TrimSpace(strings.TrimPrefix(value, "="))
	return strings.ToLower(text[:end]), unquote(value)
}

// unquote takes quotes off, and what a "#" behind blanks begins.
func unquote(value string) string {
	if value == "" {
		return value
	}
	if q := value[0]; q == '"' || q == '\'' {
		if end := strings.IndexByte(value[1:], q); end >= 0 {
			return value[1 : 1+end]
		}
		return value[1:]
	}
	if i := strings.Index(value, " #"); i >= 0 {
		value = value[:i]
	}
	if i := strings.Index(value, "\t#"); i >= 0 {
		value = value[:i]
	}
	return strings.TrimSpace(value)
}

// variable is a use of a variable of the shell, perhaps behind a backslash.
var variable = regexp.MustCompile(`\\?\$(?:\{([A-Za-z0-9_]+)(?::-([^}]*))?\}|([A-Za-z0-9_]+))`)

// shellLine reads a line of a shell's file.
func (r *reader) shellLine(o option, text string) {
	m := assignment.FindStringSubmatch(text)
	if m == nil {
		r.note(o, firstWord(text), "is a command of the shell, which is not executed")
		return
	}
	o.as, o.value = m[1], unquote(m[2])
	good := true
	if o.literal = strings.HasPrefix(m[2], "'"); !o.literal {
		good = r.expand(&o, false)
	}
	switch {
	case !good:
	case strings.Contains(o.value, "`") || strings.Contains(o.value, "$("):
		r.note(o, o.as, "runs a program, which is not executed: set it by hand")
		good = false
	case r.length+len(o.value) > maxAll:
		r.note(o, o.as, "left out: all variables together are too long")
		good = false
	}
	if !good { // nor does a former value hold
		delete(r.shell, o.as)
		return
	}
	r.length += len(o.value)
	r.shell[o.as] = len(r.options)
	r.options = append(r.options, o)
}

func (r *reader) note(o option, what, text string) {
	r.notes = append(r.notes, Note{o.file, o.line, what, text})
}

// expand puts values into an option's, in place of the variables that it uses: those behind a backslash at the end
// alone. It is false if the value becomes too long, which it notes.
func (r *reader) expand(o *option, atEnd bool) bool {
	var b strings.Builder
	rest := o.value
	for b.Len()+len(rest) <= maxValue {
		at := variable.FindStringSubmatchIndex(rest)
		if at == nil {
			b.WriteString(rest)
			o.value = b.String()
			return true
		}
		part := func(i int) string {
			if at[2*i] < 0 {
				return ""
			}
			return rest[at[2*i]:at[2*i+1]]
		}
		b.WriteString(rest[:at[0]])
		index, set := r.shell[part(1)+part(3)]
		switch {
		case strings.HasPrefix(part(0), `\`) != atEnd:
			b.WriteString(part(0))
		case set && (r.options[index].value != "" || at[4] < 0):
			b.WriteString(r.options[index].value)
		case at[4] >= 0:
			b.WriteString(part(2))
		default:
			r.note(*o, o.as, "uses "+part(1)+part(3)+", which is not set: nothing is in its place")
		}
		rest = rest[at[1]:]
	}
	r.note(*o, o.as, fmt.Sprintf("left out: it is longer than %d bytes", maxValue))
	return false
}

// finish leaves the last assignment of each variable of the shell, as it is at the end.
func (r *reader) finish() {
	var left []option
	for i, o := range r.options {
		if o.name == "" {
			if last, set := r.shell[o.as]; !set || last != i || !o.literal && !r.expand(&o, true) {
				continue
			}
		}
		left = append(left, o)
	}
	r.options = left
}

func firstWord(text string) string {
	word, _, _ := strings.Cut(text, " ")
	return word[:min(len(word), 40)]
}
