package experiment

import (
	"strings"
	"testing"
)

const closedRouter = `
[backend]
kind = "ssh"
[backend.host.router]
lan_address = "10.8.0.1/24"
wan_address = "10.9.0.1/24"
[backend.host.client]
address = "c"
interface = "eth1"
[backend.host.server]
address = "s"
interface = "eth1"
`

// TestClosedRefusals: for a router without an agent, keys that need an agent there are refused by name.
func TestClosedRefusals(t *testing.T) {
	closing := Measure{Name: "plain", Agentless: true, Settings: func(*Experiment) []Setting { return nil }}
	catalogue := Catalogue{
		DUTs: []string{"gate"}, Measures: []Measure{closing}, Topologies: []Topology{{Name: defaultTopology}}}
	for name, c := range map[string]struct{ old, put, want string }{
		"nothing":  {"", "", ""},
		"a device": {`"as-is"`, `"clean"`, `duts: the router has no agent`},
		"a kind":   {"[2]\n", "[2]\nclient = { kind = \"macvlan\" }\n", `client.kind: "macvlan" takes leases`},
		"speed":    {"[2]\n", "[2]\nrouter = { speed = 0.5 }\n", "router.speed: the router has no agent"},
		"one network": {
			"10.9.0.1/24", "10.8.0.9/24", "backend.host.router.wan_address: 10.8.0.1/24 and 10.8.0.9/24 are of one"},
		"no router's":  {"10.9.0.1/24", "10.9.0.0/24", "backend.host.router.wan_address: must be an IPv4 address"},
		"an interface": {"lan_address", "lan = \"eth0\"\nlan_address", "so it has lan_address and wan_address alone"},
		"an address":   {"lan_address", "address = \"r\"\nlan_address", "are for a router that has no address for ssh"},
		"no closed":    {closedRouter, "", `duts: "as-is" is a router without an agent`},
		"two labs": {"interface = \"eth1\"\n[backend.host.server]",
			"interface = [\"eth1\", \"eth2\"]\n[backend.host.server]", "one lab at a time"},
		"too many": {"[2]\n", "[60000]\n", "clients: 60000: the router has no agent"},
	} {
		text := strings.Replace("measure = \"plain\"\nduts = [\"as-is\"]\nclients = [2]\n"+closedRouter, c.old, c.put, 1)
		_, err := catalogue.Parse("x.toml", []byte(text))
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
}

// TestOneOfTwoAddresses: a router without an agent that lacks one of its addresses is one mistake, and one message.
func TestOneOfTwoAddresses(t *testing.T) {
	catalogue := Catalogue{DUTs: []string{"gate"}, Topologies: []Topology{{Name: defaultTopology}},
		Measures: []Measure{{Name: "plain", Agentless: true, Settings: func(*Experiment) []Setting { return nil }}}}
	for _, key := range []string{"lan_address", "wan_address"} {
		var kept []string
		for line := range strings.Lines(closedRouter) {
			if !strings.HasPrefix(line, key) {
				kept = append(kept, line)
			}
		}
		_, err := catalogue.Parse("x.toml", []byte("measure = \"plain\"\nduts = [\"as-is\"]\nclients = [2]\n"+
			strings.Join(kept, "")))
		want := "backend.host.router: needs " + key + " = "
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("without %s: %v, want %s…", key, err, want)
		}
	}
}
