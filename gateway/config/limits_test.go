package config

import (
	"strings"
	"testing"
)

// TestConnections: the key has a number or "none", and is refused where the kernel does not see the connections.
func TestConnections(t *testing.T) {
	const key = "x.toml:6: limits.connections: "
	for value, want := range map[string]string{
		"10": "", `"none"`: "", "0": key + "must be a whole number from 1 to 1000000", `"a"`: `; or "none"`,
		"10\ndatapath.forward = \"redirect\"":             key + "datapath.forward",
		"10\n[datapath]\nkind = \"nfqueue\"\nfast = true": key + "datapath.fast",
	} {
		cfg, err := Parse("x.toml", []byte(minimal+"limits.connections = "+value+"\n"))
		switch {
		case want == "" && (err != nil || !cfg.CountsConnections()):
			t.Errorf("%s: %v", value, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v, want %s", value, err, want)
		}
	}
}
