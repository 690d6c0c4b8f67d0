package dhcp6

import (
	"encoding/binary"
	"errors"
	"iter"
	"net/netip"
	"slices"

	"github.com/insomniacslk/dhcp/dhcpv6"
)

const (
	headerLen   = 4         // type and transaction ID (RFC 8415, 8)
	iaLen       = 4 + 4 + 4 // IAID, T1, T2
	iaAddrLen   = 16 + 4 + 4
	iaPrefixLen = 4 + 4 + 1 + 16

	maxIAs   = 16 // of a message: as many as a MAC may have addresses
	maxHints = 8  // addresses or prefixes of an IA: those of all pools, before and after a change of prefixes
	maxCodes = 64 // of an Option Request: clients ask for 30 at most
)

// request is a DHCPv6 message as it came, with what the server needs of it. Clients err in single options, and a
// message is worth an answer without them: what cannot be read is as good as missing.
type request struct {
	kind          dhcpv6.MessageType
	transactionID dhcpv6.TransactionID
	mac           MAC        // of the frame
	session       uint16     // PPPoE's, of the frame; 0: none
	source        netip.Addr // of the datagram

	duid      string // the client's identifier; empty: there is none
	serverID  []byte // nil: there is none
	ias       []association
	codes     []dhcpv6.OptionCode // that the client asks for
	asksCodes bool                // there is an Option Request
	rapid     bool                // rapid commit
	registers []byte              // an address outside of IAs, as it came (RFC 9686); nil: there is none
	unread    int                 // options that could not be read, or were too many
}

func (rq *request) client() Client { return Client{MAC: rq.mac, Session: rq.session} }

// association is a client's identity association: IA_NA or IA_PD.
type association struct {
	kind  Kind
	iaid  uint32
	hints []netip.Prefix // addresses as /128; a prefix of :: is a wish for its length
}

// errShort is returned for bytes that are no DHCPv6 message.
var errShort = errors.New("it is too short for a DHCPv6 message")

// parseMessage reads a message of a client. An option that is cut off ends its message or IA. It copies what it keeps,
// and keeps a bounded amount.
func parseMessage(b []byte) (*request, error) {
	if len(b) < headerLen {
		return nil, errShort
	}
	rq := &request{kind: dhcpv6.MessageType(b[0]), transactionID: dhcpv6.TransactionID(b[1:headerLen])}
	for code, data := range options(b[headerLen:], &rq.unread) {
		rq.take(code, data)
	}
	return rq, nil
}

// options returns a sequence of options, and adds 1 to unread when the last one is cut off.
func options(b []byte, unread *int) iter.Seq2[dhcpv6.OptionCode, []byte] {
	return func(yield func(dhcpv6.OptionCode, []byte) bool) {
		for len(b) > 0 {
			if len(b) < 4 || len(b) < 4+int(binary.BigEndian.Uint16(b[2:])) {
				*unread++
				return
			}
			end := 4 + int(binary.BigEndian.Uint16(b[2:]))
			if !yield(dhcpv6.OptionCode(binary.BigEndian.Uint16(b)), b[4:end:end]) {
				return
			}
			b = b[end:]
		}
	}
}

// take reads one option of a message.
func (rq *request) take(code dhcpv6.OptionCode, data []byte) {
	good := true
	switch code {
	case dhcpv6.OptionClientID:
		if good = rq.duid == "" && len(data) >= minDUID && len(data) <= maxDUID; good {
			rq.duid = string(data)
		}
	case dhcpv6.OptionServerID: // one that cannot be right is another server's
		rq.serverID = append([]byte{}, data[:min(len(data), maxDUID+1)]...)
	case dhcpv6.OptionIANA:
		good = rq.takeIA(Address, data)
	case dhcpv6.OptionIAPD:
		good = rq.takeIA(Delegated, data)
	case dhcpv6.OptionORO:
		rq.asksCodes = true
		for ; len(data) >= 2 && len(rq.codes) < maxCodes; data = data[2:] {
			rq.codes = append(rq.codes, dhcpv6.OptionCode(binary.BigEndian.Uint16(data)))
		}
		good = len(data) == 0
	case dhcpv6.OptionRapidCommit:
		rq.rapid = true
	case dhcpv6.OptionIAAddr:
		if good = len(data) >= iaAddrLen && rq.registers == nil; good {
			rq.registers = slices.Clone(data)
		}
	}
	if !good {
		rq.unread++
	}
}

// takeIA reads an identity association, and reports whether the message can have it.
func (rq *request) takeIA(kind Kind, data []byte) bool {
	if len(data) < iaLen || len(rq.ias) >= maxIAs {
		return false
	}
	ia := association{kind: kind, iaid: binary.BigEndian.Uint32(data)}
	if slices.ContainsFunc(rq.ias, func(other association) bool { return other.kind == kind && other.iaid == ia.iaid }) {
		return false
	}
	for code, data := range options(data[iaLen:], &rq.unread) {
		var hint netip.Prefix
		switch {
		case code == dhcpv6.OptionIAAddr && kind == Address && len(data) >= iaAddrLen:
			hint = netip.PrefixFrom(netip.AddrFrom16([16]byte(data)), 128)
		case code == dhcpv6.OptionIAPrefix && kind == Delegated && len(data) >= iaPrefixLen && data[8] <= 128:
			hint = netip.PrefixFrom(netip.AddrFrom16([16]byte(data[9:])), int(data[8])).Masked()
		}
		switch {
		case hint.IsValid() && len(ia.hints) < maxHints:
			ia.hints = append(ia.hints, hint)
		case hint.IsValid() || code == dhcpv6.OptionIAAddr || code == dhcpv6.OptionIAPrefix:
			rq.unread++
		}
	}
	rq.ias = append(rq.ias, ia)
	return true
}

// names returns the addresses and prefixes that the client says it has or wants, without wishes for a length alone.
func (ia association) names() (named []netip.Prefix) {
	for _, hint := range ia.hints {
		if !hint.Addr().IsUnspecified() {
			named = append(named, hint)
		}
	}
	return named
}

// asksFor reports whether the client wants an option. One without an Option Request wants all.
func (rq *request) asksFor(code dhcpv6.OptionCode) bool {
	return !rq.asksCodes || slices.Contains(rq.codes, code)
}
