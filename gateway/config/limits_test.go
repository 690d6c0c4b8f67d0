package config

import (
	"strings"
	"testing"
)

// TestConnections: the key has a number or "none", and is refused where the kernel does not see the connections.
func TestConnections(t *testing.T) {
	const key = "x.toml:6: limits.connections: "
	for keys, want := range map[string]string{
		"limits.connections = 10":                                              "",
		"limits.connections = \"none\"":                                        "",
		"limits.connections = 0":                                               key + "must be a whole number from 1 to 1000000",
		"limits.connections = \"a\"":                                           `; or "none"`,
		"limits.connections = 10\ndatapath.forward = \"redirect\"":             key + "datapath.forward",
		"limits.connections = 10\n[datapath]\nkind = \"nfqueue\"\nfast = true": key + "datapath.fast",
	} {
		cfg, err := Parse("x.toml", []byte(minimal+keys+"\n"))
		switch {
		case want == "" && (err != nil || !cfg.CountsConnections()):
			t.Errorf("%s: %v", keys, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v, want %s", keys, err, want)
		}
	}
}
