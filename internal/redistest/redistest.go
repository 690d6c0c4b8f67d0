// Package redistest runs real servers of Redis for tests.
package redistest

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
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

// program is the server's: GATEWEIGH_TEST_REDIS names another, such as one of Valkey.
func program() string { return cmp.Or(os.Getenv("GATEWEIGH_TEST_REDIS"), "redis-server") }

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
		port = freePort(t)
	}
	s := &Server{Addr: fmt.Sprintf("127.0.0.1:%d", port), Dir: t.TempDir(), t: t, inside: at.Inside}
	text := fmt.Sprintf("bind 127.0.0.1 %s\nprotected-mode no\nport %d\nunixsocket DIR/sock\ndir DIR\ndaemonize no\n"+
		"logfile \"\"\nsave \"\"\nappendonly yes\nappendfsync everysec\nmaxmemory-policy noeviction\n%s\n",
		at.Also, port, strings.Join(lines, "\n"))
	netnstest.Must(t, os.WriteFile(s.path("redis.conf"), []byte(strings.ReplaceAll(text, "DIR", s.Dir)), 0o600))
	s.Restart()
	return s
}

// freePort returns a port at which nobody listens in the test's network.
func freePort(t testing.TB) int {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	netnstest.Must(t, err)
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
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
	argv := append(append([]string{}, s.inside...), program(), s.path("redis.conf"))
	s.cmd = exec.Command(argv[0], argv[1:]...)
	netnstest.Background(s.t, s.cmd)
	netnstest.Await(s.t, "redis-server answers", func() error {
		out, err := s.Try("PING")
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
	out, err := s.Try(command...)
	if err != nil {
		s.t.Fatalf("redis-cli %s: %v: %s", strings.Join(command, " "), err, out)
	}
	return strings.TrimSpace(out)
}

// Try is CLI that returns an error: a server that becomes the master breaks connections off.
func (s *Server) Try(command ...string) (string, error) {
	args := append([]string{"-s", s.path("sock")}, s.login...)
	out, err := exec.Command("redis-cli", append(args, command...)...).CombinedOutput()
	return string(out), err
}

// Replicate has a server replicate another one, and waits until it does.
func (s *Server) Replicate(of *Server) {
	s.t.Helper()
	host, port, _ := net.SplitHostPort(of.Addr)
	of.CLI("CONFIG", "SET", "repl-diskless-sync-delay", "0")
	s.CLI("REPLICAOF", host, port)
	netnstest.Await(s.t, "the replica has all", func() error {
		if out := s.CLI("INFO", "replication"); !strings.Contains(out, "master_link_status:up") {
			return errors.New(out)
		}
		return nil
	})
}

// Sentinel starts a Sentinel, which makes one of the replicas of a server the master 0.5 s after that is gone. It knows
// so many replicas when Sentinel returns its address. The server is called by the name. Login is a user and a
// password that it asks for; without, it lets everybody in.
func Sentinel(t testing.TB, name string, master *Server, replicas int, login ...string) (addr string) {
	t.Helper()
	dir, port := t.TempDir(), freePort(t)
	host, masterPort, _ := net.SplitHostPort(master.Addr)
	file := filepath.Join(dir, "sentinel.conf")
	var users string
	cli := []string{"-p", strconv.Itoa(port)}
	if len(login) == 2 {
		users = fmt.Sprintf("user default off\nuser %s on >%s ~* &* +@all\n", login[0], login[1])
		cli = append(cli, "--user", login[0], "--pass", login[1], "--no-auth-warning")
	}
	netnstest.Must(t, os.WriteFile(file, fmt.Appendf(nil, "bind 127.0.0.1\nport %d\ndir %s\nsentinel monitor %s %s %s 1\n"+
		"sentinel down-after-milliseconds %[3]s 500\nsentinel failover-timeout %[3]s 3000\n%[6]s", port, dir, name, host,
		masterPort, users), 0o600))
	netnstest.Background(t, exec.Command(program(), file, "--sentinel"))
	netnstest.Await(t, "the Sentinel knows the replicas", func() error {
		out, err := exec.Command("redis-cli", append(cli, "SENTINEL", "REPLICAS", name)...).CombinedOutput()
		if err == nil && strings.Count(string(out), "master-link-status\nok") != replicas {
			err = errors.New(string(out))
		}
		return err
	})
	return fmt.Sprintf("127.0.0.1:%d", port)
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
