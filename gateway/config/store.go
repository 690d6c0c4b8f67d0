// The store that several gateways share.

package config

import (
	"crypto/x509"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"strconv"
	"strings"

	"github.com/gateweigh/gateweigh/internal/strict"
	"github.com/gateweigh/gateweigh/textfile"
)

// Values of store.kind.
const (
	StoreFile  = "file"  // the gateway's own files alone
	StoreRedis = "redis" // copies of its records in a server of Redis or Valkey
)

// Values of store.roaming: what a device must have in common with a session of another gateway.
const (
	RoamingOff       = "off"     // nothing makes up for a login
	RoamingByMAC     = "mac"     // the MAC address
	RoamingByAddress = "address" // the MAC address and the address
)

// Store is where a gateway keeps its records.
type Store struct {
	Kind           string   // StoreFile or StoreRedis
	Addresses      []string // host:port, of the server or of Sentinels
	SentinelMaster string   // as Sentinels call the server; empty: Addresses is the server's
	User           string   // empty: the server's default one
	Password       string
	PasswordFile   string // the file Password was read from; empty: none
	Sentinels      StoreSentinels
	Key            []byte // the gateways' common secret, by which they sign; nil: they do not
	KeyFile        string // the file Key was read from; empty: none
	CAFile         string // PEM, of the servers' certificates; empty: no TLS
	Name           string // this gateway's
	Prefix         string // of all keys
	Roaming        string // RoamingOff, RoamingByMAC or RoamingByAddress
}

// StoreSentinels is how gatewayd logs in at Sentinels.
type StoreSentinels struct {
	User         string // empty: their default one
	Password     string // empty: they ask for none
	PasswordFile string // the file Password was read from; empty: none
}

// shortestKey is how many characters the gateways' common secret has at least.
const shortestKey = 32

// Ports of Redis and of Sentinels.
const (
	redisPort    = 6379
	sentinelPort = 26379
)

var (
	gatewayName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)
	storePrefix = regexp.MustCompile(`^[A-Za-z0-9._:-]{1,64}$`)

	readGatewayName = strict.AcceptText(`a name of letters, digits, dots and hyphens, at most 63, such as "gw1"`,
		func(s string) (string, bool) { return s, gatewayName.MatchString(s) })
	readKeyPrefix = strict.AcceptText(`letters, digits, dots, colons and hyphens, at most 64, such as "gateweigh:"`,
		func(s string) (string, bool) { return s, storePrefix.MatchString(s) })
	readStoreAddress = strict.AcceptText(`an address or a name, and a port unless it is the usual one, such as `+
		`"192.0.2.20:6379"; IPv6 in brackets: "[2001:db8::20]:6379"`, storeAddress)
)

// storeAddress accepts a host with or without a port. IPv6 addresses need brackets: without them a port could be meant.
func storeAddress(s string) (string, bool) {
	host, number, err := net.SplitHostPort(s)
	if inner, is := strings.CutPrefix(s, "["); is && strings.HasSuffix(inner, "]") {
		addr, err := netip.ParseAddr(strings.TrimSuffix(inner, "]"))
		return s, err == nil && addr.Is6()
	}
	if err != nil {
		host = s
		if strings.Contains(host, ":") {
			return "", false
		}
	} else if n, err := strconv.ParseUint(number, 10, 16); err != nil || n == 0 {
		return "", false
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return s, true
	}
	_, err = hostName(host)
	return s, err == nil
}

func (c *Config) storeSettings() []setting {
	s := &c.Store
	return []setting{
		keyAt("store.kind", &s.Kind, strict.Word(StoreFile, StoreRedis)),
		keyAt("store.addresses", &s.Addresses, nonEmpty(list(readStoreAddress))),
		keyAt("store.sentinel_master", &s.SentinelMaster, line(100)),
		keyAt("store.user", &s.User, line(100)),
		keyAt("store.password_file", &s.PasswordFile, file),
		keyAt("store.sentinel_user", &s.Sentinels.User, line(100)),
		keyAt("store.sentinel_password_file", &s.Sentinels.PasswordFile, file),
		keyAt("store.key_file", &s.KeyFile, file),
		keyAt("store.ca_file", &s.CAFile, file),
		keyAt("store.name", &s.Name, readGatewayName),
		keyAt("store.prefix", &s.Prefix, readKeyPrefix),
		keyAt("store.roaming", &s.Roaming, strict.Word(RoamingOff, RoamingByMAC, RoamingByAddress)),
	}
}

// checkStore checks the keys of the store.
func (k *checker) checkStore() {
	s := k.Store
	if s.Kind == StoreFile {
		k.refuseUnused(`store.kind is not "redis"`, "store.addresses", "store.sentinel_master", "store.user",
			"store.password_file", "store.sentinel_user", "store.sentinel_password_file", "store.key_file", "store.ca_file",
			"store.name", "store.prefix", "store.roaming")
		return
	}
	if s.Roaming != RoamingOff && k.PPPoE.Enabled && !k.Portal.Enabled && !k.Devices.On() {
		k.report("store.roaming", noEffect+": clients come in on PPPoE, where each line logs in itself")
	}
	if s.SentinelMaster == "" {
		k.refuseUnused("store.sentinel_master is not set, so there are no Sentinels", "store.sentinel_user",
			"store.sentinel_password_file")
	} else if s.Sentinels.User != "" && s.Sentinels.PasswordFile == "" {
		k.report("store.sentinel_password_file", "missing: store.sentinel_user logs in by it")
	}
	if !k.IsSet("store.addresses") {
		k.report("store.addresses", `missing: where the server is, such as ["192.0.2.20:6379"]`)
	}
	if len(s.Addresses) > 1 && s.SentinelMaster == "" {
		k.report("store.addresses", "must be that of one server: for several, which replace each other, list their "+
			"Sentinels and set store.sentinel_master")
	}
	if s.User != "" && s.PasswordFile == "" {
		k.report("store.password_file", "missing: store.user logs in by it")
	}
	if !k.IsSet("store.name") {
		k.report("store.name", `missing: what this gateway is called in the store, such as "gw1"; each has its own`)
	}
}

// openStore reads the files of the store.
func (k *checker) openStore() {
	if f := k.Store.PasswordFile; f != "" {
		k.Store.Password = k.secretIn("store.password_file", f)
	}
	if f := k.Store.Sentinels.PasswordFile; f != "" {
		k.Store.Sentinels.Password = k.secretIn("store.sentinel_password_file", f)
	}
	if f := k.Store.KeyFile; f != "" {
		key := k.secretIn("store.key_file", f)
		if k.Store.Key = []byte(key); key != "" && len(key) < shortestKey {
			k.report("store.key_file", "%s has %d characters, and must have %d: make it with \"openssl rand -hex 32\"", f,
				len(key), shortestKey)
		}
	}
	if f := k.Store.CAFile; f != "" {
		if _, err := Authorities(f); err != nil {
			k.report("store.ca_file", "%v", err)
		}
	}
}

// Authorities reads the certificates of authorities from a file, PEM.
func Authorities(path string) (*x509.CertPool, error) {
	text, err := textfile.Read(path, maxFileBytes)
	if err != nil {
		return nil, err
	}
	all := x509.NewCertPool()
	if !all.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s has no certificate in PEM: name the file of the authority that signed the server's", path)
	}
	return all, nil
}

// completeStore fills in what follows from other keys.
func (c *Config) completeStore() {
	usual := uint64(redisPort)
	if c.Store.SentinelMaster != "" {
		usual = sentinelPort
	}
	for i, a := range c.Store.Addresses {
		if _, _, err := net.SplitHostPort(a); err != nil {
			c.Store.Addresses[i] = net.JoinHostPort(strings.Trim(a, "[]"), strconv.FormatUint(usual, 10))
		}
	}
}
