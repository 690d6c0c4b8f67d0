// Package redistest runs real servers of Redis for tests.
package redistest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// Server is a server that runs, unless it was killed.
type Server struct {
	Addr string // 127.0.0.1 and a port
	Dir  string // its files

	t      testing.TB
	inside []string // runs a command where the server is
	login  []string // options of redis-cli
	cmd    *exec.Cmd
}

// Place is where a server listens. The zero value is the test's own network.
type Place struct {
	Inside []string // command that runs another in a network: "ip", "netns", "exec", NAME
	Port   int      // 0: a free one of the test's network
	Also   string   // a further address; "": none
}

// Start starts a server that listens at 127.0.0.1 and ends with the test. Lines are added to its configuration, in
// which DIR is its folder.
func Start(t testing.TB, at Place, lines ...string) *Server {
	t.Helper()
	port := at.Port
	if port == 0 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		netnstest.Must(t, err)
		port = l.Addr().(*net.TCPAddr).Port
		l.Close()
	}
	s := &Server{Addr: fmt.Sprintf("127.0.0.1:%d", port), Dir: t.TempDir(), t: t, inside: at.Inside}
	text := fmt.Sprintf("bind 127.0.0.1 %s\nprotected-mode no\nport %d\nunixsocket DIR/sock\ndir DIR\ndaemonize no\n"+
		"logfile \"\"\nsave \"\"\nappendonly yes\nappendfsync everysec\nmaxmemory-policy noeviction\n%s\n",
		at.Also, port, strings.Join(lines, "\n"))
	netnstest.Must(t, os.WriteFile(s.path("redis.conf"), []byte(strings.ReplaceAll(text, "DIR", s.Dir)), 0o600))
	s.Restart()
	return s
}

func (s *Server) path(name string) string { return filepath.Join(s.Dir, name) }

// As has CLI log in.
func (s *Server) As(user, password string) {
	s.login = []string{"--user", user, "--pass", password, "--no-auth-warning"}
}

// Restart starts the server again, which reads its file, and waits until it answers.
func (s *Server) Restart() {
	s.t.Helper()
	os.Remove(s.path("sock"))
	argv := append(append([]string{}, s.inside...), "redis-server", s.path("redis.conf"))
	s.cmd = exec.Command(argv[0], argv[1:]...)
	netnstest.Background(s.t, s.cmd)
	netnstest.Await(s.t, "redis-server answers", func() error {
		out, err := s.try("PING")
		if err == nil && !strings.Contains(out, "PONG") && !strings.Contains(out, "NOAUTH") {
			err = fmt.Errorf("it answers %q", out)
		}
		return err
	})
}

// Kill ends the server as a crash would.
func (s *Server) Kill() {
	s.t.Helper()
	netnstest.Must(s.t, s.cmd.Process.Kill())
	s.cmd.Wait()
}

// Stop stops the server until Continue: connections stay, and nothing answers.
func (s *Server) Stop() { s.t.Helper(); netnstest.Must(s.t, s.cmd.Process.Signal(syscall.SIGSTOP)) }

// Continue has the server go on.
func (s *Server) Continue() { s.t.Helper(); netnstest.Must(s.t, s.cmd.Process.Signal(syscall.SIGCONT)) }

// CLI sends a command and returns the answer.
func (s *Server) CLI(command ...string) string {
	s.t.Helper()
	out, err := s.try(command...)
	if err != nil {
		s.t.Fatalf("redis-cli %s: %v: %s", strings.Join(command, " "), err, out)
	}
	return strings.TrimSpace(out)
}

func (s *Server) try(command ...string) (string, error) {
	args := append([]string{"-s", s.path("sock")}, s.login...)
	out, err := exec.Command("redis-cli", append(args, command...)...).CombinedOutput()
	return string(out), err
}

// Certificate writes ca.pem, server.pem and server.key to a folder: a certificate of 127.0.0.1 that signs itself.
func Certificate(t testing.TB, dir string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	netnstest.Must(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true,
		BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	netnstest.Must(t, err)
	key, err := x509.MarshalPKCS8PrivateKey(private)
	netnstest.Must(t, err)
	for name, block := range map[string]*pem.Block{"ca.pem": {Type: "CERTIFICATE", Bytes: der},
		"server.pem": {Type: "CERTIFICATE", Bytes: der}, "server.key": {Type: "PRIVATE KEY", Bytes: key}} {
		netnstest.Must(t, os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600))
	}
}
