// Package near finds the known word that a mistyped one is near to.
package near

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Meant is `; did you mean "…"?` with the known word nearest to a given one, else with the words of which it is the
// first part ("openvpn" of "openvpn-none"), and nothing where none is near: where a third or more of the two words'
// mean length was mistyped. Two letters that changed places are near in any word ("rnu").
func Meant(given string, known []string) string {
	best, least := "", 0
	for _, word := range known {
		d := mistyped(strings.ToLower(given), strings.ToLower(word))
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
	return Mean(best)
}

// Mean asks whether a word was meant.
func Mean(word string) string { return fmt.Sprintf("; did you mean %q?", word) }

// sameLetters reports whether two words have the same bytes in whatever order.
func sameLetters(a, b string) bool {
	one, other := []byte(strings.ToLower(a)), []byte(strings.ToLower(b))
	slices.Sort(one)
	slices.Sort(other)
	return slices.Equal(one, other)
}

// mistyped counts the insertions, deletions and substitutions of bytes, and swaps of two neighbours, that turn a into b
// (optimal string alignment).
func mistyped(a, b string) int {
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
