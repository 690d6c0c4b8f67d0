package config

import (
	"slices"
	"strings"
	"testing"
)

// minimal is a good file of five lines.
const minimal = `lan.interface = "lan0"
lan.address = "10.1.0.1/16"
wan.interface = "wan0"
dns.upstreams = ["192.0.2.53"]
auth.methods = ["click-through"]
`

// withRADIUS is minimal with a RADIUS server, of seven lines.
var withRADIUS = strings.Replace(minimal, `"click-through"`, `"radius"`, 1) + `radius.primary.address = "192.0.2.10"
radius.primary.secret = "s3cret"
`

// problem is a configuration file with mistakes, and the errors that it must cause.
type problem struct {
	name, text string
	want       []string // every line of the error, in order: words of it, as says has them
}

// wrongKeys are single wrong keys.
var wrongKeys = []problem{
	{"unknown key", minimal + "portal.tittle = \"x\"\n",
		[]string{`x.toml:6: portal.tittle: unknown key; did you mean "portal.title"?`}},
	{"byte order mark", "\ufeff" + minimal + "[colours]\na = 1\n", []string{`x.toml:6: colours: unknown key`}},
	{"unknown key without neighbour", minimal + "colour = 3\n", []string{`x.toml:6: colour: unknown key`}},
	{"key in no table", minimal + "upstreams = []\n",
		[]string{`x.toml:6: upstreams: unknown key; did you mean "dns.upstreams"?`}},
	{"key of several tables", minimal + "interface = \"x\"\n", []string{`x.toml:6: interface: unknown key`}},
	{"unknown table once", minimal + "[metric]\nlisten = \"127.0.0.1:1\"\nx = 1\n",
		[]string{`x.toml:6: metric: unknown key; did you mean "metrics"?`}},
	{"table that is none", minimal + "limits = 3\n", []string{`x.toml:6: limits: must be a table: [limits]`}},
	{"key that is a table", minimal + "[portal.port]\nx = 1\n",
		[]string{`x.toml:6: portal.port: must be a … 1 … 65535 …`}},
	{"inline table", minimal + "limits = { up_rat = \"1M\" }\n",
		[]string{`x.toml:6: limits.up_rat: unknown key; did you mean "limits.up_rate"?`}},
	{"IPv6 of PPPoE clients without networks of their own",
		minimal + "lan.address6 = \"2001:db8::1/64\"\ndhcp.pools = [\"10.1.1.0-10.1.2.255\"]\n[pppoe]\nenabled = true\n" +
			"pools = [\"10.1.3.0-10.1.3.255\"]\nipv6 = true\n",
		[]string{`x.toml:5: auth.methods: PPPoE clients …`,
			`x.toml:11: pppoe.ipv6: needs lan.address6, and lan.client_prefixes …`}},
	{"IPv6 network of another length", minimal + "lan.address6 = \"2001:db8::1/56\"\n",
		[]string{`x.toml:6: lan.address6: must be a network of /64, not /56 …`}},
	{"IPv6 network as address", minimal + "lan.address6 = \"2001:db8::/64\"\n",
		[]string{`x.toml:6: lan.address6: must be a host … 2001:db8:: … 2001:db8::1/64`}},
	{"IPv4 as IPv6", minimal + "lan.address6 = \"10.1.0.1/16\"\n",
		[]string{`x.toml:6: lan.address6: must be … IPv6 … "2001:db8:1::1/64" … "10.1.0.1/16"`}},
	{"IPv6 where it is not", minimal + "lan.address6 = \"2001:db8::1/64\"\ndatapath.kind = \"nfqueue\"\n",
		[]string{`x.toml:6: lan.address6: … "nfqueue" … ebpf, kernel`}},
	{"a /64 for each client of a /64",
		minimal + "lan.address6 = \"2001:db8::1/64\"\nlan.client_prefixes = \"2001:db8:1::/64\"\n",
		[]string{`x.toml:7: lan.client_prefixes: … /32 to /63 … "2001:db8:1::/64"`}},
	{"clients' prefixes around the gateway's",
		minimal + "lan.address6 = \"2001:db8::1/64\"\nlan.client_prefixes = \"2001:db8::/48\"\n",
		[]string{`x.toml:7: lan.client_prefixes: contains lan.address6 …`}},
	{"clients' prefixes of nobody",
		minimal + "lan.address6 = \"2001:db8::1/64\"\nlan.client_prefixes = \"delegated\"\n",
		[]string{`x.toml:7: lan.client_prefixes: … wan.delegation = true`}},
	{"clients' prefixes and leased addresses",
		minimal + "lan.address6 = \"2001:db8::1/64\"\nlan.client_prefixes = \"2001:db8:1::/48\"\n" +
			"dhcp6.mode = \"stateful\"\n",
		[]string{`x.toml:8: dhcp6.mode: … "stateful" … lan.client_prefixes …`}},
	{"inbound without IPv6", minimal + "lan.inbound6 = [\"::/0\"]\n",
		[]string{`x.toml:6: lan.inbound6: has no effect … lan.address6`}},
	{"without IPv4 and IPv6", minimal + "lan.nat64 = \"64:ff9b::/96\"\ndhcp.ipv6_only = \"30m\"\n",
		[]string{
			`x.toml:6: lan.nat64: has no effect … lan.address6`, `x.toml:7: dhcp.ipv6_only: has no effect … lan.address6`}},
	{"NAT64", minimal + "lan.address6 = \"2001:db8::1/64\"\nlan.nat64 = \"64:ff9b::/80\"\ndhcp.ipv6_only = \"1m\"\n",
		[]string{
			`x.toml:7: lan.nat64: … NAT64 … "64:ff9b::/80"`, `x.toml:8: dhcp.ipv6_only: … 5m … "1m"`}},
	{"ND proxy without IPv6", minimal + "lan.nd_proxy = \"all\"\n",
		[]string{`x.toml:6: lan.nd_proxy: has no effect … lan.address6`}},
	{"another ND proxy", minimal + "lan.address6 = \"2001:db8::1/64\"\nlan.nd_proxy = \"on\"\n",
		[]string{`x.toml:7: lan.nd_proxy: must be "off" … "dad" … "all" … "on"`}},
	{"DHCPv6 without IPv6", minimal + "dhcp6.mode = \"stateful\"\n",
		[]string{`x.toml:6: dhcp6.mode: has no effect … lan.address6`}},
	{"inbound from a host within a network",
		minimal + "lan.address6 = \"2001:db8::1/64\"\nlan.inbound6 = [\"2001:db8:7::1/48\"]\n",
		[]string{`x.toml:7: lan.inbound6: … IPv6 network … "2001:db8:7::1/48"`}},
	{"all of them, by line",
		minimal + "log_level = \"loud\"\nportal.port = 0\nfoo = 1\nmetrics.listen = \"0.0.0.0:9464\"\n",
		[]string{
			`x.toml:6: log_level: must be "debug" … "info" … "warn" … "error" … "loud"`,
			`x.toml:7: portal.port: must be a … 1 … 65535 … 0`,
			`x.toml:8: foo: unknown key`,
			`x.toml:9: metrics.listen: must be an … "127.0.0.1:9464" … "0.0.0.0:9464" "0.0.0.0" …`}},
	{"nothing set", "",
		[]string{
			`x.toml:1: lan.interface: missing: gatewayd needs it`,
			`x.toml:1: lan.address: missing: gatewayd needs it`,
			`x.toml:1: wan.interface: missing: gatewayd needs it`,
			`x.toml:1: dns.upstreams: missing: the resolvers … ["192.0.2.53"] … dns.mode … "external"`,
			`x.toml:1: auth.methods: missing: how clients … ["users"] … portal.enabled …`}},
	{"missing in its table",
		"wan.interface = \"w\"\ndns.mode = \"external\"\nportal.enabled = false\n[lan]\ninterface = \"l\"\n",
		[]string{`x.toml:4: lan.address: missing: gatewayd needs it`}},
	{"syntax", minimal + "log_level = \n",
		[]string{`x.toml:6: log_level: expected value but found '\n' instead: … in quotes: log_level = "…"`}},
	{"an open bracket", minimal + "[dhcp\nlease = \"2h\"\n",
		[]string{`x.toml:6: … close the bracket: [dhcp]`}},
	{"an open bracket at the end", minimal + "[dhcp",
		[]string{`x.toml:6: … close the bracket: [dhcp]`}},
	{"no quotes", minimal + "radius.primary.secret = s3cret\n",
		[]string{`x.toml:6: radius.primary.secret: … in quotes: radius.primary.secret = "…"`}},
	{"no quotes around a unit", minimal + "dhcp.lease = 2h\n",
		[]string{`x.toml:6: dhcp.lease: … in quotes: dhcp.lease = "…"`}},
	{"an array that is not closed", "[auth]\nmethods = [\"users\"\n[users]\nfile = \"users\"\n",
		[]string{`x.toml:2: auth.methods: the array that begins here is not closed … before line 3: expected a comma …`}},
	{"an array that is not closed, after a comma",
		minimal + "\ngarden.domains = [\n  \"a.example\",\n\n[users]\nfile = \"users\"\n",
		[]string{`x.toml:7: garden.domains: the array that begins here … before line 10: …`}},
	{"an array that is not closed at the end", minimal + "garden.domains = [\n  \"a.example\",\n",
		[]string{`x.toml:6: garden.domains: the array that begins here … before line 7: …`}},
	{"an array without a comma", minimal + "garden.domains = [\n  \"a.example\"\n  \"b.example\"\n]\n",
		[]string{`x.toml:6: garden.domains: the array … lacks a comma, before line 8: …`}},
	{"a table that is not closed", minimal + "limits = { up_rate = \"1M\"\nlog_level = \"info\"\n",
		[]string{`x.toml:6: limits.up_rate: the table that begins here … before line 7: …`}},
	{"a text that is not closed", minimal + "portal.terms = \"\"\"x\nlog_level = \"info\"\n",
		[]string{`x.toml:6: portal.terms: the text that begins here … before line 7: …`}},
	{"no line of TOML", minimal + "dhcp on\n",
		[]string{`x.toml:6: … key = value; gatewayd example-config …`}},
	{"key twice", minimal + "lan.address = \"10.2.0.1/16\"\n",
		[]string{`x.toml:6: lan.address: is on line 2 already: delete one of the two`}},
	{"one message for one mistake",
		strings.Replace(minimal, "10.1.0.1/16", "10.1.0.0/16", 1) + "dhcp.pools = [\"10.9.0.1-10.9.0.2\"]\n",
		[]string{`x.toml:2: lan.address: must be a … 10.1.0.0 … 10.1.0.0/16 … 10.1.0.1/16`}},
	{"no CIDR", strings.Replace(minimal, "10.1.0.1/16", "10.1.0.1", 1),
		[]string{`x.toml:2: lan.address: must be the … IPv4 … "10.1.0.1/16" /14 … /29 … "10.1.0.1"`}},
	{"a LAN that is too large", strings.Replace(minimal, "10.1.0.1/16", "10.1.0.1/13", 1),
		[]string{`x.toml:2: lan.address: must be the … IPv4 … "10.1.0.1/16" /14 … /29 … "10.1.0.1/13"`}},
	{"one interface", strings.Replace(minimal, "wan0", "lan0", 1),
		[]string{`x.toml:3: wan.interface: "lan0" is the …`}},
	{"long run_dir", minimal + "run_dir = \"/run/" + strings.Repeat("x", 100) + "\"\n",
		[]string{`x.toml:6: run_dir: is too long … 94 …`}},
	{"relative state_dir", minimal + "state_dir = \"state\"\n",
		[]string{`x.toml:6: state_dir: must be an absolute path, not "state"`}},
}

func TestProblemsNameFileLineAndKey(t *testing.T) {
	for _, tt := range slices.Concat(wrongKeys, wrongLANs) {
		t.Run(tt.name, func(t *testing.T) { wantProblems(t, tt.text, tt.want) })
	}
}

// translations are mistakes of [nat].
var translations = []problem{
	{"nothing to translate with",
		minimal + "[nat]\nports_per_client = 64\nhairpin = false\n[[nat.forward]]\nproto = \"tcp\"\n",
		[]string{
			`x.toml:7: nat.ports_per_client: has no effect: … nat.masquerade … nat.source …`,
			`x.toml:8: nat.hairpin: has no effect: …`,
			`x.toml:9: nat.forward: has no effect: …`}},
	{"both ways", minimal + "nat.masquerade = true\nnat.source = [\"203.0.113.7\"]\n",
		[]string{`x.toml:7: nat.source: contradicts nat.masquerade …`}},
	{"sources", minimal +
		"[nat]\nsource = [\"203.0.113.7-203.0.113.9\", \"10.1.0.7\",\n\"203.0.113.9\", \"203.0.113.20\"]\n",
		[]string{
			`x.toml:7: nat.source: 10.1.0.7 is in the LAN, 10.1.0.0/16: give addresses of wan0`,
			`x.toml:7: nat.source: 203.0.113.7 does not follow 10.1.0.7: …`,
			`x.toml:7: nat.source: 203.0.113.7-203.0.113.9 and 203.0.113.9 overlap`,
			`x.toml:7: nat.source: 203.0.113.20 does not follow 203.0.113.9: without nat.ports_per_client …`}},
	{"no address", minimal + "nat.source = [\"203.0.113.9-203.0.113.7\", \"224.0.0.1\"]\n",
		[]string{`x.toml:6: nat.source: each value must be … "203.0.113.7" … each value must be … "224.0.0.1"`}},
	{"too few ports",
		minimal + "nat.masquerade = true\nnat.ports_per_client = 64\ndhcp.pools = [\"10.1.1.0-10.1.7.255\"]\n",
		[]string{`x.toml:7: nat.ports_per_client: 1792 clients with 64 ports each … 64512 ports from 1024 on of 1 outside … 1008 clients: at most 36 fit, … (dhcp.pools), or nat.source …`}},
	{"too few ports of several addresses", minimal +
		"nat.source = [\"203.0.113.7\", \"203.0.113.9\"]\nnat.ports_per_client = 1000\ndhcp.pools = " +
		"[\"10.1.1.0-10.1.1.128\"]\n",
		[]string{`x.toml:7: nat.ports_per_client: 129 clients … 2 outside … 128 clients: at most 992 fit, … more addresses`}},
	{"no room for exceptions", minimal + "nat.masquerade = true\nnat.except = [\"10.0.0.0/8\"]\n",
		[]string{`x.toml:7: nat.except: 10.0.0.0/8 overlaps the LAN, …`}},
	{"who may come in", minimal + "nat.masquerade = true\nnat.inbound = [\"0.0.0.0/0\", \"0.0.0.0/1\"]\n",
		[]string{`x.toml:7: nat.inbound: … "0.0.0.0/1" is a large … "0.0.0.0/0" is everybody`}},
	{"forwards", minimal + `[nat]
masquerade = true
[[nat.forward]]
proto = "tcp"
ports = 80
to = "10.2.0.5:8080"
[[nat.forward]]
proto = "tcp"
ports = "70-90"
to = "10.1.0.5:80"

[[nat.forward]]
proto = "udp"
ports = 80
to = "10.1.0.1"
[[nat.forward]]
ports = 81
[[nat.forward]]
proto = "icmp"
port = 8
to = "10.1.0.6"
`, []string{
		`x.toml:11: nat.forward.to: 10.2.0.5 is not in the LAN, 10.1.0.0/16: forward to a client`,
		`x.toml:14: nat.forward.ports: 70-90 overlaps tcp/80 of line 10: …`,
		`x.toml:15: nat.forward.to: several ports keep … use "10.1.0.5" …`,
		`x.toml:20: nat.forward.to: 10.1.0.1 is the gateway's own address: …`,
		`x.toml:21: nat.forward.to: missing: …`,
		`x.toml:23: nat.forward.ports: missing: …`,
		`x.toml:24: nat.forward.proto: must be "tcp" or "udp", not "icmp" …`,
		`x.toml:25: nat.forward.port: unknown key; did you mean "nat.forward.ports"?`}},
	{"forwards of others' ports", minimal + `[nat]
source = ["203.0.113.7", "203.0.113.9"]
ports_per_client = 20000
[dhcp]
pools = ["10.1.0.10-10.1.0.14"]
[[nat.forward]]
proto = "tcp"
ports = 22
to = "10.1.0.10"
[[nat.forward]]
proto = "tcp"
ports = 8022
to = "10.1.0.10:22"
[[nat.forward]]
proto = "udp"
ports = "1024-21023"
to = "10.1.0.13"
[[nat.forward]]
proto = "tcp"
ports = 21024
to = "10.1.0.13:22"
[[nat.forward]]
proto = "udp"
ports = "61024-61030"
to = "10.1.0.99"
[[nat.forward]]
proto = "udp"
ports = "61020-61024"
to = "10.1.0.99"
[[nat.forward]]
proto = "udp"
ports = "1000-1024"
to = "10.1.0.10"
[[nat.forward]]
proto = "tcp"
ports = "65024-65535"
to = "10.1.0.12"
`, []string{
		`x.toml:25: nat.forward.ports: 21024 would name the client 10.1.0.11, … below 1024, or those of 10.1.0.13, 1024 to 21023`,
		`x.toml:33: nat.forward.ports: 61020-61024 would name the client 10.1.0.12, …`,
		`x.toml:33: nat.forward.ports: 61020-61024 overlaps …`,
		`x.toml:37: nat.forward.ports: 1000-1024 would name the client 10.1.0.13, …`,
		`x.toml:37: nat.forward.ports: 1000-1024 overlaps …`}},
	{"a forward that is no table", minimal + "[nat]\nmasquerade = true\nforward = 3\n",
		[]string{`x.toml:8: nat.forward: must be … [[nat.forward]]`}},
	{"one forward in single brackets", minimal + "[nat]\nmasquerade = true\n[nat.forward]\nproto = \"tcp\"\n",
		[]string{`x.toml:9: nat.forward.proto: must be in … [[nat.forward]]`}},
	{"a table twice", minimal + "[[nat]]\nmasquerade = true\n",
		[]string{`x.toml:6: nat: must be a table: [nat]`}},
	{"ports", minimal + "[nat]\nmasquerade = true\n[[nat.forward]]\nproto = \"tcp\"\nports = \"90-80\"\nto = \"a\"\n",
		[]string{
			`x.toml:10: nat.forward.ports: must be a port … 8080, … "8000-8010", not "90-80"`,
			`x.toml:11: nat.forward.to: must be a client's address, … not "a"`}},
	{"past the translation", minimal +
		"nat.masquerade = true\ndatapath.forward = \"redirect\"\nident.enabled = true\n[[nat.forward]]\nproto = " +
		"\"tcp\"\nports = \"100-200\"\nto = \"10.1.0.5\"\n",
		[]string{
			`x.toml:7: datapath.forward: redirected … "auto"`,
			`x.toml:8: ident.method: is "nat" unless set, … "masquerade"`,
			`x.toml:11: nat.forward.ports: 113 is where gatewayd answers (ident.enabled)`}},
}

// contradictions are wrong combinations.
var contradictions = []problem{
	{"pools", minimal +
		"dhcp.pools = [\"10.2.0.5-10.2.0.9\", \"10.1.0.1-10.1.0.20\",\n\"10.1.0.10-10.1.0.30\", " +
		"\"10.1.255.0-10.1.255.255\"]\n",
		[]string{
			`x.toml:6: dhcp.pools: 10.2.0.5-10.2.0.9: 10.2.0.5 is … 10.1.0.0/16`,
			`x.toml:6: dhcp.pools: 10.2.0.5-10.2.0.9: 10.2.0.9 is … 10.1.0.0/16`,
			`x.toml:6: dhcp.pools: 10.1.0.1-10.1.0.20 has the … 10.1.0.1 …`,
			`x.toml:6: dhcp.pools: 10.1.0.1-10.1.0.20 and 10.1.0.10-10.1.0.30 overlap`,
			`x.toml:6: dhcp.pools: 10.1.255.0-10.1.255.255: 10.1.255.255 is the LAN's broadcast address`}},
	{"a pool backwards", minimal + "dhcp.pools = [\"10.1.0.9-10.1.0.5\"]\n",
		[]string{`x.toml:6: dhcp.pools: each value must … "10.1.0.10-10.1.0.250" … "10.1.0.9-10.1.0.5"`}},
	{"reservations", minimal +
		"[dhcp.static]\n\"02:00:00:00:00:01\" = \"10.1.0.1\"\n\"02-00-00-00-00-01\" = \"10.1.0.5\"\n\"02:00:00:00:00:02\" " +
		"= \"10.2.0.5\"\n\n\"02:00:00:00:00\" = \"10.1.0.6\"\n\"03:00:00:00:00:02\" = \"10.1.0.6\"\n\"02:00:00:00:00:03\" " +
		"= \"10.2.0.5\"\n",
		[]string{
			`x.toml:7: dhcp.static."02:00:00:00:00:01": 10.1.0.1 is the gateway's own address`,
			`x.toml:8: dhcp.static.02-00-00-00-00-01: has 10.1.0.1 already, written in another way`,
			`x.toml:9: dhcp.static."02:00:00:00:00:02": 10.2.0.5 is not in the LAN, 10.1.0.0/16`,
			`x.toml:11: dhcp.static."02:00:00:00:00": must be a … "02:00:5e:10:00:01" … "02:00:00:00:00"`,
			`x.toml:12: dhcp.static."03:00:00:00:00:02": is a group …`,
			`x.toml:13: dhcp.static."02:00:00:00:00:03": 10.2.0.5 is already reserved for 02:00:00:00:00:02`}},
	{"options", minimal +
		"[dhcp.options]\n51 = \"x\"\n042 = \"x\"\n255 = \"x\"\n42 = [\"x\"]\n43 = \"0xzz\"\n44 = \"\"\n45 = 3\n",
		[]string{
			`x.toml:7: dhcp.options.51: is set by gatewayd itself, from dhcp.lease`,
			`x.toml:8: dhcp.options.042: must be an … 1 … 254 … "042"`,
			`x.toml:9: dhcp.options.255: must be an … 1 … 254 … "255"`,
			`x.toml:10: dhcp.options.42: must be text … IPv4 … "0x0a0b" 1 … 255 …`,
			`x.toml:11: dhcp.options.43: must be text … IPv4 … "0x0a0b" 1 … 255 … "0xzz"`,
			`x.toml:12: dhcp.options.44: must be text … IPv4 … "0x0a0b" 1 … 255 … ""`,
			`x.toml:13: dhcp.options.45: must be text … IPv4 … "0x0a0b" 1 … 255 … 3`}},
	{"lease before login", minimal + "dhcp.lease = \"5m\"\ndhcp.preauth_lease = \"10m\"\n",
		[]string{`x.toml:7: dhcp.preauth_lease: is longer than dhcp.lease, 5m`}},
	{"external DHCP", minimal + "dhcp.mode = \"external\"\ndhcp.lease = \"1h\"\ndhcp.static = {}\n",
		[]string{
			`x.toml:7: dhcp.lease: has no effect: dhcp.mode is "external"`,
			`x.toml:8: dhcp.static: has no effect: dhcp.mode is "external"`}},
	{"eBPF with keys of others", minimal + "datapath.fast = false\ndatapath.device = \"tun1\"\n",
		[]string{
			`x.toml:6: datapath.fast: has no effect: datapath.kind is "ebpf"`,
			`x.toml:7: datapath.device: has no effect: datapath.kind is "ebpf"`}},
	{"TUN with keys of others", minimal +
		"[datapath]\nkind = \"tun\"\nfast = true\ndevice = \"wan0\"\nforward = \"auto\"\nshaping = \"auto\"\npin_dir = " +
		"\"/x\"\n[dhcp]\nmode = \"external\"\n",
		[]string{
			`x.toml:9: datapath.device: "wan0" is an …`,
			`x.toml:10: datapath.forward: has no effect: datapath.kind is "tun"`,
			`x.toml:11: datapath.shaping: has no effect: datapath.kind is "tun"`,
			`x.toml:14: dhcp.mode: "external" is not … datapath.kind … "tun" …`}},
	{"NFQUEUE with keys of others", minimal +
		"dhcp.mode = \"external\"\n[datapath]\nkind = \"nfqueue\"\nfast = true\ndevice = \"tun1\"\nforward = \"stack\"\n",
		[]string{
			`x.toml:10: datapath.device: has no effect: datapath.kind is "nfqueue"`,
			`x.toml:11: datapath.forward: has no effect: datapath.kind is "nfqueue"`}},
	{"the kernel's PPPoE with what it has no part in",
		minimal + "garden.domains = [\"example.org\"]\n[datapath]\nkind = \"kernel\"\nfast = true\ndevice = \"tun1\"\n",
		[]string{
			`x.toml:1: portal.enabled: no client reaches the portal … portal.enabled = false … "ebpf"`,
			`x.toml:6: garden.domains: has no effect: datapath.kind is "kernel"`,
			`x.toml:8: datapath.kind: "kernel" carries PPPoE clients alone: set pppoe.enabled = true …`,
			`x.toml:9: datapath.fast: has no effect: datapath.kind is "kernel"`,
			`x.toml:10: datapath.device: has no effect: datapath.kind is "kernel"`}},
	{"unknown data path", minimal + "datapath.kind = \"xdp\"\ndatapath.device = \"a/b\"\n",
		[]string{
			`x.toml:6: datapath.kind: must be "ebpf" … "tun" … "nfqueue" … "kernel" … "xdp"`,
			`x.toml:7: datapath.device: must be an … "eth1" … 15 … "a/b"`}},
	{"resolver out of reach",
		minimal + "dhcp.dns = [\"10.1.0.1\", \"192.0.2.53\", \"198.51.100.7\"]\ngarden.prefixes = [\"198.51.100.0/24\"]\n",
		[]string{`x.toml:6: dhcp.dns: clients could not … 192.0.2.53 … 10.1.0.1 … garden.prefixes`}},
	{"external DNS", strings.Replace(minimal, "dns.upstreams", "#", 1) +
		"dns.mode = \"external\"\ndns.answer_aaaa = true\ngarden.domains = [\"example.org\"]\n",
		[]string{
			`x.toml:7: dns.answer_aaaa: has no effect: dns.mode is "external"`,
			`x.toml:8: garden.domains: need gatewayd's own … dns.mode … "server" … garden.prefixes`}},
	{"upstream is the gateway", strings.Replace(minimal, "192.0.2.53", "10.1.0.1", 1),
		[]string{`x.toml:4: dns.upstreams: 10.1.0.1:53 is gatewayd …`}},
	{"garden", minimal +
		"garden.domains = [\"*\", \"*.org\", \"10.1.2.3\", \"a..b\"]\ngarden.prefixes = [\"10.0.0.0/8\", \"0.0.0.0/0\"]\n",
		[]string{
			`x.toml:6: garden.domains: each value must … "example.org" … "*.example.org", … "*" is every … "*.org" is a large … "*.example.org" … "10.1.2.3" is a … garden.prefixes … "a..b" has nothing … out`,
			`x.toml:7: garden.prefixes: each value must … IPv4 … "192.0.2.0/24", /8 … "0.0.0.0/0" is a large … Internet`}},
	{"garden over the LAN", minimal + "garden.prefixes = [\"10.0.0.0/8\"]\n",
		[]string{`x.toml:6: garden.prefixes: 10.0.0.0/8 overlaps the … 10.1.0.0/16 …`}},
	{"ports", minimal +
		"portal.port = 53\nportal.tls_port = 53\nportal.tls_cert = \"c\"\nportal.tls_key = \"k\"\nportal.name = " +
		"\"login.example.org\"\nmetrics.listen = \"10.1.0.1:53\"\n",
		[]string{
			`x.toml:6: portal.port: 53 belongs to the DNS`,
			`x.toml:7: portal.tls_port: 53 is portal.port too`,
			`x.toml:7: portal.tls_port: 53 belongs to the DNS`,
			`x.toml:11: metrics.listen: 10.1.0.1 is in … 127.0.0.1`}},
	{"half a certificate", minimal + "portal.tls_key = \"k\"\n",
		[]string{`x.toml:6: portal.tls_cert: missing: portal.tls_key is set`}},
	{"certificate without a name", minimal + "portal.tls_key = \"k\"\nportal.tls_cert = \"c\"\n",
		[]string{`x.toml:6: portal.name: missing: browsers hold the certificate against it`}},
	{"port without TLS", minimal + "portal.tls_port = 443\n",
		[]string{`x.toml:6: portal.tls_port: has no effect: there is no portal.tls_cert`}},
	{"click-through and no portal", minimal + "portal.enabled = false\nportal.title = \"x\"\n",
		[]string{
			`x.toml:5: auth.methods: need the portal … portal.enabled …`,
			`x.toml:7: portal.title: has no effect: portal.enabled is false`}},
	{"users without a file", strings.Replace(minimal, "click-through", "users", 1) + "portal.terms = \"x\"\n",
		[]string{
			`x.toml:1: users.file: missing: "users" is in auth.methods`,
			`x.toml:6: portal.terms: has no effect: "click-through" … auth.methods`}},
	{"a file without users", minimal + "users.file = \"u\"\n",
		[]string{`x.toml:6: users.file: has no effect: "users" … auth.methods`}},
	{"PPPoE with what it cannot have", minimal +
		"dhcp.pools = [\"10.1.1.0-10.1.2.255\"]\n[pppoe]\nenabled = true\npools = [\"10.1.2.0-10.1.3.255\", " +
		"\"10.2.0.1-10.2.0.9\"]\nmethods = [\"chap\"]\nmtu = 1600\nresolvers = [\"192.0.2.1\", \"192.0.2.2\", " +
		"\"192.0.2.3\"]\n[datapath]\nkind = \"nfqueue\"\n",
		[]string{
			`x.toml:5: auth.methods: PPPoE clients … "radius" … "users"`,
			`x.toml:9: pppoe.pools: 10.1.2.0-10.1.3.255 overlaps 10.1.1.0-10.1.2.255 of dhcp.pools …`,
			`x.toml:9: pppoe.pools: … 10.2.0.1 is not in the LAN, 10.1.0.0/16`,
			`x.toml:9: pppoe.pools: … 10.2.0.9 is not in the LAN, 10.1.0.0/16`,
			`x.toml:10: pppoe.methods: "chap" needs "radius" …`,
			`x.toml:11: pppoe.mtu: must be … 1492 … 1500 … 1600`,
			`x.toml:12: pppoe.resolvers: 3 addresses …`,
			`x.toml:14: datapath.kind: "nfqueue" does not take … "ebpf" … "tun" or "kernel" … pppoe.enabled …`}},
	{"PPPoE without a pool",
		strings.Replace(minimal, "click-through", "users", 1) + "users.file = \"u\"\npppoe.enabled = true\n",
		[]string{`x.toml:7: pppoe.pools: missing: addresses …`}},
	{"PPPoE's pool is DHCP's too", strings.Replace(minimal, "click-through", "users", 1) +
		"users.file = \"u\"\npppoe.enabled = true\npppoe.pools = [\"10.1.2.0-10.1.3.255\"]\n",
		[]string{`x.toml:1: dhcp.pools: missing: …`}},
	{"a flow log kept for too short",
		minimal + "[flowlog]\nenabled = true\nkeep = \"1h\"\n[datapath]\nforward = \"redirect\"\n",
		[]string{`x.toml:8: flowlog.keep: must be a time such as "90d" …`}},
	{"a flow log with fast queues", minimal + "[flowlog]\nenabled = true\n[datapath]\nkind = \"nfqueue\"\nfast = true\n",
		[]string{`x.toml:7: flowlog.enabled: datapath.fast redirects …`}},
	{"a flow log with no room", minimal + "[flowlog]\nenabled = true\nmost = \"1B\"\n",
		[]string{`x.toml:8: flowlog.most: must be at least "100MB", not "1B"`}},
	{"keys of a flow log without it", minimal + "flowlog.keep = \"2d\"\nflowlog.most = \"1GB\"\nflowlog.folder = \"/x\"\n",
		[]string{
			`x.toml:6: flowlog.keep: has no effect: flowlog.enabled is not true`,
			`x.toml:7: flowlog.most: has no effect: flowlog.enabled is not true`}},
	{"empty lists", minimal + "nat.source = []\npppoe.methods = []\n",
		[]string{`x.toml:6: nat.source: is empty: …`, `x.toml:7: pppoe.methods: is empty: …`}},
	{"more lines that wait than there are", strings.Replace(minimal, "click-through", "users", 1) +
		"users.file = \"u\"\n[pppoe]\nenabled = true\npools = [\"10.1.2.0-10.1.3.255\"]\nsessions = 100\nsessions_waiting " +
		"= 101\n[dhcp]\npools = [\"10.1.1.0-10.1.1.255\"]\n",
		[]string{`x.toml:11: pppoe.sessions_waiting: 101 is more than pppoe.sessions, 100, …`}},
	{"a collector without a flow log", minimal + "flowlog.ipfix = \"192.0.2.30\"\n",
		[]string{`x.toml:6: flowlog.ipfix: has no effect: flowlog.enabled is not true`}},
	{"keys of PPPoE without it", minimal + "pppoe.mtu = 1500\n",
		[]string{`x.toml:6: pppoe.mtu: has no effect: pppoe.enabled is not true`}},
	{"two answers for a user",
		minimal + "ident.enabled = true\nident.hidden_of = [\"ann\"]\nident.token_of = [\"bob\", \"ann\", \"\"]\n",
		[]string{`x.toml:8: ident.token_of: must be a user's name … ""`}},
	{"a user in two lists",
		minimal + "ident.enabled = true\nident.hidden_of = [\"ann\"]\nident.token_of = [\"bob\", \"ann\"]\n",
		[]string{`x.toml:7: ident.hidden_of: "ann" is in ident.token_of already … one answer`}},
	{"a profile without a name, and one twice", withRADIUS +
		"[[limits.profile]]\nup_rate = \"1M\"\n[[limits.profile]]\nname = \"gold\"\n[[limits.profile]]\nname = \"gold\"\n" +
		"up_rat = \"1M\"\n",
		[]string{`x.toml:8: limits.profile.name: missing: the name by which a server gives the profile (Filter-Id)`,
			`x.toml:13: limits.profile.name: "gold" is on line 11 already`,
			`x.toml:14: limits.profile.up_rat: unknown key; did you mean "limits.profile.up_rate"?`}},
	{"profiles without RADIUS", minimal + "[[limits.profile]]\nname = \"gold\"\n",
		[]string{`x.toml:6: limits.profile: has no effect: … auth.methods does not have "radius"`}},
	{"keys of ident without it", minimal + "ident.rate = 5\n",
		[]string{`x.toml:6: ident.rate: has no effect: ident.enabled is not true`}},
	{"a way to log in twice", strings.Replace(minimal, `"click-through"`, `"users", "users", "user"`, 1),
		[]string{`x.toml:5: auth.methods: "users" is listed … "radius" … "users" … "click-through" … "user" … "users" …`}},
}

func TestImpossibleCombinations(t *testing.T) {
	for _, tt := range slices.Concat(contradictions, translations, wrongBoots, wrongRelays, wrongPools6, wrongPDPools,
		wrongPairs) {
		t.Run(tt.name, func(t *testing.T) { wantProblems(t, tt.text, tt.want) })
	}
}
