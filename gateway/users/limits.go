package users

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gateweigh/gateweigh/gateway/config"
	"github.com/gateweigh/gateweigh/gateway/session"
)

// accountLimits are the limits of an account; zero values do not limit.
type accountLimits struct {
	limits   session.Limits
	sessions int // most sessions at the same time
}

// limit is a key of an account's limits, with the functions that read its value. formerKey is its name in older files,
// where values have other units; empty: it had none.
type limit struct {
	key, formerKey string
	set, setFormer func(*accountLimits, string) error
}

// limitKeys are the keys of the configuration's [limits], in the order in which errors list them.
var limitKeys = []limit{
	{key: "session_timeout", set: timeout(func(g *accountLimits) *time.Duration { return &g.limits.SessionTimeout })},
	{key: "idle_timeout", set: timeout(func(g *accountLimits) *time.Duration { return &g.limits.IdleTimeout })},
	amount("up_rate", "up_bps", config.ParseRate, func(g *accountLimits) *uint64 { return &g.limits.UpBps }),
	amount("down_rate", "down_bps", config.ParseRate, func(g *accountLimits) *uint64 { return &g.limits.DownBps }),
	amount("up_quota", "up_bytes", config.ParseSize, func(g *accountLimits) *uint64 { return &g.limits.UpBytes }),
	amount("down_quota", "down_bytes", config.ParseSize, func(g *accountLimits) *uint64 { return &g.limits.DownBytes }),
	amount("total_quota", "total_bytes", config.ParseSize, func(g *accountLimits) *uint64 { return &g.limits.TotalBytes }),
	{key: "sessions_per_user", set: setSessions},
	{key: "connections", set: setConnections},
}

// amount returns the key of a rate or a quota. parse reads its value, as in the configuration.
func amount(key, former string, parse func(string) (uint64, error), field func(*accountLimits) *uint64) limit {
	set := func(g *accountLimits, text string) error {
		n, err := parse(text)
		if err != nil {
			return fmt.Errorf("%w, not %q", err, text)
		}
		*field(g) = n
		return nil
	}
	return limit{key: key, formerKey: former, set: set, setFormer: quantity(field)}
}

// ParseLimits reads limits as accounts have them, key=value,key=value, and how many sessions there may be at once; 0:
// any number.
func ParseLimits(text string) (limits session.Limits, sessions int, err error) {
	all, err := parseLimits(text)
	return all.limits, all.sessions, err
}

// parseLimits reads key=value,key=value.
func parseLimits(text string) (limits accountLimits, err error) {
	var set []string
	for pair := range strings.SplitSeq(text, ",") {
		key, value, ok := strings.Cut(pair, "=")
		if !ok {
			return limits, fmt.Errorf("%q: must be key=value", pair)
		}
		i := slices.IndexFunc(limitKeys,
			func(known limit) bool { return known.key == key || known.formerKey == key && key != "" })
		if i < 0 {
			return limits, fmt.Errorf("%q: unknown limit: known are %s", key, knownLimits())
		}
		known := limitKeys[i]
		if slices.Contains(set, known.key) {
			return limits, fmt.Errorf("%s is there twice", key)
		}
		read := known.set
		if key != known.key {
			read = known.setFormer
		}
		if err := read(&limits, value); err != nil {
			return limits, fmt.Errorf("%s: %w", key, err)
		}
		set = append(set, known.key)
	}
	return limits, nil
}

func knownLimits() string {
	names := make([]string, len(limitKeys))
	for i, known := range limitKeys {
		names[i] = known.key
	}
	return strings.Join(names, ", ")
}

// timeout reads a duration of at least a second into a field.
func timeout(field func(*accountLimits) *time.Duration) func(*accountLimits, string) error {
	return func(g *accountLimits, text string) error {
		d, err := config.ParseDuration(text)
		if err != nil || d < time.Second {
			return fmt.Errorf("must be a duration such as 90m or 8h, at least 1s, not %q", text)
		}
		*field(g) = d
		return nil
	}
}

func setSessions(g *accountLimits, text string) error {
	n, err := strconv.ParseUint(text, 10, 31)
	if err != nil || n == 0 {
		return fmt.Errorf("must be a whole number of at least 1, not %q", text)
	}
	g.sessions = int(n)
	return nil
}

func setConnections(g *accountLimits, text string) error {
	n, err := strconv.ParseUint(text, 10, 31)
	if err != nil || n == 0 {
		return fmt.Errorf("must be a whole number of at least 1, not %q", text)
	}
	g.limits.Connections = uint32(n)
	return nil
}

// quantity reads the value of a former key, a number of at least 1, into a field: 500, 20k, 5M, 10G, 1T.
func quantity(field func(*accountLimits) *uint64) func(*accountLimits, string) error {
	return func(g *accountLimits, text string) error {
		digits := strings.TrimRight(text, "kMGT")
		unit, known := map[string]uint64{"": 1, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}[text[len(digits):]]
		n, err := strconv.ParseUint(digits, 10, 64)
		if err != nil || !known || n < 1 || n > 1<<63/unit {
			return fmt.Errorf("must be a whole number of at least 1 with k, M, G or T behind it or nothing, not %q", text)
		}
		*field(g) = n * unit
		return nil
	}
}
