// Helpers of this package's tests: a real FreeRADIUS server on loopback, and the Client that is tested.

package radius

import (
	"bufio"
	"bytes"
	"io"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"text/template"

	"github.com/gateweigh/gateweigh/internal/netnstest"
)

const testSecret = "a secret of 24 characters"

// freeRADIUS is a real server, with configuration and addresses of its own.
type freeRADIUS struct {
	Dir, Secret string
	Auth, Acct  netip.AddrPort
	Log         bool     // keep what is asked: not for benchmarks
	Passwords   []string // of the users "length…"
	Long        string
	cmd         *exec.Cmd
	ended       chan struct{}
}

// loopback returns a random address of 16 million, which nothing else uses.
func loopback() netip.Addr {
	return netip.AddrFrom4([4]byte{127, byte(1 + rand.N(254)), byte(rand.N(256)), byte(1 + rand.N(254))})
}

// startFreeRADIUS starts a server that ends with the test.
func startFreeRADIUS(t testing.TB) *freeRADIUS {
	t.Helper()
	f := newFreeRADIUS(t, loopback())
	f.start(t)
	return f
}

// newFreeRADIUS configures a server on an address.
func newFreeRADIUS(t testing.TB, addr netip.Addr) *freeRADIUS {
	t.Helper()
	f := &freeRADIUS{
		Dir: t.TempDir(), Secret: testSecret, Log: true,
		Auth: netip.AddrPortFrom(addr, 1812), Acct: netip.AddrPortFrom(addr, 1813),
		Passwords: testPasswords(), Long: strings.Repeat("-", maxValue-len("Renew it at the desk. ")),
	}
	f.configure(t)
	t.Cleanup(func() { f.kill() })
	return f
}

// configure writes the server's files.
func (f *freeRADIUS) configure(t testing.TB) {
	t.Helper()
	for _, name := range []string{"radiusd.conf", "users"} {
		tmpl, err := template.ParseFiles(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		var text bytes.Buffer
		if err := tmpl.Execute(&text, f); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(f.Dir, name), text.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// start returns once the server is ready.
func (f *freeRADIUS) start(t testing.TB) {
	t.Helper()
	f.cmd = exec.Command("freeradius", "-f", "-l", "stdout", "-d", f.Dir)
	f.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	output, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	f.cmd.Stdout, f.cmd.Stderr = w, w
	if err := f.cmd.Start(); err != nil {
		t.Fatalf("starting freeradius (package freeradius): %v", err)
	}
	w.Close()
	f.ended = make(chan struct{})
	var stderr strings.Builder
	lines := bufio.NewScanner(output)
	ready := false
	for !ready && lines.Scan() {
		stderr.WriteString(lines.Text() + "\n")
		ready = strings.Contains(lines.Text(), "Ready to process requests")
	}
	go func() {
		io.Copy(io.Discard, output) // so that later output does not block the server
		output.Close()
		f.cmd.Wait()
		close(f.ended)
	}()
	if !ready {
		t.Fatalf("freeradius ended:\n%s", stderr.String())
	}
}

// kill ends the server; its port then refuses. It may be called twice.
func (f *freeRADIUS) kill() {
	if f.ended != nil {
		f.cmd.Process.Kill()
		<-f.ended
	}
}

// freeze makes the server silent until it is thawed: its socket accepts packets that are
// not read.
func (f *freeRADIUS) freeze(t testing.TB) { f.signal(t, syscall.SIGSTOP) }

func (f *freeRADIUS) thaw(t testing.TB) { f.signal(t, syscall.SIGCONT) }

func (f *freeRADIUS) signal(t testing.TB, s os.Signal) {
	t.Helper()
	if err := f.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// server returns the client's configuration of this server.
func (f *freeRADIUS) server() Server {
	return Server{Address: f.Auth, AcctAddress: f.Acct, Secret: f.Secret}
}

// record is the attributes of one packet, as FreeRADIUS writes them.
type record map[string][]string

// records returns the packets of a detail file, "asked" or "told".
func (f *freeRADIUS) records(t testing.TB, name string) []record {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(f.Dir, name))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	var all []record
	for part := range strings.SplitSeq(strings.TrimSpace(string(text)), "\n\n") {
		r := record{}
		for line := range strings.Lines(part) {
			if name, value, ok := strings.Cut(strings.TrimSpace(line), " = "); ok {
				r[name] = append(r[name], strings.Trim(value, `"`))
			}
		}
		if len(r) > 0 {
			all = append(all, r)
		}
	}
	return all
}

// last returns the last packet of a detail file.
func (f *freeRADIUS) last(t testing.TB, name string) record {
	t.Helper()
	all := f.records(t, name)
	if len(all) == 0 {
		t.Fatalf("freeradius was not %s anything", name)
	}
	return all[len(all)-1]
}

// newClient makes a client that ends with the test.
func newClient(t testing.TB, cfg Config) *Client {
	t.Helper()
	if cfg.NASIdentifier == "" {
		cfg.NASIdentifier = "gateway-1"
	}
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// await waits until a condition holds.
var await = netnstest.Until

// loopbackPort returns an address without a listener.
func loopbackPort() netip.AddrPort { return netip.AddrPortFrom(loopback(), 1812) }
