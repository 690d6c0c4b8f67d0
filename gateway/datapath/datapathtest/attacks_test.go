package datapathtest

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// TestAttacksAreDocumented: the manual's table names every attack's test.
func TestAttacksAreDocumented(t *testing.T) {
	table, err := os.ReadFile("../../../docs/attacks.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range slices.Concat(attacks, floods) {
		if name := strings.TrimSuffix(a.name, "Bare"); !strings.Contains(string(table), "`"+name+"`") {
			t.Errorf("docs/attacks.md does not name %s", name)
		}
	}
}
