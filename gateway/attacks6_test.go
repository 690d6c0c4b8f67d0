package gateway

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/config"
	"github.com/gateweigh/gateweigh/gateway/control"
	"github.com/gateweigh/gateweigh/gateway/session"
	"github.com/gateweigh/gateweigh/internal/logtest"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// field6 is where attacks by IPv6 take place: the LAN is a bridge with the kernel's sysctls whose ports hear the
// gateway alone, as those of access points do. The victim is logged in. The attacker has addresses too, and is not.
type field6 struct {
	d        daemon
	c        *control.Client
	log      logtest.Log
	began    control.Session // the victim's
	victim   netip.Addr      // global
	stranger netip.Addr      // the attacker's
	local    netip.Addr      // the gateway's link-local one
	locals   [2]netip.Addr   // the victim's and the attacker's
	lan, wan link6           // the attacker's, and the server's
	guns     map[string]gun  // by interface
	watched  []string        // files with what the victim and the server have received
	shots    int
}

// newField6 makes the field. Long: it is made in the order of the links.
func newField6(t *testing.T) *field6 {
	t.Helper()
	network6(t)
	f := &field6{}
	own := addIntruder(t)
	sh(t, `ip netns exec hub sh -ec 'bridge link set dev c1 isolated on; bridge link set dev i1 isolated on'`)
	cfg := configured(t, t.TempDir(), onEBPF)
	cfg.LAN.Address6 = netip.MustParsePrefix("2001:db8:1::1/64")
	cfg.DHCP6.Mode = config.Stateless
	f.d = serveLogging(t, cfg, f.log.Logger())
	t.Cleanup(func() { f.d.stop(); must(t, Detach(cfg, false)) })
	lease(t)
	f.victim = awaitAddrs6(t, 1)[0]
	login6(t)
	netnstest.Await(t, "the victim's way out", func() error { return reaches6(f.victim) })
	c, err := control.Dial(cfg.ControlSocket())
	must(t, err)
	f.c = c
	netnstest.Await(t, "the attacker's address", func() error {
		f.stranger, err = globalAddr("intruder", "i0")
		return err
	})
	f.local, err = linkLocal("lan0")
	must(t, err)
	for i, at := range []string{"client", "intruder"} {
		out := sh(t, "ip -n "+at+" -6 -o addr show scope link | grep -o 'fe80[^/]*'")
		f.locals[i] = netip.MustParseAddr(out)
	}
	f.began = f.knows(t, "client", "c0", f.victim, f.locals[0])
	f.knows(t, "intruder", "i0", f.stranger, f.locals[1])
	f.lan = link6{own, macOf6(t, "lan0")}
	f.wan.gateway = macOf6(t, "wan0")
	f.wan.own, err = net.ParseMAC(linkMACIn(t, "server", "s0"))
	must(t, err)
	f.guns = map[string]gun{"i0": newGun(t, "intruder", "i0"), "s0": newGun(t, "server", "s0")}
	f.watched = []string{watch6(t, "client", "c0"), watch6(t, "server", "s0")}
	return f
}

// knows waits until the gateway knows both addresses of a host, which uses them.
func (f *field6) knows(t *testing.T, namespace, link string, global, local netip.Addr) (s control.Session) {
	t.Helper()
	netnstest.Await(t, "the gateway to know "+namespace, func() (err error) {
		try(fmt.Sprintf("ip netns exec %[1]s sh -c 'ping -6 -c 1 -W 1 %[2]s%%%[3]s; ping -6 -c 1 -W 1 2001:db8:1::1'",
			namespace, f.local, link))
		s, err = f.c.Session(t.Context(), global)
		if err == nil && !slices.Contains(s.Further, local) {
			err = fmt.Errorf("it is %+v", s)
		}
		return err
	})
	return s
}

// macOf6 is the MAC address of a link in this namespace.
func macOf6(t *testing.T, link string) net.HardwareAddr {
	t.Helper()
	dev, err := net.InterfaceByName(link)
	must(t, err)
	return dev.HardwareAddr
}

// assault is frames that must reach nobody. They are sent from the attacker's interface, or from the server's where
// they are from the WAN.
type assault struct {
	name    string
	frames  func(mark string) [][]byte // each ends in the text
	fromWAN bool
	counted string // as what the gateway counts each of them
}

// packets are the status's counts of packets.
func (f *field6) packets(t *testing.T) map[string]uint64 {
	t.Helper()
	st, err := f.c.Status(t.Context())
	must(t, err)
	return st.Packets
}

// suffer carries an assault out: each frame is counted as it must be, and nobody receives any.
func (f *field6) suffer(t *testing.T, a assault) {
	t.Helper()
	f.shots++
	mark := fmt.Sprintf("assault-%04d", f.shots)
	frames, at := a.frames(mark), "i0"
	if a.fromWAN {
		at = "s0"
	}
	before := f.packets(t)
	f.guns[at].send(t, frames...)
	netnstest.Await(t, "the frames to be counted", func() error {
		after := f.packets(t)
		if after[a.counted]-before[a.counted] >= uint64(len(frames)) {
			return nil
		}
		for reason, n := range before {
			after[reason] -= n
		}
		return fmt.Errorf("%d frames are counted as %v", len(frames), after)
	})
	f.passes(t)
	for i, file := range f.watched {
		b, err := os.ReadFile(file)
		must(t, err)
		received := bytes.Count(b, []byte(mark))
		if a.fromWAN && i == 1 {
			received -= len(frames) // its own
		}
		if received > 0 {
			t.Errorf("%d of %d frames reach %s", received, len(frames), []string{"the victim", "the server"}[i])
		}
	}
}

// passes checks that the victim's packets pass, and waits until the watches have them: whatever was sent before is in
// their files too.
func (f *field6) passes(t *testing.T) {
	t.Helper()
	f.shots++
	mark := fmt.Sprintf("passing-%08d", f.shots)
	netnstest.Await(t, "the victim's way out", func() error {
		_, err := try(fmt.Sprintf("ip netns exec client ping -6 -c 1 -W 4 -s 64 -p %x -I %s %s", mark, f.victim, outside6))
		return err
	})
	netnstest.Await(t, "the watches", func() error {
		for _, file := range f.watched {
			if b, err := os.ReadFile(file); err != nil || !bytes.Contains(b, []byte(mark)) {
				return errors.Join(err, errors.New(file+" lacks the victim's packet"))
			}
		}
		return nil
	})
}

// forgeries6 are packets whose sender is not who it says.
func (f *field6) forgeries6() (all []assault) {
	server := netip.MustParseAddr(outside6)
	own := netip.MustParseAddr("2001:db8:1::1")
	for _, row := range []struct {
		name     string
		from, to netip.Addr
		counted  string
	}{
		{"before login", f.stranger, server, "rejected"},
		{"within the prefix, nobody's", netip.MustParseAddr("2001:db8:1::bad"), server, "not-leased"},
		{"within the prefix, the victim's", f.victim, server, "wrong-mac"},
		{"the victim's, to the gateway", f.victim, own, "wrong-mac"},
		{"the victim's, to itself", f.victim, f.victim, "wrong-mac"},
		{"the gateway's", own, server, "not-leased"},
		{"the gateway's, to the victim", own, f.victim, "not-leased"},
		{"outside of the prefix", netip.MustParseAddr("2001:db8:77::1"), server, "foreign-source"},
		{"the server's, to the victim", server, f.victim, "foreign-source"},
		{"none", netip.IPv6Unspecified(), server, "foreign-source"},
		{"loopback", netip.IPv6Loopback(), own, "foreign-source"},
		{"an IPv4 address", netip.MustParseAddr("::ffff:10.1.0.2"), server, "foreign-source"},
		{"a group", netip.MustParseAddr("ff02::1"), server, "foreign-source"},
		{"link-local, the victim's", f.locals[0], f.local, "wrong-mac"},
		{"link-local, to the server", f.locals[1], server, "blocked"},
		{"link-local, to the victim", f.locals[1], f.locals[0], "rejected"},
		{"link-local, to the victim's global one", f.locals[1], f.victim, "blocked"},
		{"global, to the victim's link-local one", f.stranger, f.locals[0], "blocked"},
		{"to the victim", f.stranger, f.victim, "rejected"},
	} {
		all = append(all, assault{name: row.name, counted: row.counted, frames: func(mark string) [][]byte {
			return [][]byte{f.lan.whole(row.from, row.to, unix.IPPROTO_UDP, datagram6(40000, 9999, mark)),
				f.lan.whole(row.from, row.to, unix.IPPROTO_TCP, segment6(40000, 443, mark))}
		}})
	}
	return all
}

// layers6 are packets before login whose headers hide what they are.
func (f *field6) layers6() []assault {
	server, own := netip.MustParseAddr(outside6), netip.MustParseAddr("2001:db8:1::1")
	ordered := func(from, to netip.Addr, next byte, payload func(mark string) []byte) func(string) [][]byte {
		return func(mark string) (frames [][]byte) {
			for _, kinds := range orders6() {
				b := summed6(from, to, next, payload(mark))
				frames = append(frames, f.lan.frame(from, to, kinds[0], behind6(kinds, next, b)))
			}
			return frames
		}
	}
	one := func(next byte, payload func(mark string) []byte) func(string) [][]byte {
		return func(mark string) [][]byte { return [][]byte{f.lan.frame(f.stranger, server, next, payload(mark))} }
	}
	all := netip.MustParseAddr("ff02::1")
	return []assault{
		{name: "headers in every order, to the server", counted: "blocked", frames: ordered(f.stranger, server,
			unix.IPPROTO_TCP, func(mark string) []byte { return segment6(40000, 443, mark) })},
		{name: "headers in every order, DNS", counted: "blocked", frames: ordered(f.stranger, own,
			unix.IPPROTO_UDP, func(mark string) []byte { return datagram6(40000, 53, mark) })},
		{name: "headers in every order, a router", counted: "blocked", frames: ordered(f.locals[1], all, icmp6,
			func(mark string) []byte { return advertisement6(netip.MustParseAddr("2001:db8:bad::"), mark) })},
		{name: "headers in every order, a neighbour", counted: "blocked", frames: ordered(f.stranger, own, icmp6,
			func(mark string) []byte { return neighbour6(136, f.victim, f.lan.own, mark) })},
		{name: "a first fragment without ports", counted: "blocked", frames: one(fragment6, func(mark string) []byte {
			return []byte{unix.IPPROTO_UDP, 0, 0, 1, 0, 0, 0, 7}
		})},
		{name: "fragments that overlap", counted: "blocked", frames: func(mark string) [][]byte {
			b := summed6(f.stranger, server, unix.IPPROTO_UDP, datagram6(40000, 53, mark+strings.Repeat(".", 28)))
			first := append([]byte{unix.IPPROTO_UDP, 0, 0, 1, 0, 0, 0, 7}, b...)
			return [][]byte{f.lan.frame(f.stranger, server, fragment6, first),
				f.lan.frame(f.stranger, server, fragment6, append([]byte{unix.IPPROTO_UDP, 0, 0, 9, 0, 0, 0, 7}, b[8:]...))}
		}},
		{name: "IPv6 in IPv6", counted: "blocked", frames: one(inIPv6, func(mark string) []byte {
			return f.lan.whole(f.victim, server, unix.IPPROTO_UDP, datagram6(40000, 53, mark))[14:]
		})},
		{name: "GRE", counted: "blocked", frames: one(unix.IPPROTO_GRE, func(mark string) []byte {
			return append([]byte{0, 0, 0x86, 0xdd}, mark...)
		})},
		{name: "Teredo", counted: "rejected", frames: one(unix.IPPROTO_UDP, func(mark string) []byte {
			return summed6(f.stranger, server, unix.IPPROTO_UDP, datagram6(40000, 3544, mark))
		})},
		{name: "an error about the victim's packet", counted: "blocked", frames: one(icmp6, func(mark string) []byte {
			return f.tooBig6(server, server, f.victim, 443, 40000, mark)
		})},
	}
}

// tooBig6 is an ICMPv6 error about a UDP datagram.
func (f *field6) tooBig6(to, from, about netip.Addr, source, dest uint16, mark string) []byte {
	quoted := f.lan.whole(from, about, unix.IPPROTO_UDP, datagram6(source, dest, mark))[14:]
	return summed6(f.stranger, to, icmp6, append([]byte{2, 0, 0, 0, 0, 0, 5, 0}, quoted...))
}

// groups6 are packets before login to groups of every scope (RFC 4291, section 2.7).
func (f *field6) groups6() []assault {
	return []assault{{name: "every scope", counted: "blocked", frames: func(mark string) (frames [][]byte) {
		for scope := range byte(16) {
			to := netip.AddrFrom16([16]byte{0xff, scope, 15: 1})
			for _, from := range []netip.Addr{f.stranger, f.locals[1]} {
				frames = append(frames, f.lan.whole(from, to, unix.IPPROTO_UDP, datagram6(40000, 53, mark)))
			}
		}
		return frames
	}}}
}

// unasked6 are packets from the WAN that the victim has not asked for, and those of hosts that cannot be there.
func (f *field6) unasked6() []assault {
	server, other := netip.MustParseAddr(outside6), netip.MustParseAddr("2001:db8:77::1")
	down := func(from, to netip.Addr) func(string) [][]byte {
		return func(mark string) [][]byte {
			return [][]byte{f.wan.whole(from, to, unix.IPPROTO_UDP, datagram6(443, 40000, mark)),
				f.wan.whole(from, to, unix.IPPROTO_TCP, segment6(443, 40000, mark)),
				f.wan.frame(from, to, fragment6, append([]byte{unix.IPPROTO_UDP, 0, 0, 9, 0, 0, 0, 7}, mark...))}
		}
	}
	about := func(from, to netip.Addr) func(string) [][]byte {
		return func(mark string) [][]byte {
			quoted := f.wan.whole(from, to, unix.IPPROTO_UDP, datagram6(40000, 443, mark))[14:]
			return [][]byte{f.wan.whole(other, f.victim, icmp6, append([]byte{2, 0, 0, 0, 0, 0, 5, 0}, quoted...))}
		}
	}
	nobody, own := netip.MustParseAddr("2001:db8:1::dead"), netip.MustParseAddr("2001:db8:1::1")
	all := []assault{
		{name: "not asked for", counted: "unasked", frames: down(other, f.victim)},
		{name: "for nobody", counted: "not-leased", frames: down(server, nobody)},
		{name: "for the attacker", counted: "blocked", frames: down(server, f.stranger)},
		{name: "from the victim's address", counted: "foreign-source", frames: down(f.victim, f.victim)},
		{name: "from nobody's address", counted: "foreign-source", frames: down(nobody, f.victim)},
		{name: "from the gateway's address", counted: "foreign-source", frames: down(own, f.victim)},
		{name: "from the victim's, to the gateway", counted: "foreign-source", frames: down(f.victim, own)},
		{name: "an error about what was not sent", counted: "unasked", frames: about(f.victim, server)},
		{name: "an error about the attacker's", counted: "unasked", frames: about(f.stranger, server)},
		{name: "an error about what came", counted: "unasked", frames: about(server, f.victim)},
	}
	for i := range all {
		all[i].fromWAN = true
	}
	return all
}

// TestAttacksByIPv6: attacks on a gateway and its clients behind a bridge with the kernel's sysctls reach nobody, are
// counted, and change nothing for the victim, whose packets pass all the while. Package ebpf's test of that name has
// more packets, which it gives to the programs.
func TestAttacksByIPv6(t *testing.T) {
	f := newField6(t)
	for name, rows := range map[string][]assault{
		"sources": f.forgeries6(), "layers": f.layers6(), "groups": f.groups6(), "unasked": f.unasked6(),
	} {
		t.Run(name, func(t *testing.T) {
			for _, a := range rows {
				t.Run(a.name, func(t *testing.T) { f.suffer(t, a) })
			}
		})
	}
	t.Run("neighbours", f.neighbours6)
	t.Run("routers", f.routers6)
	t.Run("DHCPv6 servers", f.servers6)
	t.Run("tunnels by IPv4", f.tunnels6)
	t.Run("floods", f.floods6)
	s, err := f.c.Session(t.Context(), f.victim)
	if err != nil || s.ID != f.began.ID || s.State != session.Authenticated || !slices.Contains(s.Further, f.victim) {
		t.Errorf("the victim is %+v, %v, before %+v", s, err, f.began)
	}
}
