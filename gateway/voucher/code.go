package voucher

import (
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
)

// Alphabet has the symbols of codes. Of symbols that look alike it has at most one (8 and not B, 6 and not G, 5 and not
// S, 2 and not Z, V and not U), and none of 0, O, Q and 1, I, L. It has no vowel, so that no code spells a word.
const Alphabet = "CDFHJKMNPRTVWXY23456789"

// A code has CodeLength symbols of 23: 23^12 are 2.2·10^16 codes, 54 bits. With 100,000 vouchers one guess in
// 2.2·10^11 is right; package guesses allows 1.6·10^8 guesses a year.
const (
	CodeLength = 12
	groupSize  = 4 // symbols between two hyphens of a printed code
)

// MaxTyped is the longest text that ParseCode reads, bytes.
const MaxTyped = 64

// Code is a voucher's secret, in capital letters without hyphens.
type Code string

// String writes the code as it is printed: "K7HM-2XPD-9RTW".
func (c Code) String() string {
	var b strings.Builder
	for i := range len(c) {
		if i > 0 && i%groupSize == 0 {
			b.WriteByte('-')
		}
		b.WriteByte(c[i])
	}
	return b.String()
}

// ErrNoCode means that a text cannot be a code.
var ErrNoCode = errors.New("no voucher code")

// alike has the symbols that people read in place of those of the alphabet.
var alike = strings.NewReplacer("B", "8", "G", "6", "S", "5", "Z", "2", "U", "V")

// ParseCode reads a code as people type it: in small letters too, with spaces and hyphens of any kind anywhere, and
// with B, G, S, Z and U for the symbols that look like them.
func ParseCode(typed string) (Code, error) {
	if len(typed) > MaxTyped {
		return "", fmt.Errorf("%w: longer than %d bytes", ErrNoCode, MaxTyped)
	}
	text := alike.Replace(strings.ToUpper(strings.Map(func(r rune) rune {
		switch {
		case strings.ContainsRune(" \t\r\n\u00a0\u2009\u202f-\u2010\u2011\u2012\u2013\u2014\u2212_.", r):
			return -1
		}
		return r
	}, typed)))
	if len(text) != CodeLength {
		return "", fmt.Errorf("%w: it has %d symbols", ErrNoCode, CodeLength)
	}
	for i := range len(text) {
		if !strings.Contains(Alphabet, text[i:i+1]) {
			return "", fmt.Errorf("%w: it has a symbol that no code has", ErrNoCode)
		}
	}
	return Code(text), nil
}

// newCodes returns n codes that differ.
func newCodes(n int) []Code {
	codes, seen := make([]Code, 0, n), make(map[Code]struct{}, n)
	random, used := make([]byte, 4096), 4096
	symbols := make([]byte, 0, CodeLength)
	const fair = 256 / len(Alphabet) * len(Alphabet) // a byte below it chooses each symbol as often
	for len(codes) < n {
		if used == len(random) {
			rand.Read(random) // never fails
			used = 0
		}
		if b := int(random[used]); b < fair {
			symbols = append(symbols, Alphabet[b%len(Alphabet)])
		}
		used++
		if len(symbols) < CodeLength {
			continue
		}
		code := Code(symbols)
		symbols = symbols[:0]
		if _, twice := seen[code]; !twice {
			seen[code] = struct{}{}
			codes = append(codes, code)
		}
	}
	return codes
}
