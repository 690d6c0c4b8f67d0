package portal

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/gateweigh/gateweigh/textfile"
)

// certificateAge is how long a certificate is used before its files are checked again: a renewal needs no signal and no
// restart.
const certificateAge = time.Minute

// certificate is the portal's certificate, reloaded when its files change.
type certificate struct {
	certFile, keyFile, host string
	log                     *slog.Logger

	mu        sync.Mutex
	current   *tls.Certificate // guarded by mu
	changed   time.Time        // guarded by mu: newest modification of the files read
	checkedAt time.Time        // guarded by mu
}

// newCertificate reads the files and checks that they are valid for host.
func newCertificate(certFile, keyFile, host string, log *slog.Logger) (*certificate, error) {
	c := &certificate{certFile: certFile, keyFile: keyFile, host: host, log: log}
	if err := c.read(); err != nil {
		return nil, err
	}
	return c, nil
}

// get is a tls.Config's GetCertificate. While new files are invalid, it returns the old certificate.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.checkedAt) >= certificateAge {
		if err := c.read(); err != nil {
			c.log.Error("reading the portal's renewed certificate; the old one stays in use", "error", err)
		}
	}
	return c.current, nil
}

// read loads the files if they have changed; mu is held, or c is not shared yet.
func (c *certificate) read() error {
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
	if err := pair.Leaf.VerifyHostname(c.host); err != nil {
		return fmt.Errorf("the certificate %s is not for the portal, %s; set the portal's name to one that it is for: %w",
			c.certFile, c.host, err)
	}
	c.current, c.changed = &pair, newest
	return nil
}
