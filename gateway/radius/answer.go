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
	var err error
	if login.Limits, login.Explicit, err = c.limits(p, time.Now()); err != nil {
		return session.Login{}, unfit("%w", err)
	}
	if most, ok := numericAttr(p, rfc2865.PortLimit_Type); ok { // RFC 2865, 5.42
		login.Sessions = int(most)
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

// Vendors and their attributes. The numbers of ChilliSpot's gigawords are from CoovaChilli's dictionary, which
// FreeRADIUS does not ship.
const (
	vendorWISPr      = 14122
	vendorChilliSpot = 14559

	wisprMaxUp, wisprMaxDown, wisprTerminate = 7, 8, 9

	chilliMaxInput, chilliMaxOutput, chilliMaxTotal             = 1, 2, 3
	chilliMaxInputHigh, chilliMaxOutputHigh, chilliMaxTotalHigh = 21, 22, 23
)

// limits returns the limits of an Access-Accept at a time, and which of them it has, be they 0.
func (c *Client) limits(p *radius.Packet, now time.Time) (l session.Limits, given session.ExplicitLimits, err error) {
	seconds := func(t radius.Type) (time.Duration, bool) {
		v, found := numericAttr(p, t)
		return time.Duration(v) * time.Second, found
	}
	rate := func(kind byte) (uint64, bool) {
		v, found := vendorNumber(p, vendorWISPr, kind)
		return uint64(v), found
	}
	quota := func(low, high byte) (uint64, bool) {
		l, found := vendorNumber(p, vendorChilliSpot, low)
		h, hasToo := vendorNumber(p, vendorChilliSpot, high)
		return uint64(h)<<32 | uint64(l), found || hasToo
	}
	l.SessionTimeout, given.SessionTimeout = seconds(rfc2865.SessionTimeout_Type)
	l.IdleTimeout, given.IdleTimeout = seconds(rfc2865.IdleTimeout_Type)
	l.UpBps, given.UpBps = rate(wisprMaxUp)
	l.DownBps, given.DownBps = rate(wisprMaxDown)
	l.UpBytes, given.UpBytes = quota(chilliMaxInput, chilliMaxInputHigh)
	l.DownBytes, given.DownBytes = quota(chilliMaxOutput, chilliMaxOutputHigh)
	l.TotalBytes, given.TotalBytes = quota(chilliMaxTotal, chilliMaxTotalHigh)
	every, _ := seconds(rfc2869.AcctInterimInterval_Type)
	l.Interim = c.cfg.interim(every)
	if c.cfg.SwapOctets {
		l.UpBytes, l.DownBytes = l.DownBytes, l.UpBytes
		given.UpBytes, given.DownBytes = given.DownBytes, given.UpBytes
	}
	if text := vendorBytes(p, vendorWISPr, wisprTerminate); text != nil {
		end, err := terminateTime(string(text))
		if err != nil {
			return l, given, err
		}
		left := end.Sub(now)
		if left <= 0 {
			return l, given, fmt.Errorf(
				"the session's end (WISPr-Session-Terminate-Time), %.60q, is over: is the clock of this machine right?", text)
		}
		if l.SessionTimeout == 0 || left < l.SessionTimeout {
			l.SessionTimeout = left
		}
		given.SessionTimeout = true
	}
	return l, given, nil
}

// terminateTime reads WISPr-Session-Terminate-Time: a date and time, with a time zone or in the gateway's.
func terminateTime(text string) (time.Time, error) {
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05Z0700", "2006-01-02T15:04:05Z07",
		"2006-01-02T15:04Z07:00", "2006-01-02T15:04:05", "2006-01-02T15:04"} {
		if t, err := time.ParseInLocation(layout, strings.TrimSpace(text), time.Local); err == nil {
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf(
		"the session's end (WISPr-Session-Terminate-Time), %.60q, is no time such as 2026-12-31T23:59:59+01:00", text)
}

// interim returns the time between the interim updates of a session. every is the time that the server asks for; 0: it
// asks for none.
func (c *Config) interim(every time.Duration) time.Duration {
	if every == 0 {
		return c.InterimDefault
	}
	return max(every, minInterim)
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
