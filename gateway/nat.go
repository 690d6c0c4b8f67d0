package gateway

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/config"
	"github.com/gateweigh/gateweigh/gateway/control"
	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/nat"
	"github.com/gateweigh/gateweigh/quote"
)

// openNAT puts the rules of address translation in place, or removes those of a former configuration, unless another
// gateway has the interfaces.
func (g *gateway) openNAT(context.Context) (o opened, err error) {
	locks, err := datapath.Lock(claimed(g.cfg)...)
	if err != nil {
		return o, err
	}
	defer locks.Close()
	if !g.cfg.NAT.Enabled() {
		return o, nat.Remove(nat.Table(g.cfg.LAN.Interface))
	}
	c := natConfig(g.cfg)
	c.Log = g.log
	if g.nat, err = nat.Open(c); err != nil {
		return o, err
	}
	run := func(ctx context.Context) error { return g.nat.Run(ctx, g.detached) }
	return opened{run: run, close: g.nat.Close}, nil
}

// natConfig returns the configuration of the rules.
func natConfig(cfg *config.Config) nat.Config {
	c := nat.Config{
		LAN: clientInterface(cfg), WAN: cfg.WAN.Interface, Name: nat.Table(cfg.LAN.Interface), Network: cfg.LAN.Network(),
		Sources: natRanges(cfg.NAT.Source), Ports: cfg.NAT.PortsPerClient, Clients: natRanges(cfg.Clients()),
		Hairpin: cfg.NAT.Hairpin, Exceptions: cfg.NAT.Exceptions, Inbound: cfg.NAT.Inbound,
		Moves: cfg.Pair.Site != "",
	}
	protocols := map[string]uint8{config.TCP: unix.IPPROTO_TCP, config.UDP: unix.IPPROTO_UDP}
	for _, f := range cfg.NAT.Forwards {
		c.Forwards = append(c.Forwards, nat.Forward{Protocol: protocols[f.Proto], First: f.Ports.First, Last: f.Ports.Last,
			To: f.To, Port: f.Port})
	}
	return c
}

func natRanges(all []config.Range) (out []nat.Range) {
	for _, r := range all {
		out = append(out, nat.Range{First: r.First, Last: r.Last})
	}
	return out
}

// detached reports whether the data path was taken out of the kernel under the daemon, by a forced Detach.
func (g *gateway) detached() bool {
	word, _ := g.dp.Forwarding()
	return word == "detached"
}

// showNAT adds address translation to a status.
func (g *gateway) showNAT(st *control.Status) {
	if g.nat == nil {
		return
	}
	st.Repairs["nat-again"] = g.nat.Restored()
	if g.detached() {
		st.NAT = "detached"
		return
	}
	n := g.cfg.NAT
	parts := []string{"masquerade at " + g.cfg.WAN.Interface}
	if !n.Masquerade {
		parts[0] = "to"
		for _, r := range n.Source {
			parts[0] += " " + r.Short()
		}
	}
	if n.PortsPerClient > 0 {
		parts = append(parts, numbered(n.PortsPerClient, "port")+" for each client")
	}
	if k := len(n.Forwards); k > 0 {
		parts = append(parts, numbered(k, "forward"))
	}
	if reason := g.nat.Trouble(); reason != "" {
		parts = append(parts, "not in place: "+reason)
	}
	st.NAT = strings.Join(parts, ", ")
}

// translation checks what address translation needs: its outside addresses, the clients that ports are forwarded to,
// and no rules of others that translate as well.
func (s *survey) translation() {
	if !s.NAT.Enabled() {
		return
	}
	s.refuse(nat.Check(natConfig(s.Config)))
	s.outside()
	s.pairTranslation()
	for i, f := range s.NAT.Forwards {
		reserved := func(r config.Reservation) bool { return r.Addr == f.To }
		leased := func(pool config.Range) bool { return pool.Contains(f.To) }
		if s.DHCP.Mode == config.Server && !s.PPPoE.Enabled && slices.ContainsFunc(s.DHCP.Pools, leased) &&
			!slices.ContainsFunc(s.DHCP.Static, reserved) {
			s.addFinding(Warning, "%s: whichever client leases %s gets what is forwarded: reserve it in dhcp.static",
				s.WhereForward(i, "to"), f.To)
		}
	}
	others, helpers, err := nat.ForeignRules()
	if err != nil {
		s.addFinding(Warning, "looking for other rules that translate addresses: %v", err)
	}
	s.numbers(helpers)
	for _, chain := range others {
		s.addFinding(Warning, "%s: rules in %s translate addresses too (nft list chain %s): whichever comes first decides; "+
			"remove them where they are for packets from %s",
			s.LineOf(s.natKey()), chain, chain, s.LAN.Network())
	}
}

// numbers warns of clients and connections that cannot have the ports of nat.ports_per_client.
func (s *survey) numbers(helpers []string) {
	if s.NAT.PortsPerClient == 0 {
		return
	}
	if s.PPPoE.Enabled && len(s.PPPoE.Pools) > 0 && s.Auth.Has(config.MethodRADIUS) {
		s.addFinding(Warning,
			"%s: PPPoE clients whose address (Framed-IP-Address) is in none of the pools have no ports, and "+
				"are let out nowhere: add their addresses to a pool of pppoe.pool", s.LineOf("nat.ports_per_client"))
	}
	for _, owner := range helpers {
		s.addFinding(Warning,
			"%s: %s gives connections a helper (FTP, SIP): what a client's helper expects would have other "+
				"ports than the client's, and is dropped; without the helper passive FTP works", s.LineOf("nat.ports_per_client"),
			owner)
	}
}

// warnOfPorts says that a client which was admitted has no ports, and so is let out nowhere.
func (g *gateway) warnOfPorts(addr netip.Addr) {
	if addr.Is4() && !g.cfg.Numbered(addr) { // IPv6 is not translated
		g.portless.Do(func() {
			g.log.Warn("a client is let out nowhere, because its address is none of those that have ports "+
				"(nat.ports_per_client): those of the pools and of dhcp.static", "client", addr)
		})
	}
}

// natKey is the key that switches translation on.
func (s *survey) natKey() string {
	if s.NAT.Masquerade {
		return "nat.masquerade"
	}
	return "nat.source"
}

// outside checks that the WAN's interface has the addresses that clients are to have, or can get what is sent to them.
// In a network of the interface, its neighbours ask for the address by ARP, which only an owner answers. Other
// addresses may be routed to this machine.
func (s *survey) outside() {
	if s.wan == nil {
		return
	}
	ownPrefixes := s.outsideAddresses()
	if s.Pair.WANAddress.IsValid() { // the gateway that serves has it
		ownPrefixes = append(ownPrefixes, s.Pair.WANAddress)
	}
	if s.NAT.Masquerade && len(ownPrefixes) == 0 {
		s.addFinding(Warning, "%s: %s has no IPv4 address yet, so clients' packets are dropped until it has one",
			s.LineOf("nat.masquerade"), s.WAN.Interface)
	}
	for _, r := range s.NAT.Source {
		for i := range r.Size() {
			weight, ok := missing(r.At(i), ownPrefixes)
			if ok {
				continue
			}
			if weight == Refusal {
				s.addFinding(weight, "%s: %s is in a network of %s, which does not have it, so no answer arrives: %s",
					s.LineOf("nat.source"), r.At(i), s.WAN.Interface,
					quote.Command("ip", "addr", "add", r.At(i).String()+"/32", "dev", s.WAN.Interface))
			} else {
				s.addFinding(weight, "%s: %s does not have %s: answers arrive only if the provider routes it to this machine; "+
					"otherwise use one of its own", s.LineOf("nat.source"), s.WAN.Interface, r.At(i))
			}
			break // one of a range
		}
	}
}

// outsideAddresses lists the IPv4 addresses of the WAN's interface.
func (s *survey) outsideAddresses() (all []netip.Prefix) {
	if s.wan == nil {
		return nil
	}
	addrs, err := s.wan.Addrs()
	if err != nil {
		s.addFinding(Warning, "reading the addresses of %s: %v", s.WAN.Interface, err)
	}
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil {
			ones, _ := n.Mask.Size()
			addr, _ := netip.AddrFromSlice(n.IP.To4())
			all = append(all, netip.PrefixFrom(addr, ones))
		}
	}
	return all
}

// missing reports whether an interface has an address, and how much it matters where it has not.
func missing(addr netip.Addr, ownPrefixes []netip.Prefix) (w Weight, ok bool) {
	w = Warning
	for _, p := range ownPrefixes {
		if p.Addr() == addr {
			return Note, true
		}
		if p.Masked().Contains(addr) {
			w = Refusal
		}
	}
	return w, false
}

// numbered is a number with its noun, which takes -s.
func numbered(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
