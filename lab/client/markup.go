package client

import (
	"fmt"
	"html"
	"iter"
	"strings"
)

// What is read of a portal's pages: forms, their inputs, and the attributes of
// both. Ten thousand clients read some pages each, so that it is searched for by
// hand; the patterns that say the same are in the tests.

// forms are a page's forms, what each tag says and what is between it and its
// end: <form\b([^>]*)>(.*?)</form>.
func forms(page string) iter.Seq2[string, string] {
	return func(yield func(tag, content string) bool) {
		for {
			tag, rest, ok := nextTag(page, "form")
			if !ok {
				return
			}
			end := indexTag(rest, "</form>")
			if end < 0 || !yield(tag, rest[:end]) {
				return
			}
			page = rest[end:]
		}
	}
}

// inputs are what the tags of a form's inputs say: <input\b([^>]*)>.
func inputs(content string) iter.Seq[string] {
	return func(yield func(tag string) bool) {
		for {
			tag, rest, ok := nextTag(content, "input")
			if !ok || !yield(tag) {
				return
			}
			content = rest
		}
	}
}

// nextTag finds the next tag of a name: what it says, and what is behind it.
func nextTag(text, name string) (tag, rest string, ok bool) {
	for {
		at := indexTag(text, "<"+name)
		if at < 0 {
			return "", "", false
		}
		text = text[at+1+len(name):]
		if text != "" && isWord(text[0]) { // another one's, which begins alike
			continue
		}
		return strings.Cut(text, ">")
	}
}

// indexTag finds tag, which begins with "<", whatever the case of its letters.
func indexTag(text, tag string) int {
	for from := 0; ; {
		at := strings.IndexByte(text[from:], '<')
		if at < 0 || len(text)-from-at < len(tag) {
			return -1
		}
		from += at
		if strings.EqualFold(text[from:from+len(tag)], tag) {
			return from
		}
		from++
	}
}

// attributes reads the attributes of one HTML tag; names are lower case. Each is
// ([a-z-]+)\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'>]+)).
func attributes(tag string) map[string]string {
	found := map[string]string{}
	for {
		from := strings.IndexFunc(tag, isName)
		if from < 0 {
			return found
		}
		tag = tag[from:]
		end := strings.IndexFunc(tag, func(r rune) bool { return !isName(r) })
		if end < 0 {
			return found
		}
		name := tag[:end]
		if tag = strings.TrimLeft(tag[end:], space); tag == "" || tag[0] != '=' {
			continue
		}
		value, rest, ok := value(strings.TrimLeft(tag[1:], space))
		if ok {
			found[strings.ToLower(name)] = html.UnescapeString(value)
		}
		tag = rest
	}
}

// space is what HTML counts as such.
const space = " \t\n\f\r"

// value reads an attribute's value, quoted or not.
func value(tag string) (value, rest string, ok bool) {
	if tag == "" {
		return "", "", false
	}
	if quote := tag[:1]; quote == `"` || quote == "'" {
		if value, rest, ok = strings.Cut(tag[1:], quote); !ok {
			return "", tag[1:], false
		}
		return value, rest, true
	}
	n := strings.IndexAny(tag, space+`"'>`)
	if n < 0 {
		n = len(tag)
	}
	return tag[:n], tag[n:], n > 0
}

func isName(r rune) bool { return r == '-' || 'a' <= r|0x20 && r|0x20 <= 'z' && r < 0x80 }

func isWord(c byte) bool {
	return c == '_' || '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'z'
}

// noForm is the error of a page without the form that was looked for. It wraps
// errNoForm.
func noForm(page string) error {
	const shown = 400 // of what is mostly space
	return fmt.Errorf("%.60q: %w", strings.Join(strings.Fields(page[:min(len(page), shown)]), " "), errNoForm)
}
