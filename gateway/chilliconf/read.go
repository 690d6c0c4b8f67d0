// Package chilliconf turns a configuration of CoovaChilli into one of gatewayd, and says of each option that has no
// counterpart what to do instead.
//
// It reads both forms: options ("uamserver https://…", chilli.conf and main.conf, with includes), and the shell
// variables of the start scripts ("HS_UAMSECRET=…", defaults and config). A shell's file is read and not executed:
// plain assignments, and variables that the file has set before.
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
)

// reader reads files.
type reader struct {
	options []option
	notes   []Note
	shell   map[string]string // variables so far
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

// variable is a use of a variable of the shell. An escaped dollar is read too: the start scripts evaluate values once
// more.
var variable = regexp.MustCompile(`\\?\$(?:\{([A-Za-z0-9_]+)(?::-([^}]*))?\}|([A-Za-z0-9_]+))`)

// shellLine reads a line of a shell's file.
func (r *reader) shellLine(o option, text string) {
	m := assignment.FindStringSubmatch(text)
	if m == nil {
		r.notes = append(r.notes, Note{o.file, o.line, firstWord(text), "is a command of the shell, which is not executed"})
		return
	}
	o.as = m[1]
	value := unquote(m[2])
	if !strings.HasPrefix(m[2], "'") {
		value = variable.ReplaceAllStringFunc(value, func(use string) string {
			v := variable.FindStringSubmatch(use)
			if set, found := r.shell[v[1]+v[3]]; found {
				return set
			}
			return v[2]
		})
	}
	if strings.ContainsAny(value, "`") || strings.Contains(value, "$(") {
		r.notes = append(r.notes, Note{o.file, o.line, o.as, "runs a program, which is not executed: set it by hand"})
		return
	}
	r.shell[o.as] = value
	o.value = value
	r.options = append(r.options, o)
}

func firstWord(text string) string {
	word, _, _ := strings.Cut(text, " ")
	return word[:min(len(word), 40)]
}
