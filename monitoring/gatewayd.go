package monitoring

// Gatewayd returns the dashboard of gateways, as JSON for Grafana.
func Gatewayd() ([]byte, error) {
	return page("Gateways", "gatewayd", "gatewayd_info", []row{ofClients, ofTraffic, ofLogins, ofServices})
}

var ofClients = row{"Clients", []panel{
	{title: "Logged in", what: "Clients with a session.", now: true,
		all: []query{{"sum(" + of("gatewayd_clients", `state="authenticated"`) + ")", "logged in"}}},
	{title: "Addresses in use", what: "Leases of all addresses that clients can be given.", unit: "percentunit",
		now: true,
		all: []query{{"sum(" + of("gatewayd_dhcp_leases") + ") / sum(" + of("gatewayd_addresses") + ")", "in use"}}},
	{title: "RADIUS servers that answer", what: "Of all, the share that answered last.", unit: "percentunit", now: true,
		all: []query{{"avg(" + of("gatewayd_radius_server_up") + ")", "answer"}}},
	{title: "Runs since", what: "The youngest daemon.", unit: "s", now: true,
		all: []query{{"time() - max(" + of("gatewayd_start_time_seconds") + ")", "since"}}},
	{title: "Clients by state", what: "leased: has an address. preauth: was shown the login page. authenticated: " +
		"logged in.", all: []query{sum("state", "gatewayd_clients")}},
	{title: "IPv6 addresses and leases", what: "Addresses of clients, and those whose owner is asked for.",
		all: []query{{"sum(" + of("gatewayd_ipv6_addresses") + ")", "addresses"},
			{"sum(" + of("gatewayd_ipv6_address_contests") + ")", "contested"}}},
}}

var ofTraffic = row{"Traffic", []panel{
	{title: "Forwarded", what: "Bits of IP packets a second. up: from clients.", unit: "bps",
		all: []query{{"8 * sum by (direction) (rate(" + of("gatewayd_forwarded_bytes_total") + "[$__rate_interval]))",
			"{{direction}}"}}},
	{title: "Packets by what became of them", what: "Words: gatewayd's page of counters.", unit: "pps",
		all: []query{each("reason", "gatewayd_packets_total")}},
	{title: "CPU of the daemon", what: "Without what the kernel forwards.", unit: "percentunit",
		all: []query{{"rate(" + of("process_cpu_seconds_total") + "[$__rate_interval])", "{{instance}}"}}},
	{title: "Memory of the daemon", what: "Resident.", unit: "bytes",
		all: []query{{of("process_resident_memory_bytes"), "{{instance}}"}}},
}}

var ofLogins = row{"Logins", []panel{
	{title: "Portal", what: "Answers of the portal a second.", unit: "reqps",
		all: []query{each("outcome", "gatewayd_portal_total")}},
	{title: "RADIUS", what: "What the client of RADIUS servers did, a second.", unit: "reqps",
		all: []query{each("event", "gatewayd_radius_total")}},
	{title: "RADIUS servers", what: "1: it answered last.",
		all: []query{{"min by (server, purpose) (" + of("gatewayd_radius_server_up") + ")", "{{server}} {{purpose}}"}}},
	{title: "Accounting that waits", what: "Events that no server has confirmed, and those set aside.",
		all: []query{{"sum(" + of("gatewayd_accounting_outbox") + ")", "waits"},
			{"sum(" + of("gatewayd_accounting_aside") + ")", "set aside"}}},
}}

var ofServices = row{"Services", []panel{
	{title: "DHCP", what: "What the server did, a second.", unit: "reqps",
		all: []query{each("event", "gatewayd_dhcp_total")}},
	{title: "DNS", what: "What the forwarder did, a second.", unit: "reqps",
		all: []query{each("event", "gatewayd_dns_total")}},
	{title: "Neighbours by IPv6", what: "What the gateway heard of clients' addresses, and did, a second.", unit: "pps",
		all: []query{each("event", "gatewayd_neighbours_total")}},
	{title: "Repairs", what: "What others removed or switched off. Anything but 0 needs a look at the log.",
		all: []query{{"sum by (event) (increase(" + of("gatewayd_repairs_total") + "[1h]))", "{{event}}"}}},
}}
