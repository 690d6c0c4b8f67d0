// Answers to requests: whether they are authentic, and the login that an Access-Accept contains.

package radius

import (
	"crypto/hmac"
	"crypto/md5"
	"crypto/subtle"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"

	"layeh.com/radius"
	"layeh.com/radius/rfc2865"
	"layeh.com/radius/rfc2869"

	"github.com/gateweigh/gateweigh/gateway/session"
)

// Reasons for dropping an answer.
var (
	errMalformed = errors.New("malformed answer")
	errUnsigned  = errors.New("answer without Message-Authenticator")
	errForged    = errors.New("answer with a wrong authenticator")
)

// open decodes an authentic answer to a request with the given authenticator. signed means that the answer must have a
// Message-Authenticator. Errors are one of the above.
func open(data, secret []byte, request [16]byte, signed bool) (*radius.Packet, error) {
	if len(data) < headerSize {
		return nil, errMalformed
	}
	size := int(binary.BigEndian.Uint16(data[2:4]))
	if size < headerSize || size > len(data) || size > radius.MaxPacketLength {
		return nil, errMalformed
	}
	data = data[:size] // the rest is padding (RFC 2865, 3)
	signature, err := findSignature(data)
	switch {
	case err != nil || !expected(radius.Code(data[0]), signed):
		return nil, errMalformed
	case signed && signature == 0:
		return nil, errUnsigned
	case !authenticatorHolds(data, secret, request), signature != 0 && !signatureHolds(data, signature, secret, request):
		return nil, errForged
	}
	p, err := radius.Parse(data, secret)
	if err != nil {
		return nil, errMalformed
	}
	return p, nil
}

// expected reports whether a code answers an Access-Request or, without access, an Accounting-Request.
func expected(code radius.Code, access bool) bool {
	switch code {
	case radius.CodeAccessAccept, radius.CodeAccessReject, radius.CodeAccessChallenge:
		return access
	case radius.CodeAccountingResponse:
		return !access
	}
	return false
}

// findSignature returns the offset of the Message-Authenticator's value, 0 when there is none. Two of them, or
// attributes with wrong lengths, are errors.
func findSignature(data []byte) (int, error) {
	index := 0
	for i := headerSize; i < len(data); {
		if len(data)-i < 2 {
			return 0, errMalformed
		}
		size := int(data[i+1])
		if size < 2 || size > len(data)-i {
			return 0, errMalformed
		}
		if radius.Type(data[i]) == rfc2869.MessageAuthenticator_Type {
			if index != 0 || size != 2+md5.Size {
				return 0, errMalformed
			}
			index = i + 2
		}
		i += size
	}
	return index, nil
}

// authenticatorHolds verifies the Response Authenticator (RFC 2865, 3).
func authenticatorHolds(data, secret []byte, request [16]byte) bool {
	h := md5.New()
	h.Write(data[:4])
	h.Write(request[:])
	h.Write(data[headerSize:])
	h.Write(secret)
	return subtle.ConstantTimeCompare(h.Sum(nil), data[4:headerSize]) == 1
}

// signatureHolds verifies the Message-Authenticator at an offset: an HMAC over the packet with the request's
// authenticator, and with zeros in place of the value (RFC 3579, 3.2).
func signatureHolds(data []byte, index int, secret []byte, request [16]byte) bool {
	var zeros [md5.Size]byte
	mac := hmac.New(md5.New, secret)
	mac.Write(data[:4])
	mac.Write(request[:])
	mac.Write(data[headerSize:index])
	mac.Write(zeros[:])
	mac.Write(data[index+md5.Size:])
	return hmac.Equal(mac.Sum(nil), data[index:index+md5.Size])
}

// decide converts an authentic answer to a login or an error.
func (c *Client) decide(credentials session.Credentials, p *radius.Packet) (session.Login, error) {
	switch p.Code {
	case radius.CodeAccessReject:
		return session.Login{}, fmt.Errorf("radius: by the server: %w", session.Reject(replyMessage(p)))
	case radius.CodeAccessChallenge:
		return session.Login{}, &session.Challenge{Message: replyMessage(p)}
	}
	if v, found := numericAttr(p, rfc2865.ServiceType_Type); found {
		switch v := rfc2865.ServiceType(v); {
		case v == rfc2865.ServiceType_Value_LoginUser, v == rfc2865.ServiceType_Value_FramedUser:
		case v == rfc2865.ServiceType_Value_CallCheck && credentials.CallCheck:
		default:
			return session.Login{},
				unfit("the server grants Service-Type %d, which is not network access (Login 1 or Framed 2)", v)
		}
	}
	login := session.Login{User: credentials.User}
	c.sayUncounted(p)
	limits, err := c.cfg.limits(p)
	if err == nil {
		login.Limits, login.Explicit, err = limits.ofLogin(time.Now())
		login.Sessions = limits.sessions
	}
	if err != nil {
		return session.Login{}, unfit("%w", err)
	}
	if name := p.Get(rfc2865.UserName_Type); len(name) > 0 {
		login.User = string(name)
	}
	if credentials.Port != 0 {
		if err := framed(&login, p); err != nil {
			return session.Login{}, unfit("%w", err)
		}
	}
	if login.IPv6, err = granted6(p); err != nil {
		return session.Login{}, unfit("%w", err)
	}
	if proof := vendorBytes(p, vendorMicrosoft, msCHAP2Success); len(proof) > 1 {
		login.Proof = string(proof[1:]) // after the identifier
	}
	if login.Class, err = classes(p); err != nil {
		return session.Login{}, err
	}
	return login, nil
}

// sayUncounted has the log say once that a server limits connections where nothing counts them.
func (c *Client) sayUncounted(p *radius.Packet) {
	if most, _ := vendorNumber(p, vendorHuawei, huaweiConnections); most == 0 || c.cfg.Connections {
		return
	}
	c.uncounted.Do(func() {
		c.cfg.Log.Warn("RADIUS limits clients' connections, which nothing counts: set limits.connections, to a number or to "+
			"\"none\"", "attribute", "Huawei-Layer4-Session-Limit")
	})
}

// classes returns the Class attributes. More than accounting has room for are an error: leaving some out would make
// accounting that the server cannot match.
func classes(p *radius.Packet) (all [][]byte, err error) {
	size := 0
	for _, a := range p.Attributes {
		if a.Type == rfc2865.Class_Type {
			all = append(all, a.Attribute)
			size += 2 + len(a.Attribute)
		}
	}
	if size > maxClass {
		return nil, unfit("the server sent %d bytes of Class, more than the %d that accounting can return", size, maxClass)
	}
	return all, nil
}

// unfit is the error for an Access-Accept that cannot be carried out.
func unfit(reason string, args ...any) error {
	return fmt.Errorf("%w: %w", session.ErrUnfit, fmt.Errorf(reason, args...))
}

// numericAttr returns a numeric attribute; false when it is missing or has another size.
func numericAttr(p *radius.Packet, t radius.Type) (uint32, bool) {
	a, found := p.Lookup(t)
	if !found {
		return 0, false
	}
	v, err := radius.Integer(a)
	return v, err == nil
}

// vendorNumber returns a vendor's numeric attribute; false when it is missing or has another size. One
// Vendor-Specific attribute may contain several (RFC 2865, 5.26).
func vendorNumber(p *radius.Packet, vendor uint32, kind byte) (uint32, bool) {
	if v := vendorBytes(p, vendor, kind); len(v) == 4 {
		return binary.BigEndian.Uint32(v), true
	}
	return 0, false
}

// vendorBytes returns the value of a vendor's attribute, nil when it is missing.
func vendorBytes(p *radius.Packet, vendor uint32, kind byte) []byte {
	for _, a := range p.Attributes {
		if a.Type != rfc2865.VendorSpecific_Type || len(a.Attribute) < 4 || binary.BigEndian.Uint32(a.Attribute) != vendor {
			continue
		}
		for rest := a.Attribute[4:]; len(rest) >= 2; {
			size := int(rest[1])
			if size < 2 || size > len(rest) {
				break
			}
			if rest[0] == kind {
				return rest[2:size]
			}
			rest = rest[size:]
		}
	}
	return nil
}

// replyMessage returns the server's message to the user, its lines in order (RFC 2865, 5.18), without control
// characters, because it goes to logs and to a page.
func replyMessage(p *radius.Packet) string {
	var lines []string
	for _, a := range p.Attributes {
		if a.Type == rfc2865.ReplyMessage_Type {
			lines = append(lines, strings.ToValidUTF8(string(a.Attribute), "\uFFFD"))
		}
	}
	plain := strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' {
			return ' '
		}
		return r
	}, strings.Join(lines, "\n"))
	return strings.TrimSpace(plain)
}
