// Helpers of this package's tests: dnsmasq as the upstream resolver, the server that is tested (start), and queries to
// it (ask).

package dns

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	miekg "github.com/miekg/dns"

	"github.com/gateweigh/gateweigh/internal/netnstest"
)

func TestMain(m *testing.M) { netnstest.Main(m, "ip link set lo up") }

// await waits until a condition holds.
var await = netnstest.Until

// dnsmasq starts a resolver with only the given names.
func dnsmasq(t testing.TB, args ...string) netip.AddrPort {
	t.Helper()
	addr := freePort(t)
	cmd := exec.Command(
		"dnsmasq", append([]string{"-k", "-C", "/dev/null", "--no-resolv", "--no-hosts", "--user=root", "--pid-file=",
			"--bind-interfaces", "--listen-address=" + addr.Addr().String(), fmt.Sprintf("--port=%d", addr.Port())}, args...)...)
	netnstest.Background(t, cmd)
	await(t, "dnsmasq", func() bool {
		_, err := miekg.Exchange(new(miekg.Msg).SetQuestion("ready.example.", miekg.TypeA), addr.String())
		return err == nil
	})
	return addr
}

// freePort returns a port without a listener.
func freePort(t testing.TB) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.2:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return netip.MustParseAddrPort(l.Addr().String())
}

// recorder is an opener that records what it opens.
type recorder struct {
	mu    sync.Mutex
	open  map[netip.Prefix]time.Time
	calls int
	fail  error
	parts map[string]time.Time // ports, and what is shut
	hold  chan struct{}        // if not nil, Open waits for it
}

func (d *recorder) Open(p netip.Prefix, until time.Time) error {
	if d.hold != nil {
		<-d.hold
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls++
	if d.fail != nil {
		return d.fail
	}
	if d.open == nil {
		d.open = map[netip.Prefix]time.Time{}
	}
	d.open[p] = until
	return nil
}

// OpenPort and ShutHTTP note a place as Open does, with what it is.
func (d *recorder) OpenPort(p netip.Prefix, protocol uint8, port uint16, until time.Time) error {
	return d.record(fmt.Sprintf("%s port %d of %d", p, port, protocol), until)
}

func (d *recorder) ShutHTTP(p netip.Prefix, until time.Time) error {
	return d.record(p.String()+" shut", until)
}

func (d *recorder) record(label string, until time.Time) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.parts == nil {
		d.parts = map[string]time.Time{}
	}
	d.parts[label] = until
	return nil
}

func (d *recorder) failWith(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fail = err
}

// count returns how often Open was called.
func (d *recorder) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.calls
}

// list returns the open addresses, in order.
func (d *recorder) list() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	list := []string{}
	for p := range d.open {
		list = append(list, p.String())
	}
	slices.Sort(list)
	return list
}

func (d *recorder) until(prefix string) time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.open[netip.MustParsePrefix(prefix)]
}

// start runs a server until the test ends; edit may be nil.
func start(t testing.TB, d *recorder, upstream []netip.AddrPort, edit func(*Config)) *Server {
	t.Helper()
	cfg := Config{Listen: netip.MustParseAddrPort("127.0.0.1:0"), Upstreams: upstream}
	if edit != nil {
		edit(&cfg)
	}
	s, err := New(cfg, d)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() { done <- s.Run(t.Context()) }()
	t.Cleanup(func() {
		if err := errors.Join(s.Close(), <-done); err != nil {
			t.Error(err)
		}
		if st := s.Stats(); st.InFlight != 0 {
			t.Errorf("%d queries left when everything had ended", st.InFlight)
		}
	})
	return s
}

func query(name string, kind uint16) *miekg.Msg { return new(miekg.Msg).SetQuestion(name, kind) }

// ask sends a query over UDP or TCP.
func ask(t testing.TB, s *Server, network string, q *miekg.Msg) *miekg.Msg {
	t.Helper()
	c := miekg.Client{Net: network, Timeout: 20 * time.Second, UDPSize: 4096}
	r, _, err := c.Exchange(q, s.Addr().String())
	if err != nil {
		t.Fatalf("asking for %v: %v", q.Question, err)
	}
	return r
}

// values lists the answer's data in order.
func values(r *miekg.Msg) []string {
	list := []string{}
	for _, rr := range r.Answer {
		words := strings.Fields(rr.String())
		list = append(list, strings.Join(words[3:], " "))
	}
	slices.Sort(list)
	return list
}
