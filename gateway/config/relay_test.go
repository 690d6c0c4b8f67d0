package config

// wrongRelays are wrong relays of DHCP (TestProblemsNameFileLineAndKey). minimal has five lines.
var wrongRelays = []problem{
	{"relays", minimal + "[dhcp]\npools = [\"10.1.0.10-10.1.1.255\"]\nrelays = [\"10.2.0.1/24 via 10.1.0.2\", " +
		"\"10.1.64.1/24 via 10.1.64.2\", \"10.1.1.1/25 via 10.1.0.3\",\n\"10.1.1.129/24 via 10.1.0.3\", " +
		"\"10.1.66.0/24 via 10.1.0.3\", \"10.1.67.1/24 via 10.1.0.3\", \"10.2.0.9\", \"10.1.67.1/24 via 10.1.0.4\"]\n",
		[]string{
			`x.toml:8: dhcp.relays: 10.2.0.1/24 via 10.1.0.2: … must be a part of the LAN's, 10.1.0.0/16: …`,
			`x.toml:8: dhcp.relays: 10.1.64.1/24 via 10.1.64.2: 10.1.64.0/24 has the address of gateway or relay …`,
			`x.toml:8: dhcp.relays: 10.1.1.0/25 and 10.1.1.0/24 overlap`,
			`x.toml:8: dhcp.relays: 10.1.66.0/24 via 10.1.0.3: 10.1.66.0 is no host's address in 10.1.66.0/24`,
			`x.toml:8: dhcp.relays: 10.1.67.1/24 via 10.1.0.3: dhcp.pools has no address of 10.1.67.0/24 to lease`,
			`x.toml:8: dhcp.relays: 10.2.0.9: 10.2.0.9 is not in the LAN, 10.1.0.0/16`,
			`x.toml:8: dhcp.relays: 10.1.67.1/24 via 10.1.0.4: dhcp.pools has no address of 10.1.67.0/24 to lease`,
			`x.toml:8: dhcp.relays: 10.1.67.1 is there twice`}},
	{"a relay by name", minimal + "dhcp.relays = [\"switch\"]\ndhcp.relay_information = 1\n",
		[]string{`x.toml:6: dhcp.relays: each value must be a relay's address such as … "switch"`,
			`x.toml:7: dhcp.relay_information: must be true or false …`}},
}
