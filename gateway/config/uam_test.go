// Tests of the [uam] keys. withRADIUS is a good file of seven lines (errors_test.go).

package config

import (
	"slices"
	"strings"
	"testing"
)

// aPortal is a good [uam] table of four lines.
const aPortal = `[uam]
portal_url = "https://portal.example/login"
schemes = ["chap"]
http = true
`

// TestUAMProblems: each mistake has its message, with its line. Long: a table of mistakes.
func TestUAMProblems(t *testing.T) {
	at := func(url string) string { return strings.Replace(aPortal, "https://portal.example/login", url, 1) }
	schemes := func(list string) string { return strings.Replace(aPortal, `"chap"`, list, 1) }
	byUsers := strings.Replace(minimal, `"click-through"`, `"users"`, 1) + "users.file = \"u\"\n"
	for _, tt := range []struct {
		name, text string
		want       []string
	}{
		{"keys without a portal", withRADIUS + "[uam]\nnas_id = \"a\"\njsonp = true\n", []string{
			"x.toml:9: uam.nas_id: has no effect: there is no uam.portal_url", "x.toml:10: uam.jsonp: has no effect: …"}},
		{"without the built-in portal", withRADIUS + "portal.enabled = false\npppoe.enabled = true\n" + aPortal,
			[]string{"x.toml:11: uam.portal_url: needs the portal … portal.enabled is false"}},
		{"keys of pages", withRADIUS + "portal.title = \"a\"\n" + aPortal,
			[]string{"x.toml:8: portal.title: has no effect: clients see the pages of uam.portal_url"}},
		{"two secrets", withRADIUS + aPortal + "secret = \"a s3cret\"\nsecret_file = \"s\"\n",
			[]string{"x.toml:12: uam.secret: contradicts secret_file: …"}},
		{"vouchers", strings.Replace(withRADIUS, `"radius"`, `"radius", "voucher"`, 1) + aPortal,
			[]string{`x.toml:5: auth.methods: "voucher" has no effect: clients log in at uam.portal_url, …`}},
		{"a click, and nobody who knows users", minimal + schemes(`"plain"`) + "[portal]\nname = \"p.example\"\n" +
			"tls_cert = \"c\"\ntls_key = \"k\"\n", []string{
			`x.toml:5: auth.methods: "click-through" has no effect: …`,
			`x.toml:5: auth.methods: uam.portal_url logs clients in by name and password: add "radius" or "users"`}},
		{"a name that nobody learns", strings.Replace(withRADIUS, `dns.upstreams = ["192.0.2.53"]`,
			`dns.mode = "external"`, 1) + aPortal,
			[]string{`x.toml:9: uam.portal_url: clients reach portal.example:443 before they log in only where …`}},
		{"remembered by consent", withRADIUS + aPortal + "[devices]\nremember = \"30d\"\nconsent = true\n",
			[]string{"x.toml:14: devices.consent: has no effect: nobody is remembered, …"}},

		{"a password", withRADIUS + at("https://a:s3cret@portal.example/"),
			[]string{"x.toml:9: uam.portal_url: has a name or a password before the host: …"}},
		{"a fragment", withRADIUS + at("https://portal.example/#top"),
			[]string{`x.toml:9: uam.portal_url: has "#top" at its end: …`}},
		{"a port that is none", withRADIUS + at("https://portal.example:65536/"),
			[]string{"x.toml:9: uam.portal_url: 65536 is no port: give 1 to 65535"}},
		{"port 0", withRADIUS + at("https://portal.example:0/"), []string{"x.toml:9: uam.portal_url: 0 is no port: …"}},
		{"IPv6", withRADIUS + at("https://[2001:db8::1]/"),
			[]string{"x.toml:9: uam.portal_url: 2001:db8::1 is an IPv6 address, which the walled garden cannot have: …"}},
		{"no web address", withRADIUS + at("ftp://portal.example/"),
			[]string{`x.toml:9: uam.portal_url: must be a web address …`}},

		{"no schemes", withRADIUS + strings.Replace(aPortal, "schemes = [\"chap\"]\n", "", 1),
			[]string{`x.toml:8: uam.schemes: missing: how the portal sends passwords: …`}},
		{"two of one form", withRADIUS + schemes(`"pap", "plain"`),
			[]string{`x.toml:10: uam.schemes: "pap" and "plain" have the same form: give one of them`}},
		{"an unknown one", withRADIUS + schemes(`"chp"`), []string{`x.toml:10: uam.schemes: … did you mean "chap"?`}},
		{"CHAP with hashes", byUsers + aPortal,
			[]string{`x.toml:9: uam.schemes: "chap" needs "radius" in auth.methods: …`}},
		{"MS-CHAP with hashes", byUsers + schemes(`"pap", "mschapv2"`),
			[]string{`x.toml:9: uam.schemes: "mschapv2" needs "radius" in auth.methods: …`}},
		{"plain without https", withRADIUS + schemes(`"plain"`),
			[]string{`x.toml:10: uam.schemes: "plain" is for https: set portal.tls_cert`}},
		{"neither https nor http", withRADIUS + strings.Replace(aPortal, "http = true\n", "", 1),
			[]string{"x.toml:8: uam.http: missing: without portal.tls_cert passwords come over plain HTTP, …"}},
		{"PAP without a secret", withRADIUS + schemes(`"pap"`),
			[]string{`x.toml:8: uam.secret_file: missing: with "pap" and no secret everybody …`}},
	} {
		t.Run(tt.name, func(t *testing.T) { wantProblems(t, tt.text, tt.want) })
	}
}

// TestClickWithoutPortal: nobody clicks where there is no portal, although PPPoE is there.
func TestClickWithoutPortal(t *testing.T) {
	text := strings.Replace(withRADIUS, `"radius"`, `"radius", "click-through"`, 1) +
		"portal.enabled = false\npppoe.enabled = true\n"
	_, err := Parse("x.toml", []byte(text))
	const want = `x.toml:5: auth.methods: "click-through" has no effect: clients click`
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Error(err)
	}
}

// TestUAM: defaults, and that the portal's host and port alone are in the walled garden.
func TestUAM(t *testing.T) {
	c := parse(t, withRADIUS+"radius.nas_identifier = \"nas07\"\n"+aPortal)
	if c.Portal.Port != UAMPort || c.UAM.NASID != "nas07" || c.UAM.Host() != "portal.example" {
		t.Errorf("%+v, port %d", c.UAM, c.Portal.Port)
	}
	if want := []GardenPort{{Domain: "portal.example", Protocol: 6, Port: 443}}; !slices.Equal(c.Garden.Ports, want) {
		t.Errorf("in the walled garden: %v", c.Garden.Ports)
	}
	if c = parse(t, withRADIUS+"portal.port = 8080\n"+aPortal); c.Portal.Port != 8080 {
		t.Errorf("the port is %d", c.Portal.Port)
	}
}

// TestUAMOfNetworks: each network has its own portal, and one without has none, nor its port.
func TestUAMOfNetworks(t *testing.T) {
	c, err := Parse("/etc/x.toml", []byte(`wan.interface = "wan0"
dns.upstreams = ["192.0.2.53"]
auth.methods = ["radius"]
radius.primary.address = "192.0.2.10"
radius.primary.secret = "s3cret"
[[network]]
name = "guests"
interface = "lan0"
address = "10.1.0.1/16"
[network.uam]
portal_url = "https://guests.example/login"
secret_file = "guests.secret"
schemes = ["chap"]
http = true
nas_id = "guests"
[[network]]
name = "staff"
interface = "lan1"
address = "10.2.0.1/16"
[network.uam]
portal_url = "https://staff.example:8443/login"
schemes = ["mschapv2"]
http = true
[[network]]
name = "lobby"
interface = "lan2"
address = "10.3.0.1/16"
`))
	if err != nil {
		t.Fatal(err)
	}
	guests, staff, lobby := c.Networks[0], c.Networks[1], c.Networks[2]
	if guests.UAM.SecretFile != "/etc/guests.secret" || guests.UAM.NASID != "guests" || guests.Portal.Port != UAMPort ||
		!slices.Equal(guests.UAM.Schemes, []string{CHAP}) {
		t.Errorf("guests: %+v, port %d", guests.UAM, guests.Portal.Port)
	}
	open := []GardenPort{{Domain: "staff.example", Protocol: 6, Port: 8443}}
	if staff.UAM.SecretFile != "" || !slices.Equal(staff.UAM.Schemes, []string{MSCHAPv2}) ||
		!slices.Equal(staff.Garden.Ports, open) {
		t.Errorf("staff: %+v, in the walled garden %v", staff.UAM, staff.Garden.Ports)
	}
	if lobby.UAM.On() || lobby.Portal.Port == UAMPort || len(lobby.Garden.Ports) != 0 {
		t.Errorf("lobby: %+v, port %d, in the walled garden %v", lobby.UAM, lobby.Portal.Port, lobby.Garden.Ports)
	}
}
