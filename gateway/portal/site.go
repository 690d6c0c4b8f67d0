// The portal's own addresses, names and URLs, for IPv4 and for IPv6.

package portal

import (
	"cmp"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// familySite is the portal as clients of one family reach it: at its address there, or by its name.
type familySite struct {
	addr, secure netip.AddrPort  // of plain HTTP and of https
	base         string          // of all links: "http://10.1.0.1:8080"
	hosts        map[string]bool // Host fields of plain HTTP that mean the portal
	tlsHosts     map[string]bool // Host fields of https that mean the portal
	bareHosts    map[string]bool // Host fields of plain HTTP to port 80 that mean the portal
}

// setSites computes the portal's sites, of IPv6 where it has an address there.
func (p *Portal) setSites() {
	c := p.cfg
	p.site4 = newSite(c.Name, c.Address, c.TLS.Address)
	if c.Address6.IsValid() {
		var secure netip.AddrPort
		if c.TLS != (TLS{}) {
			secure = netip.AddrPortFrom(c.Address6, c.TLS.Address.Port())
		}
		p.site6 = newSite(c.Name, netip.AddrPortFrom(c.Address6, c.Address.Port()), secure)
	}
}

// newSite returns the site at an address. secure is zero without https.
func newSite(name string, addr, secure netip.AddrPort) familySite {
	s := familySite{addr: addr, secure: secure, hosts: hostFields(name, addr, httpPort)}
	s.bareHosts = hostFields(name, netip.AddrPortFrom(addr.Addr(), httpPort), httpPort)
	s.base = "http://" + authority(cmp.Or(name, addr.Addr().String()), addr.Port(), httpPort)
	if secure.IsValid() {
		s.base = "https://" + authority(cmp.Or(name, secure.Addr().String()), secure.Port(), httpsPort)
		s.tlsHosts = hostFields(name, secure, httpsPort)
	}
	return s
}

// LoginURL is the URL of the login page.
func (c Config) LoginURL() string {
	s := newSite(strings.ToLower(c.Name), c.Address, c.TLS.Address)
	return s.base + "/login"
}

// plainBase is the prefix of the portal's URLs by its address and without https.
func (s *familySite) plainBase() string {
	return "http://" + authority(s.addr.Addr().String(), s.addr.Port(), httpPort)
}

// siteOf returns the portal's site of the family of a connection.
func (p *Portal) siteOf(c *peer) *familySite {
	if c.local.Addr().Is6() && p.site6.addr.IsValid() {
		return &p.site6
	}
	return &p.site4
}

// Ports of the two schemes.
const httpPort, httpsPort = 80, 443

// authority is "host:port", without the scheme's default port.
func authority(host string, port, schemePort uint16) string {
	if port != schemePort {
		return net.JoinHostPort(host, strconv.Itoa(int(port)))
	}
	if addr, err := netip.ParseAddr(host); err == nil && addr.Is6() {
		return "[" + host + "]"
	}
	return host
}

// hostFields returns the Host header fields that mean an address or name.
func hostFields(name string, a netip.AddrPort, schemePort uint16) map[string]bool {
	fields := map[string]bool{a.String(): true, authority(a.Addr().String(), a.Port(), schemePort): true}
	if name != "" {
		fields[authority(name, a.Port(), schemePort)] = true
		fields[net.JoinHostPort(name, strconv.Itoa(int(a.Port())))] = true
	}
	return fields
}
