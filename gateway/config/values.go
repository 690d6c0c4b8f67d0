package config

import (
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// reader checks and converts a value that the toml package decoded into any. Its errors
// are phrases that follow the key.
type reader[T any] func(v any) (T, error)

func integer(lo, hi int) reader[int] {
	return func(v any) (int, error) {
		n, ok := v.(int64)
		if !ok || n < int64(lo) || n > int64(hi) {
			return 0, fmt.Errorf("must be a whole number from %d to %d, not %s", lo, hi, show(v))
		}
		return int(n), nil
	}
}

func boolean(v any) (bool, error) {
	b, ok := v.(bool)
	if !ok {
		return false, fmt.Errorf("must be true or false, not %s", show(v))
	}
	return b, nil
}

// duration reads Go's notation.
func duration(lo, hi time.Duration) reader[time.Duration] {
	return func(v any) (time.Duration, error) {
		s, _ := v.(string)
		d, err := time.ParseDuration(s)
		if err != nil || d < lo || d > hi {
			return 0, fmt.Errorf(`must be a duration such as "90s", "15m" or "24h", from %s to %s, not %s`, shortDuration(lo),
				shortDuration(hi), show(v))
		}
		return d, nil
	}
}

// durationOrNone also reads "none", as 0.
func durationOrNone(lo, hi time.Duration) reader[time.Duration] {
	read := duration(lo, hi)
	return func(v any) (time.Duration, error) {
		if v == "none" {
			return 0, nil
		}
		d, err := read(v)
		if err != nil {
			err = fmt.Errorf(`%w; or "none"`, err)
		}
		return d, err
	}
}

// days also reads whole days: "90d".
func days(lo, hi time.Duration) reader[time.Duration] {
	return func(v any) (time.Duration, error) {
		s, _ := v.(string)
		var d time.Duration
		number, isDays := strings.CutSuffix(s, "d")
		n, err := strconv.ParseUint(number, 10, 16)
		if d = time.Duration(n) * day; !isDays {
			d, err = time.ParseDuration(s)
		}
		if err != nil || d < lo || d > hi {
			return 0, fmt.Errorf(`must be a time such as "90d" or "36h", from %dd to %dd, not %s`, lo/day, hi/day, show(v))
		}
		return d, nil
	}
}

// shortDuration writes "1h" where Go writes "1h0m0s".
func shortDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

func word(known ...string) reader[string] {
	return func(v any) (string, error) {
		s, _ := v.(string)
		if !slices.Contains(known, s) {
			quoted := make([]string, len(known))
			for i, k := range known {
				quoted[i] = strconv.Quote(k)
			}
			return "", fmt.Errorf("must be %s, not %s%s", strings.Join(quoted, " or "), show(v), suggestion(s, known))
		}
		return s, nil
	}
}

// userName reads a user's name as people log in with it.
func userName(v any) (string, error) {
	s, ok := v.(string)
	if !ok || s == "" || len(s) > 253 || !utf8.ValidString(s) || strings.ContainsFunc(s, unicode.IsControl) {
		return "", fmt.Errorf("must be a user's name, such as \"ann\", not %s", show(v))
	}
	return s, nil
}

func level(v any) (slog.Level, error) {
	s, err := word("debug", "info", "warn", "error")(v)
	if err != nil {
		return 0, err
	}
	var l slog.Level
	return l, l.UnmarshalText([]byte(s))
}

// line reads one line of visible text.
func line(bytes int) reader[string] {
	return func(v any) (string, error) {
		s, ok := v.(string)
		if !ok || s == "" || len(s) > bytes || strings.ContainsFunc(s, unicode.IsControl) {
			return "", fmt.Errorf("must be one line of text, at most %d bytes, not %s", bytes, show(v))
		}
		return s, nil
	}
}

// prose reads text of several lines.
func prose(bytes int) reader[string] {
	return func(v any) (string, error) {
		control := func(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\r' && r != '\t' }
		s, ok := v.(string)
		if !ok || len(s) > bytes || strings.ContainsFunc(s, control) {
			return "", fmt.Errorf("must be text, at most %d bytes, not %s", bytes, show(v))
		}
		return s, nil
	}
}

// secret reads the shared secret of a RADIUS server. It never appears in a message.
func secret(v any) (string, error) {
	s, ok := v.(string)
	if !ok || s == "" || len(s) > 253 || strings.ContainsFunc(s, unicode.IsControl) {
		return "", errors.New("must be one line of text, 1 to 253 bytes")
	}
	return s, nil
}

// link reads an interface's name, within the kernel's limits.
func link(v any) (string, error) {
	s, ok := v.(string)
	bad := func(r rune) bool { return r <= ' ' || r > '~' || r == '/' || r == ':' }
	if !ok || s == "" || len(s) > 15 || s == "." || s == ".." || strings.ContainsFunc(s, bad) {
		return "", fmt.Errorf(`must be an interface's name such as "eth1", at most 15 characters, not %s`, show(v))
	}
	return s, nil
}

func file(v any) (string, error) {
	s, ok := v.(string)
	if !ok || s == "" || len(s) > 4095 || strings.ContainsFunc(s, unicode.IsControl) {
		return "", fmt.Errorf("must be the path of a file, not %s", show(v))
	}
	return filepath.Clean(s), nil
}

func absolute(v any) (string, error) {
	s, err := file(v)
	if err != nil || !filepath.IsAbs(s) {
		return "", fmt.Errorf("must be an absolute path, not %s", show(v))
	}
	return s, nil
}

// webAddress reads a URL to which browsers may be sent.
func webAddress(v any) (string, error) {
	s, _ := v.(string)
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || len(s) > 2000 ||
		strings.ContainsFunc(s, unicode.IsControl) {
		return "", fmt.Errorf(`must be a web address such as "https://example.org/", not %s`, show(v))
	}
	return s, nil
}

// rate reads bits a second.
func rate(v any) (uint64, error) {
	s, _ := v.(string)
	bps, err := ParseRate(s)
	if err != nil {
		return 0, fmt.Errorf("%w, not %s", err, show(v))
	}
	return bps, nil
}

// size reads bytes.
func size(v any) (uint64, error) {
	s, _ := v.(string)
	n, err := ParseSize(s)
	if err != nil {
		return 0, fmt.Errorf("%w, not %s", err, show(v))
	}
	return n, nil
}

// sizeFrom reads bytes, at least least, which is written as text.
func sizeFrom(least uint64, text string) reader[uint64] {
	return func(v any) (uint64, error) {
		n, err := size(v)
		if err == nil && n < least {
			err = fmt.Errorf("must be at least %q, not %s", text, show(v))
		}
		return n, err
	}
}

const (
	minRate = 8_000 // bit/s; less than a packet a second is useless
	maxRate = 1e12
	maxSize = 1e18
)

// ParseRate reads bits a second: "512k", "10M", "2.5G", optionally followed by "bit/s".
func ParseRate(s string) (uint64, error) {
	for _, suffix := range []string{"bit/s", "bps"} {
		s = strings.TrimSuffix(s, suffix)
	}
	n, ok := scaled(s, map[string]float64{"": 1, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9})
	if !ok || n < minRate || n > maxRate {
		return 0, errors.New(`must be bits a second such as "512k", "10M" or "1G", from 8k to 1000G`)
	}
	return uint64(n), nil
}

// ParseSize reads bytes: "500MB", "5GB", "1.5GiB".
func ParseSize(s string) (uint64, error) {
	n, ok := scaled(s, map[string]float64{
		"B": 1, "kB": 1e3, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12,
		"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40,
	})
	if !ok || n < 1 || n > maxSize {
		return 0, errors.New(`must be bytes such as "500MB", "5GB" or "1.5GiB", at least 1 B`)
	}
	return uint64(n), nil
}

// scaled reads a plain decimal number with a unit.
func scaled(s string, units map[string]float64) (float64, bool) {
	digits := strings.IndexFunc(s, func(r rune) bool { return (r < '0' || r > '9') && r != '.' })
	if digits < 0 {
		digits = len(s)
	}
	factor, known := units[strings.TrimPrefix(s[digits:], " ")]
	n, err := strconv.ParseFloat(s[:digits], 64)
	return n * factor, known && err == nil
}

// some reads a list that is not empty.
func some[T any](read reader[[]T]) reader[[]T] {
	return func(v any) ([]T, error) {
		values, err := read(v)
		if err == nil && len(values) == 0 {
			err = errors.New("is empty: give a value, or leave the key out")
		}
		return values, err
	}
}

// list reads up to 1,000 different values.
func list[T any](item reader[T]) reader[[]T] {
	return func(v any) ([]T, error) {
		items, ok := v.([]any)
		if !ok {
			return nil, fmt.Errorf("must be a list: [%s]", show(v))
		}
		if len(items) > 1000 {
			return nil, fmt.Errorf("must list at most 1000 values, not %d", len(items))
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
				problems = append(problems, show(it)+" is listed twice")
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

// show returns a value as written in the file, cut to 60 bytes.
func show(v any) string {
	var s string
	switch v := v.(type) {
	case string:
		s = strconv.Quote(v)
	case []any:
		return "a list"
	case map[string]any, []map[string]any:
		return "a table"
	default:
		s = fmt.Sprint(v)
	}
	if len(s) > 60 {
		s = strings.ToValidUTF8(s[:57], "") + "..."
	}
	return s
}
