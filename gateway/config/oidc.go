// OpenID providers at which clients log in.

package config

import (
	"cmp"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/datapath/kinds"
	"github.com/gateweigh/gateweigh/internal/strict"
)

// OIDC is an OpenID provider, a table [[oidc]].
type OIDC struct {
	Name         string // in the redirect URI
	Label        string // on the button; empty: Name
	Issuer       string // https URL
	ClientID     string
	Secret       string
	SecretFile   string        // the file Secret was read from; empty: a public client
	CAFile       string        // PEM; empty: the system's certificate authorities
	Scopes       []string      // beside openid
	User         string        // claim; empty: email if it is verified, otherwise sub
	Domains      []string      // of e-mail addresses; none: any
	Require      string        // claim; empty: nothing is required
	Values       []string      // of which Require must have one
	Profile      string        // of limits; empty: none
	ProfileClaim string        // claim that names the profile; empty: it is always Profile
	Session      time.Duration // 0: that of the profile, or of Limits
	LoginTime    time.Duration // how long a login may take
	Garden       []string      // names that the provider's pages need
}

const (
	oidcTable        = "oidc"
	defaultLoginTime = 10 * time.Minute
)

// providerName is what a provider may be called: it is part of a URL.
var providerName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,31}$`)

var (
	readProviderName = strict.AcceptText(`a name of small letters, digits and hyphens, at most 32, such as "campus"`,
		func(s string) (string, bool) { return s, providerName.MatchString(s) })
	readScope = strict.AcceptText(`a scope such as "email"`,
		func(s string) (string, bool) { return s, visible(s, 200) && !strings.ContainsAny(s, ` "\`) })
	readIssuer = strict.AcceptText(
		`the provider's issuer, an https URL without query and fragment, such as "https://login.example.org"`, isIssuer)
)

// isIssuer reports whether a text is an issuer (OpenID Connect Core 1.0, 1.2).
func isIssuer(s string) (string, bool) {
	u, err := url.Parse(s)
	return s, err == nil && u.Scheme == "https" && u.Hostname() != "" && u.User == nil && u.RawQuery == "" &&
		u.Fragment == "" && !strings.ContainsAny(s, "?#") && visible(s, 500)
}

// oidcSettings are the keys of [[oidc]].
func (c *Config) oidcSettings() []setting {
	all := &c.OIDC
	claim := line(100)
	return []setting{
		column("oidc.name", all, readProviderName, func(p *OIDC, v string) { p.Name = v }),
		column("oidc.label", all, line(60), func(p *OIDC, v string) { p.Label = v }),
		column("oidc.issuer", all, readIssuer, func(p *OIDC, v string) { p.Issuer = v }),
		column("oidc.client_id", all, line(500), func(p *OIDC, v string) { p.ClientID = v }),
		column("oidc.client_secret_file", all, file, func(p *OIDC, v string) { p.SecretFile = v }),
		column("oidc.ca_file", all, file, func(p *OIDC, v string) { p.CAFile = v }),
		column("oidc.scopes", all, list(readScope), func(p *OIDC, v []string) { p.Scopes = v }),
		column("oidc.user", all, claim, func(p *OIDC, v string) { p.User = v }),
		column("oidc.domains", all, nonEmpty(list(hostName)), func(p *OIDC, v []string) { p.Domains = v }),
		column("oidc.require", all, claim, func(p *OIDC, v string) { p.Require = v }),
		column("oidc.values", all, nonEmpty(list(line(200))), func(p *OIDC, v []string) { p.Values = v }),
		column("oidc.profile", all, line(100), func(p *OIDC, v string) { p.Profile = v }),
		column("oidc.profile_claim", all, claim, func(p *OIDC, v string) { p.ProfileClaim = v }),
		column("oidc.session_timeout", all, duration(minute, 365*day), func(p *OIDC, v time.Duration) { p.Session = v }),
		column("oidc.login_time", all, duration(minute, time.Hour), func(p *OIDC, v time.Duration) { p.LoginTime = v }),
		column("oidc.garden", all, list(domainPattern), func(p *OIDC, v []string) { p.Garden = v }),
	}
}

// checkOIDC checks the providers.
func (k *checker) checkOIDC() {
	if !k.Auth.Has(MethodOIDC) {
		if k.rows[oidcTable] > 0 {
			k.reportAt(k.lines[oidcTable+"#1"], oidcTable, `%s: "oidc" is not in auth.methods`, noEffect)
		}
		return
	}
	if k.rows[oidcTable] == 0 {
		k.report(oidcTable, `missing: "oidc" is in auth.methods: add a table [[oidc]] for each provider`)
		return
	}
	const needs = "providers send clients back by https, to the portal's name"
	if !k.Portal.Enabled {
		k.report("auth.methods", `"oidc" has no effect: its buttons are on the login page, and portal.enabled is false`)
	} else {
		if k.Portal.Name == "" && k.Portal.TLSCert == "" { // with a certificate the name is missing anyway
			k.report("portal.name", "missing: "+needs)
		}
		if k.Portal.TLSCert == "" {
			k.report("portal.tls_cert", "missing: "+needs)
		}
	}
	if t := kinds.TraitsOf(k.Datapath.Kind); !t.Visits {
		k.report("datapath.kind", `%q cannot open a provider's hosts for one client alone: "oidc" in auth.methods needs %s`,
			t.Name, alternatives(kinds.Names(func(t datapath.Traits) bool { return t.Visits })))
	}
	for i := range k.rows[oidcTable] {
		k.checkProvider(i)
	}
}

// checkProvider checks one provider.
func (k *checker) checkProvider(i int) {
	at := func(key string) int { return k.lines[fmt.Sprintf("%s.%s#%d", oidcTable, key, i+1)] }
	report := func(key, format string, args ...any) {
		k.reportAt(cmp.Or(at(key), k.lines[fmt.Sprintf("%s#%d", oidcTable, i+1)]), oidcTable+"."+key, format, args...)
	}
	for _, needed := range [][2]string{{"name", "what the provider is called in the redirect URI, such as \"campus\""},
		{"issuer", "the provider's issuer"}, {"client_id", "as whom the provider knows this gateway"}} {
		if at(needed[0]) == 0 {
			report(needed[0], "missing: %s", needed[1])
		}
	}
	if i >= len(k.OIDC) {
		return
	}
	p := k.OIDC[i]
	if j := slices.IndexFunc(k.OIDC[:i], func(o OIDC) bool { return o.Name == p.Name && p.Name != "" }); j >= 0 {
		report("name", "%q is another provider's already", p.Name)
	}
	switch {
	case p.Require != "" && len(p.Values) == 0 && at("values") == 0:
		report("require", "needs oidc.values: which values of the claim may log in")
	case p.Require == "" && len(p.Values) > 0:
		report("values", noEffect+": there is no oidc.require, the claim that must have one of them")
	}
	known := func(name string) bool {
		return slices.ContainsFunc(k.Profiles, func(q Profile) bool { return q.Name == name })
	}
	switch {
	case p.Profile != "" && !known(p.Profile):
		report("profile", "there is no [[limits.profile]] with the name %q", p.Profile)
	case p.ProfileClaim != "" && len(k.Profiles) == 0:
		report("profile_claim", "there is no [[limits.profile]] that the claim could name")
	}
	for _, name := range p.Garden {
		if strings.HasPrefix(name, "*") && k.DNS.Mode == External {
			report("garden", `%q opens nothing: gatewayd's own DNS learns such names' addresses: set dns.mode = "server", or `+
				`list each name`, name)
		}
	}
	for _, s := range p.Scopes {
		if s == "openid" {
			report("scopes", `"openid" is always asked for: take it out`)
		}
	}
}

// completeOIDC fills in what follows from other keys.
func (c *Config) completeOIDC() {
	for i := range c.OIDC {
		p := &c.OIDC[i]
		p.Label = cmp.Or(p.Label, p.Name)
		p.LoginTime = cmp.Or(p.LoginTime, defaultLoginTime)
		if c.lines[fmt.Sprintf("%s.scopes#%d", oidcTable, i+1)] == 0 {
			p.Scopes = []string{"email"}
		}
	}
}

// UsesProfiles reports whether a provider's users have limits of profiles.
func (c *Config) UsesProfiles() bool {
	return c.Auth.Has(MethodOIDC) && slices.ContainsFunc(c.OIDC, func(p OIDC) bool {
		return p.Profile != "" || p.ProfileClaim != ""
	})
}

// openOIDC reads the providers' secrets.
func (k *checker) openOIDC() {
	for i := range k.OIDC {
		if p := &k.OIDC[i]; p.SecretFile != "" {
			const key = oidcTable + ".client_secret_file"
			p.Secret = k.secretAt(k.lines[fmt.Sprintf("%s#%d", key, i+1)], key, p.SecretFile)
		}
	}
}
