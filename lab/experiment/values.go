package experiment

import (
	"fmt"
	"net/netip"
	"regexp"
	"strings"
	"time"
	"unicode"

	"github.com/gateweigh/gateweigh/internal/strict"
	"github.com/gateweigh/gateweigh/lab/words"
)

// share accepts the load of one client, Mbit/s. checkLoads checks the load of all clients together.
var share = strict.Number(fmt.Sprintf("Mbit/s a client, more than 0 and at most %d", MaxOfferedMbps), func(
	n float64) bool {
	return n > 0 && n <= MaxOfferedMbps
})

// speed accepts the share of its CPU that a router has. 1, all of it, becomes 0, as where the key is not set.
func speed(v any) (float64, error) {
	share, err := strict.Within(MinSpeed, 1, "the share of its CPU that the router has,")(v)
	if share == 1 {
		share = 0
	}
	return share, err
}

// PerSecond accepts rates up to most, and 0. In the error zero tells what 0 means, such as "0 for none", and what names
// the unit, such as "guests a second".
func PerSecond(most float64, zero, what string) strict.Parser[float64] {
	return strict.Number(fmt.Sprintf("%s, or %s from %g to %g", zero, what, minPerSecond, most),
		func(n float64) bool { return n == 0 || n >= minPerSecond && n <= most })
}

// Duration accepts durations in Go's notation, such as "500ms", from lo to hi.
func Duration(lo, hi time.Duration) strict.Parser[time.Duration] {
	return strict.Duration(`"1s"`, lo, hi)
}

// List accepts up to 100 different items.
func List[T any](item strict.Parser[T]) strict.Parser[[]T] { return strict.List(1, 100, item) }

// maxText is the longest description, bytes.
const maxText = 300

// text accepts any one-line string of up to maxText bytes.
var text = strict.AcceptText(
	fmt.Sprintf("one line of text, at most %d bytes", maxText), func(s string) (string, bool) {
		return s, len(s) <= maxText && !strings.ContainsFunc(s, unicode.IsControl)
	})

// SetDescription sets the description, as one line, and cuts it where it is longer than a file may have it.
func (e *Experiment) SetDescription(message string) {
	const more = "…"
	message = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, message)
	if len(message) > maxText {
		message = strings.ToValidUTF8(message[:maxText-len(more)], "") + more
	}
	e.Description = message
}

// nameForm matches names that can be part of a file's name.
var nameForm = regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9_.-]{0,63}$`)

// name accepts names of that form.
var name = strict.AcceptText("a name of letters, digits, '-', '_' and '.'", func(s string) (string, bool) {
	return s, nameForm.MatchString(s)
})

// network accepts an IPv4 network with addresses for at least two clients.
var network = strict.AcceptText(
	`an IPv4 network such as "10.1.0.0/16", /8 to /29`, func(s string) (netip.Prefix, bool) {
		p, err := netip.ParsePrefix(s)
		return p, err == nil && p.Addr().Is4() && p.Bits() >= 8 && p.Bits() <= 29 && p == p.Masked()
	})

// Series lists numbers: "1, 10 and 50".
func Series[T int | float64](list []T) string {
	var parts []string
	for _, n := range list {
		parts = append(parts, fmt.Sprint(n))
	}
	return words.Listed(parts)
}
