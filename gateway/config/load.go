package config

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/gateweigh/gateweigh/internal/strict"
	"github.com/gateweigh/gateweigh/textfile"
)

// Example is a gatewayd.toml that shows every key with its default.
//
//go:embed example.toml
var Example string

// maxFileBytes bounds the file itself and each secret.
const maxFileBytes = 1 << 20

// Load reads and checks a file and the files it names: secrets, certificates, the users'
// file, templates. Mistakes are strict.Problems.
func Load(path string) (*Config, error) { return load(path, textfile.Read) }

// LoadOnce is Load for a configuration that is not read again, which may come from a pipe (textfile.ReadOnce).
func LoadOnce(path string) (*Config, error) { return load(path, textfile.ReadOnce) }

func load(path string, read func(string, int) ([]byte, error)) (*Config, error) {
	data, err := readConfig(path, read)
	if err != nil {
		return nil, err
	}
	c, err := Parse(path, data)
	if err != nil {
		return nil, err
	}
	k := &checker{Config: c}
	if len(c.Networks) == 0 {
		k.openFiles()
	} else {
		k.ofEach(func(n *Config) strict.Problems {
			one := &checker{Config: n}
			one.openFiles()
			return one.problems
		})
	}
	if err := k.problems.Err(); err != nil {
		return nil, err
	}
	return c, nil
}

// allKeys is the advice where all keys are described.
const allKeys = "gatewayd example-config shows every key"

// Parse reads and checks a text. name is for messages, and relative paths in the text
// start at its folder; no file is opened. An error is strict.Problems.
func Parse(name string, data []byte) (*Config, error) {
	c := defaults()
	c.File = name
	entries, syntax := strict.Read(name, data, allKeys)
	if syntax != nil {
		return nil, strict.Problems{syntax}
	}
	entries, networks, problems := cutNetworks(name, entries)
	problems = append(problems, c.apply(entries)...)
	for _, own := range networks {
		problems = append(problems, c.addNetwork(entries, own)...)
	}
	check := c.check
	if len(networks) > 0 {
		check = c.checkNetworks
	}
	// One mistake gives one message: a check of combinations is left out if it is about a key that was refused already,
	// or names one as its reason.
	refused := slices.Clone(problems)
	for _, p := range check() {
		if !slices.ContainsFunc(refused, func(r *strict.Error) bool {
			return r.Key != "" && (p.Key == r.Key || strings.Contains(p.Problem, r.Key))
		}) {
			problems = append(problems, p)
		}
	}
	if err := problems.Err(); err != nil {
		return nil, err
	}
	for _, one := range c.All() {
		one.complete()
	}
	c.completeNetworks()
	return c, nil
}

// LANInterfaces reads only the interfaces towards clients, for programs that must keep the LANs closed even if other
// keys are wrong. If the file is not TOML from some line on, it returns both those above the line, and the error.
func LANInterfaces(path string) ([]string, error) {
	data, err := readConfig(path, textfile.Read)
	if err != nil {
		return nil, err
	}
	entries, syntax := strict.Read(path, data, allKeys)
	if syntax != nil {
		lines := bytes.SplitAfter(data, []byte("\n"))
		above, _ := strict.Read(path, bytes.Join(lines[:max(0, min(syntax.Line, len(lines))-1)], nil), allKeys)
		found, _ := lanInterfaces(path, above)
		return found, strict.Problems{syntax}
	}
	found, problems := lanInterfaces(path, entries)
	return found, problems.Err()
}

// lanInterfaces reads the interfaces towards clients, and returns the problems of their keys.
func lanInterfaces(path string, entries []strict.Entry) (found []string, problems strict.Problems) {
	c := defaults()
	c.File = path
	entries, networks, _ := cutNetworks(path, entries)
	all := c.apply(entries)
	for _, own := range networks {
		all = append(all, c.addNetwork(entries, own)...)
	}
	for _, p := range all {
		if p.Key == "lan.interface" || p.Key == networkTable+".interface" {
			problems = append(problems, p)
		}
	}
	for _, n := range c.All() {
		if n.LAN.Interface != "" {
			found = append(found, n.LAN.Interface)
		} else if len(problems) == 0 {
			key := "lan.interface"
			if len(networks) > 0 {
				key = networkKey(key)
			}
			problems = append(problems, &strict.Error{File: path, Line: max(1, n.table), Key: key,
				Problem: "missing: gatewayd needs it"})
		}
	}
	return found, problems
}

// readConfig reads a configuration's text.
func readConfig(path string, read func(string, int) ([]byte, error)) ([]byte, error) {
	data, err := read(path, maxFileBytes)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w: gatewayd example-config prints one to begin with, and -c names one that is elsewhere", err)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the configuration: %w", err)
	}
	return data, nil
}

// openFiles checks the files that the configuration names, so that mistakes show before
// anything is started.
func (k *checker) openFiles() {
	for _, s := range []struct {
		table  string
		server *RADIUSServer
	}{{"radius.primary", &k.RADIUS.Primary}, {"radius.secondary", &k.RADIUS.Secondary}} {
		switch {
		case s.server.SecretFile != "":
			s.server.Secret = k.secretIn(s.table+".secret_file", s.server.SecretFile)
		case s.server.Secret != "" && isPublic(k.File):
			k.report(s.table+".secret", "everyone can read this file: chmod o-r %s, or use secret_file", k.File)
		}
	}
	k.openUAMSecret()
	if k.Devices.PasswordFile != "" {
		k.Devices.Password = k.secretIn("devices.password_file", k.Devices.PasswordFile)
	} else if k.Devices.Password != "" && isPublic(k.File) {
		k.report("devices.password", "everyone can read this file: chmod o-r %s, or use password_file", k.File)
	}
	k.openOIDC()
	k.checkSecrets()
	k.checkDevicesFile()
	if f := k.Users.File; f != "" {
		if info, err := os.Stat(f); errors.Is(err, fs.ErrNotExist) {
			k.report("users.file",
				`%s does not exist: make it with mode 640 and a line NAME:HASH for each account; gatewayd hash-password prints the hash`,
				f)
		} else if err != nil {
			k.report("users.file", "%v", textfile.Plain(err))
		} else if info.IsDir() {
			k.report("users.file", "%s is a folder, no file", f)
		} else if !info.Mode().IsRegular() {
			k.report("users.file", "%s is no regular file, whose accounts could be read again: name one", f)
		}
	}
	if p := k.Portal; p.TLSCert != "" {
		if _, err := textfile.KeyPair(p.TLSCert, p.TLSKey); err != nil {
			k.report("portal.tls_cert", "%v", err)
		}
	}
	k.checkAdminFiles()
	k.openStore()
	if dir := k.Portal.Templates; dir != "" {
		if info, err := os.Stat(dir); err != nil {
			k.report("portal.templates", "%v: gatewayd templates writes a folder to begin with", textfile.Plain(err))
		} else if !info.IsDir() {
			k.report("portal.templates", "%s is no folder", dir)
		}
	}
}

// secretIn reads the secret of a key from a file: the first and only line. "": it is reported why there is none.
func (k *checker) secretIn(key, path string) (read string) {
	return k.secretAt(k.lineOf(key), key, path)
}

// secretAt is secretIn for a key on a line.
func (k *checker) secretAt(line int, key, path string) (read string) {
	read, err := Secret(path)
	if err != nil {
		k.reportAt(line, key, "%v", err)
	}
	return read
}

// Secret reads a secret from a file that root alone can change, and not everybody can read: the first and only line.
func Secret(path string) (string, error) {
	if info, err := os.Stat(path); err == nil {
		if owner, strange := textfile.Stranger(info); strange {
			return "", fmt.Errorf("%s belongs to user %d, who could change it: chown root %s", path, owner, path)
		}
	}
	if isPublic(path) {
		return "", fmt.Errorf("everyone can read %s: chmod o-r %s", path, path)
	}
	data, err := textfile.Read(path, maxFileBytes)
	if err == nil && !utf8.Valid(data) {
		err = fmt.Errorf("%s is no text", path)
	}
	if err != nil {
		return "", err
	}
	read, err := secret(string(bytes.TrimRight(data, "\r\n")))
	if err != nil {
		err = fmt.Errorf("%s %w", path, err)
	}
	return read, err
}

// checkDevicesFile checks that there is a file of devices, so that it need not be named in vain.
func (k *checker) checkDevicesFile() {
	f := k.Devices.File
	if f == "" {
		return
	}
	switch info, err := os.Stat(f); {
	case errors.Is(err, fs.ErrNotExist):
		k.report("devices.file", "%s does not exist: make it with mode 644 and a line for each device, its MAC address", f)
	case err != nil:
		k.report("devices.file", "%v", textfile.Plain(err))
	case !info.Mode().IsRegular():
		k.report("devices.file", "%s is no regular file, which could be read again: name one", f)
	}
}

// isPublic reports whether every user of the machine can read a file.
func isPublic(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().Perm()&0o004 != 0
}

// complete fills in values that follow from other keys.
func (c *Config) complete() {
	if !c.IsSet("dns.answer_aaaa") {
		c.DNS.AnswerAAAA = c.LAN.Address6.IsValid()
	}
	ownAddr := c.LAN.Address.Addr()
	if c.DHCP.Mode == Server {
		if len(c.DHCP.Pools) == 0 {
			c.DHCP.Pools = around(c.LAN.Address)
		}
		if len(c.DHCP.DNS) == 0 {
			c.DHCP.DNS = []netip.Addr{ownAddr}
		}
		c.completeClaims()
	}
	for _, s := range []*RADIUSServer{&c.RADIUS.Primary, &c.RADIUS.Secondary} {
		if s.Address.IsValid() && !s.AcctAddress.IsValid() {
			// Servers have authentication and accounting on neighbouring ports, also
			// on the old ones, 1645 and 1646 (RFC 2866, 3).
			s.AcctAddress = netip.AddrPortFrom(s.Address.Addr(), s.Address.Port()+1)
		}
	}
	c.completeUAM()
	c.completeOIDC()
	c.completeStore()
	if c.FlowLog.Folder == "" {
		c.FlowLog.Folder = filepath.Join(c.StateDir, "flows")
	}
	paths := []*string{
		&c.RADIUS.Primary.SecretFile, &c.RADIUS.Secondary.SecretFile, &c.Users.File,
		&c.Devices.File, &c.Click.Rooms, &c.Devices.PasswordFile, &c.UAM.SecretFile,
		&c.Portal.TLSCert, &c.Portal.TLSKey, &c.Portal.Templates, &c.Admin.Accounts, &c.Admin.TLSCert, &c.Admin.TLSKey,
		&c.Store.PasswordFile, &c.Store.Sentinels.PasswordFile, &c.Store.KeyFile, &c.Store.CAFile,
	}
	for i := range c.OIDC {
		paths = append(paths, &c.OIDC[i].SecretFile, &c.OIDC[i].CAFile)
	}
	for _, path := range paths {
		if *path != "" && !filepath.IsAbs(*path) {
			*path = filepath.Join(filepath.Dir(c.File), *path)
		}
	}
}

// around returns a network's addresses without the gateway's: one range or two.
func around(ownPrefix netip.Prefix) []Range {
	var ranges []Range
	first, last := ownPrefix.Masked().Addr().Next(), lastOf(ownPrefix).Prev()
	if before := ownPrefix.Addr().Prev(); first.Compare(before) <= 0 {
		ranges = append(ranges, Range{first, before})
	}
	if after := ownPrefix.Addr().Next(); after.Compare(last) <= 0 {
		ranges = append(ranges, Range{after, last})
	}
	return ranges
}
