package dhcp6

import (
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv6"
	"github.com/insomniacslk/dhcp/iana"
	"github.com/insomniacslk/dhcp/rfc1035label"
)

const (
	maxPayload = 1500 - ipv6Len - udpLen // bytes of message in an Ethernet frame: the server makes no fragments
	// maxIA is the longest answer to an IA in bytes: its head, a status with its text, two prefixes of each pool (a former
	// and a present one), and those that the client names and does not have.
	maxIA = 4 + iaLen + 4 + 2 + maxStatus + (2*maxPools+maxHints)*(4+iaPrefixLen)
	// maxStatus is the longest text of a status in bytes.
	maxStatus = 64
)

// reply is an answer without what all answers have.
type reply struct {
	kind    dhcpv6.MessageType
	options dhcpv6.Options // the client's associations and status
	rapid   bool           // a REPLY to a SOLICIT
	refresh bool           // tells when to ask again for options
}

// message returns the reply in bytes (RFC 8415, 18.3).
func (r reply) message(rq *request, cfg Config) []byte {
	out := dhcpv6.Message{MessageType: r.kind, TransactionID: rq.transactionID}
	out.AddOption(generic(dhcpv6.OptionServerID, cfg.DUID))
	if rq.duid != "" {
		out.AddOption(generic(dhcpv6.OptionClientID, []byte(rq.duid)))
	}
	if r.kind == dhcpv6.MessageTypeAdvertise && cfg.Preference > 0 {
		out.AddOption(dhcpv6.OptPreference(cfg.Preference))
	}
	if r.rapid {
		out.AddOption(generic(dhcpv6.OptionRapidCommit, nil))
	}
	for _, option := range r.options {
		out.AddOption(option)
	}
	for _, option := range cfg.fixedOptions(rq) {
		out.AddOption(option)
	}
	if r.refresh && cfg.Refresh > 0 && rq.asksFor(dhcpv6.OptionInformationRefreshTime) {
		out.AddOption(dhcpv6.OptInformationRefreshTime(cfg.Refresh))
	}
	return out.ToBytes()
}

func generic(code dhcpv6.OptionCode, data []byte) dhcpv6.Option {
	return &dhcpv6.OptionGeneric{OptionCode: code, OptionData: data}
}

// fixedOptions are the options that do not depend on leases. The captive portal is sent to all:
// clients that know it do not always ask.
func (c Config) fixedOptions(rq *request) (options dhcpv6.Options) {
	if dns := c.dnsOf(rq.client()); len(dns) > 0 && rq.asksFor(dhcpv6.OptionDNSRecursiveNameServer) {
		var servers []net.IP
		for _, addr := range dns {
			servers = append(servers, addr.AsSlice())
		}
		options.Add(dhcpv6.OptDNS(servers...))
	}
	if len(c.Search) > 0 && rq.asksFor(dhcpv6.OptionDomainSearchList) {
		names := rfc1035label.NewLabels()
		for _, name := range c.Search {
			names.Labels = append(names.Labels, strings.TrimSuffix(name, "."))
		}
		options.Add(dhcpv6.OptDomainSearchList(names))
	}
	if c.CaptivePortalURL != "" {
		options.Add(generic(dhcpv6.OptionCaptivePortal, []byte(c.CaptivePortalURL)))
	}
	if c.Register && rq.session == 0 && rq.asksCodes && rq.asksFor(dhcpv6.OptionAddrRegEnable) {
		options.Add(generic(dhcpv6.OptionAddrRegEnable, nil))
	}
	return options
}

// dnsOf returns the DNS servers of a client.
func (c Config) dnsOf(client Client) []netip.Addr {
	if c.DNSOf != nil {
		if own := c.DNSOf(client); len(own) > 0 {
			return own
		}
	}
	return c.DNS
}

func status(code iana.StatusCode, text string) dhcpv6.Option {
	return &dhcpv6.OptStatusCode{StatusCode: code, StatusMessage: text[:min(len(text), maxStatus)]}
}

// answer returns the option with what an identity association gets (RFC 8415, 21.4 and 21.21).
func (ia association) answer(list []given, verdict dhcpv6.Option) dhcpv6.Option {
	var inside dhcpv6.Options
	for _, one := range list {
		inside.Add(one.option(ia.kind))
	}
	if verdict != nil {
		inside.Add(verdict)
	}
	t1, t2 := renewals(list)
	if ia.kind == Delegated {
		return &dhcpv6.OptIAPD{IaId: ia.id(), T1: t1, T2: t2, Options: dhcpv6.PDOptions{Options: inside}}
	}
	return &dhcpv6.OptIANA{IaId: ia.id(), T1: t1, T2: t2, Options: dhcpv6.IdentityOptions{Options: inside}}
}

func (ia association) id() [4]byte {
	return [4]byte{byte(ia.iaid >> 24), byte(ia.iaid >> 16), byte(ia.iaid >> 8), byte(ia.iaid)}
}

func (one given) option(kind Kind) dhcpv6.Option {
	if kind == Delegated {
		return &dhcpv6.OptIAPrefix{PreferredLifetime: one.preferred, ValidLifetime: one.valid, Prefix: &net.IPNet{
			IP: one.prefix.Addr().AsSlice(), Mask: net.CIDRMask(one.prefix.Bits(), 128)}}
	}
	return &dhcpv6.OptIAAddress{
		IPv6Addr: one.prefix.Addr().AsSlice(), PreferredLifetime: one.preferred, ValidLifetime: one.valid}
}

// renewals returns T1 and T2: half and four fifths of the shortest lifetime (RFC 8415, 21.4), earlier by up to a
// sixteenth, which differs from client to client, so that those that came together do not renew together. The
// preferred lifetime counts, or the valid one where all are deprecated. Nothing to renew: 0, which leaves it to the
// client.
func renewals(list []given) (t1, t2 time.Duration) {
	var shortest time.Duration
	for _, lifetime := range []func(given) time.Duration{
		func(one given) time.Duration { return one.preferred }, func(one given) time.Duration { return one.valid },
	} {
		for _, one := range list {
			if value := lifetime(one); value > 0 && (shortest == 0 || value < shortest) {
				shortest = value
			}
		}
		if shortest > 0 {
			break
		}
	}
	if shortest == 0 {
		return 0, 0
	}
	share := 0 // of the sixteenth, in 256ths
	for _, bits := range list[0].prefix.Addr().As16() {
		share = (share + int(bits)) % 256
	}
	shortest -= shortest / 16 * time.Duration(share) / 256
	return (shortest / 2).Truncate(time.Second), (shortest * 4 / 5).Truncate(time.Second)
}

// registration returns the ADDR-REG-REPLY to a request, with its address as it came (RFC 9686, 4.3).
func registration(rq *request) []byte {
	out := dhcpv6.Message{MessageType: dhcpv6.MessageTypeAddrRegReply, TransactionID: rq.transactionID}
	out.AddOption(generic(dhcpv6.OptionIAAddr, rq.registers))
	return out.ToBytes()
}
