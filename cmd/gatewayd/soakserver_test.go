// What the RADIUS server and hosts outside send to the gateway in the soak test (soak_test.go), and the portal's
// certificate.

package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	crand "crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"time"

	"layeh.com/radius"
	"layeh.com/radius/rfc2865"
	"layeh.com/radius/rfc2866"
	"layeh.com/radius/rfc2869"
)

// certificate makes the portal's certificate, signed by itself.
func (w *world) certificate() {
	w.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), crand.Reader)
	must(w.t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: portalName}, DNSNames: []string{portalName},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour), BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(crand.Reader, template, template, &key.PublicKey, key)
	must(w.t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	must(w.t, err)
	files := map[string]*pem.Block{
		"portal.crt": {Type: "CERTIFICATE", Bytes: der}, "portal.key": {Type: "PRIVATE KEY", Bytes: private}}
	for name, block := range files {
		must(w.t, os.WriteFile(filepath.Join(w.Dir, name), pem.EncodeToMemory(block), 0o600))
	}
}

// changes returns a RADIUS server's request to end a session or, with seconds, to set its Session-Timeout.
func (w *world) changes(code radius.Code, id string, seconds int) []byte {
	p := radius.New(code, []byte(w.Secret))
	_ = rfc2866.AcctSessionID_SetString(p, id)
	if id < "f" { // most requests; gatewayd remembers one without a timestamp for a day
		_ = rfc2869.EventTimestamp_Set(p, time.Now())
	}
	if seconds > 0 {
		_ = rfc2865.SessionTimeout_Set(p, rfc2865.SessionTimeout(seconds))
	}
	b, err := p.Encode()
	must(w.t, err)
	return b
}

// asksFor sends a request as the RADIUS server until it is answered, and returns an error unless gatewayd carries it
// out.
func (s *soak) asksFor(request []byte) error {
	conn, err := s.asServer()
	if err != nil {
		return err
	}
	defer conn.Close()
	b := make([]byte, 4096)
	for limit := time.Second; limit < soakWait; limit *= 2 {
		if _, err := conn.Write(request); err != nil {
			return err
		}
		_ = conn.SetReadDeadline(time.Now().Add(limit))
		n, err := conn.Read(b)
		if err != nil {
			continue
		}
		answer, err := radius.Parse(b[:n], []byte(s.Secret))
		if err == nil && answer.Code != radius.CodeDisconnectACK && answer.Code != radius.CodeCoAACK {
			err = fmt.Errorf("a server's request is answered with %v, %v", answer.Code, answer.Attributes)
		}
		s.mu.Lock()
		s.carried = request
		s.mu.Unlock()
		return err
	}
	return fmt.Errorf("a server's request is not answered")
}

// asServer opens a socket of the RADIUS server.
func (s *soak) asServer() (conn net.Conn, err error) {
	err = s.inHostErr("router", func() error {
		conn, err = net.Dial("udp4", "127.0.0.1:3799")
		return err
	})
	return conn, err
}

// oddServer sends, as the RADIUS server, requests that were carried out already, forged ones, damaged ones and ones
// about no session, and, as hosts outside, datagrams and ICMP errors to the gateway's address.
func (s *soak) oddServer(r *rand.Rand) {
	for !s.isOver() {
		s.sleep(r, 4*time.Second)
		conn, err := s.asServer()
		if err != nil {
			s.fault("a server's socket: %v", err)
			return
		}
		request := s.changes(radius.CodeDisconnectRequest, fmt.Sprintf("%016x", r.Uint64()), 0) // about no session
		switch r.IntN(4) {
		case 0: // a request that was carried out
			s.mu.Lock()
			if s.carried != nil {
				request = s.carried
			}
			s.mu.Unlock()
			s.countAction("odd: replayed request")
		case 1:
			request[4+r.IntN(16)] ^= 1
			s.countAction("odd: forged request")
		case 2:
			request = request[:r.IntN(len(request))]
			s.countAction("odd: damaged request")
		case 3:
			s.countAction("odd: request about no session")
		}
		_, _ = conn.Write(request)
		_ = conn.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
		_, _ = conn.Read(make([]byte, 4096))
		conn.Close()
		if err := s.inHostErr("server", func() error { return outsideNoise(r) }); err != nil {
			s.fault("hosts outside: %v", err)
		}
	}
}

// outsideNoise sends the gateway a datagram to a port where nobody listens, and an ICMP error about a datagram that was
// never sent: its source port is lower than clients' ports.
func outsideNoise(r *rand.Rand) error {
	conn, err := net.Dial("udp4", fmt.Sprintf("192.0.2.1:%d", 1024+r.IntN(60000)))
	if err != nil {
		return err
	}
	defer conn.Close()
	_, _ = conn.Write([]byte("unasked"))
	raw, err := net.Dial("ip4:icmp", "192.0.2.1")
	if err != nil {
		return err
	}
	defer raw.Close()
	original := datagram([4]byte{192, 0, 2, 1}, serverAddr.As4(), uint16(1024+r.IntN(20000)), echoPort, nil)
	_, err = raw.Write(unreachable(original))
	return err
}
