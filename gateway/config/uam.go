// A portal elsewhere, made for CoovaChilli.

package config

import (
	"net/netip"
	"net/url"
	"slices"
	"strconv"

	"github.com/gateweigh/gateweigh/internal/strict"
)

// Plain is a value of uam.schemes, beside PAP, CHAP and MSCHAPv2.
const Plain = "plain"

// UAMPort is the default of portal.port where there is a portal elsewhere: CoovaChilli's.
const UAMPort = 3990

// UAM is a portal elsewhere that clients are sent to instead of the built-in pages. The zero value is none.
type UAM struct {
	PortalURL  string   // empty: there is none
	Secret     string   // shared with the portal; empty: redirects have no checksum
	SecretFile string   // the file Secret was read from
	NASID      string   // tells the portal which gateway this is
	Location   string   // the place's name; empty: none
	Schemes    []string // PAP, CHAP, MSCHAPv2, Plain
	HTTP       bool     // passwords may come over plain HTTP
	JSONP      bool     // answers in JSON may be scripts
}

// On reports whether there is a portal elsewhere.
func (u UAM) On() bool { return u.PortalURL != "" }

// Host is the name or address of the portal.
func (u UAM) Host() string {
	parsed, err := url.Parse(u.PortalURL)
	if err != nil {
		return ""
	}
	return parsed.Hostname()
}

// needsRADIUS returns a scheme that RADIUS servers alone can check, "" if there is none: the users' file has hashes.
func (u UAM) needsRADIUS() string {
	for _, s := range u.Schemes {
		if s == CHAP || s == MSCHAPv2 {
			return s
		}
	}
	return ""
}

func (c *Config) uamSettings() []setting {
	u := &c.UAM
	return []setting{
		keyAt("uam.portal_url", &u.PortalURL, webAddress),
		keyAt("uam.secret", &u.Secret, secret),
		keyAt("uam.secret_file", &u.SecretFile, file),
		keyAt("uam.nas_id", &u.NASID, line(253)),
		keyAt("uam.location", &u.Location, line(100)),
		keyAt("uam.schemes", &u.Schemes, list(strict.Word(CHAP, MSCHAPv2, PAP, Plain))),
		keyAt("uam.http", &u.HTTP, strict.Boolean),
		keyAt("uam.jsonp", &u.JSONP, strict.Boolean),
	}
}

// checkUAM checks the keys of a portal elsewhere.
func (k *checker) checkUAM() {
	u := k.UAM
	if !u.On() {
		k.refuseUnused("there is no uam.portal_url", "uam.secret", "uam.secret_file", "uam.nas_id", "uam.location",
			"uam.schemes", "uam.http", "uam.jsonp")
		return
	}
	if !k.Portal.Enabled {
		k.report("uam.portal_url", "needs the portal, which sends clients there: portal.enabled is false")
		return
	}
	k.refuseUnused("clients see the pages of uam.portal_url", "portal.templates", "portal.title", "portal.success_url",
		"portal.terms", "portal.wispr")
	if u.Secret != "" && u.SecretFile != "" {
		k.report("uam.secret", "contradicts secret_file: give one of them")
	}
	for _, m := range []string{MethodVoucher, MethodClickThrough, MethodOIDC} {
		if k.Auth.Has(m) {
			k.report("auth.methods", "%q has no effect: clients log in at uam.portal_url, by name and password", m)
		}
	}
	if len(k.Auth.Methods) > 0 && !k.Auth.Has(MethodRADIUS) && !k.Auth.Has(MethodUsers) {
		k.report("auth.methods", `uam.portal_url logs clients in by name and password: add "radius" or "users"`)
	}
	k.checkPortalURL()
	k.checkSchemes()
	if k.Devices.Remember > 0 && k.Devices.Consent {
		k.report("devices.consent", noEffect+": nobody is remembered, because the page of uam.portal_url does not ask: take "+
			"out devices.consent, or devices.remember")
	}
	if where, port, ok := k.UAM.host(); ok && where.Domain != "" && k.DNS.Mode == External {
		k.report("uam.portal_url", `clients reach %s:%d before they log in only where gatewayd's own DNS learns its `+
			`address: set dns.mode = "server", or give an address`, where.Domain, port)
	}
}

// checkPortalURL checks what a web address may have, and that of a portal elsewhere may not. It shows no password.
func (k *checker) checkPortalURL() {
	const key = "uam.portal_url"
	u, err := url.Parse(k.UAM.PortalURL)
	if err != nil {
		return // refused before
	}
	if u.User != nil {
		k.report(key, "has a name or a password before the host: browsers refuse it, and every client would see it")
	}
	if u.Fragment != "" {
		k.report(key, `has "#%s" at its end: what the gateway tells the portal would stand behind it, where no portal sees `+
			`it`, u.Fragment)
	}
	if n, err := strconv.ParseUint(u.Port(), 10, 16); u.Port() != "" && (err != nil || n == 0) {
		k.report(key, "%s is no port: give 1 to 65535", u.Port())
	}
	if a, err := netip.ParseAddr(u.Hostname()); err == nil && !a.Is4() {
		k.report(key, "%s is an IPv6 address, which the walled garden cannot have: give a name, or an IPv4 address", a)
	}
}

// checkSchemes checks how passwords come from the portal: nothing is on by itself.
func (k *checker) checkSchemes() {
	u, scheme := k.UAM, k.UAM.needsRADIUS()
	has := func(s string) bool { return slices.Contains(u.Schemes, s) }
	switch {
	case len(u.Schemes) == 0:
		k.report("uam.schemes", `missing: how the portal sends passwords: ["chap"] if RADIUS servers know plain passwords, `+
			`["pap"] otherwise; all are weak, see docs/uam.md`)
	case has(PAP) && has(Plain):
		k.report("uam.schemes", `"pap" and "plain" have the same form: give one of them`)
	case scheme != "" && !k.Auth.Has(MethodRADIUS):
		k.report("uam.schemes", `%q needs "radius" in auth.methods: the users' file has hashes, which answer no challenge`,
			scheme)
	case has(Plain) && k.Portal.TLSCert == "":
		k.report("uam.schemes", `"plain" is for https: set portal.tls_cert`)
	case k.Portal.TLSCert == "" && !u.HTTP:
		k.report("uam.http", "missing: without portal.tls_cert passwords come over plain HTTP, where others on the "+
			"network read them; set portal.tls_cert, or allow it by uam.http = true")
	case has(PAP) && u.Secret == "" && u.SecretFile == "":
		k.report("uam.secret_file",
			`missing: with "pap" and no secret everybody on the network can undo what hides passwords`)
	}
}

// host is the portal's host as an entry of the walled garden, with its port. ok is false where clients reach it anyway.
func (u UAM) host() (g GardenPort, port uint16, ok bool) {
	parsed, err := url.Parse(u.PortalURL)
	if err != nil {
		return g, 0, false
	}
	number := parsed.Port()
	if number == "" {
		number = map[string]string{"http": "80", "https": "443"}[parsed.Scheme]
	}
	n, err := strconv.ParseUint(number, 10, 16)
	if err != nil {
		return g, 0, false
	}
	g = GardenPort{Protocol: 6, Port: uint16(n)}
	name := parsed.Hostname()
	if a, err := netip.ParseAddr(name); err == nil {
		if !a.Is4() {
			return g, uint16(n), false
		}
		g.Prefix = netip.PrefixFrom(a, 32)
		return g, uint16(n), true
	}
	g.Domain, err = namePattern(name)
	return g, uint16(n), err == nil
}

// completeUAM opens the walled garden for the portal's host and port alone, and fills in defaults.
func (c *Config) completeUAM() {
	if !c.UAM.On() {
		return
	}
	if c.UAM.NASID == "" {
		c.UAM.NASID = c.RADIUS.NASIdentifier
	}
	if !c.IsSet("portal.port") {
		c.Portal.Port = UAMPort
	}
	g, _, ok := c.UAM.host()
	if !ok || g.Domain == "" && c.LAN.Network().Contains(g.Prefix.Addr()) || g.Domain != "" && g.Domain == c.Portal.Name {
		return
	}
	if _, covered := c.redundantPort(g); !covered && !slices.Contains(c.Garden.Ports, g) {
		c.Garden.Ports = append(c.Garden.Ports, g)
	}
}

// openUAMSecret reads the secret that the portal shares.
func (k *checker) openUAMSecret() {
	if k.UAM.SecretFile != "" {
		k.UAM.Secret = k.secretIn("uam.secret_file", k.UAM.SecretFile)
	} else if k.UAM.Secret != "" && isPublic(k.File) {
		k.report("uam.secret", "everyone can read this file: chmod o-r %s, or use secret_file", k.File)
	}
}
