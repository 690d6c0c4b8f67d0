// Tests that the example file and the manual agree with this package. parse (config_test.go) reads a text that must be
// good.

package config

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/internal/strict"
)

// The documentation with configurations, and the comparison of data paths.
const (
	manual    = "../../docs/gateway.md"
	nat       = "../../docs/nat.md"
	networks  = "../../docs/networks.md"
	hotel     = "../../docs/hotel.md"
	dataPaths = "../../docs/data-paths.md"
)

// commented is a line of the example that shows a key without setting it.
var commented = regexp.MustCompile(`^#("?[a-z0-9:_]+"?) = `)

// TestExampleIsValid checks the example except for the users' file that it names.
func TestExampleIsValid(t *testing.T) {
	if _, err := Parse("example.toml", []byte(Example)); err != nil {
		t.Error(err)
	}
}

// TestExampleIsComplete checks that the example shows exactly the existing keys, with valid values and the real
// defaults.
func TestExampleIsComplete(t *testing.T) {
	table, head := "", ""
	var shown []string
	for line := range strings.Lines(Example) {
		line = strings.TrimSuffix(line, "\n")
		if name := strings.TrimPrefix(line, "#"); strings.HasPrefix(name, "[") {
			table, head = strings.Trim(name, "[]"), name+"\n"
		}
		if commented.MatchString(line) {
			line = line[1:]
		}
		key, _, isKey := strings.Cut(line, " = ")
		if !isKey || strings.HasPrefix(line, "#") {
			continue
		}
		text := line + "\n"
		if table == "dhcp.static" || table == "dhcp.options" || table == "pppoe.pool" ||
			strings.HasSuffix(table, ".prefix_pool") {
			key = ""
		}
		if table != "" {
			text = head + text
			key = strings.TrimSuffix(table+"."+key, ".")
		}
		shown = append(shown, key)
		entries, bad := strict.Read("example.toml", []byte(text), "")
		if bad != nil {
			t.Fatalf("%s: %v", line, bad)
		}
		for _, p := range defaults().apply(entries) {
			t.Errorf("%s: %v", line, p)
		}
	}
	slices.Sort(shown)
	if want := slices.Sorted(slices.Values(Keys())); !slices.Equal(shown, want) {
		t.Errorf("the example shows\n%v\nthere are\n%v", shown, want)
	}
}

// TestExampleShowsDefaults checks that setting a key's shown default changes nothing.
func TestExampleShowsDefaults(t *testing.T) {
	base := parse(t, Example)
	for _, key := range []string{
		"state_dir", "run_dir", "log_level", "log_format", "mode", "lease", "dns", "answer_aaaa", "enabled", "port", "title",
		"kind", "forward", "shaping", "pin_dir",
	} {
		pattern := regexp.MustCompile(`(?m)^#` + key + ` = .*$`)
		if !pattern.MatchString(Example) {
			t.Errorf("the example has no #%s", key)
		}
		text := pattern.ReplaceAllStringFunc(Example, func(line string) string { return line[1:] })
		if changed := Changed(base, parse(t, text)); len(changed) > 0 {
			t.Errorf("#%s is not the default of %v", key, changed)
		}
	}
	withServer := strings.NewReplacer(`methods = ["users"]`, `methods = ["users", "radius"]`,
		"#address = \"192.0.2.10\"", "address = \"192.0.2.10\"", "#secret = \"long and random\"", "secret = \"x\"").Replace(
		Example)
	base = parse(t, withServer)
	for _, key := range []string{"method", "accounting", "acct_address", "swap_octets", "nas_identifier", "nas_port_type",
		"timeout", "retries", "interim"} {
		line := regexp.MustCompile(`(?m)^#` + key + ` = .*$`).FindString(withServer)
		text := strings.Replace(withServer, line, strings.TrimPrefix(line, "#"), 1)
		if changed := Changed(base, parse(t, text)); len(changed) > 0 || line == "" {
			t.Errorf("%q is not the default of %v", line, changed)
		}
	}
}

// TestManualBlocksLoad loads the manual's configurations.
func TestManualBlocksLoad(t *testing.T) {
	var blocks []string
	for _, page := range []string{manual, nat, networks, hotel} {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		shown := strings.Split(string(text), "```toml\n")[1:]
		if len(shown) == 0 {
			t.Errorf("%s shows no configuration", page)
		}
		blocks = append(blocks, shown...)
	}
	for _, block := range blocks {
		block, _, _ = strings.Cut(block, "```")
		if _, err := Parse("block.toml", []byte(block)); err != nil {
			t.Errorf("%v\nin:\n%s", err, block)
		}
	}
}

// TestManualComparesDataPaths checks that one table has a column for each kind and mode.
func TestManualComparesDataPaths(t *testing.T) {
	text, err := os.ReadFile(dataPaths)
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## Data paths\n")
	_, table, _ := strings.Cut(section, "\n\n|")
	head, _, _ := strings.Cut(table, "\n")
	for _, kind := range []string{"ebpf", "tun", "nfqueue"} {
		columns := []string{"| `" + kind + "` |"}
		if kind != "ebpf" {
			columns = append(columns, "| `"+kind+"`, fast |")
		}
		for _, column := range columns {
			if !strings.Contains(head, column) {
				t.Errorf("the table of data paths has no column %q: %s", column, head)
			}
		}
	}
}
