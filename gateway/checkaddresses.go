package gateway

import (
	"net/netip"
	"slices"

	"github.com/gateweigh/gateweigh/gateway/config"
	"github.com/gateweigh/gateweigh/gateway/forwarding"
)

// overlaps warns of a LAN in a network of the WAN's interface: hosts of that network look for clients on their own
// link.
func (s *survey) overlaps() {
	if s.lan == nil || s.wan == nil || s.lan.Index == s.wan.Index {
		return
	}
	addrs, err := s.wan.Addrs()
	if err != nil {
		s.addFinding(Refusal, "reading the addresses of %s: %v", s.wan.Name, err)
		return
	}
	for _, lan := range []struct {
		key    string
		prefix netip.Prefix
	}{{"lan.address", s.LAN.Address}, {"lan.address6", s.LAN.Address6}} {
		for _, a := range addrs {
			wan, err := netip.ParsePrefix(a.String())
			if err != nil || !lan.prefix.IsValid() || wan.IsSingleIP() || !lan.prefix.Overlaps(wan) {
				continue
			}
			s.addFinding(Warning, "%s: %s overlaps %s of %s: hosts there look for clients on their own link, and clients do "+
				"not reach those that have addresses of the LAN. Choose another network", s.LineOf(lan.key), lan.prefix.Masked(),
				wan.Masked(), s.wan.Name)
		}
	}
}

// leasable warns of servers whose address DHCP may lease to a client, which would then be taken for the server.
func (s *survey) leasable() {
	if s.DHCP.Mode == config.External {
		return
	}
	warn := func(key string, servers ...netip.AddrPort) {
		for _, server := range servers {
			if addr := server.Addr(); addr.IsValid() && s.leases(addr) {
				s.addFinding(Warning, "%s: DHCP may lease %s to a client: leave it out of dhcp.pools, or keep it for the server's "+
					"MAC address (dhcp.static)", s.LineOf(key), addr)
			}
		}
	}
	if s.DNS.Mode != config.External {
		warn("dns.upstreams", s.DNS.Upstreams...)
	}
	warn("radius.primary.address", s.RADIUS.Primary.Address)
	warn("radius.secondary.address", s.RADIUS.Secondary.Address)
}

// leases reports whether DHCP may lease an address to any client.
func (s *survey) leases(a netip.Addr) bool {
	isFor := func(r config.Reservation) bool { return r.Addr == a }
	if s.LAN.Unleasable(a) != "" || slices.ContainsFunc(s.DHCP.Static, isFor) {
		return false
	}
	return len(s.DHCP.Pools) == 0 || slices.ContainsFunc(s.DHCP.Pools, func(r config.Range) bool { return r.Contains(a) })
}

// OpenFamilies returns the families whose packets the machine forwards from a LAN while no gateway judges them: "IPv4",
// "IPv6" where its clients have IPv6.
func OpenFamilies(cfg *config.Config) (all []string) {
	if enabled, err := forwarding.Forwards(cfg.LAN.Interface); err == nil && enabled {
		all = append(all, "IPv4")
	}
	if (cfg.LAN.Address6.IsValid() || cfg.WAN.Delegation) && ipv6Setting("all", "forwarding") == "1" &&
		ipv6Setting(cfg.LAN.Interface, "disable_ipv6") == "0" {
		all = append(all, "IPv6")
	}
	return all
}
