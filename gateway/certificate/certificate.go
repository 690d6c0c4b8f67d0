// Package certificate serves a TLS certificate from files, and reads them again when they have changed: a renewal needs
// no signal and no restart.
package certificate

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/gateweigh/gateweigh/textfile"
)

// age is how long a certificate is used before its files are checked again.
const age = time.Minute

// Certificate is a certificate of files. Its methods may be called from several goroutines.
type Certificate struct {
	certFile, keyFile, whose string
	host                     string // that it must be for; empty: any
	log                      *slog.Logger

	mu        sync.Mutex
	current   *tls.Certificate // guarded by mu
	changed   time.Time        // guarded by mu: newest modification of the files read
	checkedAt time.Time        // guarded by mu
}

// Open reads the files, PEM both, and checks that they are for host, unless it is empty. whose is whose certificate it
// is, for messages: "the portal".
func Open(certFile, keyFile, whose, host string, log *slog.Logger) (*Certificate, error) {
	c := &Certificate{certFile: certFile, keyFile: keyFile, whose: whose, host: host, log: log}
	if err := c.read(); err != nil {
		return nil, err
	}
	return c, nil
}

// Get is a tls.Config's GetCertificate. While new files are invalid, it returns the old certificate.
func (c *Certificate) Get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.checkedAt) >= age {
		if err := c.read(); err != nil {
			c.log.Error("reading the renewed certificate of "+c.whose+"; the old one stays in use", "error", err)
		}
	}
	return c.current, nil
}

// read loads the files if they have changed; mu is held, or c is not shared yet.
func (c *Certificate) read() error {
	c.checkedAt = time.Now()
	var newest time.Time
	for _, file := range []string{c.certFile, c.keyFile} {
		info, err := os.Stat(file)
		if err != nil {
			return fmt.Errorf("looking at the certificate's files: %w", err)
		}
		if info.ModTime().After(newest) {
			newest = info.ModTime()
		}
	}
	if c.current != nil && newest.Equal(c.changed) {
		return nil
	}
	// A renewal replaces two files. Between the two writes they do not match; the next check, a minute later, finds both.
	pair, err := textfile.KeyPair(c.certFile, c.keyFile)
	if err != nil {
		return fmt.Errorf("reading the certificate %s and its key %s: %w", c.certFile, c.keyFile, err)
	}
	if c.host != "" {
		if err := pair.Leaf.VerifyHostname(c.host); err != nil {
			return fmt.Errorf("the certificate %s is not for %s, %s; set the name of %s to one that it is for: %w",
				c.certFile, c.whose, c.host, c.whose, err)
		}
	}
	c.current, c.changed = &pair, newest
	return nil
}

// Expired is why a certificate must not be used at a time: it has expired, or is not valid yet. Errors name the file
// and say what to do.
func Expired(leaf *x509.Certificate, file string, now time.Time) error {
	switch {
	case now.After(leaf.NotAfter):
		return fmt.Errorf("the certificate %s has expired at %s: renew it", file, leaf.NotAfter.Format(time.RFC3339))
	case now.Before(leaf.NotBefore):
		return fmt.Errorf("the certificate %s is valid from %s on: is the clock right?", file,
			leaf.NotBefore.Format(time.RFC3339))
	}
	return nil
}

// CheckFiles is Expired for the certificate of files now, and an error where they cannot be read.
func CheckFiles(certFile, keyFile string) error {
	pair, err := textfile.KeyPair(certFile, keyFile)
	if err != nil {
		return err
	}
	return Expired(pair.Leaf, certFile, time.Now())
}

// Valid reads the files again where that is due, and returns why the certificate must not be used now; nil: it may.
func (c *Certificate) Valid() error {
	pair, err := c.Get(nil)
	if err != nil {
		return err
	}
	return Expired(pair.Leaf, c.certFile, time.Now())
}

// Recheck has the files looked at again at the next use.
func (c *Certificate) Recheck() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.checkedAt = time.Time{}
}
