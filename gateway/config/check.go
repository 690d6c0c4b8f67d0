package config

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/datapath/kinds"
	"github.com/gateweigh/gateweigh/internal/strict"
)

// maxSocketPath is the longest path of a Unix socket (unix(7)).
const maxSocketPath = 107

// checker checks keys that are valid alone but not together, and collects the problems.
type checker struct {
	*Config
	problems strict.Problems
}

// check returns problems of keys in combination: missing keys, contradictions, and keys without effect.
func (c *Config) check() strict.Problems {
	k := &checker{Config: c}
	for _, key := range []string{"lan.interface", "lan.address", "wan.interface"} {
		if !k.IsSet(key) {
			k.report(key, "missing: gatewayd needs it")
		}
	}
	if c.LAN.Interface != "" && c.LAN.Interface == c.WAN.Interface {
		k.report("wan.interface", "%q is the LAN's too: clients need an interface of their own", c.WAN.Interface)
	}
	if len(c.ControlSocket()) > maxSocketPath {
		k.report("run_dir", "is too long for a socket's path: at most %d bytes", maxSocketPath-len("/control.sock"))
	}
	k.checkDHCP()
	k.checkRepeaters()
	k.checkDNS()
	k.checkNAT()
	k.checkPortal()
	k.checkUAM()
	k.checkPPPoE()
	k.checkIdent()
	k.checkLogin()
	k.checkOIDC()
	k.checkClick()
	k.checkDevices()
	k.checkProfiles()
	k.checkDatapath()
	k.checkIPv6()
	k.checkFlowLog()
	k.checkConnections()
	k.checkMetrics()
	k.checkAdmin()
	k.checkStore()
	k.checkPair()
	k.checkDynamic()
	k.checkServer("radius.primary", c.RADIUS.Primary)
	k.checkServer("radius.secondary", c.RADIUS.Secondary)
	return k.problems
}

// report adds a problem of a key: on its line, or its table's, or the file's first.
func (k *checker) report(key, format string, args ...any) {
	k.reportAt(k.lineOf(key), key, format, args...)
}

// reportAt adds a problem of a key on a line.
func (k *checker) reportAt(line int, key, format string, args ...any) {
	k.problems = append(
		k.problems, &strict.Error{File: k.File, Line: max(1, line), Key: key, Problem: fmt.Sprintf(format, args...)})
}

// lineOf is the line of a key, of its table, or the file's first.
func (c *Config) lineOf(key string) int {
	line := 0
	for at := key; line == 0 && at != ""; {
		line = c.lines[at]
		at = at[:max(0, strings.LastIndexByte(at, '.'))]
	}
	return cmp.Or(line, c.table, 1)
}

// IsSet reports whether the file has a key.
func (c *Config) IsSet(key string) bool { return c.lines[key] > 0 }

// noEffect begins the problem of a key that changes nothing beside others.
const noEffect = "has no effect"

// refuseUnused reports keys that are set although they have no effect, for the given reason.
func (k *checker) refuseUnused(reason string, keys ...string) {
	for _, key := range keys {
		if k.IsSet(key) {
			k.report(key, noEffect+": %s", reason)
		}
	}
}

func (k *checker) checkDHCP() {
	if k.DHCP.Mode == External {
		k.refuseUnused(`dhcp.mode is "external"`, "dhcp.pools", "dhcp.claims", "dhcp.claimable", "dhcp.lease",
			"dhcp.preauth_lease", "dhcp.dns", "dhcp.domain", "dhcp.mtu", "dhcp.ipv6_only", "dhcp.static", "dhcp.options",
			"dhcp.relays", "dhcp.relay_information")
		if k.rows[bootTable] > 0 {
			k.reportAt(k.lines[bootTable+"#1"], bootTable, `has no effect: dhcp.mode is "external"`)
		}
		return
	}
	if k.DHCP.ShortLease > k.DHCP.Lease {
		k.report("dhcp.preauth_lease", "is longer than dhcp.lease, %s", strict.ShortDuration(k.DHCP.Lease))
	}
	if !k.LAN.Address.IsValid() {
		return
	}
	k.checkBoot()
	k.checkRelays()
	for i, pool := range k.DHCP.Pools {
		k.checkPool("dhcp.pools", pool, k.DHCP.Pools[:i])
	}
	k.checkClaims()
	for _, r := range k.DHCP.Static {
		if problem := k.LAN.Unleasable(r.Addr); problem != "" {
			k.report(fmt.Sprintf("dhcp.static.%q", r.MAC.String()), "%s %s", r.Addr, problem)
		}
	}
	for _, resolver := range k.DHCP.DNS {
		if resolver != k.LAN.Address.Addr() && !k.inGarden(resolver) {
			k.report("dhcp.dns", "clients could not ask %s before they log in: use %s, or put it into garden.prefixes", resolver,
				k.LAN.Address.Addr())
		}
	}
}

// checkPool checks a pool of a key, and that none of the earlier ones overlaps it. It is in the LAN, or within one of
// the networks outside.
func (k *checker) checkPool(key string, pool Range, earlier []Range, outside ...netip.Prefix) {
	ownAddr := k.LAN.Address.Addr()
	within := func(p netip.Prefix) bool { return p.Contains(pool.First) && p.Contains(pool.Last) }
	for _, end := range []netip.Addr{pool.First, pool.Last} {
		if slices.ContainsFunc(outside, within) {
			break
		}
		if problem := k.LAN.Unleasable(end); problem != "" && end != ownAddr {
			k.report(key, "%s: %s %s", pool, end, problem)
		}
	}
	if pool.Contains(ownAddr) {
		k.report(key, "%s has the gateway's own address %s in it: let it end before, and another begin after", pool, ownAddr)
	}
	for _, other := range earlier {
		if other.Contains(pool.First) || pool.Contains(other.First) {
			k.report(key, "%s and %s overlap", other, pool)
		}
	}
}

func (k *checker) inGarden(a netip.Addr) bool {
	return slices.ContainsFunc(k.Garden.Prefixes, func(p netip.Prefix) bool { return p.Contains(a) })
}

func (k *checker) checkDNS() {
	if k.DNS.Mode == External {
		k.refuseUnused(`dns.mode is "external"`, "dns.upstreams", "dns.answer_aaaa")
		named := slices.ContainsFunc(k.Garden.Ports, func(p GardenPort) bool { return p.Domain != "" })
		if named {
			k.report("garden.ports",
				`names need gatewayd's own DNS, which learns their addresses: set dns.mode = "server", or use networks and addresses`)
		}
		if len(k.Garden.Domains) > 0 {
			k.report("garden.domains",
				`need gatewayd's own DNS, which learns their addresses: set dns.mode = "server", or use garden.prefixes`)
		}
	} else if len(k.DNS.Upstreams) == 0 {
		k.report("dns.upstreams",
			`missing: the resolvers that clients' questions go to, such as ["192.0.2.53"], or dns.mode = "external"`)
	}
	if !k.LAN.Address.IsValid() {
		return
	}
	for _, u := range k.DNS.Upstreams {
		if u == netip.AddrPortFrom(k.LAN.Address.Addr(), 53) {
			k.report("dns.upstreams", "%s is gatewayd itself: name the resolvers beyond it", u)
		}
	}
	k.checkGarden()
}

func (k *checker) checkPortal() {
	p := k.Portal
	if !p.Enabled {
		k.refuseUnused("portal.enabled is false", "portal.port", "portal.port_80", "portal.name", "portal.tls_port",
			"portal.tls_cert", "portal.tls_key",
			"portal.templates", "portal.title", "portal.success_url", "portal.wispr")
		return
	}
	switch {
	case p.TLSCert == "" && p.TLSKey != "":
		k.report("portal.tls_cert", "missing: portal.tls_key is set")
	case p.TLSCert != "" && p.TLSKey == "":
		k.report("portal.tls_key", "missing: portal.tls_cert is set")
	case p.TLSCert == "":
		k.refuseUnused("there is no portal.tls_cert", "portal.tls_port")
	case p.Name == "":
		k.report("portal.name", "missing: browsers hold the certificate against it")
	case p.TLSPort == p.Port:
		k.report("portal.tls_port", "%d is portal.port too", p.TLSPort)
	}
	if p.WISPr && p.TLSCert == "" {
		k.report("portal.wispr", "smart clients log in over https only: set portal.tls_cert")
	}
	if p.WISPr && !k.Auth.Has(MethodRADIUS) && !k.Auth.Has(MethodUsers) {
		k.report("portal.wispr", `smart clients log in by name and password: add "radius" or "users" to auth.methods`)
	}
	k.checkPort("portal.port", p.Port)
	if p.TLSCert != "" {
		k.checkPort("portal.tls_port", p.TLSPort)
	}
}

// checkPPPoE checks the access concentrator's keys.
func (k *checker) checkPPPoE() {
	p := k.PPPoE
	if !p.Enabled {
		for _, key := range Keys() {
			if strings.HasPrefix(key, "pppoe.") && key != "pppoe.enabled" && (key != "pppoe.pool" || len(p.Named) > 0) {
				k.refuseUnused("pppoe.enabled is not true", key)
			}
		}
		return
	}
	radius := k.Auth.Has(MethodRADIUS)
	if !radius && !k.Auth.Has(MethodUsers) {
		k.report("auth.methods", `PPPoE clients log in with a name and a password: add "radius" or "users"`)
	}
	if p.Waiting > p.MaxSessions && k.IsSet("pppoe.sessions_waiting") {
		k.report("pppoe.sessions_waiting", "%d is more than pppoe.sessions, %d, of which they are: give at most as many",
			p.Waiting, p.MaxSessions)
	}
	for _, m := range p.Methods {
		if m != PAP && !radius {
			k.report("pppoe.methods", `%q needs "radius" in auth.methods: the users' file has hashes, which answer no challenge`,
				m)
		}
	}
	if kind := k.Datapath.Kind; !kinds.TraitsOf(kind).PPPoE {
		k.report("datapath.kind", "%q does not take PPPoE's header off: use %s, or pppoe.enabled = false", kind,
			alternatives(kinds.Names(func(t datapath.Traits) bool { return t.PPPoE })))
	}
	k.checkPPPoEIPv6()
	if len(p.Resolvers) > 2 {
		k.report("pppoe.resolvers", "%d addresses: PPP has room for two", len(p.Resolvers))
	}
	if !k.LAN.Address.IsValid() {
		return
	}
	if len(p.Pools) == 0 && !radius {
		k.report("pppoe.pools", `missing: addresses for PPPoE clients, such as ["%s"]`, k.examplePool())
	}
	if len(p.Named) > 0 && !radius {
		k.report("pppoe.pool",
			`has no effect: RADIUS names a client's pool (Framed-Pool), and "radius" is not in auth.methods`)
	}
	k.checkPPPoENetworks()
	k.checkPPPoEPools()
	if len(p.Pools)+len(p.Named) > 0 && len(k.DHCP.Pools) == 0 && k.DHCP.Mode == Server {
		k.report("dhcp.pools", "missing: without it DHCP leases all of the LAN, pppoe.pools included")
	}
}

// alternatives joins words of which the user is to choose one.
func alternatives(words []string) string {
	text := ""
	for i, w := range words {
		switch {
		case i == 0:
		case i == len(words)-1:
			text += " or "
		default:
			text += ", "
		}
		text += strconv.Quote(w)
	}
	return text
}

// checkPPPoEPools checks the pools of PPPoE clients: an address has one client.
func (k *checker) checkPPPoEPools() {
	var earlier []Range
	check := func(key string, ranges []Range) {
		for _, pool := range ranges {
			k.checkPool(key, pool, earlier, k.PPPoE.Networks...)
			earlier = append(earlier, pool)
			for _, leased := range k.DHCP.Pools {
				if leased.Contains(pool.First) || pool.Contains(leased.First) {
					k.report(key, "%s overlaps %s of dhcp.pools: an address has one client", pool, leased)
				}
			}
			for _, r := range k.DHCP.Static {
				if pool.Contains(r.Addr) {
					k.report(key, "%s has %s in it, which dhcp.static reserves for %s", pool, r.Addr, r.MAC)
				}
			}
		}
	}
	check("pppoe.pools", k.PPPoE.Pools)
	for _, named := range k.PPPoE.Named {
		check(fmt.Sprintf("pppoe.pool.%q", named.Name), named.Ranges)
	}
}

// checkFlowLog checks that the kernel tracks the connections that are to be logged.
func (k *checker) checkFlowLog() {
	const enabled = "flowlog.enabled"
	switch {
	case !k.FlowLog.Enabled:
		// folder is used: a former log may have left a note there
		k.refuseUnused(enabled+" is not true", "flowlog.keep", "flowlog.most", "flowlog.ipfix")
	case k.Datapath.Fast && kinds.TraitsOf(k.Datapath.Kind).FastUntracked:
		k.report(enabled, "datapath.fast redirects packets past the kernel's table of connections: use datapath.fast = false")
	}
}

// checkIdent checks the keys of answers in the clients' place.
func (k *checker) checkIdent() {
	if !k.Ident.Enabled {
		k.refuseUnused("ident.enabled is not true", "ident.method", "ident.answer", "ident.name_of", "ident.token_of",
			"ident.hidden_of", "ident.rate")
		return
	}
	if p := k.Portal; p.Enabled && (p.Port == identPort || p.TLSCert != "" && p.TLSPort == identPort) {
		k.report("ident.enabled", "the portal has port %d: choose another portal.port or portal.tls_port", identPort)
	}
	k.checkIdentUsers()
}

// checkIdentUsers checks that each user has one answer.
func (k *checker) checkIdentUsers() {
	listed := map[string]string{}
	for _, l := range []struct {
		key   string
		users []string
	}{{"ident.name_of", k.Ident.NameOf}, {"ident.token_of", k.Ident.TokenOf}, {"ident.hidden_of", k.Ident.HiddenOf}} {
		for _, user := range l.users {
			if other := listed[user]; other != "" {
				k.report(l.key, "%q is in %s already: a user has one answer", user, other)
			}
			listed[user] = l.key
		}
	}
}

// identPort is the port of queries by RFC 1413.
const identPort = 113

// examplePool is the LAN's upper half.
func (k *checker) examplePool() Range {
	last := lastOf(k.LAN.Network()).Prev()
	return Range{First: k.LAN.Address.Addr().Next(), Last: last}
}

// checkPort compares one of the portal's ports with others on the same address.
func (k *checker) checkPort(key string, port uint16) {
	if port == 53 {
		k.report(key, "53 belongs to the DNS")
	}
}

// checkMetrics keeps metrics out of the clients' network.
func (k *checker) checkMetrics() {
	if a := k.Metrics.Listen.Addr(); k.LAN.Address.IsValid() && k.LAN.Address.Masked().Contains(a) {
		k.report("metrics.listen", "%s is in the LAN, where clients would read it: take 127.0.0.1", a)
	}
}

// checkDynamic keeps the port for servers' requests out of the clients' network.
func (k *checker) checkDynamic() {
	if a := k.RADIUS.Dynamic.Addr(); k.LAN.Address.IsValid() && k.LAN.Address.Masked().Contains(a) {
		k.report("radius.dynamic",
			"%s is in the LAN, where clients could send requests in a server's name: take the address towards the servers", a)
	}
}

// checkDatapath compares the data path's keys with its kind.
func (k *checker) checkDatapath() {
	kind := kinds.TraitsOf(k.Datapath.Kind)
	if kind.PPPoEOnly {
		k.checkPPPoEOnly(kind)
	}
	reason := fmt.Sprintf("datapath.kind is %q", kind.Name)
	for _, key := range kinds.Unheeded(kind) {
		k.refuseUnused(reason, "datapath."+key)
	}
	if f := k.Datapath.Forward; f != ForwardAuto && kind.UsesKey("flow_cache") {
		k.refuseUnused(fmt.Sprintf("datapath.forward is %q", f), "datapath.flow_cache")
	}
	if kind.HidesLAN && k.DHCP.Mode == External {
		k.report("dhcp.mode",
			`"external" is not possible with datapath.kind = %q: no other program hears the LAN's clients`, kind.Name)
	}
	if d := k.Datapath.Device; kind.UsesKey("device") && (d == k.LAN.Interface || d == k.WAN.Interface || d == "lo") {
		k.report("datapath.device", "%q is an interface that is there already: gatewayd makes its own", d)
	}
}

// checkPPPoEOnly refuses keys that have no effect with a data path that serves PPPoE clients only.
func (k *checker) checkPPPoEOnly(kind datapath.Traits) {
	const only = "%q carries PPPoE clients alone: "
	usual := kinds.All[0].Name
	if !k.PPPoE.Enabled {
		k.report("datapath.kind", only+"set pppoe.enabled = true, or use %q", kind.Name, usual)
	}
	if k.Portal.Enabled {
		k.report("portal.enabled", "no client reaches the portal, because datapath.kind = "+only+
			"set portal.enabled = false, or use %q", kind.Name, usual)
	}
	if k.LAN.Address6.IsValid() && !k.PPPoE.IPv6 {
		k.report("lan.address6", "has no effect, because datapath.kind = "+only+"set pppoe.ipv6 = true, or use %q", kind.Name,
			usual)
	}
	k.refuseUnused(fmt.Sprintf("datapath.kind is %q", kind.Name), "garden.domains", "garden.prefixes", "garden.ports",
		"lan.nd_proxy", "lan.repeaters", "dhcp.claims")
}
