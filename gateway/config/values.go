package config

import (
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/gateweigh/gateweigh/internal/strict"
)

// duration reads strict.ParseDuration's notation.
func duration(lo, hi time.Duration) strict.Parser[time.Duration] {
	return strict.Duration(`"90s", "15m" or "24h"`, lo, hi)
}

// ParseDuration reads a duration as keys have them: "90m", "14d", "1d12h".
func ParseDuration(s string) (time.Duration, error) { return strict.ParseDuration(s) }

// durationOrNone also reads "none", as 0.
func durationOrNone(lo, hi time.Duration) strict.Parser[time.Duration] {
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

// days is duration for keys that have times of days: its errors say so.
func days(lo, hi time.Duration) strict.Parser[time.Duration] {
	want := fmt.Sprintf(`a time such as "90d" or "36h", from %dd to %dd`, lo/day, hi/day)
	return strict.AcceptText(want, func(s string) (time.Duration, bool) {
		d, err := strict.ParseDuration(s)
		return d, err == nil && d >= lo && d <= hi
	})
}

// visible reports whether a text is one line, not empty and of at most so many bytes.
func visible(s string, bytes int) bool {
	return s != "" && len(s) <= bytes && !strings.ContainsFunc(s, unicode.IsControl)
}

// userName reads a user's name as people log in with it.
var userName = strict.AcceptText(`a user's name, such as "ann"`, func(s string) (string, bool) {
	return s, visible(s, 253) && utf8.ValidString(s)
})

func level(v any) (slog.Level, error) {
	s, err := strict.Word("debug", "info", "warn", "error")(v)
	if err != nil {
		return 0, err
	}
	var l slog.Level
	return l, l.UnmarshalText([]byte(s))
}

// line reads one line of visible text.
func line(bytes int) strict.Parser[string] {
	return strict.AcceptText(fmt.Sprintf("one line of text, at most %d bytes", bytes), func(s string) (string, bool) {
		return s, visible(s, bytes)
	})
}

// prose reads text of several lines.
func prose(bytes int) strict.Parser[string] {
	control := func(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\r' && r != '\t' }
	return strict.AcceptText(fmt.Sprintf("text, at most %d bytes", bytes), func(s string) (string, bool) {
		return s, len(s) <= bytes && !strings.ContainsFunc(s, control)
	})
}

// secret reads the shared secret of a RADIUS server. It never appears in a message.
func secret(v any) (string, error) {
	s, _ := v.(string)
	if !visible(s, 253) {
		return "", errors.New("must be one line of text, 1 to 253 bytes")
	}
	return s, nil
}

// link reads an interface's name, within the kernel's limits.
var link = strict.AcceptText(
	`an interface's name such as "eth1", at most 15 characters`, func(s string) (string, bool) {
		bad := func(r rune) bool { return r <= ' ' || r > '~' || r == '/' || r == ':' }
		return s, s != "" && len(s) <= 15 && s != "." && s != ".." && !strings.ContainsFunc(s, bad)
	})

var file = strict.AcceptText("the path of a file", func(s string) (string, bool) {
	return filepath.Clean(s), visible(s, 4095)
})

var absolute = strict.AcceptText("an absolute path", func(s string) (string, bool) {
	return filepath.Clean(s), visible(s, 4095) && filepath.IsAbs(s)
})

// webAddress reads a URL to which browsers may be sent.
var webAddress = strict.AcceptText(`a web address such as "https://example.org/"`, func(s string) (string, bool) {
	u, err := url.Parse(s)
	return s, err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && visible(s, 2000)
})

// rate reads bits a second.
func rate(v any) (uint64, error) {
	s, _ := v.(string)
	bps, err := ParseRate(s)
	if err != nil {
		return 0, fmt.Errorf("%w, not %s", err, strict.Show(v))
	}
	return bps, nil
}

// size reads bytes.
func size(v any) (uint64, error) {
	s, _ := v.(string)
	n, err := ParseSize(s)
	if err != nil {
		return 0, fmt.Errorf("%w, not %s", err, strict.Show(v))
	}
	return n, nil
}

// sizeFrom reads bytes, at least least, which is written as text.
func sizeFrom(least uint64, text string) strict.Parser[uint64] {
	return func(v any) (uint64, error) {
		n, err := size(v)
		if err == nil && n < least {
			err = fmt.Errorf("must be at least %q, not %s", text, strict.Show(v))
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

// nonEmpty reads a list that is not empty.
func nonEmpty[T any](read strict.Parser[[]T]) strict.Parser[[]T] {
	return func(v any) ([]T, error) {
		values, err := read(v)
		if err == nil && len(values) == 0 {
			err = errors.New("is empty: give a value, or leave the key out")
		}
		return values, err
	}
}

// list reads up to 1,000 different values.
func list[T any](item strict.Parser[T]) strict.Parser[[]T] { return strict.List(0, 1000, item) }
