package gateway

import (
	"net"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/certificate"
	"github.com/gateweigh/gateweigh/gateway/config"
	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/dns"
	"github.com/gateweigh/gateweigh/gateway/portal"
)

// opener lets the DNS server open addresses in the data path.
type opener struct{ datapath.Running }

var _ dns.Opener = opener{}

// OpenPort implements dns.Opener.
func (o opener) OpenPort(p netip.Prefix, protocol uint8, port uint16, until time.Time) error {
	return o.openPort(datapath.GardenPort{Prefix: p, Protocol: protocol, Port: port}, until)
}

// ShutHTTP implements dns.Opener.
func (o opener) ShutHTTP(p netip.Prefix, until time.Time) error {
	return o.openPort(datapath.GardenPort{Prefix: p, Protocol: unix.IPPROTO_TCP, Port: webPort, Shut: true}, until)
}

func (o opener) openPort(d datapath.GardenPort, until time.Time) error {
	if o.Running.OpenPort != nil {
		return o.Running.OpenPort(d, until)
	}
	return nil // without a garden
}

// openGarden opens the prefixes of the garden that are always open.
func (g *gateway) openGarden() error {
	for _, p := range g.cfg.Garden.Prefixes {
		if err := g.dp.Open(p, time.Time{}); err != nil {
			return err
		}
	}
	for _, p := range g.cfg.Garden.Ports {
		if p.Domain != "" {
			continue
		}
		if err := (opener{g.dp}).OpenPort(p.Prefix, p.Protocol, p.Port, time.Time{}); err != nil {
			return err
		}
	}
	return nil
}

// portNames are the ports that the DNS opens.
func portNames(all []config.GardenPort) (names []dns.PortName) {
	for _, p := range all {
		if p.Domain != "" {
			names = append(names, dns.PortName{Pattern: p.Domain, Protocol: p.Protocol, Port: p.Port})
		}
	}
	return names
}

// redundant warns of values of lists that change nothing.
func (s *survey) redundant() {
	for _, r := range s.Redundancies() {
		with := ""
		if r.With != r.Key {
			with = " of " + r.With
		}
		s.addFinding(Warning, "%s: %s changes nothing, because %s%s holds it: take one of them out", s.LineOf(r.Key), r.Value,
			r.CoveredBy, with)
	}
	of := func(key, name string) {
		if s.Portal.Enabled && s.Portal.Name != "" && name == s.Portal.Name {
			s.addFinding(Warning,
				"%s: %s is portal.name, the gateway itself, which clients reach anyway, and nothing else there is "+
					"opened: take it out", s.LineOf(key), name)
		}
	}
	for _, d := range s.Garden.Domains {
		of("garden.domains", d)
	}
	for _, p := range s.Garden.Ports {
		of("garden.ports", p.Domain)
	}
}

// gardenAddresses warns of addresses of this machine in the garden, which are never open.
func (s *survey) gardenAddresses() {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		s.addFinding(Warning, "looking for this machine's addresses, which are never in the garden: %v", err)
	}
	of := func(key string, p netip.Prefix, text string) {
		is := func(a net.Addr) bool {
			n, ok := a.(*net.IPNet)
			return ok && p.IsSingleIP() && p.Addr().String() == n.IP.String()
		}
		if slices.ContainsFunc(addrs, is) {
			s.addFinding(Warning, "%s: %s is an address of this machine, which is never in the garden: take it out",
				s.LineOf(key),
				text)
		}
	}
	for _, p := range s.Garden.Prefixes {
		of("garden.prefixes", p, p.Addr().String())
	}
	for _, p := range s.Garden.Ports {
		of("garden.ports", p.Prefix, p.String())
	}
}

// bootServers warns of servers that clients cannot reach when they boot, before a login, and of tables for iPXE that
// come after that of the PXE that loads it: iPXE has that class too, and would load itself again and again.
func (s *survey) bootServers() {
	open := func(server netip.Addr) bool {
		reachable := func(p netip.Prefix) bool { return p.Contains(server) }
		return s.LAN.Network().Contains(server) || slices.ContainsFunc(s.Garden.Prefixes, reachable)
	}
	for i, b := range s.DHCP.Boot {
		key, server := "server", b.Server
		if link, err := url.Parse(b.File); err == nil && !server.IsValid() {
			key = "file"
			server, _ = netip.ParseAddr(link.Hostname())
		}
		if server.IsValid() && !open(server) {
			s.addFinding(Warning, "%s: clients that are not logged in cannot load a file of %s: put the address into "+
				"garden.prefixes, or let those devices in (devices.file)", s.WhereBoot(i, key), server)
		}
		anyUser := func(before config.Boot) bool {
			return before.UserClass == "" && strings.HasPrefix(before.VendorClass, b.VendorClass)
		}
		if b.UserClass != "" && slices.ContainsFunc(s.DHCP.Boot[:i], anyUser) {
			s.addFinding(Warning, "%s: of the clients with this user class, those that fit a table above get its file: put the "+
				"tables with dhcp.boot.user_class first", s.WhereBoot(i, "user_class"))
		}
	}
}

// certificate warns of a certificate that browsers refuse, and of a key that others can read.
func (s *survey) certificate() {
	p := s.Portal
	if !p.Enabled || p.TLSCert == "" {
		return
	}
	if err := certificate.CheckFiles(p.TLSCert, p.TLSKey); err != nil {
		s.addFinding(Warning, "%s: %v; until then browsers refuse the portal", s.LineOf("portal.tls_cert"), err)
	}
	if info, err := os.Stat(p.TLSKey); err == nil && info.Mode().Perm()&0o007 != 0 {
		s.addFinding(Warning, "%s: everyone on this machine can read or change %s: chmod o= %s", s.LineOf("portal.tls_key"),
			p.TLSKey, p.TLSKey)
	}
}

// secureProbes are names that devices also ask over HTTPS: an answer makes Android believe that it is online.
var secureProbes = []string{"www.google.com", "connectivitycheck.gstatic.com", "www.gstatic.com"}

// garden warns of names that hold a probe.
func (s *survey) garden() {
	if !s.Portal.Enabled {
		return
	}
	find := func(key, pattern string, names []string, text string) {
		for _, name := range names {
			below, wild := strings.CutPrefix(pattern, "*.")
			if name == pattern || wild && strings.HasSuffix(name, "."+below) {
				s.addFinding(Warning, "%s: %q holds %s, "+text, s.LineOf(key), pattern, name)
				return
			}
		}
	}
	for _, d := range s.Garden.Domains {
		find("garden.domains", d, secureProbes,
			"which devices also ask over HTTPS: they believe that they are online, and show no login page; name what the "+
				"login needs instead")
		find("garden.domains", d, portal.ProbeNames(),
			"by which devices find the login page: its HTTP goes to the portal all the same")
	}
	for _, p := range s.Garden.Ports {
		if p.Domain != "" && p.Port == 443 && p.Protocol == unix.IPPROTO_TCP {
			find("garden.ports", p.Domain, secureProbes,
				"which devices also ask over HTTPS: they believe that they are online, and show no login page; name what the "+
					"login needs instead")
		}
	}
}
