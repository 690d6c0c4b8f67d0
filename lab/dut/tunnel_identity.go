package dut

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"math/big"
	"strings"
	"time"
)

// identity is a key with a self-signed certificate, both in PEM, made for one start. Peers check one of the hashes.
type identity struct {
	certificate, key string
	fingerprint      string // SHA-256 of the certificate: "AB:CD:…"
	pin              string // SHA-256 of the public key, base64 (RFC 7469)
}

// newIdentity makes an identity (ECDSA, P-256) for a name. It is valid from an hour ago for 25 hours.
func newIdentity(name string) (id identity, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return id, fmt.Errorf("making a key for %s: %w", name, err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return id, fmt.Errorf("making a certificate for %s: %w", name, err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return id, fmt.Errorf("writing the key of %s: %w", name, err)
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return id, fmt.Errorf("writing the public key of %s: %w", name, err)
	}
	sum, pin := sha256.Sum256(cert), sha256.Sum256(public)
	return identity{
		certificate: inPEM("CERTIFICATE", cert), key: inPEM("PRIVATE KEY", private),
		fingerprint: withColons(sum[:]), pin: base64.StdEncoding.EncodeToString(pin[:]),
	}, nil
}

func inPEM(kind string, data []byte) string {
	var buf bytes.Buffer
	pem.Encode(&buf, &pem.Block{Type: kind, Bytes: data}) // a buffer takes everything
	return buf.String()
}

// withColons formats bytes in hexadecimal: "AB:CD".
func withColons(b []byte) string {
	var list []string
	for i := range b {
		list = append(list, strings.ToUpper(hex.EncodeToString(b[i:i+1])))
	}
	return strings.Join(list, ":")
}
