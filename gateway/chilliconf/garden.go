package chilliconf

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// garden reads what clients reach before they log in.
func (c *converter) garden() {
	var domains, prefixes, ports []string
	add := func(list *[]string, entries ...string) {
		for _, e := range entries {
			if !slices.Contains(*list, e) {
				*list = append(*list, e)
			}
		}
	}
	for _, o := range c.list("uamallowed") {
		list, entry := &domains, ""
		switch e := allowedEntry(o.value); {
		case e.port != "":
			list, entry = &ports, e.host+":"+e.port
		case e.isNet:
			list, entry = &prefixes, e.host
		default:
			entry = e.host
		}
		if entry == "" {
			c.note(o, "%q is no name, network or port that the walled garden can have: left out", o.value)
		} else {
			add(list, entry)
		}
	}
	for _, o := range c.list("uamdomain") {
		switch name, below := strings.CutPrefix(strings.ToLower(o.value), "."); {
		case !isName(name):
			c.note(o, "%q is no name: left out", o.value)
		case below:
			add(&domains, name, "*."+name)
		default:
			add(&domains, name)
		}
	}
	for key, list := range map[string][]string{"domains": domains, "prefixes": prefixes, "ports": ports} {
		if len(list) > 0 {
			c.set("garden", key, list)
		}
	}
	slices.Sort(c.tables["garden"])
}

// allowed is an entry of uamallowed. Its zero value is one that the walled garden cannot have.
type allowed struct {
	host  string // a name, an address or a network
	port  string // "443", "53/udp"; empty: all
	isNet bool
}

// allowedEntry reads "host", "network", "host:port", and these behind "tcp:", "udp:" or "https://".
func allowedEntry(text string) (e allowed) {
	text = strings.TrimPrefix(strings.TrimPrefix(text, "https://"), "http://")
	suffix := ""
	if kind, rest, found := strings.Cut(text, ":"); found && (kind == "tcp" || kind == "udp") {
		if text = rest; kind == "udp" {
			suffix = "/udp"
		}
	}
	host, port, hasPort := strings.Cut(text, ":")
	if n, err := strconv.ParseUint(port, 10, 16); hasPort && (err != nil || n == 0) {
		return allowed{}
	} else if hasPort {
		e.port = port + suffix
	}
	p, isNet := parseNet(host)
	if a, err := netip.ParseAddr(host); err == nil && a.Is4() {
		p, isNet = netip.PrefixFrom(a, 32), true
	}
	switch {
	case isNet && p.Bits() >= 8:
		e.host, e.isNet = strings.TrimSuffix(p.Masked().String(), "/32"), true
	case !isNet && isName(host):
		e.host = strings.ToLower(host)
	default:
		return allowed{}
	}
	return e
}

// isName reports whether a text is a host name of two labels or more.
func isName(s string) bool {
	labels := strings.Split(s, ".")
	if len(s) > 253 || len(labels) < 2 || labels[len(labels)-1] == "" {
		return false
	}
	for _, l := range labels {
		if l == "" || len(l) > 63 || l[0] == '-' || l[len(l)-1] == '-' || strings.ContainsFunc(l, func(r rune) bool {
			return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_')
		}) {
			return false
		}
	}
	last := labels[len(labels)-1]
	return last[0] < '0' || last[0] > '9'
}
