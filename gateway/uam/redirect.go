// Redirects to the portal: their parameters and their checksum.

package uam

import (
	"cmp"
	"crypto/md5"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/gateweigh/gateweigh/gateway/session"
	"github.com/gateweigh/gateweigh/gateway/weblink"
	"github.com/gateweigh/gateweigh/gateway/wispr"
)

// Values of the parameter "res": what happened.
const (
	resNotYet  = "notyet"  // the client is not logged in
	resAlready = "already" // it was, before this request
	resSuccess = "success"
	resFailed  = "failed"
	resLogoff  = "logoff"
)

// Values of "reason", beside resFailed.
const (
	reasonReject = "reject" // the name or the password is wrong, or not allowed
	reasonOther  = "other"  // no server decided, or the request was none
)

// outcome is what a request of a client led to.
type outcome struct {
	client session.Session // as it is now
	res    string
	reason string // beside resFailed
	reply  string // for the person
	lang   string // that the portal asked for
	status bool   // the request was for the state alone
	code   wispr.Code
	kind   wispr.Kind
}

// parameters are those of a redirect, in order.
type parameters struct{ text strings.Builder }

// add adds a parameter. Letters, digits and "-_.!~*" stay as they are.
func (p *parameters) add(name, value string) {
	p.text.WriteString("&" + name + "=")
	for i := range len(value) {
		c := value[i]
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("-_.!~*", c) >= 0 {
			p.text.WriteByte(c)
		} else {
			fmt.Fprintf(&p.text, "%%%02x", c)
		}
	}
}

// addSome adds a parameter unless it is empty.
func (p *parameters) addSome(name, value string) {
	if value != "" {
		p.add(name, value)
	}
}

// addSeconds adds a number of seconds unless it is 0.
func (p *parameters) addSeconds(name string, d time.Duration) {
	if d >= time.Second {
		p.add(name, strconv.FormatInt(int64(d/time.Second), 10))
	}
}

// location is the URL of the portal with an outcome's parameters. ch is the client's challenge, if it needs one.
func (s *Server) location(o outcome, ch challenge, needed bool) string {
	p, key := parameters{}, o.client.Key
	p.add("res", o.res)
	p.addSome("reason", o.reason)
	p.add("uamip", s.uamIP(key))
	p.add("uamport", strconv.Itoa(int(s.cfg.Address.Port())))
	if needed && s.cfg.challenged() {
		p.add("challenge", ch.Hex())
	}
	now, online := time.Now(), o.client.State == session.Authenticated
	if o.status && online {
		p.add("starttime", strconv.FormatInt(o.client.Began.Unix(), 10))
		p.add("sessiontime", strconv.FormatInt(int64(now.Sub(o.client.Began)/time.Second), 10))
		p.addSeconds("sessiontimeout", o.client.Limits.SessionTimeout)
	}
	p.addSome("called", s.cfg.Called)
	if o.res == resSuccess || o.status {
		p.add("uid", o.client.User)
		if online {
			p.addSeconds("timeleft", timeLeft(o.client, now))
		}
	}
	p.add("mac", macOf(key))
	p.add("ip", hostOf(key.Addr))
	p.addSome("reply", o.reply)
	p.addSome("nasid", s.cfg.NASID)
	p.addSome("lang", o.lang)
	p.add("sessionid", cmp.Or(o.client.ID, ch.SessionID))
	p.addSome("ssl", s.cfg.Secure)
	p.add("userurl", cmp.Or(ch.link, s.challenges.link(key))) // also without a link, as CoovaChilli
	return s.signed(s.portalURL(strings.TrimPrefix(p.text.String(), "&")))
}

// portalURL is the portal's URL with further parameters.
func (s *Server) portalURL(query string) string {
	u := *s.portal
	if u.RawQuery != "" {
		query = u.RawQuery + "&" + query
	}
	if u.Path == "" {
		u.Path = "/"
	}
	u.RawQuery = query
	return u.String()
}

// signed adds the checksum of a URL and the secret, by which the portal knows that the gateway made it.
func (s *Server) signed(location string) string {
	if s.cfg.Secret == "" {
		return location
	}
	return location + "&md=" + Checksum(location, s.cfg.Secret)
}

// Checksum is the value of the parameter "md": MD5 of the URL before it and the secret, in capital hexadecimal.
func Checksum(location, secret string) string {
	return fmt.Sprintf("%X", md5.Sum([]byte(location+secret)))
}

// message is what a redirect says to smart clients.
func (s *Server) message(o outcome, ch challenge) wispr.Message {
	base := s.base(o.client.Key)
	m := wispr.Message{Kind: o.kind, Code: o.code, Text: o.reply}
	switch {
	case o.kind == wispr.Redirect:
		p := parameters{}
		p.add("res", "wispr")
		p.add("uamip", s.uamIP(o.client.Key))
		p.add("uamport", strconv.Itoa(int(s.cfg.Address.Port())))
		p.add("challenge", ch.Hex())
		m.LoginURL, m.AbortLoginURL = s.portalURL(strings.TrimPrefix(p.text.String(), "&")), base+"/abort"
		m.Location = s.cfg.Location
	case o.code == wispr.Succeeded:
		m.LogoffURL = base + "/logoff"
	}
	return m
}

// Redirect returns where a client's request for another site is redirected to, and the page for smart clients. link is
// the URL of the request, "" if it is of no use.
func (s *Server) Redirect(client session.Session, link string) (location string, body []byte) {
	o := outcome{client: client, res: resNotYet, kind: wispr.Redirect}
	if client.State == session.Authenticated {
		o.res, o.kind, o.code = resAlready, wispr.Poll, wispr.Succeeded
		return s.location(o, challenge{}, false), s.message(o, challenge{}).Page("Online")
	}
	ch := s.challenges.issue(client.Key, link, time.Now())
	return s.location(o, ch, true), s.message(o, ch).Page("Log in")
}

// macOf is a client's MAC address as redirects have it.
func macOf(key session.Key) string { return MAC(net.HardwareAddr(key.MAC[:])) }

// MAC is a MAC address as redirects have it: "02-00-00-00-00-01".
func MAC(a net.HardwareAddr) string {
	return strings.ToUpper(strings.ReplaceAll(a.String(), ":", "-"))
}

// hostOf is an address without the IPv6 form of an IPv4 one.
func hostOf(a netip.Addr) string { return a.Unmap().String() }

// timeLeft is how long a session goes on, at most, in whole seconds, of which the last has begun; 0: it has no end.
func timeLeft(one session.Session, now time.Time) time.Duration {
	if one.Limits.SessionTimeout == 0 {
		return 0
	}
	return max(0, one.Limits.SessionTimeout-now.Sub(one.Began).Truncate(time.Second))
}

// linkOf reads a "userurl", which portals send once or twice encoded.
func linkOf(text string) string {
	for range 2 {
		if link, ok := weblink.Parse(text); ok {
			return link
		}
		var err error
		if text, err = url.QueryUnescape(text); err != nil {
			return ""
		}
	}
	return ""
}

// languages are the values of "lang" that are passed on.
var languages = regexp.MustCompile(`^[A-Za-z]{2,3}([-_][A-Za-z0-9]{2,8})?$`)
