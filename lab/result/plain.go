package result

import (
	"strings"
	"unicode"
)

// OneLine makes a text of unknown origin, such as a name in a stranger's run, fit
// for one line of a terminal: control characters and runs of white space are a blank.
func OneLine(s string) string {
	return strings.Join(strings.Fields(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, s)), " ")
}
