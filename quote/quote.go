// Package quote writes commands that readers copy, for any program.
package quote

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Command is a command of these words for a reader to copy into a shell: "gateweigh report 'my runs/a'".
func Command(argv ...string) string {
	quoted := make([]string, len(argv))
	for i, word := range argv {
		quoted[i] = Word(word)
	}
	return strings.Join(quoted, " ")
}

// Word returns a word as a shell takes it: unchanged if a shell takes it as it is, otherwise in quotes. The result has
// no two spaces in a row, because a page would show them as one, and no control characters: it has these in the
// notation of bash and zsh, $'\n'.
func Word(word string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_=.,/:+%@", r)
	}
	switch {
	case word != "" && word[0] != '=' && !strings.ContainsFunc(word, func(r rune) bool { return !plain(r) }):
		return word
	case !utf8.ValidString(word) || strings.ContainsFunc(word, invisible):
		return "$'" + escaped(word) + "'"
	}
	word = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
	return strings.ReplaceAll(word, "  ", ` '\ '`)
}

// escaped returns a word as it stands between $' and '.
func escaped(word string) string {
	var b strings.Builder
	for i := 0; i < len(word); {
		r, size := utf8.DecodeRuneInString(word[i:])
		switch {
		case r == '\'' || r == '\\':
			b.WriteString(`\` + string(r))
		case r != utf8.RuneError && unicode.IsPrint(r) && r != ' ':
			b.WriteString(word[i : i+size])
		default:
			for _, octet := range []byte(word[i : i+size]) {
				fmt.Fprintf(&b, `\%03o`, octet)
			}
		}
		i += size
	}
	return b.String()
}

func invisible(r rune) bool { return r != ' ' && !unicode.IsPrint(r) }
