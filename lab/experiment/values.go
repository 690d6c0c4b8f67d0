package experiment

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/gateweigh/gateweigh/lab/words"
	"github.com/gateweigh/gateweigh/tomlline"
)

// Parser checks a decoded value and converts it. The value is what the toml
// package decodes into any, or an argument.
type Parser[T any] func(v any) (T, error)

// argument is a value from the command line: text whose type the parser decides.
type argument string

// accept makes a parser of what takes a value, or says that it does not fit; want says in the error
// what would.
func accept[T any](want string, take func(v any) (T, bool)) Parser[T] {
	return func(v any) (T, error) {
		if x, ok := take(v); ok {
			return x, nil
		}
		var none T
		return none, fmt.Errorf("must be %s, not %s", want, show(v))
	}
}

// Integer accepts whole numbers from lo to hi.
func Integer(lo, hi int) Parser[int] {
	return accept(fmt.Sprintf("a whole number from %d to %d", lo, hi), func(v any) (int, bool) {
		n, ok := v.(int64)
		if a, is := v.(argument); is {
			parsed, err := strconv.ParseInt(string(a), 10, 64)
			n, ok = parsed, err == nil
		}
		return int(n), ok && n >= int64(lo) && n <= int64(hi)
	})
}

// number accepts numbers that fit.
func number(want string, fits func(float64) bool) Parser[float64] {
	return accept(want, func(v any) (n float64, ok bool) {
		switch x := v.(type) {
		case int64:
			n, ok = float64(x), true
		case float64:
			n, ok = x, true
		case argument:
			var err error
			n, err = strconv.ParseFloat(string(x), 64)
			ok = err == nil
		}
		return n, ok && fits(n)
	})
}

// Within accepts numbers from lo to hi; what says which, such as "a number of Mbit/s". NaN, which
// TOML allows, is not among them.
func Within(lo, hi float64, what string) Parser[float64] {
	return number(fmt.Sprintf("%s from %g to %g", what, lo, hi), func(n float64) bool { return n >= lo && n <= hi })
}

// share accepts Mbit/s of one client; what they make together is checked later.
var share = number(fmt.Sprintf("Mbit/s a client, more than 0 and at most %d", MaxOfferedMbps), func(n float64) bool {
	return n > 0 && n <= MaxOfferedMbps
})

// speed accepts the share of its CPU that a router has; all of it is 0, as without the key.
func speed(v any) (float64, error) {
	share, err := Within(MinSpeed, 1, "the share of its CPU that the router has,")(v)
	if share == 1 {
		share = 0
	}
	return share, err
}

// PerSecond accepts rates up to most, and zero; zero and what say what is counted in the error.
func PerSecond(most float64, zero, what string) Parser[float64] {
	return number(fmt.Sprintf("%s, or %s from %g to %g", zero, what, minPerSecond, most),
		func(n float64) bool { return n == 0 || n >= minPerSecond && n <= most })
}

// Duration accepts Go's notation, "500ms", from lo to hi.
func Duration(lo, hi time.Duration) Parser[time.Duration] {
	return accept(fmt.Sprintf(`a duration such as "1s", from %v to %v`, lo, hi), func(v any) (time.Duration, bool) {
		s, _ := asText(v)
		d, err := time.ParseDuration(s)
		return d, err == nil && d >= lo && d <= hi
	})
}

// Word accepts one of the known words.
func Word(known ...string) Parser[string] {
	return func(v any) (string, error) {
		s, ok := asText(v)
		if !ok || !slices.Contains(known, s) {
			return "", fmt.Errorf("must be %s, not %s%s", quoted(known), show(v), tomlline.Meant(s, known))
		}
		return s, nil
	}
}

// longestText is the most bytes of a description.
const longestText = 300

// text accepts any one-line string of up to longestText bytes.
var text = accept(fmt.Sprintf("one line of text, at most %d bytes", longestText), func(v any) (string, bool) {
	s, ok := asText(v)
	return s, ok && len(s) <= longestText && !strings.ContainsFunc(s, unicode.IsControl)
})

// SetDescription sets the description as one line, the end of which is left out where it is too long for a file.
func (e *Experiment) SetDescription(said string) {
	const more = "…"
	said = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, said)
	if len(said) > longestText {
		said = strings.ToValidUTF8(said[:longestText-len(more)], "") + more
	}
	e.Description = said
}

// nameForm is what can be part of a file name and of a namespace's name.
var nameForm = regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9_.-]{0,63}$`)

// name accepts names of that form.
var name = accept("a name of letters, digits, '-', '_' and '.'", func(v any) (string, bool) {
	s, ok := asText(v)
	return s, ok && nameForm.MatchString(s)
})

// Boolean accepts true and false.
var Boolean = accept("true or false", func(v any) (bool, bool) {
	if a, is := v.(argument); is {
		return a == "true", a == "true" || a == "false"
	}
	b, ok := v.(bool)
	return b, ok
})

// network accepts an IPv4 network with addresses for at least two clients.
var network = accept(`an IPv4 network such as "10.1.0.0/16", /8 to /29`, func(v any) (netip.Prefix, bool) {
	s, _ := asText(v)
	p, err := netip.ParsePrefix(s)
	return p, err == nil && p.Addr().Is4() && p.Bits() >= 8 && p.Bits() <= 29 && p == p.Masked()
})

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
		var problems []string
		for _, it := range items {
			p, err := item(it)
			if err != nil {
				problems = append(problems, "each value "+err.Error())
				continue
			}
			if slices.Contains(parsed, p) {
				problems = append(problems, show(it)+" is listed twice")
			}
			parsed = append(parsed, p)
		}
		if len(problems) > 0 {
			return parsed, errors.New(strings.Join(problems, "; "))
		}
		return parsed, nil
	}
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

// quoted writes words as a choice: "up" or "down".
func quoted(list []string) string { return `"` + strings.Join(list, `" or "`) + `"` }

// Series lists numbers: "1, 10 and 50".
func Series[T int | float64](list []T) string {
	var parts []string
	for _, n := range list {
		parts = append(parts, fmt.Sprint(n))
	}
	return words.Listed(parts)
}
