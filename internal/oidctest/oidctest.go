// Package oidctest runs a certified OpenID provider in tests: oidc-provider, a program for Node.js.
package oidctest

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// Client is a client that the provider knows, as oidc-provider's configuration has it.
type Client struct {
	ID           string   `json:"client_id"`
	Secret       string   `json:"client_secret,omitempty"`
	AuthMethod   string   `json:"token_endpoint_auth_method,omitempty"` // "none": a public client
	RedirectURIs []string `json:"redirect_uris"`
}

// Config is a provider's configuration.
type Config struct {
	Host     string                    `json:"-"` // name or address, in its certificate too
	Listen   netip.Addr                `json:"listen"`
	Port     uint16                    `json:"port"`
	Issuer   string                    `json:"issuer"` // set by Start
	Key      string                    `json:"key"`    // with Cert those of an earlier provider; "": Start makes both
	Cert     string                    `json:"cert"`
	Clients  []Client                  `json:"clients"`
	Accounts map[string]map[string]any `json:"accounts"` // claims by name; any password is right
	// IDTokenSeconds is how long ID tokens are good; 0: an hour.
	IDTokenSeconds int `json:"idTokenSeconds"`
	// Conform has the claims of scopes at the UserInfo endpoint alone.
	Conform bool `json:"conform"`
}

// Provider is a running provider. Its certificate is that of its own authority, in the file Cert.
type Provider struct {
	Config
	stop func()
}

// Stop ends the provider.
func (p *Provider) Stop() { p.stop() }

// Start starts a provider that ends with the test, by a command such as "ip netns exec server"; none: here. It is there
// when Start returns.
func Start(t testing.TB, c Config, by ...string) *Provider {
	t.Helper()
	folder := filepath.Join(root(t), "internal", "oidctest", "testdata", "provider")
	if _, err := os.Stat(filepath.Join(folder, "node_modules", "oidc-provider")); err != nil {
		t.Fatal("oidc-provider is not installed: run .ci/deps")
	}
	dir := t.TempDir()
	if c.Cert == "" {
		c.Cert, c.Key = Certificate(t, dir, c.Host)
	}
	c.Issuer = "https://" + c.Host
	if c.Port != 443 {
		c.Issuer = fmt.Sprintf("%s:%d", c.Issuer, c.Port)
	}
	if c.IDTokenSeconds == 0 {
		c.IDTokenSeconds = 3600
	}
	text, err := json.Marshal(c)
	netnstest.Must(t, err)
	argv := append(append([]string{}, by...), "node", filepath.Join(folder, "server.mjs"), string(text))
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stderr = t.Output()
	in, err := cmd.StdinPipe()
	netnstest.Must(t, err)
	out, err := cmd.StdoutPipe()
	netnstest.Must(t, err)
	netnstest.Must(t, netnstest.Start(cmd))
	p := &Provider{Config: c}
	ended := false
	p.stop = func() {
		if !ended {
			ended = true
			in.Close() // the provider ends with its input
			cmd.Wait()
		}
	}
	t.Cleanup(p.stop)
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatalf("the provider says %q, %v", line, err)
	}
	return p
}

// root is the repository's folder, seen from a test's: its go.mod is there. What the compiler knows of it is missing
// from programs that were built with -trimpath.
func root(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	netnstest.Must(t, err)
	for ; dir != "/"; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
	}
	t.Fatal("no go.mod above the test's folder")
	return ""
}

// Certificate makes a certificate for a name or an address, signed by itself, in files of a folder.
func Certificate(t testing.TB, dir, host string) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	netnstest.Must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: host},
		NotBefore: time.Now().Add(-24 * time.Hour), NotAfter: time.Now().Add(24 * time.Hour), IsCA: true,
		BasicConstraintsValid: true,
	}
	if ip := net.ParseIP(host); ip != nil {
		template.IPAddresses = []net.IP{ip}
	} else {
		template.DNSNames = []string{host}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	netnstest.Must(t, err)
	encoded, err := x509.MarshalPKCS8PrivateKey(private)
	netnstest.Must(t, err)
	cert, key = filepath.Join(dir, host+".pem"), filepath.Join(dir, host+".key")
	netnstest.Must(t, os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	netnstest.Must(t, os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded}), 0o600))
	return cert, key
}
