// Package words puts counts and lists into English sentences, for all texts that
// reports, comparisons and messages share.
package words

import (
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Counted is a number with its noun: "1 client", "12 345 clients".
func Counted(n int, noun string) string {
	return Grouped(strconv.Itoa(n)) + " " + Either(n, noun, Plural(noun))
}

// Agreed is a number, its digits not grouped, with what agrees with it: Agreed(n, "client fits", "clients fit").
func Agreed(n int, one, many string) string {
	return strconv.Itoa(n) + " " + Either(n, one, many)
}

// Either is what agrees with one, or with another number.
func Either(n int, one, many string) string { return When(n == 1, one) + When(n != 1, many) }

// Plural is of a noun that takes -s, -es or -ies.
func Plural(noun string) string {
	if stem, is := strings.CutSuffix(noun, "ry"); is {
		return stem + "ries"
	}
	if strings.HasSuffix(noun, "ch") || strings.HasSuffix(noun, "s") {
		return noun + "es"
	}
	return noun + "s"
}

// Grouped sets the thousands of a decimal number apart by a thin space, from five
// digits on.
func Grouped(s string) string {
	whole, fraction, _ := strings.Cut(s, ".")
	sign := ""
	if strings.HasPrefix(whole, "-") {
		sign, whole = "-", whole[1:]
	}
	if len(whole) >= 5 {
		for i := len(whole) - 3; i > 0; i -= 3 {
			whole = whole[:i] + "\u202f" + whole[i:]
		}
	}
	if fraction != "" {
		whole += "." + fraction
	}
	return sign + whole
}

// Listed joins parts as a sentence does: "a, b and c".
func Listed(parts []string) string {
	if len(parts) < 2 {
		return strings.Join(parts, "")
	}
	return strings.Join(parts[:len(parts)-1], ", ") + " and " + parts[len(parts)-1]
}

// ListOf is Listed of what a function says of each item, empty texts left out.
func ListOf[T any](items []T, text func(T) string) string {
	var parts []string
	for _, item := range items {
		if message := text(item); message != "" {
			parts = append(parts, message)
		}
	}
	return Listed(parts)
}

// Joined joins the parts that are not empty.
func Joined(between string, parts ...string) string {
	return strings.Join(slices.DeleteFunc(slices.Clone(parts), func(part string) bool { return part == "" }), between)
}

// Wrapped breaks a text at spaces into lines of at most width characters, all but the first of them
// shorter by hang; with a width of 0 it is one line. A longer word has a line of its own; so has `a command`,
// which is whole for copying.
func Wrapped(text string, width, hang int) (lines []string) {
	used, most := 0, width
	for _, word := range unbroken(text) {
		n := utf8.RuneCountInString(word)
		if len(lines) > 0 && (width == 0 || used+1+n <= most) {
			lines[len(lines)-1] += " " + word
			used += 1 + n
			continue
		}
		if len(lines) > 0 {
			most = width - hang
		}
		lines, used = append(lines, word), n
	}
	return lines
}

// unbroken splits a text into words; what stands between backticks is one.
func unbroken(text string) (all []string) {
	open := false
	for _, word := range strings.Fields(text) {
		if open {
			all[len(all)-1] += " " + word
		} else {
			all = append(all, word)
		}
		open = open != (strings.Count(word, "`")%2 == 1)
	}
	return all
}

// When is the text where something is so, and empty otherwise.
func When(so bool, text string) string {
	if so {
		return text
	}
	return ""
}

// Or is the text, or another where it is empty.
func Or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

// Capitalised begins with a capital letter.
func Capitalised(s string) string {
	r, size := utf8.DecodeRuneInString(s)
	if size == 0 {
		return s
	}
	return string(unicode.ToUpper(r)) + s[size:]
}

// Frames says what frames of a size are, "64" or the name of a mix: "64-byte frames"; "" of none.
func Frames(size string) string {
	switch _, err := strconv.Atoi(size); {
	case size == "":
		return ""
	case err == nil:
		return size + "-byte frames"
	}
	return size + " frames"
}

// Direction names the direction of the payload as a reader says it.
func Direction(direction string) string {
	if word, ok := map[string]string{"up": "upload", "down": "download", "both": "both ways"}[direction]; ok {
		return word
	}
	return direction
}
