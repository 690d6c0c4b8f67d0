package gateway

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"path/filepath"
	"syscall"
	"time"

	"github.com/gateweigh/gateweigh/gateway/access"
	"github.com/gateweigh/gateweigh/gateway/config"
	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/dhcp"
	"github.com/gateweigh/gateweigh/gateway/dns"
	"github.com/gateweigh/gateweigh/gateway/oidc"
	"github.com/gateweigh/gateweigh/gateway/portal"
	"github.com/gateweigh/gateweigh/gateway/radius"
	"github.com/gateweigh/gateweigh/gateway/session"
	"github.com/gateweigh/gateweigh/gateway/users"
	"github.com/gateweigh/gateweigh/gateway/voucher"
)

func (g *gateway) radiusConfig() radius.Config {
	r := g.cfg.RADIUS
	out := radius.Config{
		NASIdentifier: r.NASIdentifier, NASAddress: r.NASAddress, NASPortType: radius.PortType(r.PortType),
		NASPortID: g.cfg.LAN.Interface, VLANPorts: r.PortID == config.PortVLAN,
		CalledStationID: r.CalledStationID, Method: radius.Method(r.Method),
		Timeout: r.Timeout, Retries: r.Retries,
		InterimDefault: r.Interim, SwapOctets: r.SwapOctets, LocalAccounts: !g.cfg.Auth.Has(config.MethodRADIUS),
		LocalUsers: voucher.UserOf(""), Log: g.log, Prefixes: g.sessionPrefixes,
		Connections: g.cfg.CountsConnections(), Profiles: map[string]radius.Profile{},
	}
	if r.Retries == 0 {
		out.Retries = -1 // none: for radius, 0 means the default
	}
	for _, p := range g.cfg.Profiles {
		out.Profiles[p.Name] = radius.Profile{Sessions: p.SessionsPerUser, Limits: limitsOf(p)}
	}
	for _, s := range r.Servers() {
		out.Servers = append(out.Servers, radius.Server{Address: s.Address, AcctAddress: s.AcctAddress, Secret: s.Secret})
	}
	return out
}

func (g *gateway) dhcpConfig() dhcp.Config {
	cfg, d := g.cfg, g.cfg.DHCP
	out := dhcp.Config{
		Interface: cfg.LAN.Interface, Server: cfg.LAN.Address.Addr(), Subnet: cfg.LAN.Network(),
		Static: map[dhcp.MAC]netip.Addr{}, Lease: d.Lease, DNS: d.DNS, Domain: d.Domain, MTU: d.MTU, IPv6Only: d.IPv6Only,
		ShortLease: d.ShortLease, PerMAC: datapath.Senders, Settled: g.authenticated,
		Path: filepath.Join(cfg.StateDir, "leases.db"),
		Log:  g.log, Repeaters: map[dhcp.MAC]bool{}, BehindRepeater: maxBehind,
	}
	for _, mac := range cfg.LAN.Repeaters {
		out.Repeaters[dhcp.MAC(mac)] = true
	}
	out.Present = func(ctx context.Context, mac dhcp.MAC, addr netip.Addr) (bool, error) {
		return g.arp.Present(ctx, addr, mac)
	}
	if len(d.Relays) == 0 { // data paths count requests by their senders, and a relay sends those of many
		out.Requests = g.dp.Requests
	}
	if g.portal != nil {
		out.CaptivePortalURL = g.portal.APIURL()
	}
	for _, p := range d.Pools {
		out.Pools = append(out.Pools, dhcp.Range{First: p.First, Last: p.Last})
	}
	for _, s := range d.Static {
		out.Static[dhcp.MAC(s.MAC)] = s.Addr
	}
	for code, data := range d.Options {
		out.Options = append(out.Options, dhcp.Option{Code: code, Data: data})
	}
	out.Information = d.Information
	if g.pair != nil {
		out.Written = g.pair.leased
	}
	for _, r := range d.Relays {
		known := dhcp.Relay{Addr: r.Addr, Subnet: r.Network, Router: r.Router}
		if !r.Network.IsValid() {
			known.Subnet = out.Subnet
		}
		out.Relays = append(out.Relays, known)
	}
	for _, b := range d.Boot {
		out.Boot = append(out.Boot, dhcp.Boot(b))
	}
	return out
}

// authenticated reports whether a client is logged in.
func (g *gateway) authenticated(mac dhcp.MAC, addr netip.Addr) bool {
	s, known := g.table.Get(addr)
	return known && s.MAC == datapath.MAC(mac) && s.State == session.Authenticated
}

func (g *gateway) dnsConfig() dns.Config {
	cfg := g.cfg
	out := dns.Config{
		Listen: netip.AddrPortFrom(cfg.LAN.Address.Addr(), 53), Interface: clientInterface(cfg),
		Clients: networks4(cfg), Upstreams: cfg.DNS.Upstreams,
		Garden: cfg.Garden.Domains, Ports: portNames(cfg.Garden.Ports), Open: cfg.Garden.Prefixes,
		NeverOpen: networks4(cfg),
		Local:     map[string]netip.Addr{}, IPv6: cfg.DNS.AnswerAAAA, Log: g.log,
		ClientOf: func(addr netip.Addr) (mac [6]byte, admitted bool) {
			s, known := g.table.Get(addr)
			if admitted = s.At(time.Now()).State == session.Authenticated; known && !admitted {
				g.seen(s.MAC)
			}
			return s.MAC, admitted
		},
	}
	if g.visits != nil {
		out.Watcher = g.visits
	}
	if cfg.Portal.Enabled {
		out.Probes = portal.ProbeNames()
	}
	if cfg.Portal.Enabled && cfg.Portal.Name != "" {
		out.Local[cfg.Portal.Name] = cfg.LAN.Address.Addr()
	}
	if own := cfg.LAN.Address6; own.IsValid() {
		out.Listen6 = netip.AddrPortFrom(own.Addr(), 53)
		all := []netip.Prefix{own.Masked()}
		if pool := cfg.LAN.ClientPrefixes.Pool; pool.IsValid() {
			all = append(all, pool)
		}
		for _, named := range cfg.LAN.PrefixPools {
			all = append(all, named.Network)
		}
		if pool := cfg.DHCP6.PDPool.Pool; pool.IsValid() {
			all = append(all, pool)
		}
		out.Clients, out.NeverOpen = append(out.Clients, all...), append(out.NeverOpen, all...)
		out.Clients = append(out.Clients, linkLocals) // of clients that have no other address yet
		// clients' other prefixes come and go; the data path lets nobody else ask
		if cfg.WAN.Delegation {
			out.Clients = append(out.Clients, netip.MustParsePrefix("2000::/3"))
		}
		if cfg.Portal.Enabled && cfg.Portal.Name != "" {
			out.Local6 = map[string]netip.Addr{cfg.Portal.Name: own.Addr()}
		}
	}
	return out
}

// linkLocals are addresses by which clients reach their link alone (RFC 4291, 2.5.6).
var linkLocals = netip.MustParsePrefix("fe80::/10")

// CheckFiles reads the files that a configuration names, as the daemon would, and changes nothing. Its refusals are
// mistakes in the files.
func CheckFiles(cfg *config.Config) []Finding {
	if len(cfg.Networks) > 0 {
		return ofNetworks(cfg, CheckFiles)
	}
	s := &survey{Config: cfg}
	s.retransmissions()
	s.devices()
	s.clickThrough()
	s.redundant()
	s.uam()
	s.admin()
	s.store()
	g := &gateway{cfg: cfg, log: slog.New(slog.DiscardHandler)}
	sources, accounts, err := g.authenticator()
	s.refuse(err)
	if err != nil {
		return s.findings
	}
	if accounts != nil && accounts.State().Counted && !cfg.CountsConnections() {
		s.addFinding(Warning, "%s has accounts with connections=, which nothing counts: set limits.connections, to a "+
			"number or to \"none\"", cfg.Users.File)
	}
	if accounts != nil && accounts.State().Number == 0 {
		name := "by the users' file"
		if len(cfg.Auth.Methods) == 1 {
			name = "at all"
		}
		s.addFinding(Warning,
			"%s has no account, so nobody can log in %s: add a line NAME:HASH for each (gatewayd hash-password "+
				"prints the hash)", cfg.Users.File, name)
	}
	if cfg.Portal.Enabled {
		if cfg.Auth.Has(config.MethodOIDC) {
			g.providers, err = oidc.New(g.providersConfig())
			s.refuse(err)
		}
		_, err = g.newPortal(make([]byte, keySize), limitDefaults{nil, g, false}, sources)
		s.refuse(err)
	}
	return s.findings
}

// openPortal creates the portal if it is enabled.
func (g *gateway) openPortal(context.Context) (o opened, err error) {
	if !g.cfg.Portal.Enabled {
		return o, nil
	}
	sources, accounts, err := g.authenticator()
	if err != nil {
		return o, err
	}
	path := filepath.Join(g.cfg.StateDir, "portal.key")
	key, err := keptKey(path, keySize)
	if err != nil {
		return o, err
	}
	g.users = accounts
	if g.portal, err = g.newPortal(key, limitDefaults{g.table, g, false}, sources); err != nil {
		return o, err
	}
	leave := g.store.shareKey(&sharedKey{name: perNetwork("portal", g.cfg.Name), path: path, present: key,
		use: g.portal.SetKey, log: g.log})
	return opened{close: func() error { leave(); return nil }}, nil
}

// newPortal makes the portal, and what speaks with one elsewhere.
func (g *gateway) newPortal(key []byte, sessions limitDefaults, sources access.Sources) (p *portal.Portal, err error) {
	cfg := g.portalConfig(key)
	if g.uam, err = g.elsewhere(cfg, sessions, sources); err != nil {
		return nil, err
	}
	cfg.Elsewhere = g.uam
	return portal.New(cfg, sessions, sources)
}

func (g *gateway) portalConfig(key []byte) portal.Config {
	p, addr := g.cfg.Portal, g.cfg.LAN.Address.Addr()
	cfg := portal.Config{
		Address: netip.AddrPortFrom(addr, p.Port), Address6: g.cfg.LAN.Address6.Addr(), Name: p.Name,
		Terms: p.Terms, Title: p.Title,
		SuccessURL: p.SuccessURL, Templates: p.Templates, Key: key, Guard: &g.guard, Log: g.log,
		Methods: portal.Methods{
			Login:        g.cfg.Auth.Has(config.MethodUsers) || g.cfg.Auth.Has(config.MethodRADIUS),
			Voucher:      g.cfg.Auth.Has(config.MethodVoucher),
			ClickThrough: g.cfg.Auth.Has(config.MethodClickThrough),
			Guest:        g.guestLogin(),
		},
		VoucherUsers: voucher.UserOf(""), Click: g.clickConfig(), WISPr: p.WISPr,
	}
	if g.providers != nil {
		cfg.Providers = g.providers
	}
	if g.vouchers != nil {
		cfg.UserOfCode = g.vouchers.UserOf
	}
	if d := g.cfg.Devices; d.Remember > 0 && d.Consent {
		cfg.RememberDays = int(d.Remember / (24 * time.Hour))
	}
	if p.TLSCert != "" {
		cfg.TLS = portal.TLS{Address: netip.AddrPortFrom(addr, p.TLSPort), Cert: p.TLSCert, Key: p.TLSKey}
	}
	return cfg
}

// listenPortal opens the portal's listeners and has the data path hand over clients' connections.
func (g *gateway) listenPortal(ctx context.Context) (o opened, err error) {
	if g.portal == nil {
		return o, nil
	}
	var all portal.Listeners
	o.close = func() error { all.Close(); return nil }
	if err := openListeners(ctx, g.cfg, g.homeListens, &all); err != nil {
		return o, fmt.Errorf("portal: %w", err)
	}
	if g.dp.Portal != nil {
		if err := g.dp.Portal(all.Plain[0].(syscall.Conn)); err != nil {
			return o, fmt.Errorf("portal: %w", err)
		}
	}
	if g.cfg.LAN.Address6.IsValid() {
		if err := g.dp.IPv6.Portal6(all.Plain[1].(syscall.Conn)); err != nil {
			return o, fmt.Errorf("portal: %w", err)
		}
	}
	o.run = func(ctx context.Context) error { return g.portal.Serve(ctx, all) }
	return o, nil
}

// openListeners opens the portal's listeners, first those of plain HTTP that captured connections go to: of IPv4, and
// of IPv6. home adds those at webPort.
func openListeners(ctx context.Context, cfg *config.Config, home bool, all *portal.Listeners) error {
	addrs := []netip.Addr{cfg.LAN.Address.Addr()}
	if cfg.LAN.Address6.IsValid() {
		addrs = append(addrs, cfg.LAN.Address6.Addr())
	}
	p := cfg.Portal
	for _, l := range []struct {
		wanted bool
		port   uint16
		list   *[]net.Listener
	}{{true, p.Port, &all.Plain}, {home, webPort, &all.Plain}, {p.TLSCert != "", p.TLSPort, &all.Secure}} {
		for _, addr := range addrs {
			if !l.wanted {
				continue
			}
			open, err := portal.Listen(ctx, netip.AddrPortFrom(addr, l.port))
			if err != nil {
				return err
			}
			*l.list = append(*l.list, open)
		}
	}
	return nil
}

// leases tells the table of sessions about DHCP's leases.
type leases struct{ g *gateway }

func (l leases) Leased(lease dhcp.Lease) error {
	key := session.Key{MAC: datapath.MAC(lease.MAC), Addr: lease.Addr}
	err := l.g.table.LeaseAt(key, lease.Hostname, lease.End, session.Attachment{
		Circuit: lease.Circuit, Remote: lease.Remote, Via: lease.Via, VLANs: l.g.vlansOf(macOnLAN(lease))})
	if err == nil {
		l.g.leased6(key)
		l.g.seen(key.MAC)
	}
	return err
}

func (l leases) Released(mac net.HardwareAddr, addr netip.Addr) error {
	return l.g.table.Forget(session.Key{MAC: datapath.MAC(mac), Addr: addr})
}

// WriteTemplates writes the portal's built-in pages to a folder, to be changed, and returns the files' paths.
func WriteTemplates(dir string, force bool) ([]string, error) {
	return portal.WriteTemplates(dir, force)
}

// HashPassword returns the hash of a password for the users' file.
func HashPassword(password string) string { return users.Hash(password) }
