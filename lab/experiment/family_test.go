package experiment_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/result"
)

const withFamily = "duts = [\"allowlist\"]\nclients = [2]\noffered_mbps = [100]\n"

// TestFamilies: each family is a series of cells whose labs have it; without the key cells have no such dimension, and
// the file does not name it.
func TestFamilies(t *testing.T) {
	for text, want := range map[string][]client.Family{
		"":                             nil,
		"family = 4\n":                 {client.IPv4},
		"family = 6\n":                 {client.IPv6},
		"family = \"both\"\n":          {client.DualStack},
		"family = [4, 6, \"both\"]\n":  {client.IPv4, client.IPv6, client.DualStack},
		"family = [\"6\", \"both\"]\n": {client.IPv6, client.DualStack},
	} {
		e := parse(t, withFamily+text)
		if !slices.Equal(e.Families, want) {
			t.Errorf("%q: families %v", text, e.Families)
		}
		encoded := string(e.Encode())
		if again := parse(t, encoded); !slices.Equal(again.Families, want) {
			t.Errorf("%q: read again %v", text, again.Families)
		}
		if strings.Contains(encoded, "\nfamily = ") != (text != "") {
			t.Errorf("%q encoded:\n%s", text, encoded)
		}
		seen := map[client.Family]bool{}
		for _, b := range e.Plan() {
			seen[experiment.FamilyOf(b.Cell)] = true
			for _, c := range b.Cells {
				if c.HasDimension(result.Family) != (text != "") || experiment.FamilyOf(c) != experiment.FamilyOf(b.Cell) {
					t.Errorf("%q: cell %v in a block of %v", text, c, b.Cell)
				}
			}
			for _, side := range e.Labs(b) {
				if side.Family != experiment.FamilyOf(b.Cell) {
					t.Errorf("%q: a lab has family %q in a block of %v", text, side.Family, b.Cell)
				}
			}
		}
		if len(seen) != max(1, len(want)) {
			t.Errorf("%q: blocks of %v", text, seen)
		}
	}
}

// TestFamiliesOfTheCommandLine: a list is written as in a file, or with commas alone.
func TestFamiliesOfTheCommandLine(t *testing.T) {
	for value, want := range map[string][]client.Family{
		"6": {client.IPv6}, "[4,6]": {client.IPv4, client.IPv6}, "4, both": {client.IPv4, client.DualStack},
		`[4, "both"]`: {client.IPv4, client.DualStack},
	} {
		e := parse(t, withFamily)
		if err := e.Set("family", value); err != nil || !slices.Equal(e.Families, want) {
			t.Errorf("%s: %v, %v", value, e.Families, err)
		}
	}
}

// TestFramesOfFamilies: the default mix of frames fits the families.
func TestFramesOfFamilies(t *testing.T) {
	for text, want := range map[string]string{"": "imix", "family = 4\n": "imix", "family = [4, 6]\n": "imix6"} {
		if e := parse(t, withFamily+text+"traffic.kind = \"frames\"\n"); !slices.Equal(e.FrameSizes, []string{want}) {
			t.Errorf("%q: frames of %v", text, e.FrameSizes)
		}
	}
}

// TestFamiliesThatCannotBe: the error names file, line and key.
func TestFamiliesThatCannotBe(t *testing.T) {
	for text, want := range map[string]string{
		withFamily + "family = 5\n":          `x.toml:4: family: each value must be 4, 6 or "both", not 5`,
		withFamily + "family = []\n":         `x.toml:4: family: must list 1 to 100 values, not 0`,
		withFamily + "family = [6, \"6\"]\n": `x.toml:4: family: "6" is listed twice`,
		withFamily + "family = true\n":       `x.toml:4: family: must be a list`,
		minimal + "family = \"both\"\n":      `x.toml:4: family: "both" needs 2 clients or more`,
		withFamily + "familiy = 6\n":         `x.toml:4: familiy: unknown key; did you mean "family"?`,
		withFamily + "family = 6\ntraffic.kind = \"frames\"\nframe_sizes = [79]\n": `x.toml:6: frame_sizes: 79: with IPv6 ` +
			`the shortest frame has 80 bytes`,
		withFamily + "measure = \"rate\"\nfamily = 6\n": `x.toml:5: family: has no meaning with measure = "rate"`,
		withFamily + "[dut.a]\nstart = \"true\"\nfamilies = [4, \"both\"]\n": `x.toml:6: dut.a.families: each value must ` +
			`be 4 or 6, not "both"`,
	} {
		_, err := known.Parse("x.toml", []byte(text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\n%v\nwant %s", text, err, want)
		}
	}
}
