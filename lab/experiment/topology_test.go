package experiment

import (
	"strings"
	"testing"
)

// TestTopologiesAreTheCatalogues: an unknown one is refused with its place and the known ones.
func TestTopologiesAreTheCatalogues(t *testing.T) {
	c := Catalogue{Topologies: []Topology{{Name: "portal"}, {Name: "row"}}}
	text := "topology = \"rwo\"\nduts = [\"x\"]\nclients = [1]\noffered_mbps = [1]\n"
	_, err := c.Parse("x.toml", []byte(text))
	for _, want := range []string{"x.toml:1: topology: ", `"portal"`, `"row"`, `"rwo"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no %s in: %v", want, err)
		}
	}
	e, err := c.Parse("x.toml", []byte(strings.Replace(text, "rwo", "row", 1)))
	if err != nil || e.Topology != "row" || !strings.Contains(string(e.Encode()), "topology = \"row\"") {
		t.Errorf("%+v, %v", e, err)
	}
}
