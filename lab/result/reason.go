package result

import (
	"regexp"
	"strings"
	"unicode"
)

// Reason is an error text with the number of clients that had it. Texts that differ only in digits are counted
// together.
type Reason struct {
	First string `json:"first"` // the first of these texts
	Count int    `json:"count"` // number of clients
}

var figuresInText = regexp.MustCompile(`[0-9]+([.,][0-9]+)*`)

// DigitsHidden replaces each number in a text by #. Reasons whose texts are equal after that are counted together.
func DigitsHidden(text string) string { return figuresInText.ReplaceAllString(text, "#") }

// OneLine makes a text of unknown origin, such as a name in a stranger's run, safe for one line of a terminal. It
// replaces control characters and white space by single blanks.
func OneLine(s string) string { return strings.Join(strings.Fields(Printable(s)), " ") }

// Printable makes a text of unknown origin, such as a program's output, safe for a terminal, a log and a page. It
// replaces control characters, and those that change the direction of text, by blanks, and bytes that are not UTF-8 by
// U+FFFD. Line ends stay.
func Printable(s string) string {
	return PrintablePage(strings.NewReplacer("\t", " ", "\r", " ").Replace(s))
}

// PrintablePage is Printable for the text of a page or a file, in which tabs and carriage returns stay too.
func PrintablePage(s string) string {
	return strings.Map(func(r rune) rune {
		if !strings.ContainsRune("\n\t\r", r) && (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r)) {
			return ' '
		}
		return r
	}, s)
}
