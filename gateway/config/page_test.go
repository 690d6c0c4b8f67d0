// A test that docs/reference/gatewayd-keys.md is made of the keys and their meanings (meaning.go). With -update it
// writes the page.

package config

import (
	"fmt"
	"log/slog"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/internal/goldentest"
	"github.com/gateweigh/gateweigh/internal/strict"
)

//go:generate go test -count=1 -run ^TestPageOfKeys$ . -args -update

const keysPage = "../../docs/reference/gatewayd-keys.md"

const keysHead = `# Configuration keys

Every key of gatewayd.toml, made from gatewayd's source (gateway/config, make generate). Setup:
[gateway.md](../gateway.md).

| Written | Means |
|---|---|
| a duration | ` + "`\"90s\"`, `\"15m\"`, `\"24h\"`" + ` |
| bits a second | ` + "`\"512k\"`, `\"10M\"`, `\"1G\"`" + `: factors of 1000 |
| bytes | ` + "`\"500MB\"` (500,000,000), `\"1.5GiB\"`" + ` (1,610,612,736) |
| a path | starts at the configuration's folder, if it is not absolute |
`

// TestPageOfKeys checks that the page is made of the keys, each with a meaning and the values that its reader takes.
func TestPageOfKeys(t *testing.T) {
	var b strings.Builder
	b.WriteString(keysHead)
	section := "-"
	for _, s := range defaults().settings() {
		table, _, below := strings.Cut(s.key, ".")
		title := "[" + table + "]"
		if !below {
			title = "Of the whole"
		}
		if title != section {
			fmt.Fprintf(&b, "\n## %s\n\n| Key | Value | Default | Meaning |\n|---|---|---|---|\n", title)
			section = title
		}
		writeKey(t, &b, s)
	}
	for key := range meanings {
		if !strings.Contains(b.String(), "\n| `"+key+"` |") {
			t.Errorf("%s has a meaning and is no key", key)
		}
	}
	goldentest.Compare(t, keysPage, b.String())
}

// writeKey writes a key's row.
func writeKey(t *testing.T, b *strings.Builder, s setting) {
	t.Helper()
	m, values := meanings[s.key], acceptedValues(s)
	if m.text == "" {
		t.Errorf("%s has no meaning: write it into meaning.go", s.key)
	}
	if values == "" {
		t.Errorf("%s refuses values without saying which it takes", s.key)
	}
	unset := m.unset
	if shown := shownDefault(s); unset == "" {
		unset = shown
	} else if shown != "" && s.key != "flowlog.most" { // whose default is shown with its unit
		t.Errorf("%s has the default %s, not %q", s.key, shown, unset)
	}
	fmt.Fprintf(b, "| `%s` | %s | %s | %s |\n", s.key, values, unset, m.text)
}

// example is what refusals show of the units, which the page explains once.
var example = regexp.MustCompile(` such as "(90s|512k|500MB)"[^,]*, ("[^,]*" or "[^"]*", )?`)

// acceptedValues returns which values a setting takes, in the words by which it refuses others.
func acceptedValues(s setting) string {
	give := func(set func(v any) error) string {
		err := set(struct{}{})
		if err != nil && strings.HasPrefix(err.Error(), "must be a list") {
			err = set([]any{struct{}{}})
		}
		if err == nil {
			return ""
		}
		return refusal(err.Error())
	}
	switch {
	case s.set != nil:
		return give(s.set)
	case s.column != nil:
		return give(func(v any) error { return s.column(0, v) })
	}
	// A table of the user's keys: what a key may be, and a value.
	var texts []string
	for _, name := range []string{"0", "7", "02:00:5e:10:00:01"} {
		if text := give(func(v any) error { return s.each(name, v) }); !slices.Contains(texts, text) {
			texts = append(texts, text)
		}
	}
	return strings.Join(texts, " = ")
}

// refusal returns what an error says that a value must be.
func refusal(text string) string {
	inList := strings.HasPrefix(text, "each value ")
	text = strings.TrimPrefix(strings.TrimPrefix(text, "each value "), "must be ")
	text, _, _ = strings.Cut(text, ", and {}")
	text, rest, _ := strings.Cut(text, ", not ")
	if _, more, ok := strings.Cut(rest, "; or "); ok {
		text += ", or " + more
	}
	if text = example.ReplaceAllString(text, ", "); inList {
		text = "list: " + text
	}
	return strings.ReplaceAll(text, "|", `\|`)
}

// shownDefault returns a default as the file has it; empty: there is none.
func shownDefault(s setting) string {
	value := reflect.ValueOf(s.target).Elem()
	if value.IsZero() && value.Kind() != reflect.Bool && s.key != "log_level" {
		return ""
	}
	switch v := value.Interface().(type) {
	case time.Duration:
		if v%day == 0 {
			return fmt.Sprintf(`"%dd"`, v/day)
		}
		return strconv.Quote(strict.ShortDuration(v))
	case slog.Level:
		return strconv.Quote(strings.ToLower(v.String()))
	case string:
		return strconv.Quote(v)
	case bool, int, uint16, uint64:
		return fmt.Sprint(v)
	}
	return ""
}
