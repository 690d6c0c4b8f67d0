package gateway

import (
	"bytes"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// routes6 are the routes and the neighbours with a MAC address of a namespace; "": this one.
func routes6(t *testing.T, namespace string) (routes, neighbours string) {
	t.Helper()
	at := ""
	if namespace != "" {
		at = "-n " + namespace
	}
	routes = sh(t, "ip "+at+" -6 route show | sed 's/ expires [0-9]*sec//' | sort")
	neighbours = sh(t, "ip "+at+" -6 neigh show | grep -o '.* lladdr [^ ]*' | sort || :")
	return routes, neighbours
}

// neighbours6: nobody gets the victim's addresses by what it says of them, nor by its kernel's duplicate address
// detection, which the victim cannot hear.
func (f *field6) neighbours6(t *testing.T) {
	routes, neighbours := routes6(t, "")
	group := netip.MustParseAddr("ff02::1")
	for _, a := range []assault{
		{name: "asked for as free", counted: "local", frames: func(mark string) (frames [][]byte) {
			for _, target := range []netip.Addr{f.victim, f.locals[0]} {
				b := neighbour6(135, target, nil, mark)
				frames = append(frames, f.lan.whole(netip.IPv6Unspecified(), askedAt6(target), icmp6, b))
			}
			return frames
		}},
		{name: "advertised", counted: "local", frames: func(mark string) (frames [][]byte) {
			for _, to := range []netip.Addr{group, f.local, netip.MustParseAddr("2001:db8:1::1")} {
				frames = append(frames, f.lan.whole(f.locals[1], to, icmp6, neighbour6(136, f.victim, f.lan.own, mark)))
			}
			return frames
		}},
		{name: "as a source", counted: "not-leased", frames: func(mark string) [][]byte {
			return [][]byte{f.lan.whole(f.victim, f.local, icmp6, neighbour6(135, f.local, f.lan.own, mark))}
		}},
		{name: "with few hops", counted: "malformed", frames: func(mark string) [][]byte {
			b := f.lan.whole(f.locals[1], f.local, icmp6, neighbour6(136, f.victim, f.lan.own, mark))
			b[21] = 64
			return [][]byte{b}
		}},
	} {
		t.Run(a.name, func(t *testing.T) { f.suffer(t, a) })
	}
	sh(t, "ip -n intruder addr add "+f.victim.String()+"/64 dev i0")
	netnstest.Await(t, "the attacker's kernel", func() error {
		if out := sh(t, "ip -n intruder -6 addr show dev i0 -tentative"); !strings.Contains(out, f.victim.String()) {
			return errors.New("it still looks whether another host has the address")
		}
		return nil
	})
	if out, err := try("ip netns exec intruder ping -6 -c 1 -W 1 -I " + f.victim.String() + " 2001:db8:1::1"); err == nil {
		t.Errorf("it uses the victim's address:\n%s", out)
	}
	sh(t, "ip -n intruder addr del "+f.victim.String()+"/64 dev i0")
	f.passes(t)
	stolen := f.victim.String() + " dev lan0 lladdr " + f.lan.own.String()
	if r, n := routes6(t, ""); r != routes || strings.Contains(n, stolen) {
		t.Errorf("the gateway has\n%s\n%s\nbefore\n%s\n%s", r, n, routes, neighbours)
	}
}

// routers6: no other router takes a client's or the gateway's packets. The log names it.
func (f *field6) routers6(t *testing.T) {
	bad, group := netip.MustParseAddr("2001:db8:bad::"), netip.MustParseAddr("ff02::1")
	own, _ := routes6(t, "")
	victims, _ := routes6(t, "client")
	for _, a := range []assault{
		{name: "advertisements", counted: "local", frames: func(mark string) (frames [][]byte) {
			for _, to := range []netip.Addr{group, f.local, f.locals[0], f.victim} {
				frames = append(frames, f.lan.whole(f.locals[1], to, icmp6, advertisement6(bad, mark)))
			}
			return frames
		}},
		{name: "redirects", counted: "local", frames: func(mark string) (frames [][]byte) {
			for _, to := range []netip.Addr{f.local, f.locals[0], f.victim} {
				frames = append(frames, f.lan.whole(f.local, to, icmp6, neighbour6(137, f.locals[1], f.lan.own, mark)))
			}
			return frames
		}},
	} {
		t.Run(a.name, func(t *testing.T) { f.suffer(t, a) })
	}
	for _, does := range []string{"advertises itself as an IPv6 router", "sends IPv6 redirects"} {
		netnstest.Await(t, "the log to name the device that "+does, func() error {
			for line := range strings.Lines(f.log.String()) {
				if strings.Contains(line, does) && strings.Contains(line, f.lan.own.String()) {
					return nil
				}
			}
			return errors.New("it does not")
		})
	}
	if r, _ := routes6(t, ""); r != own {
		t.Errorf("the gateway has the routes\n%s\nbefore\n%s", r, own)
	}
	if r, _ := routes6(t, "client"); r != victims {
		t.Errorf("the victim has the routes\n%s\nbefore\n%s", r, victims)
	}
}

// servers6: answers of other DHCPv6 servers reach neither clients nor the gateway. The log names the server.
func (f *field6) servers6(t *testing.T) {
	f.suffer(t, assault{counted: "rogue-dhcp", frames: func(mark string) (frames [][]byte) {
		reply := append([]byte{7, 1, 2, 3, 0, 2, 0, 10, 0, 3, 0, 1}, f.lan.own...) // with a DUID of its MAC address
		for _, to := range []netip.Addr{f.locals[0], f.local, f.victim, netip.MustParseAddr("ff02::1")} {
			b := datagram6(547, 546, string(reply)+mark)
			frames = append(frames, f.lan.whole(f.locals[1], to, unix.IPPROTO_UDP, b))
		}
		return frames
	}})
	netnstest.Await(t, "the log to name the server", func() error {
		if !strings.Contains(f.log.String(), "DHCPv6") || f.log.Count(f.lan.own.String()) == 0 {
			return errors.New("it does not")
		}
		return nil
	})
}

// tunnels6: IPv6 in IPv4 (RFC 4213) and Teredo (RFC 4380) of a client that is not logged in.
func (f *field6) tunnels6(t *testing.T) {
	addr4 := netip.MustParseAddr(leaseIn(t, "intruder", "i0"))
	header := func(protocol byte, payload []byte) []byte {
		b := append([]byte{0x45, 0, 0, byte(20 + len(payload)), 0, 1, 0x40, 0, 64, protocol, 0, 0}, addr4.AsSlice()...)
		b = append(b, netip.MustParseAddr(outside).AsSlice()...)
		sum := uint32(0)
		for i := 0; i < len(b); i += 2 {
			sum += uint32(b[i])<<8 | uint32(b[i+1])
		}
		sum = sum&0xffff + sum>>16
		b[10], b[11] = byte(^sum>>8), byte(^sum)
		return bytes.Join([][]byte{f.lan.gateway, f.lan.own, {8, 0}, b, payload}, nil)
	}
	inner := func(mark string) []byte {
		server := netip.MustParseAddr(outside6)
		return f.lan.whole(netip.MustParseAddr("2002:a01:2::1"), server, unix.IPPROTO_UDP, datagram6(40000, 53, mark))[14:]
	}
	for _, a := range []assault{
		{name: "6in4", counted: "rejected", frames: func(mark string) [][]byte {
			return [][]byte{header(inIPv6, inner(mark))}
		}},
		{name: "Teredo", counted: "rejected", frames: func(mark string) [][]byte {
			return [][]byte{header(unix.IPPROTO_UDP, datagram6(40000, 3544, string(inner(mark))))}
		}},
	} {
		t.Run(a.name, func(t *testing.T) { f.suffer(t, a) })
	}
}
