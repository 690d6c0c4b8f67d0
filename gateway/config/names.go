package config

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"unicode"

	"golang.org/x/net/idna"

	"github.com/gateweigh/gateweigh/internal/strict"
)

// hostName reads a DNS name.
func hostName(v any) (string, error) {
	s, _ := v.(string)
	name, err := dnsName(s)
	if err != nil {
		return "", fmt.Errorf(`must be a host name such as "login.example.org", and %s %w`, strict.Show(v), err)
	}
	return name, nil
}

// domainPattern reads a name, or "*." and a name for all names below it.
func domainPattern(v any) (string, error) {
	s, _ := v.(string)
	pattern, err := namePattern(s)
	switch _, wrong := network(s, ""); {
	case err == nil:
	case !errors.Is(wrong, errNoNetwork):
		err = errors.New("is a network or an address: put it into garden.prefixes")
	case strings.Contains(s, ":") && !strings.Contains(s, "://"):
		err = errors.New("has a colon: put it into garden.ports where one port is meant")
	}
	if err != nil {
		return "", fmt.Errorf(`must be a domain, such as "example.org" or "*.example.org", and %s %w`, strict.Show(v), err)
	}
	return pattern, nil
}

// namePattern is domainPattern with errors that tell how the text is wrong.
func namePattern(s string) (string, error) {
	below, wild := strings.CutPrefix(s, "*.")
	switch {
	case s == "*" || s == "*.":
		return "", errors.New("is every name: write the names that clients need before they log in")
	case strings.Contains(below, "*"):
		return "", errors.New(
			`has a star in another place than in front of a dot: write "*.example.org" for all names below example.org`)
	case strings.HasPrefix(s, "."):
		return "", fmt.Errorf(`begins with a dot: write "*%s" for all names below it`, s)
	}
	name, err := dnsName(below)
	switch {
	case err != nil:
		return "", err
	case wild && !strings.Contains(name, "."):
		return "", fmt.Errorf(`is a large part of the Internet: write what clients need of it, such as "*.example.%s"`, name)
	case wild:
		name = "*." + name
	}
	return name, nil
}

// writtenNames reads names as people write them, in any script.
var writtenNames = idna.New(idna.MapForLookup(), idna.BidiRule(), idna.StrictDomainName(false))

// dnsName returns a name as the DNS has it: in lower case, without the root's dot, "xn--…" where it is not ASCII. Its
// errors say what a text is instead.
func dnsName(s string) (string, error) {
	switch _, err := netip.ParseAddr(s); {
	case s == "":
		return "", errors.New("is empty")
	case err == nil:
		return "", errors.New("is an address, no name")
	case strings.Contains(s, "://"):
		return "", errors.New("is a web address: write its name alone")
	case strings.Contains(s, "/"):
		return "", errors.New("has a slash: write the name alone")
	case strings.Contains(s, ":"):
		return "", errors.New("has a colon: write the name alone")
	case strings.ContainsAny(s, " \t\r\n"):
		return "", errors.New("has a space in it: write one name without")
	}
	name := s
	if strings.ContainsFunc(s, func(r rune) bool { return r > unicode.MaxASCII }) {
		var err error
		if name, err = writtenNames.ToASCII(s); err != nil {
			return "", fmt.Errorf("is no name that the DNS can have (%s)", strings.TrimPrefix(err.Error(), "idna: "))
		}
	}
	name = strings.TrimSuffix(strings.ToLower(name), ".")
	if len(name) > 253 {
		return "", fmt.Errorf("has %d characters, as the DNS has it: at most 253", len(name))
	}
	for label := range strings.SplitSeq(name, ".") {
		if err := checkLabel(label); err != nil {
			return "", err
		}
	}
	if !strings.ContainsAny(name, "abcdefghijklmnopqrstuvwxyz") {
		return "", errors.New("is a number, no name")
	}
	return name, nil
}

// checkLabel checks a label of a name, which is the text between two dots.
func checkLabel(label string) error {
	bad := func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' && r != '_' }
	switch index := strings.IndexFunc(label, bad); {
	case label == "":
		return errors.New("has nothing before a dot, or between two: take the dot out")
	case len(label) > 63:
		return fmt.Errorf("has %d characters between two dots, as the DNS has it: at most 63", len(label))
	case label[0] == '-' || label[len(label)-1] == '-':
		return fmt.Errorf("has a hyphen at an end of %q, where no name has one", label)
	case index >= 0:
		return fmt.Errorf("has the character %q, which no name has", []rune(label[index:])[0])
	}
	return nil
}
