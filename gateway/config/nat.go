package config

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/gateweigh/gateweigh/gateway/datapath/kinds"
	"github.com/gateweigh/gateweigh/internal/strict"
)

// NAT is the configuration of address translation. Without Masquerade and Source addresses are not translated.
type NAT struct {
	Masquerade     bool           // beyond the WAN clients have the WAN's address
	Source         []Range        // beyond the WAN clients have these addresses
	PortsPerClient int            // 0: clients share all ports
	Hairpin        bool           // clients reach forwarded ports by the outside address
	Exceptions     []netip.Prefix // to these destinations clients keep their own addresses
	Inbound        []netip.Prefix // hosts of these networks may open connections to clients' own addresses
	Forwards       []Forward
}

// Enabled reports whether addresses are translated.
func (n NAT) Enabled() bool { return n.Masquerade || len(n.Source) > 0 }

// Forward is a range of ports of the outside address that lead to a client.
type Forward struct {
	Proto string // TCP or UDP
	Ports PortRange
	To    netip.Addr // the client
	Port  uint16     // the client's; 0: the same as outside
}

// Values of nat.forward.proto.
const (
	TCP = "tcp"
	UDP = "udp"
)

// PortRange is the ports from First to Last.
type PortRange struct{ First, Last uint16 }

// String returns the range as it is written in the configuration file.
func (p PortRange) String() string {
	if p.First == p.Last {
		return strconv.Itoa(int(p.First))
	}
	return fmt.Sprintf("%d-%d", p.First, p.Last)
}

// Ports that clients' connections have outside with nat.ports_per_client: all but the well-known ones.
const (
	FirstNATPort = 1024
	natPorts     = 65536 - FirstNATPort
)

// maxSources bounds the addresses of nat.source.
const maxSources = 1 << 16

func (c *Config) natSettings() []setting {
	n := &c.NAT
	return []setting{
		keyAt("nat.masquerade", &n.Masquerade, strict.Boolean),
		keyAt("nat.source", &n.Source, nonEmpty(list(hostRange))),
		keyAt("nat.ports_per_client", &n.PortsPerClient, strict.Integer(1, natPorts)),
		keyAt("nat.hairpin", &n.Hairpin, strict.Boolean),
		keyAt("nat.except", &n.Exceptions, list(gardenPrefix)),
		keyAt("nat.inbound", &n.Inbound, list(prefixOrAll(gardenPrefix))),
		column("nat.forward.proto", &n.Forwards, strict.Word(TCP, UDP), func(f *Forward, v string) { f.Proto = v }),
		column("nat.forward.ports", &n.Forwards, portRange, func(f *Forward, v PortRange) { f.Ports = v }),
		column("nat.forward.to", &n.Forwards, hostPort,
			func(f *Forward, v netip.AddrPort) { f.To, f.Port = v.Addr(), v.Port() }),
	}
}

// hostRange reads an address, or a range as its first and last address.
func hostRange(v any) (Range, error) {
	if a, err := address(v); err == nil {
		return Range{a, a}, nil
	}
	r, err := addressRange(v)
	if err != nil || !isHost(r.First) || !isHost(r.Last) {
		return Range{}, fmt.Errorf(
			`must be an IPv4 address such as "203.0.113.7", or the first and the last one, "203.0.113.7-203.0.113.10", not %s`,
			strict.Show(v))
	}
	return r, nil
}

// prefixOrAll returns a parser that accepts "0.0.0.0/0" in addition to what read accepts.
func prefixOrAll(read strict.Parser[netip.Prefix]) strict.Parser[netip.Prefix] {
	return func(v any) (netip.Prefix, error) {
		if all := netip.PrefixFrom(netip.IPv4Unspecified(), 0); v == all.String() {
			return all, nil
		}
		p, err := read(v)
		if err != nil {
			err = fmt.Errorf(`%w; "0.0.0.0/0" is everybody`, err)
		}
		return p, err
	}
}

// portRange reads a port, or "8000-8010".
func portRange(v any) (PortRange, error) {
	if n, err := port(v); err == nil {
		return PortRange{n, n}, nil
	}
	s, _ := v.(string)
	first, last, isRange := strings.Cut(s, "-")
	if !isRange {
		last = first
	}
	a, err1 := strconv.ParseUint(first, 10, 16)
	b, err2 := strconv.ParseUint(last, 10, 16)
	if errors.Join(err1, err2) != nil || a == 0 || b < a {
		return PortRange{},
			fmt.Errorf(`must be a port such as 8080, or the first and the last one, "8000-8010", not %s`, strict.Show(v))
	}
	return PortRange{uint16(a), uint16(b)}, nil
}

// hostPort reads an address with a port, or without.
func hostPort(v any) (netip.AddrPort, error) {
	if a, err := address(v); err == nil {
		return netip.AddrPortFrom(a, 0), nil
	}
	ap, err := addressPort(1)(v)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf(
			`must be a client's address, such as "10.1.0.5:80", or "10.1.0.5" for the same port, not %s`, strict.Show(v))
	}
	return ap, nil
}

// Clients returns the addresses that clients can have, in ascending order: those of the pools, reserved ones, and those
// that can be claimed. If another DHCP server leases addresses, or only RADIUS gives PPPoE clients addresses, these are
// all of the LAN.
func (c *Config) Clients() []Range {
	var all []Range
	switch {
	case c.DHCP.Mode == External, c.PPPoE.Enabled && len(c.PPPoE.Pools) == 0, len(c.DHCP.Pools) == 0:
		return around(c.LAN.Address)
	default:
		all = slices.Concat(c.DHCP.Pools, c.PPPoE.Pools)
		for _, pool := range c.PPPoE.Named {
			all = append(all, pool.Ranges...)
		}
		for _, r := range c.DHCP.Static {
			if !slices.ContainsFunc(all, func(pool Range) bool { return pool.Contains(r.Addr) }) {
				all = append(all, Range{r.Addr, r.Addr})
			}
		}
		all = append(all, c.claimedBeside()...)
		all = slices.DeleteFunc(all, func(r Range) bool { return !c.LAN.Network().Contains(r.First) }) // not translated
	}
	slices.SortFunc(all, func(a, b Range) int { return a.First.Compare(b.First) })
	return all
}

// LineOf names the line of a key, for messages about it.
func (c *Config) LineOf(key string) string {
	return fmt.Sprintf("%s:%d: %s", c.File, c.lineOf(key), c.KeyName(key))
}

// KeyName returns a key as the file has it: of a network "network.interface" for "lan.interface".
func (c *Config) KeyName(key string) string {
	if c.table > 0 && !c.isCommon(key) {
		return networkKey(key)
	}
	return key
}

// WhereForward names the line of a key of [[nat.forward]], by its place in NAT.Forwards.
func (c *Config) WhereForward(i int, key string) string { return c.whereRow(forwardTable, i, key) }

const forwardTable = "nat.forward"

func forwardKey(i int, key string) string { return keyInRow(forwardTable, i, key) }

// whereRow names the line of a key in the i-th table of a name, from 0 on.
func (c *Config) whereRow(table string, i int, key string) string {
	name := table + "." + key
	if c.table > 0 && !c.isCommon(keyInRow(table, i, key)) {
		name = networkKey(name)
	}
	return fmt.Sprintf("%s:%d: %s", c.File, c.lineOf(keyInRow(table, i, key)), name)
}

// keyInRow names a key in the i-th table of a name, from 0 on.
func keyInRow(table string, i int, key string) string {
	return fmt.Sprintf("%s.%s#%d", table, key, i+1)
}

// checkNAT checks the keys of address translation.
func (k *checker) checkNAT() {
	n := k.NAT
	if n.Masquerade && len(n.Source) > 0 {
		k.report("nat.source", "contradicts nat.masquerade, which takes the addresses of wan.interface: give one of them")
	}
	if !n.Enabled() {
		const reason = "addresses are translated with nat.masquerade = true or nat.source only"
		k.refuseUnused(reason, "nat.ports_per_client", "nat.hairpin", "nat.except", "nat.inbound")
		if k.rows["nat.forward"] > 0 {
			k.reportAt(k.lines["nat.forward#1"], "nat.forward", "has no effect: %s", reason)
		}
		return
	}
	if k.Datapath.Forward == ForwardRedirect && kinds.TraitsOf(k.Datapath.Kind).UsesKey("forward") {
		k.report("datapath.forward", `redirected packets pass address translation by: use "auto"`)
	}
	if k.Ident.Enabled && k.Ident.Method == IdentNAT {
		k.report("ident.method", `is "nat" unless set, where clients keep their addresses, and [nat] translates them: use %q`,
			IdentMasquerade)
	}
	for i := range max(len(n.Forwards), k.rows["nat.forward"]) {
		k.checkForward(i)
	}
	if !k.LAN.Address.IsValid() {
		return
	}
	for _, p := range n.Exceptions {
		if p.Overlaps(k.LAN.Network()) {
			k.report("nat.except", "%s overlaps the LAN, %s, which nothing is translated to", p, k.LAN.Network())
		}
	}
	k.checkInbound()
	k.checkSource()
	k.checkPortsPerClient()
}

// checkSource checks the outside addresses.
func (k *checker) checkSource() {
	sorted := slices.SortedFunc(slices.Values(k.NAT.Source), func(a, b Range) int { return a.First.Compare(b.First) })
	for i, r := range sorted {
		if lan := k.LAN.Network(); lan.Contains(r.First) || lan.Contains(r.Last) || r.Contains(lan.Addr()) {
			k.report("nat.source", "%s is in the LAN, %s: give addresses of %s", r.Short(), lan,
				cmp.Or(k.WAN.Interface, "the WAN"))
		}
		if i == 0 {
			continue
		}
		before := sorted[i-1]
		switch {
		case before.Contains(r.First):
			k.report("nat.source", "%s and %s overlap", before.Short(), r.Short())
		case k.NAT.PortsPerClient == 0 && before.Last.Next() != r.First:
			k.report("nat.source", "%s does not follow %s: without nat.ports_per_client the addresses must be consecutive",
				r.First, before.Last)
		}
	}
	if k.sources() > maxSources {
		k.report("nat.source", "has %d addresses: at most %d", k.sources(), maxSources)
	}
}

// sources is the number of outside addresses.
func (k *checker) sources() int {
	if k.NAT.Masquerade {
		return 1
	}
	n := 0
	for _, r := range k.NAT.Source {
		n += r.Size()
	}
	return n
}

// checkPortsPerClient checks that there are ports for all clients.
func (k *checker) checkPortsPerClient() {
	each := k.NAT.PortsPerClient
	if each == 0 {
		return
	}
	clients := 0
	for _, r := range k.Clients() {
		clients += r.Size()
	}
	sources := k.sources()
	if room := sources * (natPorts / each); clients > room {
		advice := "or fewer clients (dhcp.pools)"
		if fit := (clients + sources - 1) / sources; fit <= natPorts {
			advice = fmt.Sprintf("at most %d fit, ", natPorts/fit) + advice
		}
		where := "give more addresses"
		if k.NAT.Masquerade {
			where = "nat.source with more addresses"
		}
		k.report("nat.ports_per_client",
			"%d clients with %d ports each do not fit into the %d ports from %d on of %d outside addresses, which are enough "+
				"for %d clients: %s, or %s",
			clients, each, natPorts, FirstNATPort, sources, room, advice, where)
	}
}

// checkForward checks one [[nat.forward]].
func (k *checker) checkForward(i int) {
	report := func(key, format string, args ...any) {
		k.reportAt(cmp.Or(k.lines[forwardKey(i, key)], k.lines[fmt.Sprintf("nat.forward#%d", i+1)]), "nat.forward."+key,
			format, args...)
	}
	missing := false
	for _, needed := range [][2]string{
		{"proto", `"tcp" or "udp"`}, {"ports", "the outside ports"}, {"to", "the client's address and port"}} {
		if k.lines[forwardKey(i, needed[0])] == 0 {
			report(needed[0], "missing: %s", needed[1])
			missing = true
		}
	}
	if missing || i >= len(k.NAT.Forwards) {
		return
	}
	f := k.NAT.Forwards[i]
	if f.Proto == "" || f.Ports.First == 0 || !f.To.IsValid() {
		return // refused already
	}
	if k.LAN.Address.IsValid() {
		if problem := k.LAN.Unleasable(f.To); problem != "" {
			report("to", "%s %s: forward to a client", f.To, problem)
		}
	}
	if f.Port != 0 && f.Ports.First != f.Ports.Last {
		report("to", "several ports keep their numbers: use %q, or a [[nat.forward]] for each port", f.To)
	}
	for _, own := range k.answering() {
		if f.Proto == own.proto && f.Ports.First <= own.port && own.port <= f.Ports.Last {
			report("ports", "%d is where gatewayd answers (%s)", own.port, own.key)
		}
	}
	if other := k.named(f); other.IsValid() {
		report("ports", "%s would name the client %s, whose connections have these ports outside (nat.ports_per_client): "+
			"use ports below %d%s", f.Ports, other, FirstNATPort, k.ownPorts(f.To))
	}
	for j, other := range k.NAT.Forwards[:i] {
		if other.Proto == f.Proto && other.Ports.First <= f.Ports.Last && f.Ports.First <= other.Ports.Last {
			report("ports", "%s overlaps %s/%s of line %d: a port leads to one client", f.Ports, other.Proto, other.Ports,
				k.lines[forwardKey(j, "ports")])
		}
	}
}

// ownPort is a port at which gatewayd is reached from outside of the LAN.
type ownPort struct {
	proto string
	port  uint16
	key   string
}

// answering lists the ports at which gatewayd is reached from outside of the LAN.
func (c *Config) answering() (all []ownPort) {
	if c.Ident.Enabled {
		all = append(all, ownPort{TCP, identPort, "ident.enabled"})
	}
	outside := func(a netip.AddrPort) bool {
		return a.IsValid() && !a.Addr().IsLoopback() && !(c.LAN.Address.IsValid() && c.LAN.Network().Contains(a.Addr()))
	}
	if outside(c.Metrics.Listen) {
		all = append(all, ownPort{TCP, c.Metrics.Listen.Port(), "metrics.listen"})
	}
	if outside(c.RADIUS.Dynamic) {
		all = append(all, ownPort{UDP, c.RADIUS.Dynamic.Port(), "radius.dynamic"})
	}
	return all
}

// Short is the range as people write it: one address alone.
func (r Range) Short() string {
	if r.First == r.Last {
		return r.First.String()
	}
	return r.String()
}
