// Package near suggests a known word for a mistyped one.
package near

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Suggestion returns `; did you mean "…"?` with the known word nearest to the given one. Where none is near, it
// suggests the words that begin with the given one and a hyphen ("openvpn-none" for "openvpn"), else nothing. A word is
// near when fewer letters are mistyped than a third of the mean length of both, or when two neighbouring letters of it
// changed places ("rnu").
func Suggestion(given string, known []string) string {
	best, least := "", 0
	for _, word := range known {
		d := editDistance(strings.ToLower(given), strings.ToLower(word))
		if near := 6*d < len(given)+len(word) || d == 1 && sameLetters(given, word); near && (best == "" || d < least) {
			best, least = word, d
		}
	}
	if best == "" {
		var longer []string
		for _, word := range known {
			if strings.HasPrefix(word, strings.ToLower(given)+"-") {
				longer = append(longer, strconv.Quote(word))
			}
		}
		if len(longer) > 0 {
			return "; did you mean " + strings.Join(longer, " or ") + "?"
		}
		return ""
	}
	return DidYouMean(best)
}

// DidYouMean returns `; did you mean "WORD"?`.
func DidYouMean(word string) string { return fmt.Sprintf("; did you mean %q?", word) }

// sameLetters reports whether two words consist of the same bytes, in any order.
func sameLetters(a, b string) bool {
	one, other := []byte(strings.ToLower(a)), []byte(strings.ToLower(b))
	slices.Sort(one)
	slices.Sort(other)
	return slices.Equal(one, other)
}

// editDistance returns how many insertions, deletions and substitutions of bytes, and swaps of neighbours, turn a into
// b (optimal string alignment distance).
func editDistance(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range len(b) + 1 {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			least := rows[i-1][j-1]
			if a[i-1] != b[j-1] {
				least++
			}
			least = min(least, rows[i-1][j]+1, rows[i][j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				least = min(least, rows[i-2][j-2]+1)
			}
			rows[i][j] = least
		}
	}
	return rows[len(a)][len(b)]
}
