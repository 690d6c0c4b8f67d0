package strict

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gateweigh/gateweigh/internal/near"
)

// Parser checks and converts a value, which has a type that toml.Unmarshal makes or is an Argument. Its error is a
// phrase that follows the key, such as "must be true or false, not 3".
type Parser[T any] func(v any) (T, error)

// Argument is a value from a command line. It is text, and the parser decides of which type.
type Argument string

// Accept makes a parser from take, which converts a value or reports false. want names the accepted values in the
// error.
func Accept[T any](want string, take func(v any) (T, bool)) Parser[T] {
	return func(v any) (T, error) {
		if x, ok := take(v); ok {
			return x, nil
		}
		var none T
		return none, fmt.Errorf("must be %s, not %s", want, Show(v))
	}
}

// AcceptText is Accept for values that are written as text.
func AcceptText[T any](want string, take func(s string) (T, bool)) Parser[T] {
	return Accept(want, func(v any) (x T, ok bool) {
		s, isText := Text(v)
		if isText {
			x, ok = take(s)
		}
		return x, ok
	})
}

// Text returns the text of a value; ok is false where it is no text.
func Text(v any) (s string, ok bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case Argument:
		return string(v), true
	}
	return "", false
}

// Integer takes whole numbers from lo to hi.
func Integer(lo, hi int) Parser[int] {
	return Accept(fmt.Sprintf("a whole number from %d to %d", lo, hi), func(v any) (int, bool) {
		n, ok := v.(int64)
		if a, found := v.(Argument); found {
			parsed, err := strconv.ParseInt(string(a), 10, 64)
			n, ok = parsed, err == nil
		}
		return int(n), ok && n >= int64(lo) && n <= int64(hi)
	})
}

// Number takes the numbers for which fits returns true; want names them in the error.
func Number(want string, fits func(float64) bool) Parser[float64] {
	return Accept(want, func(v any) (n float64, ok bool) {
		switch x := v.(type) {
		case int64:
			n, ok = float64(x), true
		case float64:
			n, ok = x, true
		case Argument:
			var err error
			n, err = strconv.ParseFloat(string(x), 64)
			ok = err == nil
		}
		return n, ok && fits(n)
	})
}

// Within takes numbers from lo to hi, but not NaN, which TOML has. subject names them, such as "a number of Mbit/s".
func Within(lo, hi float64, subject string) Parser[float64] {
	return Number(fmt.Sprintf("%s from %g to %g", subject, lo, hi), func(n float64) bool { return n >= lo && n <= hi })
}

// Boolean takes true and false.
var Boolean = Accept("true or false", func(v any) (bool, bool) {
	if a, isArgument := v.(Argument); isArgument {
		return a == "true", a == "true" || a == "false"
	}
	b, ok := v.(bool)
	return b, ok
})

// Duration takes durations in Go's notation from lo to hi; such has examples for the error.
func Duration(such string, lo, hi time.Duration) Parser[time.Duration] {
	want := fmt.Sprintf("a duration such as %s, from %s to %s", such, ShortDuration(lo), ShortDuration(hi))
	return AcceptText(want, func(s string) (time.Duration, bool) {
		d, err := ParseDuration(s)
		return d, err == nil && d >= lo && d <= hi
	})
}

// ParseDuration reads Go's notation of durations, with whole days of 24 hours ahead of it or alone: "90m", "14d",
// "1d12h".
func ParseDuration(s string) (time.Duration, error) {
	number, rest, found := strings.Cut(s, "d")
	if !found {
		return time.ParseDuration(s)
	}
	const day = 24 * time.Hour
	n, err := strconv.ParseUint(number, 10, 16) // 65,535 days are 179 years, and fit
	if err != nil {
		return 0, fmt.Errorf("%q is no number of days", number)
	}
	d := time.Duration(0)
	if rest != "" {
		d, err = time.ParseDuration(rest)
	}
	if err != nil || d < 0 || d >= day {
		return 0, fmt.Errorf("%q is no time of less than a day", rest)
	}
	return time.Duration(n)*day + d, nil
}

// ShortDuration returns a duration without zeros at its end: "1h" where Go writes "1h0m0s".
func ShortDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// Word takes one of the known words.
func Word(known ...string) Parser[string] {
	return func(v any) (string, error) {
		s, ok := Text(v)
		if !ok || !slices.Contains(known, s) {
			return "", fmt.Errorf("must be %s, not %s%s", Choice(known), Show(v), near.Suggestion(s, known))
		}
		return s, nil
	}
}

// List takes lists of least to most items, none of them twice. An Argument is split at its commas.
func List[T any](least, most int, item Parser[T]) Parser[[]T] {
	return func(v any) ([]T, error) {
		items, ok := v.([]any)
		if a, isArgument := v.(Argument); isArgument {
			ok = true
			for s := range strings.SplitSeq(string(a), ",") {
				items = append(items, Argument(strings.TrimSpace(s)))
			}
		}
		switch {
		case !ok:
			return nil, fmt.Errorf("must be a list: [%s]", Show(v))
		case len(items) > most && least == 0:
			return nil, fmt.Errorf("must list at most %d values, not %d", most, len(items))
		case len(items) > most || len(items) < least:
			return nil, fmt.Errorf("must list %d to %d values, not %d", least, most, len(items))
		}
		var values []T
		var problems []string
		for _, it := range items {
			value, err := item(it)
			twice := func(other T) bool { return reflect.DeepEqual(other, value) }
			switch {
			case err != nil:
				problems = append(problems, "each value "+err.Error())
			case slices.ContainsFunc(values, twice):
				problems = append(problems, Show(it)+" is listed twice")
			default:
				values = append(values, value)
			}
		}
		if len(problems) > 0 {
			return nil, errors.New(strings.Join(problems, "; "))
		}
		return values, nil
	}
}

// Show returns a value as it stands in the file, cut to 60 bytes. Of lists and tables it says only that they are such.
func Show(v any) string {
	var s string
	switch v := v.(type) {
	case string:
		s = strconv.Quote(v)
	case Argument:
		s = strconv.Quote(string(v))
	case []any:
		return "a list"
	case map[string]any:
		return "a table"
	case []map[string]any:
		return "a list of tables"
	default:
		s = fmt.Sprint(v)
	}
	if len(s) > 60 {
		s = strings.ToValidUTF8(s[:57], "") + "..."
	}
	return s
}

// Choice returns words as a choice: "up" or "down".
func Choice(words []string) string { return `"` + strings.Join(words, `" or "`) + `"` }
