package result

import (
	"regexp"
	"strings"
	"unicode"
)

// Reason counts clients by what they met. Texts that differ only in their
// figures are one: First is the first of them.
type Reason struct {
	First string `json:"first"` // text of the first
	Count int    `json:"count"` // clients that met it
}

var figuresInText = regexp.MustCompile(`[0-9]+([.,][0-9]+)*`)

// DigitsHidden is text with # for each figure: texts that are then alike are counted
// as one wherever reasons are counted.
func DigitsHidden(text string) string { return figuresInText.ReplaceAllString(text, "#") }

// OneLine makes a text of unknown origin, such as a name in a stranger's run, fit
// for one line of a terminal: control characters and runs of white space are a blank.
func OneLine(s string) string { return strings.Join(strings.Fields(Printable(s)), " ") }

// Printable makes a text of unknown origin, such as what a device's program printed, fit for a terminal, a log and a
// page: control characters and those that change the direction of text are a blank, and bytes that are no UTF-8 are
// U+FFFD. Ends of lines stay.
func Printable(s string) string {
	return PrintablePage(strings.NewReplacer("\t", " ", "\r", " ").Replace(s))
}

// PrintablePage is Harmless of a page's or a file's text, of which tabs and carriage returns are part.
func PrintablePage(s string) string {
	return strings.Map(func(r rune) rune {
		if !strings.ContainsRune("\n\t\r", r) && (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r)) {
			return ' '
		}
		return r
	}, s)
}
