// Package weblink reads the URLs of sites that a client asked for before its login. A client, and any page that it
// opens, chooses every byte of them: they may be shown, and passed on to a portal, and are never followed by the
// gateway.
package weblink

import (
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// Max is the longest URL, in bytes, that is carried along for a client that asked for it. Longer ones are cut to the
// first page of their site.
const Max = 1024

// Original is the URL of a captured request, from its Host field and its target; empty when these do not form the
// URL of a web page.
func Original(host, target string) string {
	name, port, err := net.SplitHostPort(host)
	bare, bracketed := strings.CutPrefix(host, "[")
	switch {
	case !bracketed && err != nil:
		name, port = host, ""
	case bracketed && err != nil && strings.HasSuffix(bare, "]"):
		name, port = strings.TrimSuffix(bare, "]"), ""
	}
	// The connection was to port 80, whatever the Host field says. SplitHostPort would take the brackets off a name too.
	if !ValidHost(name) && !bracketed || bracketed && !validIPv6(name) || port != "" && port != "80" {
		return ""
	}
	if bracketed {
		name = "[" + name + "]"
	}
	site := "http://" + strings.ToLower(name)
	if link, ok := Parse(site + target); ok && strings.HasPrefix(target, "/") {
		return link
	}
	return site + "/"
}

// Parse returns the normal form of a URL that may be shown as a link: http or https, absolute, with a valid host,
// without a password, not too long.
func Parse(raw string) (link string, ok bool) {
	if len(raw) > Max {
		return "", false
	}
	for i := range len(raw) {
		if raw[i] <= ' ' || raw[i] >= 0x7f { // browsers encode non-ASCII characters
			return "", false
		}
	}
	u, err := url.Parse(raw)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Opaque != "" || u.User != nil {
		return "", false
	}
	if name := u.Hostname(); !ValidHost(name) && !validIPv6(name) || !validPort(u.Port()) {
		return "", false
	}
	u.RawQuery = quotes.Replace(u.RawQuery)
	if link = u.String(); len(link) > Max {
		return "", false
	}
	return link, true
}

// quotes are the characters that could end an attribute. package url encodes them everywhere but in a query.
var quotes = strings.NewReplacer(`"`, "%22", "<", "%3C", ">", "%3E")

// ValidHost reports whether s is a host name of letters, digits, hyphens and underscores, which occur in practice, or
// an IPv4 address (RFC 1123, 2.1).
func ValidHost(s string) bool {
	if len(s) == 0 || len(s) > 253 {
		return false
	}
	var last string
	for label := range strings.SplitSeq(strings.TrimSuffix(s, "."), ".") {
		if len(label) == 0 || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		for i := range len(label) {
			c := label[i]
			if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_') {
				return false
			}
		}
		last = label
	}
	// Browsers read "1.2" and "0x7f.1" as addresses; only the plain form is accepted.
	if last[0] >= '0' && last[0] <= '9' {
		_, err := netip.ParseAddr(s)
		return err == nil
	}
	return true
}

// validIPv6 reports whether s is an IPv6 address that a site may have, without a zone.
func validIPv6(s string) bool {
	a, err := netip.ParseAddr(s)
	return err == nil && a.Is6() && !a.Is4In6() && a.Zone() == "" && a.IsGlobalUnicast()
}

func validPort(s string) bool {
	if s == "" {
		return true
	}
	n, err := strconv.ParseUint(s, 10, 16)
	return err == nil && n > 0
}
