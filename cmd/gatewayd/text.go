package main

import (
	"fmt"
	"strings"
	"unicode"
)

// plain makes text from clients or servers safe to print on a terminal: without control characters, and cut to width
// characters.
func plain(s string, width int) string {
	s = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) || r == unicode.ReplacementChar {
			return '?'
		}
		return r
	}, s)
	if runes := []rune(s); len(runes) > width {
		return string(runes[:width-1]) + "…"
	}
	return s
}

// counted returns a number with its noun: "1 client", "2 clients".
func counted[N int | uint64 | int64](n N, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
