// The admin page and its API.

package config

import (
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gateweigh/gateweigh/internal/strict"
	"github.com/gateweigh/gateweigh/textfile"
)

// Admin is the configuration of the admin page and its API.
type Admin struct {
	Listen         string // address and port, or UnixPrefix and an absolute path; empty: there is no admin page
	Accounts       string // file
	TLSCert        string // PEM file; empty: plain HTTP, at a loopback address or a Unix socket
	TLSKey         string // PEM file
	TrustedProxies []netip.Prefix
	UserHeader     string        // by which trusted proxies name the user; empty: users log in here
	Idle           time.Duration // without a request, after which a browser must log in again
	Longest        time.Duration // after a login
}

// UnixPrefix begins the value of admin.listen that is a socket's path.
const UnixPrefix = "unix:"

// On reports whether there is an admin page.
func (a Admin) On() bool { return a.Listen != "" }

// Socket is the path of the Unix socket; empty: the page is at an address.
func (a Admin) Socket() string {
	path, isSocket := strings.CutPrefix(a.Listen, UnixPrefix)
	if !isSocket {
		return ""
	}
	return path
}

// Address is where the page is; zero: at a socket, or nowhere.
func (a Admin) Address() netip.AddrPort {
	ap, _ := netip.ParseAddrPort(a.Listen)
	return ap
}

// adminListen reads where the admin page is served. Unlike listenAddress it may be the LAN's address.
var adminListen = strict.AcceptText(`one address and a port, such as "127.0.0.1:8444", or "unix:" and a socket's `+
	`absolute path, such as "unix:/run/gatewayd/admin.sock"`, func(s string) (string, bool) {
	if path, isSocket := strings.CutPrefix(s, UnixPrefix); isSocket {
		return UnixPrefix + filepath.Clean(path), filepath.IsAbs(path) && visible(path, maxSocketPath)
	}
	ap, err := netip.ParseAddrPort(s)
	return s, err == nil && ap.Port() != 0 && !ap.Addr().IsUnspecified() && !ap.Addr().IsMulticast()
})

// headerName reads the name of an HTTP header field (RFC 9110, 5.1).
var headerName = strict.AcceptText(`a header's name such as "X-Remote-User"`, func(s string) (string, bool) {
	odd := func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-'
	}
	return s, s != "" && len(s) <= 64 && !strings.ContainsFunc(s, odd)
})

func (c *Config) adminSettings() []setting {
	a := &c.Admin
	return []setting{
		keyAt("admin.listen", &a.Listen, adminListen),
		keyAt("admin.accounts", &a.Accounts, file),
		keyAt("admin.tls_cert", &a.TLSCert, file),
		keyAt("admin.tls_key", &a.TLSKey, file),
		keyAt("admin.trusted_proxies", &a.TrustedProxies, list(proxies)),
		keyAt("admin.user_header", &a.UserHeader, headerName),
		keyAt("admin.idle_timeout", &a.Idle, duration(minute, day)),
		keyAt("admin.session_timeout", &a.Longest, duration(minute, 7*day)),
	}
}

// proxies reads an address, or a network of addresses.
var proxies = strict.AcceptText(`a proxy's address or network such as "127.0.0.1"`, func(s string) (netip.Prefix,
	bool) {
	if a, err := netip.ParseAddr(s); err == nil {
		return netip.PrefixFrom(a, a.BitLen()), a.Zone() == ""
	}
	p, err := netip.ParsePrefix(s)
	return p, err == nil && p == p.Masked() && p.Bits() > 0
})

// checkAdmin checks the keys of the admin page. Passwords never cross a network in plain text.
func (k *checker) checkAdmin() {
	a := k.Admin
	if !a.On() {
		k.refuseUnused("there is no admin.listen", "admin.accounts", "admin.tls_cert", "admin.tls_key",
			"admin.trusted_proxies", "admin.user_header", "admin.idle_timeout", "admin.session_timeout")
		return
	}
	if a.Accounts == "" {
		k.report("admin.accounts", "missing: the file of those who may log in; gatewayd admin set NAME makes it")
	}
	switch addr := a.Address(); {
	case a.TLSCert == "" && a.TLSKey != "":
		k.report("admin.tls_cert", "missing: admin.tls_key is set")
	case a.TLSCert != "" && a.TLSKey == "":
		k.report("admin.tls_key", "missing: admin.tls_cert is set")
	case a.Socket() != "" && a.TLSCert != "":
		k.report("admin.tls_cert", noEffect+": a Unix socket is for a proxy on this machine, which has the certificate")
	case a.Socket() == "" && a.TLSCert == "" && !addr.Addr().IsLoopback():
		k.report("admin.tls_cert", "missing: without it passwords would cross the network in plain text; only a loopback "+
			"address or a Unix socket may go without, as behind a proxy on this machine")
	}
	if at := a.Address(); k.Portal.Enabled && at.Addr() == k.LAN.Address.Addr() && at.IsValid() {
		switch {
		case at.Port() == k.Portal.Port:
			k.report("admin.listen", "%s is where the portal is (portal.port): choose another port", a.Listen)
		case k.Portal.TLSCert != "" && at.Port() == k.Portal.TLSPort:
			k.report("admin.listen", "%s is where the portal is (portal.tls_port): choose another port", a.Listen)
		}
	}
	if a.Idle > a.Longest {
		k.report("admin.idle_timeout", "is longer than admin.session_timeout, %s", strict.ShortDuration(a.Longest))
	}
	if a.UserHeader != "" && len(a.TrustedProxies) == 0 && a.Socket() == "" {
		k.report("admin.trusted_proxies", "missing: whose admin.user_header is believed, such as [\"127.0.0.1\"]")
	}
}

// checkAdminFiles checks the files of the admin page.
func (k *checker) checkAdminFiles() {
	a := k.Admin
	if a.Accounts != "" {
		switch info, err := os.Stat(a.Accounts); {
		case errors.Is(err, fs.ErrNotExist):
			k.report("admin.accounts", "%s does not exist: gatewayd admin set NAME --file %s makes it", a.Accounts, a.Accounts)
		case err != nil:
			k.report("admin.accounts", "%v", textfile.Plain(err))
		case !info.Mode().IsRegular():
			k.report("admin.accounts", "%s is no regular file, which could be read again: name one", a.Accounts)
		}
	}
	if a.TLSCert != "" {
		if _, err := textfile.KeyPair(a.TLSCert, a.TLSKey); err != nil {
			k.report("admin.tls_cert", "%v", err)
		}
	}
}

// AdminAccounts reads which file of accounts a configuration names. The file need not exist, and no other key is
// checked, so that the first account can be made.
func AdminAccounts(path string) (string, error) {
	data, err := readConfig(path, textfile.Read)
	if err != nil {
		return "", err
	}
	entries, syntax := strict.Read(path, data, allKeys)
	if syntax != nil {
		return "", strict.Problems{syntax}
	}
	c := defaults()
	c.File = path
	entries, _, _ = cutNetworks(path, entries)
	c.apply(entries)
	if c.Admin.Accounts == "" {
		return "", errors.New(path + " names no admin.accounts: add it, or name the file with --file")
	}
	if !filepath.IsAbs(c.Admin.Accounts) {
		return filepath.Join(filepath.Dir(path), c.Admin.Accounts), nil
	}
	return c.Admin.Accounts, nil
}
