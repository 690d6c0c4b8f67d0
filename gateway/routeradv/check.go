package routeradv

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/mdlayher/ndp"
)

const (
	slaacBits     = 64     // hosts ignore autonomous prefixes of another length (RFC 4862, 5.5.3 d)
	minMTU        = 1280   // hosts ignore less (RFC 8200, section 5)
	maxMTU        = 65_535 // of a link without jumbograms
	maxRouter     = 65_535 * time.Second
	maxReachable  = time.Hour // RFC 4861, section 6.2.1
	maxRetransmit = 0xffffffff * time.Millisecond
	maxNAT64      = 8191 * 8 * time.Second // RFC 8781, section 4: 13 bits of 8 s

	// maxOption is the longest option in bytes: the library writes no longer ones.
	maxOption  = 248
	maxServers = (maxOption - 8) / 16 // DNS servers
	maxURI     = maxOption - 2
	maxSearch  = maxOption - 8 // bytes of all search domains as DNS writes them

	maxName  = 253 // bytes of a domain name, without the dot at its end (RFC 1035, section 2.3.4)
	maxLabel = 63

	// maxMessage is the longest message in bytes: it must not be fragmented (RFC 6980), whatever the link's MTU.
	maxMessage = minMTU - ipv6Len
)

// Check returns what a host would refuse or ignore, and what does not fit a message; nil: nothing. The error names
// every fault.
func (a Advertisement) Check() error {
	faults := []error{
		lifetime("router lifetime", a.RouterLifetime, maxRouter),
		preference("router", a.Preference),
		lifetime("reachable time", a.Reachable, maxReachable),
		lifetime("retransmit time", a.Retransmit, maxRetransmit),
		lifetime("lifetime of DNS servers and search domains", a.DNSLifetime, Infinity),
		checkSearch(a.SearchDomains),
		checkPortal(a.CaptivePortal),
		a.checkServers(),
		a.checkNAT64(),
	}
	if a.MTU != 0 && (a.MTU < minMTU || a.MTU > maxMTU) {
		faults = append(faults, fmt.Errorf("MTU %d is not %d to %d", a.MTU, minMTU, maxMTU))
	}
	for i, p := range a.Prefixes {
		if slices.ContainsFunc(a.Prefixes[:i], func(q Prefix) bool { return q.Prefix == p.Prefix }) {
			faults = append(faults, fmt.Errorf("prefix %s stands twice", p.Prefix))
		}
		if err := p.check(); err != nil {
			faults = append(faults, fmt.Errorf("prefix %s: %w", p.Prefix, err))
		}
	}
	for i, r := range a.Routes {
		if slices.ContainsFunc(a.Routes[:i], func(q Route) bool { return q.Prefix == r.Prefix }) {
			faults = append(faults, fmt.Errorf("route %s stands twice", r.Prefix))
		}
		if err := r.check(); err != nil {
			faults = append(faults, fmt.Errorf("route %s: %w", r.Prefix, err))
		}
	}
	if err := errors.Join(faults...); err != nil {
		return err
	}
	return a.checkSize()
}

func lifetime(name string, d, longest time.Duration) error {
	if d < 0 || d > longest {
		return fmt.Errorf("%s %s is not 0 to %s", name, d, longest)
	}
	return nil
}

func preference(name string, p Preference) error {
	if p != Low && p != Medium && p != High {
		return fmt.Errorf("preference %d of the %s is none of low, medium and high", p, name)
	}
	return nil
}

func (p Prefix) check() error {
	if err := network(p.Prefix); err != nil {
		return err
	}
	addr := p.Prefix.Addr()
	switch {
	case p.Prefix.Bits() == 0:
		return errors.New("it is the whole Internet")
	case addr.IsLinkLocalUnicast() || addr.IsMulticast():
		return errors.New("hosts ignore link-local and multicast prefixes")
	case p.Autonomous && p.Prefix.Bits() != slaacBits:
		return fmt.Errorf("it is not /%d, and hosts make addresses by themselves of no other length", slaacBits)
	case p.Preferred > p.Valid:
		return fmt.Errorf("preferred lifetime %s is longer than valid lifetime %s", p.Preferred, p.Valid)
	case !p.ValidUntil.IsZero() && p.PreferredUntil.After(p.ValidUntil):
		return errors.New("it is preferred after it has ceased to be valid")
	}
	return errors.Join(
		lifetime("preferred lifetime", p.Preferred, Infinity), lifetime("valid lifetime", p.Valid, Infinity))
}

func (r Route) check() error {
	return errors.Join(
		network(r.Prefix), preference("route", r.Preference), lifetime("lifetime", r.Lifetime, Infinity))
}

func network(p netip.Prefix) error {
	switch {
	case !p.IsValid() || !p.Addr().Is6() || p.Addr().Is4In6():
		return errors.New("it is no IPv6 prefix")
	case p.Masked() != p:
		return fmt.Errorf("it has bits behind its length: %s has none", p.Masked())
	}
	return nil
}

func (a Advertisement) checkServers() error {
	if len(a.DNSServers) > maxServers {
		return fmt.Errorf("%d DNS servers are more than %d", len(a.DNSServers), maxServers)
	}
	for _, addr := range a.DNSServers {
		if !addr.Is6() || addr.Is4In6() || addr.Zone() != "" ||
			addr.IsUnspecified() || addr.IsMulticast() || addr.IsLoopback() {
			return fmt.Errorf("DNS server %s is no IPv6 address of a host", addr)
		}
	}
	return nil
}

func checkSearch(names []string) error {
	bytes := 0
	for _, name := range names {
		if !isDomain(name) {
			return fmt.Errorf("search domain %q is no domain name in ASCII", name)
		}
		bytes += len(strings.TrimSuffix(name, ".")) + 2
	}
	if bytes > maxSearch {
		return fmt.Errorf("search domains take %d bytes, more than %d", bytes, maxSearch)
	}
	return nil
}

// isDomain reports whether a name has labels of letters, digits, hyphens and underscores.
func isDomain(name string) bool {
	name = strings.TrimSuffix(name, ".")
	if len(name) > maxName {
		return false
	}
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > maxLabel || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		for _, c := range label {
			if c > unicode.MaxASCII || !unicode.IsLetter(c) && !unicode.IsDigit(c) && c != '-' && c != '_' {
				return false
			}
		}
	}
	return true
}

// checkPortal follows RFC 8908, section 4.1: clients use HTTPS alone.
func checkPortal(uri string) error {
	switch {
	case uri == "" || uri == ndp.Unrestricted:
		return nil
	case len(uri) > maxURI:
		return fmt.Errorf("the captive portal's URI has %d bytes, more than %d", len(uri), maxURI)
	case strings.ContainsFunc(uri, func(c rune) bool { return c <= ' ' || c >= unicode.MaxASCII }):
		return fmt.Errorf("the captive portal's URI %q has spaces, or characters that are not ASCII", uri)
	}
	if u, err := url.Parse(uri); err != nil || u.Scheme != "https" || u.Hostname() == "" {
		return fmt.Errorf("the captive portal's URI %q is none of https://HOST/…", uri)
	}
	return nil
}

// nat64Lengths are of RFC 8781, section 4.
var nat64Lengths = []int{32, 40, 48, 56, 64, 96}

func (a Advertisement) checkNAT64() error {
	if !a.NAT64Prefix.IsValid() {
		return nil
	}
	if !slices.Contains(nat64Lengths, a.NAT64Prefix.Bits()) {
		return fmt.Errorf("NAT64 prefix %s has none of the lengths %v", a.NAT64Prefix, nat64Lengths)
	}
	if err := network(a.NAT64Prefix); err != nil {
		return fmt.Errorf("NAT64 prefix %s: %w", a.NAT64Prefix, err)
	}
	return lifetime("lifetime of the NAT64 prefix", a.NAT64PrefixExpiry, maxNAT64)
}

// checkSize keeps room for prefixes that are withdrawn later.
func (a Advertisement) checkSize() error {
	message, err := encode(a, time.Now())
	if err != nil {
		return err
	}
	if room := maxMessage - maxWithdrawn*prefixOptionLen; len(message) > room {
		return fmt.Errorf("the advertisement has %d bytes, more than %d: shorten its lists", len(message), room)
	}
	return nil
}
