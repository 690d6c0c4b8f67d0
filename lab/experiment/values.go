package experiment

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// Parser checks a decoded value and converts it. The value is what the toml
// package decodes into any, or an argument.
type Parser[T any] func(v any) (T, error)

// argument is a value from the command line: text whose type the parser decides.
type argument string

// integer accepts whole numbers from lo to hi.
func integer(lo, hi int) Parser[int] {
	return func(v any) (int, error) {
		if a, ok := v.(argument); ok {
			if n, err := strconv.ParseInt(string(a), 10, 64); err == nil {
				v = n
			}
		}
		n, ok := v.(int64)
		if !ok || n < int64(lo) || n > int64(hi) {
			return 0, fmt.Errorf("must be a whole number from %d to %d, not %s", lo, hi, show(v))
		}
		return int(n), nil
	}
}

// Within accepts numbers from lo to hi; what says which, such as "a number of Mbit/s".
func Within(lo, hi float64, what string) Parser[float64] {
	return func(v any) (float64, error) {
		n, ok := number(v)
		// Written so that NaN, which TOML allows, is refused too.
		if !ok || !(n >= lo && n <= hi) {
			return 0, fmt.Errorf("must be %s from %g to %g, not %s", what, lo, hi, show(v))
		}
		return n, nil
	}
}

// share accepts Mbit/s of one client; what they make together is checked later.
func share(v any) (float64, error) {
	mbps, ok := number(v)
	if !ok || !(mbps > 0 && mbps <= MaxOfferedMbps) {
		return 0, fmt.Errorf("must be Mbit/s a client, more than 0 and at most %d, not %s", MaxOfferedMbps, show(v))
	}
	return mbps, nil
}

// PerSecond accepts rates up to most, and zero; zero and what say what is counted in the error.
func PerSecond(most float64, zero, what string) Parser[float64] {
	return func(v any) (float64, error) {
		rate, ok := number(v)
		if !ok || !(rate == 0 || rate >= minPerSecond && rate <= most) {
			return 0, fmt.Errorf("must be %s, or %s from %g to %g, not %s", zero, what, minPerSecond, most, show(v))
		}
		return rate, nil
	}
}

// number is the number in v, if v is one.
func number(v any) (float64, bool) {
	switch x := v.(type) {
	case int64:
		return float64(x), true
	case float64:
		return x, true
	case argument:
		f, err := strconv.ParseFloat(string(x), 64)
		return f, err == nil
	}
	return 0, false
}

// duration accepts Go's notation, "500ms", from lo to hi.
func duration(lo, hi time.Duration) Parser[time.Duration] {
	return func(v any) (time.Duration, error) {
		s, ok := asText(v)
		d, err := time.ParseDuration(s)
		if !ok || err != nil || d < lo || d > hi {
			return 0, fmt.Errorf(`must be a duration such as "1s", from %v to %v, not %s`, lo, hi, show(v))
		}
		return d, nil
	}
}

// word accepts one of the known words.
func word(known ...string) Parser[string] {
	return func(v any) (string, error) {
		s, ok := asText(v)
		if !ok || !slices.Contains(known, s) {
			return "", fmt.Errorf("must be %s, not %s%s", oneOf(known), show(v), hint(s, known))
		}
		return s, nil
	}
}

// text accepts any one-line string of up to 300 bytes.
func text(v any) (string, error) {
	s, ok := asText(v)
	if !ok || len(s) > 300 || strings.ContainsFunc(s, unicode.IsControl) {
		return "", fmt.Errorf("must be one line of text, at most 300 bytes, not %s", show(v))
	}
	return s, nil
}

// name accepts what can be part of a file name and of a namespace's name.
func name(v any) (string, error) {
	s, ok := asText(v)
	bad := func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_.", r))
	}
	if !ok || s == "" || len(s) > 64 || s[0] == '.' || strings.ContainsFunc(s, bad) {
		return "", fmt.Errorf("must be a name of letters, digits, '-', '_' and '.', not %s", show(v))
	}
	return s, nil
}

// boolean accepts true and false.
func boolean(v any) (bool, error) {
	if a, ok := v.(argument); ok && (a == "true" || a == "false") {
		return a == "true", nil
	}
	b, ok := v.(bool)
	if !ok {
		return false, fmt.Errorf("must be true or false, not %s", show(v))
	}
	return b, nil
}

// network accepts an IPv4 network with room for at least two clients.
func network(v any) (netip.Prefix, error) {
	s, _ := asText(v)
	p, err := netip.ParsePrefix(s)
	if err != nil || !p.Addr().Is4() || p.Bits() < 8 || p.Bits() > 29 || p != p.Masked() {
		return netip.Prefix{}, fmt.Errorf(`must be an IPv4 network such as "10.1.0.0/16", /8 to /29, not %s`, show(v))
	}
	return p, nil
}

// List accepts up to 100 different items; an argument is split at its commas.
func List[T comparable](item Parser[T]) Parser[[]T] {
	return func(v any) ([]T, error) {
		items, ok := v.([]any)
		if a, isArg := v.(argument); isArg {
			ok = true
			for s := range strings.SplitSeq(string(a), ",") {
				items = append(items, argument(strings.TrimSpace(s)))
			}
		}
		if !ok {
			return nil, fmt.Errorf("must be a list: [%s]", show(v))
		}
		if len(items) == 0 || len(items) > 100 {
			return nil, fmt.Errorf("must list 1 to 100 values, not %d", len(items))
		}
		var parsed []T
		var problems []error
		for _, it := range items {
			p, err := item(it)
			if err != nil {
				problems = append(problems, fmt.Errorf("each value %w", err))
				continue
			}
			if slices.Contains(parsed, p) {
				problems = append(problems, fmt.Errorf("%s is listed twice", show(it)))
			}
			parsed = append(parsed, p)
		}
		return parsed, phrase(problems)
	}
}

// phrase joins problems of one key into one error, on one line.
func phrase(problems []error) error {
	if len(problems) == 0 {
		return nil
	}
	parts := make([]string, len(problems))
	for i, p := range problems {
		parts[i] = p.Error()
	}
	return errors.New(strings.Join(parts, "; "))
}

// asText is the string in v, if v is one.
func asText(v any) (string, bool) {
	switch s := v.(type) {
	case string:
		return s, true
	case argument:
		return string(s), true
	}
	return "", false
}

// show writes a value as a user would recognise it, cut to 60 bytes.
func show(v any) string {
	var s string
	switch x := v.(type) {
	case string:
		s = strconv.Quote(x)
	case argument:
		s = strconv.Quote(string(x))
	case map[string]any:
		return "a table"
	case []any:
		return "a list"
	case []map[string]any:
		return "a list of tables"
	default:
		s = fmt.Sprint(v)
	}
	if len(s) > 60 {
		s = s[:57] + "..."
	}
	return strings.ToValidUTF8(s, "?")
}

// oneOf writes words as a choice: "up" or "down".
func oneOf(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = strconv.Quote(w)
	}
	return strings.Join(quoted, " or ")
}

// Series lists numbers: "1, 10 and 50".
func Series[T int | float64](list []T) string {
	var b strings.Builder
	for i, n := range list {
		switch {
		case i > 0 && i == len(list)-1:
			b.WriteString(" and ")
		case i > 0:
			b.WriteString(", ")
		}
		fmt.Fprint(&b, n)
	}
	return b.String()
}
