package config

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/BurntSushi/toml"

	"github.com/gateweigh/gateweigh/gateway/datapath/kinds"
	"github.com/gateweigh/gateweigh/internal/near"
	"github.com/gateweigh/gateweigh/internal/strict"
)

// setting is one key of the file and the destination of its value.
type setting struct {
	key    string
	target any // a pointer into the Config
	set    func(v any) error
	// each reads one entry of a table with the user's own keys; set is nil then.
	each func(name string, v any) error
	// column reads the key in one of several tables of the same name, from 0 on; set is nil then.
	column func(row int, v any) error
}

// keyAt connects a key with a destination and a reader of its values.
func keyAt[T any](key string, place *T, read strict.Parser[T]) setting {
	return setting{key: key, target: place, set: func(v any) error {
		value, err := read(v)
		if err == nil {
			*place = value
		}
		return err
	}}
}

// column connects a key of tables of one name, such as [[nat.forward]], with a field of their rows.
func column[R, T any](key string, rows *[]R, read strict.Parser[T], put func(*R, T)) setting {
	return setting{key: key, target: rows, column: func(row int, v any) error {
		for len(*rows) <= row {
			var next R
			*rows = append(*rows, next)
		}
		value, err := read(v)
		if err == nil {
			put(&(*rows)[row], value)
		}
		return err
	}}
}

const (
	minute = time.Minute
	day    = 24 * time.Hour
)

// settings lists every key, in the order of the documentation. File, suggestions, example and manual are checked
// against this list.
func (c *Config) settings() []setting {
	return slices.Concat([]setting{
		keyAt("state_dir", &c.StateDir, absolute),
		keyAt("run_dir", &c.RunDir, absolute),
		keyAt("log_level", &c.LogLevel, level),
		keyAt("log_format", &c.LogFormat, strict.Word(LogText, LogJSON)),
	}, c.lanSettings(), c.networkSettings(), []setting{
		keyAt("wan.interface", &c.WAN.Interface, link),
		keyAt("wan.delegation", &c.WAN.Delegation, strict.Boolean),
	}, c.serviceSettings(), c.natSettings(), c.portalSettings(), c.uamSettings(), c.oidcSettings(), c.clickSettings(),
		c.deviceSettings(), c.pppoeSettings(),
		c.identSettings(), c.radiusSettings(), c.flowSettings(), []setting{
			keyAt("users.file", &c.Users.File, file),
		}, c.limitSettings(), []setting{
			keyAt("datapath.kind", &c.Datapath.Kind, strict.Word(kinds.Names(nil)...)),
			keyAt("datapath.fast", &c.Datapath.Fast, strict.Boolean),
			keyAt("datapath.device", &c.Datapath.Device, link),
			keyAt("datapath.forward", &c.Datapath.Forward, strict.Word(ForwardAuto, ForwardRedirect, ForwardStack)),
			keyAt("datapath.flow_cache", &c.Datapath.FlowCache, strict.Word(FlowCacheAuto, FlowCacheAlways, FlowCacheNever)),
			keyAt("datapath.shaping", &c.Datapath.Shaping, strict.Word(ShapingAuto, ShapingNever)),
			keyAt("datapath.pin_dir", &c.Datapath.PinDir, absolute),
			keyAt("metrics.listen", &c.Metrics.Listen, listenAddress),
		}, c.adminSettings(), c.storeSettings(), c.pairSettings())
}

func (c *Config) lanSettings() []setting {
	return []setting{
		keyAt("lan.interface", &c.LAN.Interface, link),
		keyAt("lan.address", &c.LAN.Address, ownAddress),
		keyAt("lan.address6", &c.LAN.Address6, ownAddress6),
		keyAt("lan.client_prefixes", &c.LAN.ClientPrefixes, clientPrefixes),
		{key: "lan.prefix_pool", target: &c.LAN.PrefixPools, each: c.LAN.addPool},
		keyAt("lan.inbound6", &c.LAN.Inbound6, list(network6)),
		keyAt("lan.nat64", &c.LAN.NAT64, nat64),
		keyAt("lan.repeaters", &c.LAN.Repeaters, list(clientMAC)),
		keyAt("lan.nd_proxy", &c.LAN.NDProxy, strict.Word(Off, NDProxyDAD, NDProxyAll)),
	}
}

func (c *Config) serviceSettings() []setting {
	return []setting{
		keyAt("dhcp.mode", &c.DHCP.Mode, strict.Word(Server, External)),
		keyAt("dhcp.pools", &c.DHCP.Pools, list(addressRange)),
		keyAt("dhcp.lease", &c.DHCP.Lease, duration(minute, 30*day)),
		keyAt("dhcp.preauth_lease", &c.DHCP.ShortLease, duration(minute, 30*day)),
		keyAt("dhcp.dns", &c.DHCP.DNS, list(address)),
		keyAt("dhcp.domain", &c.DHCP.Domain, hostName),
		keyAt("dhcp.mtu", &c.DHCP.MTU, strict.Integer(576, 9000)),
		keyAt("dhcp.claims", &c.DHCP.Claims, strict.Boolean),
		keyAt("dhcp.claimable", &c.DHCP.Claimable, list(addressRange)),
		keyAt("dhcp.ipv6_only", &c.DHCP.IPv6Only, duration(5*minute, 30*day)),
		{key: "dhcp.static", target: &c.DHCP.Static, each: c.DHCP.reserve},
		keyAt("dhcp.relays", &c.DHCP.Relays, list(relay)),
		keyAt("dhcp.relay_information", &c.DHCP.Information, strict.Boolean),
		{key: "dhcp.options", target: &c.DHCP.Options, each: c.DHCP.addOption},
		column("dhcp.boot.vendor_class", &c.DHCP.Boot, line(255), func(b *Boot, v string) { b.VendorClass = v }),
		column("dhcp.boot.user_class", &c.DHCP.Boot, line(255), func(b *Boot, v string) { b.UserClass = v }),
		column("dhcp.boot.server", &c.DHCP.Boot, address, func(b *Boot, v netip.Addr) { b.Server = v }),
		column("dhcp.boot.file", &c.DHCP.Boot, line(255), func(b *Boot, v string) { b.File = v }),
		keyAt("dhcp6.mode", &c.DHCP6.Mode, strict.Word(Off, Stateless, Stateful)),
		keyAt("dhcp6.pd_pool", &c.DHCP6.PDPool, clientPrefixes),
		keyAt("dhcp6.pd_length", &c.DHCP6.PDLength, strict.Integer(33, 64)),
		{key: "dhcp6.prefix_pool", target: &c.DHCP6.PrefixPools, each: c.DHCP6.addPool},
		keyAt("dns.mode", &c.DNS.Mode, strict.Word(Server, External)),
		keyAt("dns.upstreams", &c.DNS.Upstreams, list(addressPort(53))),
		keyAt("dns.answer_aaaa", &c.DNS.AnswerAAAA, strict.Boolean),
		keyAt("garden.domains", &c.Garden.Domains, list(domainPattern)),
		keyAt("garden.prefixes", &c.Garden.Prefixes, list(gardenPrefix)),
		keyAt("garden.ports", &c.Garden.Ports, list(gardenPort)),
	}
}

func (c *Config) portalSettings() []setting {
	return []setting{
		keyAt("portal.enabled", &c.Portal.Enabled, strict.Boolean),
		keyAt("portal.port", &c.Portal.Port, port),
		keyAt("portal.port_80", &c.Portal.Port80, strict.Boolean),
		keyAt("portal.name", &c.Portal.Name, hostName),
		keyAt("portal.tls_port", &c.Portal.TLSPort, port),
		keyAt("portal.tls_cert", &c.Portal.TLSCert, file),
		keyAt("portal.tls_key", &c.Portal.TLSKey, file),
		keyAt("portal.templates", &c.Portal.Templates, file),
		keyAt("portal.title", &c.Portal.Title, line(100)),
		keyAt("portal.success_url", &c.Portal.SuccessURL, webAddress),
		keyAt("portal.terms", &c.Portal.Terms, prose(20_000)),
		keyAt("portal.wispr", &c.Portal.WISPr, strict.Boolean),
		keyAt("auth.methods", &c.Auth.Methods,
			list(strict.Word(MethodRADIUS, MethodUsers, MethodVoucher, MethodOIDC, MethodClickThrough))),
	}
}

func (c *Config) deviceSettings() []setting {
	d := &c.Devices
	return []setting{
		keyAt("devices.file", &d.File, file),
		keyAt("devices.radius", &d.RADIUS, strict.Boolean),
		keyAt("devices.user_name", &d.UserName, strict.Word(UserMAC, UserVLAN)),
		keyAt("devices.mac_format", &d.Format, strict.Word(MACFormats...)),
		keyAt("devices.password", &d.Password, secret),
		keyAt("devices.password_file", &d.PasswordFile, file),
		keyAt("devices.ask_randomised", &d.AskRandomised, strict.Boolean),
		keyAt("devices.ask_again", &d.AskAgain, duration(time.Second, 7*day)),
		keyAt("devices.remember", &d.Remember, days(2*day, 365*day)),
		keyAt("devices.consent", &d.Consent, strict.Boolean),
	}
}

func (c *Config) pppoeSettings() []setting {
	p := &c.PPPoE
	return []setting{
		keyAt("pppoe.enabled", &p.Enabled, strict.Boolean),
		keyAt("pppoe.name", &p.Name, line(64)),
		keyAt("pppoe.services", &p.Services, list(line(64))),
		keyAt("pppoe.networks", &p.Networks, list(clientNetwork)),
		keyAt("pppoe.pools", &p.Pools, list(addressRange)),
		{key: "pppoe.pool", target: &p.Named, each: p.addPool},
		keyAt("pppoe.resolvers", &p.Resolvers, list(address)),
		keyAt("pppoe.methods", &p.Methods, nonEmpty(list(strict.Word(MSCHAPv2, CHAP, PAP)))),
		keyAt("pppoe.mtu", &p.MTU, strict.Integer(1492, 1500)),
		keyAt("pppoe.ipv6", &p.IPv6, strict.Boolean),
		keyAt("pppoe.sessions_per_mac", &p.PerMAC, strict.Integer(1, 64)),
		keyAt("pppoe.sessions", &p.MaxSessions, strict.Integer(1, 65535)),
		keyAt("pppoe.sessions_waiting", &p.Waiting, strict.Integer(1, 65535)),
		keyAt("pppoe.delay", &p.Delay, duration(time.Millisecond, 5*time.Second)),
		keyAt("pppoe.echo", &p.Echo, duration(time.Second, 10*minute)),
		keyAt("pppoe.echo_failures", &p.EchoFailures, strict.Integer(1, 100)),
	}
}

func (c *Config) flowSettings() []setting {
	f := &c.FlowLog
	return []setting{
		keyAt("flowlog.enabled", &f.Enabled, strict.Boolean),
		keyAt("flowlog.folder", &f.Folder, absolute),
		keyAt("flowlog.keep", &f.KeepFor, days(day, 10*365*day)),
		keyAt("flowlog.most", &f.MaxBytes, sizeFrom(leastFlows, "100MB")),
		keyAt("flowlog.ipfix", &f.IPFIX, addressPort(4739)), // RFC 7011, 10.3.4
	}
}

func (c *Config) identSettings() []setting {
	i := &c.Ident
	return []setting{
		keyAt("ident.enabled", &i.Enabled, strict.Boolean),
		keyAt("ident.method", &i.Method, strict.Word(IdentNAT, IdentMasquerade)),
		keyAt("ident.answer", &i.Answer, strict.Word(AnswerName, AnswerToken, AnswerHidden)),
		keyAt("ident.name_of", &i.NameOf, list(userName)),
		keyAt("ident.token_of", &i.TokenOf, list(userName)),
		keyAt("ident.hidden_of", &i.HiddenOf, list(userName)),
		keyAt("ident.rate", &i.Rate, strict.Integer(1, 10_000)),
	}
}

func (c *Config) radiusSettings() []setting {
	r := &c.RADIUS
	return []setting{
		keyAt("radius.primary.address", &r.Primary.Address, addressPort(1812)),
		keyAt("radius.primary.acct_address", &r.Primary.AcctAddress, addressPort(1813)),
		keyAt("radius.primary.secret", &r.Primary.Secret, secret),
		keyAt("radius.primary.secret_file", &r.Primary.SecretFile, file),
		keyAt("radius.secondary.address", &r.Secondary.Address, addressPort(1812)),
		keyAt("radius.secondary.acct_address", &r.Secondary.AcctAddress, addressPort(1813)),
		keyAt("radius.secondary.secret", &r.Secondary.Secret, secret),
		keyAt("radius.secondary.secret_file", &r.Secondary.SecretFile, file),
		keyAt("radius.method", &r.Method, strict.Word(PAP, CHAP)),
		keyAt("radius.accounting", &r.Accounting, strict.Boolean),
		keyAt("radius.swap_octets", &r.SwapOctets, strict.Boolean),
		keyAt("radius.nas_identifier", &r.NASIdentifier, line(253)),
		keyAt("radius.nas_address", &r.NASAddress, address),
		keyAt("radius.called_station_id", &r.CalledStationID, line(253)),
		keyAt("radius.nas_port_id", &r.PortID, strict.Word(PortInterface, PortVLAN)),
		keyAt("radius.nas_port_type", &r.PortType, strict.Word(PortWireless, PortEthernet)),
		keyAt("radius.timeout", &r.Timeout, duration(100*time.Millisecond, minute)),
		keyAt("radius.retries", &r.Retries, strict.Integer(0, 10)),
		// RFC 2869, 2.1: not below a minute.
		keyAt("radius.interim", &r.Interim, duration(minute, day)),
		keyAt("radius.dynamic", &r.Dynamic, listenAddress),
	}
}

// Keys lists every key of the file, dotted, in the order of the documentation.
func Keys() []string {
	var keys []string
	for _, s := range defaults().settings() {
		keys = append(keys, s.key)
	}
	return keys
}

// tables are the keys that hold other keys.
func tables() []string {
	var names []string
	for _, key := range Keys() {
		for i, c := range key {
			if c == '.' && !slices.Contains(names, key[:i]) {
				names = append(names, key[:i])
			}
		}
	}
	return names
}

// apply sets every entry and returns all problems.
func (c *Config) apply(entries []strict.Entry) strict.Problems {
	a := assigner{settings: map[string]setting{}, tables: tables()}
	for _, s := range c.settings() {
		a.settings[s.key] = s
	}
	return strict.Assign(c.File, entries, func(e strict.Entry) (descend bool, err error) {
		if _, several := e.Value.([]map[string]any); several {
			return true, nil // an entry for each follows
		}
		c.lines[rowKey(e.Path, e.Row)] = e.Line
		if e.Row > 0 {
			c.rows[e.Table] = max(e.Row, c.rows[e.Table])
		}
		return a.assign(e)
	})
}

// rowKey is the name of a line in Config.lines: the key, in one of several tables of a name with the
// table's number.
func rowKey(path toml.Key, row int) string {
	if row == 0 {
		return path.String()
	}
	return fmt.Sprintf("%s#%d", path, row)
}

// assigner assigns the values of a file to the fields of a Config, and collects mistakes.
type assigner struct {
	settings map[string]setting
	tables   []string
}

// assign sets one entry. descend reports whether the entries below it must be read too.
func (a assigner) assign(e strict.Entry) (descend bool, err error) {
	key := e.Key()
	_, isTable := e.Value.(map[string]any)
	s, known := a.settings[key]
	switch {
	case known && s.set != nil:
		return false, s.set(e.Value)
	case known && s.column != nil:
		if e.Row == 0 {
			table := key[:strings.LastIndexByte(key, '.')]
			return false, fmt.Errorf("must be in a table in double brackets: [[%s]]", table)
		}
		return false, s.column(e.Row-1, e.Value)
	case known || slices.Contains(a.tables, key):
		if several := a.isList(key); !isTable && several {
			return false, fmt.Errorf("must be tables in double brackets: [[%s]]", key)
		} else if !isTable || e.Row > 0 && !several {
			return false, fmt.Errorf("must be a table: [%s]", key)
		}
		return true, nil
	}
	last := len(e.Path) - 1
	if parent := a.settings[e.Path[:last].String()]; parent.each != nil {
		return false, parent.each(e.Path[last], e.Value)
	}
	return false, fmt.Errorf("unknown key%s", suggestion(key, slices.Concat(Keys(), a.tables)))
}

// isList reports whether there may be several tables of a name.
func (a assigner) isList(table string) bool {
	for key, s := range a.settings {
		if s.column != nil && key[:strings.LastIndexByte(key, '.')] == table {
			return true
		}
	}
	return false
}

// suggestion returns `; did you mean "…"?` when a known word is similar, or the same in another table, else nothing.
func suggestion(given string, known []string) string {
	if meant := near.Suggestion(given, known); meant != "" {
		return meant
	}
	if word := inOtherTable(given, known); word != "" {
		return near.DidYouMean(word)
	}
	return ""
}

// inOtherTable returns the only known key with the same last part, if there is exactly one: a key in the wrong table,
// or in none.
func inOtherTable(given string, known []string) string {
	last := func(key string) string { return key[strings.LastIndexByte(key, '.')+1:] }
	found := ""
	for _, key := range known {
		if last(key) != last(given) || !strings.Contains(key, ".") {
			continue
		}
		if found != "" {
			return ""
		}
		found = key
	}
	return found
}
