package delegation

import (
	"encoding/binary"
	"net"
	"net/netip"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv6"
)

// mostElapsed is the largest value of the Elapsed Time option, which also stands for any longer time (RFC 8415 21.9).
// The library would begin at 0 again.
const mostElapsed = 0xffff * 10 * time.Millisecond

// encode returns the message of the present exchange (RFC 8415 16 and 18.2).
func (m *machine) encode(now time.Time) []byte {
	message := &dhcpv6.Message{MessageType: m.exchange.kind, TransactionID: m.exchange.transaction}
	message.AddOption(&dhcpv6.OptionGeneric{OptionCode: dhcpv6.OptionClientID, OptionData: m.identity.DUID})
	if m.exchange.server != nil {
		message.AddOption(&dhcpv6.OptionGeneric{OptionCode: dhcpv6.OptionServerID, OptionData: m.exchange.server})
	}
	if m.exchange.kind == dhcpv6.MessageTypeSolicit {
		message.AddOption(&dhcpv6.OptionGeneric{OptionCode: dhcpv6.OptionRapidCommit})
	}
	message.AddOption(dhcpv6.OptElapsedTime(min(now.Sub(m.exchange.begun), mostElapsed)))
	if m.exchange.kind != dhcpv6.MessageTypeRelease {
		message.AddOption(dhcpv6.OptRequestedOption(dhcpv6.OptionSolMaxRT))
	}
	for number := range m.wanted {
		ia := m.encodeAssociation(number)
		if m.exchange.kind == dhcpv6.MessageTypeRelease && len(ia.Options.Options) == 0 {
			continue
		}
		message.AddOption(ia)
	}
	return message.ToBytes()
}

// encodeAssociation returns an IA_PD with the prefixes that are asked for; without any, with the length that is wished.
func (m *machine) encodeAssociation(number int) *dhcpv6.OptIAPD {
	ia := &dhcpv6.OptIAPD{}
	binary.BigEndian.PutUint32(ia.IaId[:], m.iaid(number))
	for _, p := range m.asked {
		if p.Number == number {
			ia.Options.Add(encodePrefix(p.Prefix))
		}
	}
	if len(ia.Options.Options) == 0 && m.length > 0 && m.exchange.kind != dhcpv6.MessageTypeRelease {
		ia.Options.Add(encodePrefix(netip.PrefixFrom(netip.IPv6Unspecified(), m.length)))
	}
	return ia
}

// encodePrefix leaves the lifetimes 0: the server chooses them.
func encodePrefix(prefix netip.Prefix) *dhcpv6.OptIAPrefix {
	return &dhcpv6.OptIAPrefix{Prefix: &net.IPNet{
		IP: prefix.Addr().AsSlice(), Mask: net.CIDRMask(prefix.Bits(), prefix.Addr().BitLen())}}
}

// iaid identifies one of the wanted prefixes to servers.
func (m *machine) iaid(number int) uint32 { return m.identity.IAID + uint32(number) }
