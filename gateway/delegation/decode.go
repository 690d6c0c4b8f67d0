package delegation

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv6"
	"github.com/insomniacslk/dhcp/iana"
)

const (
	// minDUID and maxDUID are the lengths of a DUID in bytes (RFC 8415 11.1: a type of 2, and 1 to 128 after it).
	minDUID, maxDUID = 3, 130
	// maxStatusText is how much of a server's words is kept, bytes: they are shown in one line.
	maxStatusText = 120
	// headLength is the type and the transaction id of a message, bytes.
	headLength = 4
)

// Bounds of the option SOL_MAX_RT: other values are ignored (RFC 8415 21.24).
const (
	leastSolMaxRT = 60 * time.Second
	mostSolMaxRT  = 86400 * time.Second
)

// answer is a server's message, as far as the client uses it.
type answer struct {
	kind           dhcpv6.MessageType
	transaction    dhcpv6.TransactionID
	client, server []byte // DUIDs; nil: not in the message
	preference     uint8
	rapidCommit    bool
	solMaxRT       time.Duration // 0: none that is valid
	status         status
	associations   []association // of different IAIDs
	refused        error         // why a part of the message is not used; nil: all is
}

// association is an IA_PD option (RFC 8415 21.21).
type association struct {
	iaid     uint32
	t1, t2   time.Duration
	status   status
	prefixes []offer // usable ones alone
}

// offer is an IA Prefix option (RFC 8415 21.22).
type offer struct {
	prefix           netip.Prefix
	preferred, valid time.Duration
}

// status is what a server says in a Status Code option. The zero status is success, also where there is no option.
type status struct {
	code iana.StatusCode
	text string
}

func (s status) String() string {
	if s.text == "" {
		return s.code.String()
	}
	return fmt.Sprintf("%v (%q)", s.code, s.text)
}

// decodeHead returns the type and the transaction of a message; false: it is too short.
func decodeHead(b []byte) (kind dhcpv6.MessageType, transaction dhcpv6.TransactionID, ok bool) {
	if len(b) < headLength {
		return 0, transaction, false
	}
	return dhcpv6.MessageType(b[0]), dhcpv6.TransactionID(b[1:headLength]), true
}

// decode decodes an ADVERTISE or REPLY. Options that the client does not use may have any content.
func decode(b []byte) (a answer, err error) {
	var ok bool
	if a.kind, a.transaction, ok = decodeHead(b); !ok {
		return answer{}, fmt.Errorf("a message of %d bytes", len(b))
	}
	if a.kind != dhcpv6.MessageTypeAdvertise && a.kind != dhcpv6.MessageTypeReply {
		return answer{}, fmt.Errorf("a message of the type %v", a.kind)
	}
	var options dhcpv6.Options
	if err := options.FromBytesWithParser(b[headLength:], parseOption); err != nil {
		return answer{}, err
	}
	for _, option := range options {
		if err := a.take(option); err != nil {
			return answer{}, err
		}
	}
	return a, nil
}

// parseOption parses the options that the client uses. The library would refuse a message for a mistake in any other
// option, and DUIDs must not be interpreted at all (RFC 8415 11).
func parseOption(code dhcpv6.OptionCode, data []byte) (dhcpv6.Option, error) {
	switch code {
	case dhcpv6.OptionIAPD, dhcpv6.OptionStatusCode:
		return dhcpv6.ParseOption(code, data)
	default:
		return &dhcpv6.OptionGeneric{OptionCode: code, OptionData: data}, nil
	}
}

func (a *answer) take(option dhcpv6.Option) error {
	switch o := option.(type) {
	case *dhcpv6.OptStatusCode:
		a.status = decodeStatus(o)
	case *dhcpv6.OptIAPD:
		a.associate(o)
	case *dhcpv6.OptionGeneric:
		return a.takeBytes(o.OptionCode, o.OptionData)
	}
	return nil
}

// takeBytes takes an option whose content the library does not decode.
func (a *answer) takeBytes(code dhcpv6.OptionCode, data []byte) error {
	switch code {
	case dhcpv6.OptionClientID, dhcpv6.OptionServerID:
		id := &a.client
		if code == dhcpv6.OptionServerID {
			id = &a.server
		}
		switch {
		case *id != nil:
			return fmt.Errorf("two options %v", code)
		case !isDUID(data):
			return fmt.Errorf("a DUID of %d bytes", len(data))
		}
		*id = append([]byte(nil), data...)
	case dhcpv6.OptionPreference:
		if len(data) != 1 {
			return fmt.Errorf("a preference of %d bytes", len(data))
		}
		a.preference = data[0]
	case dhcpv6.OptionRapidCommit:
		a.rapidCommit = true
	case dhcpv6.OptionSolMaxRT:
		if len(data) == 4 {
			seconds := time.Duration(binary.BigEndian.Uint32(data)) * time.Second
			if seconds >= leastSolMaxRT && seconds <= mostSolMaxRT {
				a.solMaxRT = seconds
			}
		}
	}
	return nil
}

// isDUID reports whether bytes can be a DUID. What they mean is nobody's business but their maker's.
func isDUID(b []byte) bool { return len(b) >= minDUID && len(b) <= maxDUID }

// associate takes an IA_PD. Of two with one IAID the first counts.
func (a *answer) associate(o *dhcpv6.OptIAPD) {
	result := association{iaid: binary.BigEndian.Uint32(o.IaId[:]), t1: o.T1, t2: o.T2,
		status: decodeStatus(o.Options.Status())}
	if a.find(result.iaid) != nil {
		return
	}
	if result.t1 > 0 && result.t2 > 0 && result.t1 > result.t2 { // RFC 8415 21.21: is to be discarded
		a.refused = fmt.Errorf("T1 is %v, and T2 %v", result.t1, result.t2)
		return
	}
	for _, p := range o.Options.Prefixes() {
		offered, err := decodePrefix(p)
		if err != nil {
			a.refused = err
			continue
		}
		result.prefixes = append(result.prefixes, offered)
	}
	a.associations = append(a.associations, result)
}

// find returns the association of an IAID; nil: there is none.
func (a *answer) find(iaid uint32) *association {
	for i := range a.associations {
		if a.associations[i].iaid == iaid {
			return &a.associations[i]
		}
	}
	return nil
}

// decodePrefix tells why a prefix is not to be used. Bits behind its length count as zero (RFC 8415 21.22).
func decodePrefix(o *dhcpv6.OptIAPrefix) (offer, error) {
	if o.Prefix == nil || len(o.Prefix.Mask) == 0 { // the library's marks of the length 0, and of one above 128
		return offer{}, errors.New("the delegated prefix has no valid length")
	}
	length, _ := o.Prefix.Mask.Size()
	addr, _ := netip.AddrFromSlice(o.Prefix.IP)
	prefix := netip.PrefixFrom(addr, length).Masked()
	if err := checkUsable(prefix); err != nil {
		return offer{}, err
	}
	if s := decodeStatus(o.Options.Status()); s.code != iana.StatusSuccess {
		return offer{}, fmt.Errorf("of the prefix %v the server said %v", prefix, s)
	}
	if o.PreferredLifetime > o.ValidLifetime {
		return offer{}, fmt.Errorf("the prefix %v is said to be preferred for %v, longer than valid (%v)",
			prefix, o.PreferredLifetime, o.ValidLifetime)
	}
	return offer{prefix: prefix, preferred: o.PreferredLifetime, valid: o.ValidLifetime}, nil
}

func decodeStatus(o *dhcpv6.OptStatusCode) status {
	if o == nil {
		return status{}
	}
	return status{code: o.StatusCode, text: o.StatusMessage[:min(len(o.StatusMessage), maxStatusText)]}
}
