package routeradv

import (
	"errors"
	"io"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// TestInterfaceComesBack: the server goes on when the interface has been removed and made again.
func TestInterfaceComesBack(t *testing.T) {
	l := newLAN(t, 1)
	c := l.clients[0]
	cfg := config()
	cfg.All = slaac("2001:db8:1::/64")
	start(t, cfg)
	netnstest.Run(t, "ip link del gw0")
	c.up()
	c.shows("ip -o -6 addr show dev c0", "fe80::", "!tentative")
	l.plugGateway(t)
	c.shows("ip -o -6 addr show dev c0", "2001:db8:1:", "!tentative")
	c.shows("ip -6 route show dev c0 default", "via fe80::1")
}

// TestInterfaceTakesSolicitations: while the server runs, the interface takes frames to all routers, also where the
// kernel is no router there.
func TestInterfaceTakesSolicitations(t *testing.T) {
	newLAN(t, 0)
	groups := func() string {
		return netnstest.Run(t, "echo 0 >/proc/sys/net/ipv6/conf/gw0/forwarding; ip maddr show dev gw0")
	}
	const routers = "link  33:33:00:00:00:02"
	if got := groups(); strings.Contains(got, routers) {
		t.Fatal(got)
	}
	cfg := config()
	cfg.All = slaac("2001:db8:1::/64")
	s := start(t, cfg)
	if got := groups(); !strings.Contains(got, routers) {
		t.Error(got)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if got := groups(); strings.Contains(got, routers) {
		t.Error(got)
	}
}

// given is a source of frames like a ring buffer's.
type given struct {
	frames chan []byte
	closed chan struct{}
}

func (g given) Read(b []byte) (int, error) {
	select {
	case frame := <-g.frames:
		return copy(b, frame), nil
	case <-g.closed:
		return 0, os.ErrClosed
	}
}

func (g given) Close() error {
	select {
	case <-g.closed:
	default:
		close(g.closed)
	}
	return nil
}

// TestGivenFrames: solicitations come from another source than the interface, which the server does not read then. What
// is no solicitation is counted.
func TestGivenFrames(t *testing.T) {
	c := newLAN(t, 1).clients[0]
	c.up()
	w := c.wire()
	g := given{make(chan []byte), make(chan struct{})}
	cfg := config()
	cfg.Told = func(Client) (Advertisement, bool) { return slaac("2001:db8:1::/64"), true }
	cfg.Frames = func() (io.ReadCloser, error) { return g, nil }
	s := start(t, cfg)
	w.solicit(c.mac)
	g.frames <- frameOf(gatewayMAC, netip.IPv6Unspecified(), allRouters, solicitation()) // pretends to be the gateway
	g.frames <- []byte("nothing")
	netnstest.Until(t, "an answer", func() bool { // which may be lost
		g.frames <- frameOf(macOf(0x77), netip.IPv6Unspecified(), allRouters, solicitation())
		got, ok := w.next(time.Second)
		if ok && got.to != macOf(0x77) {
			t.Errorf("%x is answered", got.to)
		}
		return ok
	})
	if st := s.Stats(); st.Malformed != 2 || st.Solicited == 0 || st.Clients != 1 {
		t.Errorf("%+v", st)
	}
}

// TestNewRefuses configurations that cannot work.
func TestNewRefuses(t *testing.T) {
	for want, change := range map[string]func(*Config){
		"is no link-local address":        func(c *Config) { c.LinkLocal = netip.MustParseAddr("2001:db8::1") },
		"longest interval":                func(c *Config) { c.MaxInterval = time.Hour },
		"shortest interval":               func(c *Config) { c.MinInterval = 500 * time.Second },
		"shorter than the longest":        func(c *Config) { c.All.RouterLifetime = time.Minute },
		"is longer than valid lifetime":   func(c *Config) { c.All.Prefixes[0].Valid = time.Minute },
		"no such network interface":       func(c *Config) { c.Interface = "none0" },
		"lo: it is no Ethernet interface": func(c *Config) { c.Interface = "lo" },
		"no frames to be had":             func(c *Config) { c.Frames = noFrames },
	} {
		cfg := config()
		cfg.Interface = "gw0"
		cfg.All = slaac("2001:db8:1::/64")
		change(&cfg)
		if cfg.Frames != nil {
			newLAN(t, 0)
		}
		s, err := New(cfg)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, not %q", err, want)
		}
		if err == nil {
			s.Close()
		}
	}
}

func noFrames() (io.ReadCloser, error) { return nil, errors.New("no frames to be had") }
