package capture

import (
	"slices"
	"testing"
)

// TestVaryAlone: with vary_alone at most one parameter has another value than the first of its list.
func TestVaryAlone(t *testing.T) {
	const file = "duts = [\"no-capture\", \"tcpdump\"]\noffered_mbps = [10]\nfilters = [\"none\", \"simple\", " +
		"\"complex\"]\nprograms = [1, 4]\n"
	for key, want := range map[string][]string{
		"":                    {"none 1", "simple 1", "complex 1", "none 4", "simple 4", "complex 4"},
		"vary_alone = true\n": {"none 1", "simple 1", "complex 1", "none 4"},
	} {
		e := parse(t, file+key)
		var got []string
		for _, b := range e.Plan() {
			if c := b.Cells[0]; b.Index == 0 && b.DUT() == "tcpdump" {
				got = append(got, c.Text(Filter)+" "+c.Text(Programs))
			}
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%q measures %v, want %v", key, got, want)
		}
	}
}
