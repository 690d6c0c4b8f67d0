package config

import (
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

// withRADIUS is minimal with a RADIUS server, of eight lines.
var withRADIUS = strings.Replace(minimal, `"click-through"`, `"radius"`, 1) + `radius.primary.address = "192.0.2.10"
radius.primary.secret = "s3cret"
`

// problem is a file and the expected errors.
type problem struct {
	name, text string
	want       []string // every line of the error, in order
}

// mistakes are single wrong keys.
var mistakes = []problem{
	{"unknown key", minimal + "portal.tittle = \"x\"\n",
		[]string{`x.toml:6: portal.tittle: unknown key; did you mean "portal.title"?`}},
	{"unknown key without neighbour", minimal + "colour = 3\n",
		[]string{`x.toml:6: colour: unknown key`}},
	{"key in no table", minimal + "upstreams = []\n",
		[]string{`x.toml:6: upstreams: unknown key; did you mean "dns.upstreams"?`}},
	{"key of several tables", minimal + "interface = \"x\"\n",
		[]string{`x.toml:6: interface: unknown key`}},
	{"unknown table once", minimal + "[metric]\nlisten = \"127.0.0.1:1\"\nx = 1\n",
		[]string{`x.toml:6: metric: unknown key; did you mean "metrics"?`}},
	{"table that is none", minimal + "limits = 3\n",
		[]string{`x.toml:6: limits: must be a table: [limits]`}},
	{"key that is a table", minimal + "[portal.port]\nx = 1\n",
		[]string{`x.toml:6: portal.port: must be a whole number from 1 to 65535, not a table`}},
	{"inline table", minimal + "limits = { up_rat = \"1M\" }\n",
		[]string{`x.toml:6: limits.up_rat: unknown key; did you mean "limits.up_rate"?`}},
	{"all of them, by line", minimal + "log_level = \"loud\"\nportal.port = 0\nfoo = 1\nmetrics.listen = \"0.0.0.0:9464\"\n",
		[]string{
			`x.toml:6: log_level: must be "debug" or "info" or "warn" or "error", not "loud"`,
			`x.toml:7: portal.port: must be a whole number from 1 to 65535, not 0`,
			`x.toml:8: foo: unknown key`,
			`x.toml:9: metrics.listen: must be an address and a port such as "127.0.0.1:9464", not "0.0.0.0:9464"; "0.0.0.0" would be open to clients`}},
	{"nothing set", "",
		[]string{
			`x.toml:1: lan.interface: missing: gatewayd needs it`,
			`x.toml:1: lan.address: missing: gatewayd needs it`,
			`x.toml:1: wan.interface: missing: gatewayd needs it`,
			`x.toml:1: dns.upstreams: missing: the resolvers that clients' questions go to, such as ["192.0.2.53"], or dns.mode = "external"`,
			`x.toml:1: auth.methods: missing: how clients log in, such as ["users"], or portal.enabled = false`}},
	{"missing in its table", "wan.interface = \"w\"\ndns.mode = \"external\"\nportal.enabled = false\n[lan]\ninterface = \"l\"\n",
		[]string{`x.toml:4: lan.address: missing: gatewayd needs it`}},
	{"syntax", minimal + "log_level = \n",
		[]string{`x.toml:6: log_level: expected value but found '\n' instead`}},
	{"key twice", minimal + "lan.address = \"10.2.0.1/16\"\n",
		[]string{`x.toml:6: lan.address: Key 'lan.address' has already been defined.`}},
	{"one message for one mistake", strings.Replace(minimal, "10.1.0.1/16", "10.1.0.0/16", 1) + "dhcp.pools = [\"10.9.0.1-10.9.0.2\"]\n",
		[]string{`x.toml:2: lan.address: must be a host's address, and 10.1.0.0 is the 10.1.0.0/16 itself: use 10.1.0.1/16`}},
	{"no CIDR", strings.Replace(minimal, "10.1.0.1/16", "10.1.0.1", 1),
		[]string{`x.toml:2: lan.address: must be the gateway's IPv4 address with the LAN's length, such as "10.1.0.1/16", /14 to /29, not "10.1.0.1"`}},
	{"a LAN that is too large", strings.Replace(minimal, "10.1.0.1/16", "10.1.0.1/13", 1),
		[]string{`x.toml:2: lan.address: must be the gateway's IPv4 address with the LAN's length, such as "10.1.0.1/16", /14 to /29, not "10.1.0.1/13"`}},
	{"one interface", strings.Replace(minimal, "wan0", "lan0", 1),
		[]string{`x.toml:3: wan.interface: "lan0" is the LAN's too: clients need an interface of their own`}},
	{"long run_dir", minimal + "run_dir = \"/run/" + strings.Repeat("x", 100) + "\"\n",
		[]string{`x.toml:6: run_dir: is too long for a socket's path: at most 94 bytes`}},
	{"relative state_dir", minimal + "state_dir = \"state\"\n",
		[]string{`x.toml:6: state_dir: must be an absolute path, not "state"`}},
}

func TestProblemsNameFileLineAndKey(t *testing.T) {
	for _, tt := range mistakes {
		t.Run(tt.name, func(t *testing.T) { wantProblems(t, tt.text, tt.want) })
	}
}

// contradictions are wrong combinations.
var contradictions = []problem{
	{"pools", minimal + "dhcp.pools = [\"10.2.0.5-10.2.0.9\", \"10.1.0.1-10.1.0.20\",\n\"10.1.0.10-10.1.0.30\", \"10.1.255.0-10.1.255.255\"]\n",
		[]string{
			`x.toml:6: dhcp.pools: 10.2.0.5-10.2.0.9: 10.2.0.5 is not in the LAN, 10.1.0.0/16`,
			`x.toml:6: dhcp.pools: 10.2.0.5-10.2.0.9: 10.2.0.9 is not in the LAN, 10.1.0.0/16`,
			`x.toml:6: dhcp.pools: 10.1.0.1-10.1.0.20 has the gateway's own address 10.1.0.1 in it: let it end before, and another begin after`,
			`x.toml:6: dhcp.pools: 10.1.0.1-10.1.0.20 and 10.1.0.10-10.1.0.30 overlap`,
			`x.toml:6: dhcp.pools: 10.1.255.0-10.1.255.255: 10.1.255.255 is the LAN's broadcast address`}},
	{"a pool backwards", minimal + "dhcp.pools = [\"10.1.0.9-10.1.0.5\"]\n",
		[]string{`x.toml:6: dhcp.pools: each value must be first and last address such as "10.1.0.10-10.1.0.250", not "10.1.0.9-10.1.0.5"`}},
	{"reservations", minimal + "[dhcp.static]\n\"02:00:00:00:00:01\" = \"10.1.0.1\"\n\"02-00-00-00-00-01\" = \"10.1.0.5\"\n\"02:00:00:00:00:02\" = \"10.2.0.5\"\n\n\"02:00:00:00:00\" = \"10.1.0.6\"\n\"03:00:00:00:00:02\" = \"10.1.0.6\"\n\"02:00:00:00:00:03\" = \"10.2.0.5\"\n",
		[]string{
			`x.toml:7: dhcp.static."02:00:00:00:00:01": 10.1.0.1 is the gateway's own address`,
			`x.toml:8: dhcp.static.02-00-00-00-00-01: has 10.1.0.1 already, written in another way`,
			`x.toml:9: dhcp.static."02:00:00:00:00:02": 10.2.0.5 is not in the LAN, 10.1.0.0/16`,
			`x.toml:11: dhcp.static."02:00:00:00:00": must be a MAC address such as "02:00:5e:10:00:01", not "02:00:00:00:00"`,
			`x.toml:12: dhcp.static."03:00:00:00:00:02": is a group address: no client has it`,
			`x.toml:13: dhcp.static."02:00:00:00:00:03": 10.2.0.5 is already reserved for 02:00:00:00:00:02`}},
	{"options", minimal + "[dhcp.options]\n51 = \"x\"\n042 = \"x\"\n255 = \"x\"\n42 = [\"x\"]\n43 = \"0xzz\"\n44 = \"\"\n45 = 3\n",
		[]string{
			`x.toml:7: dhcp.options.51: is set by gatewayd itself, from dhcp.lease`,
			`x.toml:8: dhcp.options.042: must be an option's number from 1 to 254, not "042"`,
			`x.toml:9: dhcp.options.255: must be an option's number from 1 to 254, not "255"`,
			`x.toml:10: dhcp.options.42: must be text, a list of IPv4 addresses, or bytes such as "0x0a0b", 1 to 255 bytes, not a list`,
			`x.toml:11: dhcp.options.43: must be text, a list of IPv4 addresses, or bytes such as "0x0a0b", 1 to 255 bytes, not "0xzz"`,
			`x.toml:12: dhcp.options.44: must be text, a list of IPv4 addresses, or bytes such as "0x0a0b", 1 to 255 bytes, not ""`,
			`x.toml:13: dhcp.options.45: must be text, a list of IPv4 addresses, or bytes such as "0x0a0b", 1 to 255 bytes, not 3`}},
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
	{"TUN with keys of others", minimal + "[datapath]\nkind = \"tun\"\nfast = true\ndevice = \"wan0\"\nforward = \"auto\"\npin_dir = \"/x\"\n[dhcp]\nmode = \"external\"\n",
		[]string{
			`x.toml:9: datapath.device: "wan0" is an interface that is there already: gatewayd makes its own`,
			`x.toml:10: datapath.forward: has no effect: datapath.kind is "tun"`,
			`x.toml:13: dhcp.mode: "external" is not possible with datapath.kind = "tun": no other program hears the LAN's clients`}},
	{"NFQUEUE with keys of others", minimal + "dhcp.mode = \"external\"\n[datapath]\nkind = \"nfqueue\"\nfast = true\ndevice = \"tun1\"\nforward = \"stack\"\n",
		[]string{
			`x.toml:10: datapath.device: has no effect: datapath.kind is "nfqueue"`,
			`x.toml:11: datapath.forward: has no effect: datapath.kind is "nfqueue"`}},
	{"unknown data path", minimal + "datapath.kind = \"xdp\"\ndatapath.device = \"a/b\"\n",
		[]string{
			`x.toml:6: datapath.kind: must be "ebpf" or "tun" or "nfqueue", not "xdp"`,
			`x.toml:7: datapath.device: must be an interface's name such as "eth1", at most 15 characters, not "a/b"`}},
	{"resolver out of reach", minimal + "dhcp.dns = [\"10.1.0.1\", \"192.0.2.53\", \"198.51.100.7\"]\ngarden.prefixes = [\"198.51.100.0/24\"]\n",
		[]string{`x.toml:6: dhcp.dns: clients could not ask 192.0.2.53 before they log in: use 10.1.0.1, or put it into garden.prefixes`}},
	{"external DNS", strings.Replace(minimal, "dns.upstreams", "#", 1) + "dns.mode = \"external\"\ndns.answer_aaaa = true\ngarden.domains = [\"example.org\"]\n",
		[]string{
			`x.toml:7: dns.answer_aaaa: has no effect: dns.mode is "external"`,
			`x.toml:8: garden.domains: need gatewayd's own DNS, which learns their addresses: set dns.mode = "server", or use garden.prefixes`}},
	{"upstream is the gateway", strings.Replace(minimal, "192.0.2.53", "10.1.0.1", 1),
		[]string{`x.toml:4: dns.upstreams: 10.1.0.1:53 is gatewayd itself: name the resolvers beyond it`}},
	{"garden", minimal + "garden.domains = [\"*\", \"*.org\", \"10.1.2.3\", \"a..b\"]\ngarden.prefixes = [\"10.0.0.0/8\", \"0.0.0.0/0\"]\n",
		[]string{
			`x.toml:6: garden.domains: each value must be a domain such as "example.org", or "*.example.org" for all below it, not "*"; ` +
				`each value must be a domain such as "example.org", or "*.example.org" for all below it, not "*.org"; ` +
				`each value must be a domain such as "example.org", or "*.example.org" for all below it, not "10.1.2.3"; ` +
				`each value must be a domain such as "example.org", or "*.example.org" for all below it, not "a..b"`,
			`x.toml:7: garden.prefixes: each value must be an IPv4 network such as "192.0.2.0/24", /8 or longer, or an address, not "0.0.0.0/0"`}},
	{"garden over the LAN", minimal + "garden.prefixes = [\"10.0.0.0/8\"]\n",
		[]string{`x.toml:6: garden.prefixes: 10.0.0.0/8 overlaps the LAN, 10.1.0.0/16: clients reach each other without the gateway`}},
	{"ports", minimal + "portal.port = 53\nportal.tls_port = 53\nportal.tls_cert = \"c\"\nportal.tls_key = \"k\"\nportal.name = \"login.example.org\"\nmetrics.listen = \"10.1.0.1:53\"\n",
		[]string{
			`x.toml:6: portal.port: 53 belongs to the DNS`,
			`x.toml:7: portal.tls_port: 53 is portal.port too`,
			`x.toml:7: portal.tls_port: 53 belongs to the DNS`,
			`x.toml:11: metrics.listen: 10.1.0.1 is in the LAN, where clients would read it: take 127.0.0.1`}},
	{"half a certificate", minimal + "portal.tls_key = \"k\"\n",
		[]string{`x.toml:6: portal.tls_cert: missing: portal.tls_key is set`}},
	{"certificate without a name", minimal + "portal.tls_key = \"k\"\nportal.tls_cert = \"c\"\n",
		[]string{`x.toml:6: portal.name: missing: browsers hold the certificate against it`}},
	{"port without TLS", minimal + "portal.tls_port = 443\n",
		[]string{`x.toml:6: portal.tls_port: has no effect: there is no portal.tls_cert`}},
	{"click-through and no portal", minimal + "portal.enabled = false\nportal.title = \"x\"\n",
		[]string{
			`x.toml:5: auth.methods: need the portal, where clients log in, and portal.enabled is false`,
			`x.toml:7: portal.title: has no effect: portal.enabled is false`}},
	{"users without a file", strings.Replace(minimal, "click-through", "users", 1) + "portal.terms = \"x\"\n",
		[]string{
			`x.toml:1: users.file: missing: "users" is in auth.methods`,
			`x.toml:6: portal.terms: has no effect: "click-through" is not in auth.methods`}},
	{"a file without users", minimal + "users.file = \"u\"\n",
		[]string{`x.toml:6: users.file: has no effect: "users" is not in auth.methods`}},
	{"a way to log in twice", strings.Replace(minimal, `"click-through"`, `"users", "users", "user"`, 1),
		[]string{`x.toml:5: auth.methods: "users" is listed twice; each value must be "radius" or "users" or "click-through", not "user"; did you mean "users"?`}},
}

func TestImpossibleCombinations(t *testing.T) {
	for _, tt := range contradictions {
		t.Run(tt.name, func(t *testing.T) { wantProblems(t, tt.text, tt.want) })
	}
}

func TestRADIUSProblems(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		want       []string
	}{
		{"without a server", strings.Replace(minimal, "click-through", "radius", 1),
			[]string{`x.toml:1: radius.primary.address: missing: "radius" is in auth.methods`}},
		{"without a secret", strings.Replace(withRADIUS, "radius.primary.secret", "#", 1),
			[]string{`x.toml:6: radius.primary.secret: missing: give it, or secret_file`}},
		{"two secrets", withRADIUS + "radius.primary.secret_file = \"f\"\n",
			[]string{`x.toml:7: radius.primary.secret: contradicts secret_file: give one of them`}},
		{"the secret is not shown", strings.Replace(withRADIUS, `"s3cret"`, `["s3cret"]`, 1),
			[]string{`x.toml:7: radius.primary.secret: must be one line of text, 1 to 253 bytes`}},
		{"half a second server", withRADIUS + "[radius.secondary]\nsecret = \"x\"\n",
			[]string{`x.toml:8: radius.secondary.address: missing: other keys of the server are set`}},
		{"the same server twice", withRADIUS + "[radius.secondary]\nsecret = \"x\"\naddress = \"192.0.2.10:1812\"\n",
			[]string{`x.toml:10: radius.secondary.address: 192.0.2.10:1812 is the primary server too: a second one must be another`}},
		{"accounting off", withRADIUS + "radius.accounting = false\nradius.primary.acct_address = \"192.0.2.11\"\n",
			[]string{`x.toml:9: radius.primary.acct_address: has no effect: radius.accounting is false`}},
		{"no port left", strings.Replace(withRADIUS, "192.0.2.10", "192.0.2.10:65535", 1),
			[]string{`x.toml:6: radius.primary.acct_address: missing: there is no port after 65535`}},
		{"interim too often", withRADIUS + "radius.interim = \"30s\"\n",
			[]string{`x.toml:8: radius.interim: must be a duration such as "90s", "15m" or "24h", from 1m to 24h, not "30s"`}},
		{"not used", minimal + "[radius]\nmethod = \"chap\"\n[radius.primary]\naddress = \"192.0.2.10\"\n",
			[]string{
				`x.toml:7: radius.method: has no effect: "radius" is not in auth.methods`,
				`x.toml:9: radius.primary.address: has no effect: "radius" is not in auth.methods`}},
	} {
		t.Run(tt.name, func(t *testing.T) { wantProblems(t, tt.text, tt.want) })
	}
}

func wantProblems(t *testing.T, text string, want []string) {
	t.Helper()
	_, err := Parse("x.toml", []byte(text))
	if err == nil {
		t.Fatal("accepted")
	}
	if got, want := err.Error(), strings.Join(want, "\n"); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}
