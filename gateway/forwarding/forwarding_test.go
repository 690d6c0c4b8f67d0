package forwarding

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/internal/netnstest"
)

func TestMain(m *testing.M) { netnstest.Main(m, "ip link set lo up") }

// settings returns the settings of forwarding and redirects of lan0, wan0 and mgmt0, and for the machine.
func settings(t *testing.T) string {
	t.Helper()
	var all []string
	for _, dev := range []string{"lan0", "wan0", "mgmt0", "all"} {
		for _, key := range []string{forwards, redirects} {
			value, err := get(dev, key)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, value)
		}
	}
	return strings.Join(all, " ")
}

// TestExceptedInterface: an interface that the administrator has excepted from the machine's forwarding is excepted
// again afterwards.
func TestExceptedInterface(t *testing.T) {
	space := netnstest.NewSpace(t)
	space.Run(t, `for dev in lan0 wan0 mgmt0; do ip link add $dev type veth peer name p$dev; done
sysctl -qw net.ipv4.ip_forward=1; sysctl -qw net.ipv4.conf.lan0.forwarding=0`)
	space.Do(func() {
		before := settings(t)
		s := Switch{NotePath: filepath.Join(t.TempDir(), "forwarding"), LAN: "lan0"}
		must(t, s.On("lan0", "wan0"))
		if on, err := Forwards("lan0"); !on || err != nil {
			t.Errorf("it forwards: %v, %v", on, err)
		}
		must(t, s.Off())
		if after := settings(t); after != before {
			t.Errorf("off: %s, want %s", after, before)
		}
	})
}

// TestIPForwardSysctl: the manual says what the kernel does when net.ipv4.ip_forward is written. Only a
// change of its value sets all interfaces.
func TestIPForwardSysctl(t *testing.T) {
	space := netnstest.NewSpace(t)
	space.Run(t, `for dev in lan0 wan0 mgmt0; do ip link add $dev type veth peer name p$dev; done; sysctl -qw net.ipv4.ip_forward=0`)
	for _, c := range []struct{ label, script, want string }{
		{"0 over 0", "sysctl -qw net.ipv4.conf.lan0.forwarding=1; sysctl -qw net.ipv4.ip_forward=0", "1 0 0 0"},
		{"1 over 0", "sysctl -qw net.ipv4.ip_forward=1", "1 1 1 1"},
		{"1 over 1", "sysctl -qw net.ipv4.conf.wan0.forwarding=0; sysctl -qw net.ipv4.ip_forward=1", "1 0 1 1"},
		{"0 over 1", "sysctl -qw net.ipv4.ip_forward=0", "0 0 0 0"},
	} {
		space.Run(t, c.script)
		space.Do(func() {
			all := strings.Fields(settings(t))
			if got := strings.Join([]string{all[0], all[2], all[4], all[6]}, " "); got != c.want {
				t.Errorf("%s: lan0, wan0, mgmt0 and all forward: %s, want %s", c.label, got, c.want)
			}
		})
	}
}

// TestSwitch: forwarding is switched on at the given interfaces alone and restored by another process's switch, unless
// the administrator has switched it on for the machine meanwhile. Long: the steps of one run, each of which needs the
// state that the one before left.
func TestSwitch(t *testing.T) {
	const off, on = "0 1 0 0 0 1 0 1", "1 0 1 0 0 1 0 1"
	prepare := func(t *testing.T) (Switch, *netnstest.Space) {
		s := netnstest.NewSpace(t)
		s.Run(t, `ip link add lan0 type veth peer name l; ip link add wan0 type veth peer name w; ip link add mgmt0 type veth peer name m
sysctl -qw net.ipv4.ip_forward=0 net.ipv4.conf.all.accept_redirects=1 net.ipv4.conf.lan0.accept_redirects=1 net.ipv4.conf.wan0.accept_redirects=0 net.ipv4.conf.mgmt0.accept_redirects=1`)
		return Switch{NotePath: filepath.Join(t.TempDir(), "forwarding"), LAN: "lan0"}, s
	}
	for name, c := range map[string]struct {
		between string // a script
		want    string // after Off
	}{
		"off again":                   {"", off},
		"the machine was switched on": {"sysctl -qw net.ipv4.ip_forward=1", "1 0 1 0 1 1 1 0"},
		"an interface was made again": {
			"ip link del lan0; ip link add lan0 type veth peer name l; sysctl -qw net.ipv4.conf.lan0.forwarding=1 " +
				"net.ipv4.conf.lan0.accept_redirects=1", "1 1 0 0 0 1 0 1"},
		"an interface is gone, and one comes back": {
			"ip link del lan0; ip link add lan0 type veth peer name l", "0 1 0 0 0 1 0 1"},
	} {
		t.Run(name, func(t *testing.T) {
			s, space := prepare(t)
			space.Do(func() {
				for range 2 { // a second call has no effect
					must(t, s.On("lan0", "wan0"))
					if got := settings(t); got != on {
						t.Errorf("on: %s, want %s", got, on)
					}
				}
			})
			space.Run(t, c.between+"\n:")
			space.Do(func() {
				for range 2 {
					must(t, Switch{NotePath: s.NotePath, LAN: "lan0"}.Off())
					if got := settings(t); got != c.want {
						t.Errorf("off: %s, want %s", got, c.want)
					}
				}
			})
			if _, err := os.Stat(s.NotePath); !os.IsNotExist(err) {
				t.Errorf("the note is left: %v", err)
			}
		})
	}
	t.Run("other interfaces", func(t *testing.T) {
		s, space := prepare(t)
		space.Do(func() {
			must(t, s.On("lan0", "wan0"))
			must(t, s.On("mgmt0", "wan0"))
			if got, want := settings(t), "0 1 1 0 1 0 0 1"; got != want {
				t.Errorf("%s, want %s", got, want)
			}
			must(t, s.Off())
			if got := settings(t); got != off {
				t.Errorf("off: %s, want %s", got, off)
			}
		})
	})
	t.Run("another namespace's note", func(t *testing.T) {
		s, space := prepare(t)
		space.Do(func() { must(t, s.On("lan0", "wan0")) })
		other, there := prepare(t)
		other.LAN = "lan9"
		there.Do(func() {
			must(t, other.On("lan0", "wan0"))
			must(t, s.Off()) // of the first namespace
			if got := settings(t); got != on {
				t.Errorf("%s, want %s", got, on)
			}
		})
		space.Do(func() {
			must(t, s.Off())
			if got := settings(t); got != off {
				t.Errorf("off: %s, want %s", got, off)
			}
		})
	})
}

// sharing is a namespace with two LANs and a WAN, and which of them forward by the gateways' leave.
type sharing struct {
	space *netnstest.Space
	dir   string
	on    map[string]string
}

func (s *sharing) of(lan string) Switch { return Switch{NotePath: filepath.Join(s.dir, lan), LAN: lan} }

func (s *sharing) start(t *testing.T, lan string) {
	t.Helper()
	s.space.Do(func() { must(t, s.of(lan).On(lan, "wan0")) })
	s.on[lan] = "1"
}

// do carries out what the name of a step says.
func (s *sharing) do(t *testing.T, step string) {
	t.Helper()
	switch lan, again, _ := strings.Cut(step, " "); {
	case lan == "flush":
		s.space.Run(t, "nft flush ruleset")
	case again != "":
		s.start(t, lan)
	default:
		s.space.Do(func() { must(t, s.of(lan).Off()) })
		s.on[lan] = "0"
	}
}

func (s *sharing) is(t *testing.T, when, wan, redirects string) {
	t.Helper()
	got := strings.Fields(s.space.Run(t, "sysctl -n net.ipv4.conf.lan0.forwarding net.ipv4.conf.lan1.forwarding "+
		"net.ipv4.conf.wan0.forwarding net.ipv4.conf.wan0.accept_redirects"))
	if want := []string{s.on["lan0"], s.on["lan1"], wan, redirects}; !slices.Equal(got, want) {
		t.Errorf("%s: lan0, lan1 and wan0 forward, and wan0 heeds redirects: %v, want %v", when, got, want)
	}
}

// TestSharedWAN: of gateways that share a WAN the last one that ends switches its forwarding off, whichever switched it
// on, and also where one of them was killed. Each has its LAN to itself.
func TestSharedWAN(t *testing.T) {
	for name, steps := range map[string][]string{
		"in the order in which they came": {"lan0", "lan1"},
		"the other way round":             {"lan1", "lan0"},
		"the first one was killed":        {"lan1", "lan0 again", "lan0"},
		"rules were flushed":              {"flush", "lan1 again", "lan0", "lan1"},
	} {
		t.Run(name, func(t *testing.T) {
			s := &sharing{netnstest.NewSpace(t), t.TempDir(), map[string]string{}}
			s.space.Run(t, `for dev in lan0 lan1 wan0; do ip link add $dev type veth peer name p$dev; done
sysctl -qw net.ipv4.ip_forward=0 net.ipv4.conf.wan0.accept_redirects=1`)
			s.start(t, "lan0")
			s.start(t, "lan1")
			s.is(t, "on", "1", "0")
			for _, step := range steps[:len(steps)-1] {
				s.do(t, step)
				s.is(t, "after "+step, "1", "0")
			}
			s.do(t, steps[len(steps)-1])
			s.is(t, "in the end", "0", "1")
			if left := s.space.Run(t, "nft list ruleset"); left != "" {
				t.Errorf("left:\n%s", left)
			}
		})
	}
}

// TestFullDisk: a switch that finds everything as it noted it needs no room for a note, so that a gateway starts again
// on a full disk.
func TestFullDisk(t *testing.T) {
	space := netnstest.NewSpace(t)
	space.Run(t, "for dev in lan0 wan0; do ip link add $dev type veth peer name p$dev; done; sysctl -qw "+
		"net.ipv4.ip_forward=0")
	dir := t.TempDir()
	run(t, "mount -t tmpfs -o size=16k none "+dir)
	t.Cleanup(func() { run(t, "umount "+dir) })
	space.Do(func() {
		s := Switch{NotePath: filepath.Join(dir, "forwarding"), LAN: "lan0"}
		must(t, s.On("lan0", "wan0"))
		run(t, "dd if=/dev/zero of="+dir+"/rest bs=4k count=8 2>/dev/null || :")
		if err := os.WriteFile(filepath.Join(dir, "more"), []byte("x"), 0o600); err == nil {
			t.Fatal("there is room left")
		}
		must(t, s.On("lan0", "wan0"))
		must(t, s.Off())
		if on, err := Forwards("lan0"); on || err != nil {
			t.Errorf("off, it forwards: %v, %v", on, err)
		}
	})
}

var (
	run  = netnstest.Run
	must = netnstest.Must
)
