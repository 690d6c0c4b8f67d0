package radius

import (
	"crypto/hmac"
	"crypto/md5"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"layeh.com/radius"
	"layeh.com/radius/rfc2865"
	"layeh.com/radius/rfc2866"
	"layeh.com/radius/rfc2869"

	"github.com/gateweigh/gateweigh/gateway/session"
)

const (
	headerSize = 20  // code, identifier, length, authenticator (RFC 2865, 3)
	maxValue   = 253 // bytes of an attribute's value
)

// signatureAt is the offset of the Message-Authenticator in our requests: it is the first attribute, because an
// attacker could choose what precedes it.
const signatureAt = headerSize + 2

// request makes the packets of one request, one for each server.
type request interface {
	// packet encodes the request for a server. Each call for an Access-Request returns a different packet, because the
	// authenticator is random.
	packet(secret []byte, id byte, now time.Time) ([]byte, error)
	// stale reports whether a packet encoded earlier must be encoded again.
	stale(encoded, now time.Time) bool
	// signed reports whether answers must have a Message-Authenticator.
	signed() bool
}

// builder collects a packet's attributes in order.
type builder struct{ *radius.Packet }

func (b builder) number(t radius.Type, v uint32) { b.Add(t, radius.NewInteger(v)) }

// text adds a text unless it is empty: RFC 2865, 5 forbids empty ones.
func (b builder) text(t radius.Type, v string) {
	if v != "" {
		b.Add(t, radius.Attribute(v))
	}
}

// address adds an IPv4 address unless there is none.
func (b builder) address(t radius.Type, a netip.Addr) {
	if a = a.Unmap(); a.Is4() {
		b.Add(t, a.AsSlice())
	}
}

// gateway adds the attributes that identify the gateway.
func (b builder) gateway(c *Config) {
	b.text(rfc2865.NASIdentifier_Type, c.NASIdentifier)
	b.address(rfc2865.NASIPAddress_Type, c.NASAddress)
}

// portType is NAS-Port-Type of a client; line means that it has a PPPoE session.
func (c *Config) portType(line bool) rfc2865.NASPortType {
	if line || c.NASPortType == Ethernet {
		return rfc2865.NASPortType_Value_Ethernet
	}
	return rfc2865.NASPortType_Value_Wireless80211
}

// portID is NAS-Port-Id of a client in VLANs.
func (c *Config) portID(v session.VLANs) string {
	if c.VLANPorts && v != (session.VLANs{}) {
		return v.String()
	}
	return c.NASPortID
}

// port is NAS-Port of a client in VLANs, with the PPPoE session line; 0: it has none.
func (c *Config) port(v session.VLANs, line uint16) uint32 {
	if line == 0 && c.VLANPorts {
		return v.Number()
	}
	return uint32(line)
}

// client adds the attributes that identify the client in VLANs; line is its PPPoE session.
func (b builder) client(c *Config, k session.Key, v session.VLANs, line uint16) {
	b.number(rfc2865.NASPortType_Type, uint32(c.portType(line != 0)))
	b.text(rfc2869.NASPortID_Type, c.portID(v))
	if port := c.port(v, line); port != 0 {
		b.number(rfc2865.NASPort_Type, port)
	}
	b.text(rfc2865.CallingStationID_Type, stationID(k))
	b.text(rfc2865.CalledStationID_Type, c.CalledStationID)
	b.address(rfc2865.FramedIPAddress_Type, k.Addr)
	b.addresses6(k.Addr)
}

// stationID is a client's MAC address in the form of RFC 3580, 3.21.
func stationID(k session.Key) string {
	return strings.ReplaceAll(strings.ToUpper(fmt.Sprintf("% x", k.MAC[:])), " ", "-")
}

// sendable reports whether credentials can be valid. Others are never sent, because they would reach the server's logs
// and queries.
func sendable(credentials session.Credentials) bool {
	return credentials.User != "" && len(credentials.User) <= maxValue && utf8.ValidString(credentials.User) &&
		!strings.ContainsFunc(credentials.User, unicode.IsControl) &&
		// PAP pads with zeros: "x" and "x\x00" would be one password.
		len(credentials.Password) <= session.MaxPassword && !strings.Contains(credentials.Password, "\x00")
}

// accessRequest makes Access-Requests.
type accessRequest struct {
	cfg         *Config
	credentials session.Credentials
}

func (r *accessRequest) stale(_, _ time.Time) bool { return false }
func (r *accessRequest) signed() bool              { return true }

func (r *accessRequest) packet(secret []byte, id byte, _ time.Time) ([]byte, error) {
	p := builder{radius.New(radius.CodeAccessRequest, secret)}
	p.Identifier = id
	p.Add(rfc2869.MessageAuthenticator_Type, make(radius.Attribute, md5.Size))
	p.text(rfc2865.UserName_Type, r.credentials.User)
	if err := p.proof(r.cfg.Method, r.credentials); err != nil {
		return nil, err
	}
	switch {
	case r.credentials.CallCheck: // RFC 2865, 5.6
		p.number(rfc2865.ServiceType_Type, uint32(rfc2865.ServiceType_Value_CallCheck))
	case r.credentials.Port == 0:
		p.number(rfc2865.ServiceType_Type, uint32(rfc2865.ServiceType_Value_LoginUser))
	}
	p.gateway(r.cfg)
	p.client(r.cfg, r.credentials.Key, r.credentials.VLANs, r.credentials.Port)
	p.addresses6(r.credentials.FurtherAddrs...)
	p.line(r.credentials.Port)
	p.attachment(r.credentials.Circuit, r.credentials.Remote)
	p.text(rfc2866.AcctSessionID_Type, r.credentials.SessionID)
	data, err := p.Encode()
	if err != nil {
		return nil, fmt.Errorf("encoding the access-request: %w", err)
	}
	mac := hmac.New(md5.New, secret)
	mac.Write(data)
	mac.Sum(data[signatureAt:signatureAt])
	return data, nil
}

// line adds the attributes of a PPPoE session; 0: the client has none.
func (b builder) line(port uint16) {
	if port != 0 {
		b.number(rfc2865.ServiceType_Type, uint32(rfc2865.ServiceType_Value_FramedUser))
		b.number(rfc2865.FramedProtocol_Type, uint32(rfc2865.FramedProtocol_Value_PPP))
	}
}

// attachment adds where a client is attached (RFC 4679, 3.3.1 and 3.3.2).
func (b builder) attachment(circuit, remote string) {
	b.vendor(vendorADSL, adslCircuit, []byte(circuit))
	b.vendor(vendorADSL, adslRemote, []byte(remote))
}

// vendor adds a vendor's attribute unless it is empty (RFC 2865, 5.26).
func (b builder) vendor(id uint32, kind byte, value []byte) {
	const header = 2 + 4 // of ours; the attribute around it has 2 more
	if len(value) == 0 {
		return
	}
	value = value[:min(len(value), maxValue-header)]
	a := append(binary.BigEndian.AppendUint32(nil, id), kind, byte(2+len(value)))
	b.Add(rfc2865.VendorSpecific_Type, append(a, value...))
}

// proof adds the password in the method's form, or the client's answer to a challenge.
func (b builder) proof(m Method, credentials session.Credentials) error {
	c := credentials.CHAP
	switch {
	case c == nil:
		return b.password(m, credentials.Password)
	case c.Microsoft:
		if len(c.Response) != msResponse {
			return fmt.Errorf("an MS-CHAPv2 response of %d bytes, instead of %d", len(c.Response), msResponse)
		}
		b.vendor(vendorMicrosoft, msChallenge, c.Challenge)
		// The flags come first here (RFC 2548, 2.3.2), and last in the client's packet.
		value := append([]byte{c.ID, c.Response[msResponse-1]}, c.Response[:msResponse-1]...)
		b.vendor(vendorMicrosoft, msCHAP2Response, value)
		return nil
	}
	b.Add(rfc2865.CHAPPassword_Type, append([]byte{c.ID}, c.Response...))
	b.Add(rfc2865.CHAPChallenge_Type, c.Challenge)
	return nil
}

// Vendors' attributes for clients on PPPoE (RFC 2548, 2.3; RFC 4679, 3.3), and the bytes of an MS-CHAPv2 response.
const (
	vendorMicrosoft = 311
	vendorADSL      = 3561

	msChallenge, msCHAP2Response, msCHAP2Success = 11, 25, 26
	adslCircuit, adslRemote                      = 1, 2

	msResponse = 49
)

// password adds the password in the method's form.
func (b builder) password(m Method, password string) error {
	if m == CHAP {
		// The challenge is a separate attribute, so that the authenticator protects nothing else.
		var digest [1 + md5.Size]byte
		challenge := make(radius.Attribute, md5.Size)
		rand.Read(challenge)
		rand.Read(digest[:1]) // CHAP Identifier
		sum := md5.Sum(append(append(digest[:1:1], password...), challenge...))
		copy(digest[1:], sum[:])
		b.Add(rfc2865.CHAPPassword_Type, digest[:])
		b.Add(rfc2865.CHAPChallenge_Type, challenge)
		return nil
	}
	hidden, err := radius.NewUserPassword([]byte(password), b.Secret, b.Authenticator[:])
	if err != nil {
		return fmt.Errorf("hiding the password: %w", err)
	}
	b.Add(rfc2865.UserPassword_Type, hidden)
	return nil
}

// accountingRequest makes Accounting-Requests.
type accountingRequest struct {
	cfg           *Config
	at            time.Time
	addAttributes func(builder) // adds the event's attributes
}

func (r *accountingRequest) signed() bool { return false }

// delay is the whole seconds since the event, for Acct-Delay-Time.
func (r *accountingRequest) delay(now time.Time) uint32 { return seconds(now.Sub(r.at)) }

// stale reports whether Acct-Delay-Time has changed: the packet changes with it, and so must its identifier (RFC 2866,
// 5.2).
func (r *accountingRequest) stale(encoded, now time.Time) bool {
	return r.delay(encoded) != r.delay(now)
}

func (r *accountingRequest) packet(secret []byte, id byte, now time.Time) ([]byte, error) {
	p := builder{radius.New(radius.CodeAccountingRequest, secret)}
	p.Identifier = id
	r.addAttributes(p)
	p.gateway(r.cfg)
	p.number(rfc2869.EventTimestamp_Type, uint32(r.at.Unix()))
	p.number(rfc2866.AcctDelayTime_Type, r.delay(now))
	data, err := p.Encode()
	if err != nil {
		return nil, fmt.Errorf("encoding the accounting-request: %w", err)
	}
	return data, nil
}

// seconds converts a duration to RADIUS's form: never negative, at most 136 years.
func seconds(d time.Duration) uint32 {
	return uint32(min(max(0, int64(d/time.Second)), 1<<32-1))
}
