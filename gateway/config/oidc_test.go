package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// withProvider is a good file with a provider, of ten lines.
var withProvider = strings.Replace(minimal, `"click-through"`, `"oidc"`, 1) + `portal.name = "portal.example"
portal.tls_cert = "c"
portal.tls_key = "k"
[[oidc]]
name = "campus"
issuer = "https://login.example.org"
client_id = "gw"
`

// TestProviderMistakes: each mistake is said with its line. Long: a table.
func TestProviderMistakes(t *testing.T) {
	without := func(line string) string {
		if !strings.Contains(withProvider, line) {
			t.Fatalf("no line %s", line)
		}
		return strings.Replace(withProvider, line+"\n", "\n", 1)
	}
	for _, p := range []problem{
		{"no method", strings.Replace(withProvider, `"oidc"]`, `"click-through"]`, 1),
			[]string{`x.toml:9: oidc: has no effect: "oidc" is not in auth.methods`}},
		{"no provider", strings.Replace(minimal, `"click-through"`, `"oidc"`, 1),
			[]string{`x.toml:1: oidc: missing: … [[oidc]] …`}},
		{"no TLS", strings.Replace(without(`portal.tls_key = "k"`), `portal.tls_cert = "c"`, "", 1),
			[]string{`x.toml:6: portal.tls_cert: missing: providers send clients back by https …`}},
		{"no name", without(`portal.name = "portal.example"`), []string{`x.toml:7: portal.name: missing: browsers …`}},
		{"neither", strings.Replace(minimal, `"click-through"`, `"oidc"`, 1) + "[[oidc]]\nname = \"a\"\n" +
			"issuer = \"https://a.example\"\nclient_id = \"x\"\n",
			[]string{`x.toml:1: portal.name: missing: providers send clients back by https, to the portal's name`,
				`x.toml:1: portal.tls_cert: missing: providers send clients back by https …`}},
		{"another data path", withProvider + "[datapath]\nkind = \"nfqueue\"\n",
			[]string{`x.toml:14: datapath.kind: "nfqueue" cannot open … "ebpf"`}},
		{"no issuer", without(`issuer = "https://login.example.org"`), []string{`x.toml:9: oidc.issuer: missing: …`}},
		{"an issuer without TLS", strings.Replace(withProvider, "https:", "http:", 1),
			[]string{`x.toml:11: oidc.issuer: must be the provider's issuer, an https URL … "http://login.example.org"`}},
		{"two of a name", withProvider + "[[oidc]]\nname = \"campus\"\nissuer = \"https://b\"\nclient_id = \"x\"\n",
			[]string{`x.toml:14: oidc.name: "campus" is another provider's already`}},
		{"a name for a path", strings.Replace(withProvider, `"campus"`, `"a/../b"`, 1),
			[]string{`x.toml:10: oidc.name: must be a name of small letters … "a/../b"`}},
		{"a claim without values", withProvider + "require = \"groups\"\n",
			[]string{`x.toml:13: oidc.require: needs oidc.values: …`}},
		{"values without a claim", withProvider + "values = [\"a\"]\n",
			[]string{`x.toml:13: oidc.values: has no effect: …`}},
		{"names that nobody learns", strings.Replace(withProvider, `dns.upstreams = ["192.0.2.53"]`,
			"dns.mode = \"external\"\ndhcp.dns = [\"192.0.2.53\"]\ngarden.prefixes = [\"192.0.2.53/32\"]", 1) +
			"garden = [\"a.example\", \"*.b.example\"]\n",
			[]string{`x.toml:15: oidc.garden: "*.b.example" opens nothing: …`}},
		{"a portal elsewhere", strings.Replace(withProvider, `"oidc"]`, `"oidc", "users"]`, 1) +
			"[uam]\nportal_url = \"https://a.example/\"\nsecret = \"x\"\nschemes = [\"pap\"]\n[users]\nfile = \"u\"\n",
			[]string{`x.toml:5: auth.methods: "oidc" has no effect: clients log in at uam.portal_url …`}},
		{"a profile of nobody", withProvider + "profile = \"gold\"\n",
			[]string{`x.toml:13: oidc.profile: there is no [[limits.profile]] with the name "gold"`}},
		{"no profiles", withProvider + "profile_claim = \"x\"\n", []string{`x.toml:13: oidc.profile_claim: there is no …`}},
		{"a scope twice", withProvider + "scopes = [\"openid\"]\n",
			[]string{`x.toml:13: oidc.scopes: "openid" is always asked for: take it out`}},
		{"a key that is near", withProvider + "isuer = \"x\"\n",
			[]string{`x.toml:13: oidc.isuer: unknown key; did you mean "oidc.issuer"?`}},
		{"too long", withProvider + "login_time = \"2h\"\n",
			[]string{`x.toml:13: oidc.login_time: must be a duration … 1h …`}},
	} {
		t.Run(p.name, func(t *testing.T) { wantProblems(t, p.text, p.want) })
	}
}

// TestProviderDefaults: a provider's values, and those that follow from other keys.
func TestProviderDefaults(t *testing.T) {
	c, err := Parse("/etc/x.toml", []byte(withProvider+"client_secret_file = \"s\"\n[[limits.profile]]\nname = \"gold\"\n"+
		"[[oidc]]\nname = \"b\"\nlabel = \"B\"\nissuer = \"https://b.example\"\nclient_id = \"x\"\nscopes = []\n"+
		"login_time = \"2m\"\nprofile = \"gold\"\n"))
	if err != nil {
		t.Fatal(err)
	}
	p, q := c.OIDC[0], c.OIDC[1]
	if p.Label != "campus" || p.LoginTime != 10*time.Minute || len(p.Scopes) != 1 || p.SecretFile != "/etc/s" ||
		q.Label != "B" || q.LoginTime != 2*time.Minute || len(q.Scopes) != 0 {
		t.Errorf("%+v, %+v", p, q)
	}
}

// TestProviderOfNetworks: each network may have providers of its own.
func TestProviderOfNetworks(t *testing.T) {
	c, err := Parse("x.toml", []byte(`wan.interface = "wan0"
dns.upstreams = ["192.0.2.53"]
auth.methods = ["oidc"]
portal.name = "portal.example"
portal.tls_cert = "c"
portal.tls_key = "k"
[[oidc]]
name = "campus"
issuer = "https://a.example"
client_id = "gw"
[[network]]
name = "guests"
interface = "lan0"
address = "10.1.0.1/16"
[[network]]
name = "staff"
interface = "lan1"
address = "10.2.0.1/16"
[[network.oidc]]
name = "firm"
issuer = "https://b.example"
client_id = "gw"
`))
	if err != nil {
		t.Fatal(err)
	}
	if g, s := c.Networks[0].OIDC, c.Networks[1].OIDC; len(g) != 1 || g[0].Name != "campus" || len(s) != 1 ||
		s[0].Name != "firm" {
		t.Errorf("%+v, %+v", g, s)
	}
}

// TestProviderSecret: a secret that everyone can read is refused.
func TestProviderSecret(t *testing.T) {
	dir := t.TempDir()
	secret := filepath.Join(dir, "s")
	if err := os.WriteFile(secret, []byte("x\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	c, err := Parse(filepath.Join(dir, "x.toml"), []byte(withProvider+"[[oidc]]\nname = \"b\"\n"+
		"issuer = \"https://b.example\"\nclient_id = \"x\"\nclient_secret_file = \"s\"\n"))
	if err != nil {
		t.Fatal(err)
	}
	k := &checker{Config: c}
	k.openOIDC()
	if len(k.problems) != 1 || !strings.Contains(k.problems.Error(), "x.toml:17: oidc.client_secret_file: everyone can") {
		t.Errorf("%v", k.problems)
	}
	if err := os.Chmod(secret, 0o600); err != nil {
		t.Fatal(err)
	}
	k = &checker{Config: c}
	if k.openOIDC(); len(k.problems) != 0 || c.OIDC[1].Secret != "x" {
		t.Errorf("%v, %+v", k.problems, c.OIDC)
	}
}
