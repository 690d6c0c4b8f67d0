// Tests of the frames of neighbour discovery, read by Decode and made by sender.

package bindings

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/mdlayher/ndp"
)

var (
	groupOne = netip.MustParseAddr("ff02::1:ff00:1") // of 2001:db8::1
	hostOne  = netip.MustParseAddr("2001:db8::1")
	hostTwo  = netip.MustParseAddr("2001:db8::2")
	nobody   = netip.IPv6Unspecified()
	gateway  = netip.MustParseAddr("fe80::1")
)

// lla is a link-layer address option.
func lla(direction ndp.Direction, mac MAC) ndp.Option {
	return &ndp.LinkLayerAddress{Direction: direction, Addr: net.HardwareAddr(mac[:])}
}

// frameOf is the frame of a message of alice's.
func frameOf(t testing.TB, from, to netip.Addr, m ndp.Message) []byte {
	t.Helper()
	frame, err := sender{alice.MAC, from}.frame(Anchor{MAC: MAC{0x33, 0x33, 0, 0, 0, 1}}, to, m)
	if err != nil {
		t.Fatal(err)
	}
	return frame
}

// solicitation and advertisement are messages about an address.
func solicitation(target netip.Addr, options ...ndp.Option) ndp.Message {
	return &ndp.NeighborSolicitation{TargetAddress: target, Options: options}
}

func advertisement(target netip.Addr, solicited bool, options ...ndp.Option) ndp.Message {
	return &ndp.NeighborAdvertisement{TargetAddress: target, Solicited: solicited, Options: options}
}

// changed is a frame with some bytes replaced, and with the checksum that the result has.
func changed(frame []byte, at int, b ...byte) []byte {
	frame = append([]byte(nil), frame...)
	copy(frame[at:], b)
	body := frame[ethernetLen+ipv6Len:]
	body[2], body[3] = 0, 0
	binary.BigEndian.PutUint16(body[2:], checksum(uint32(len(body))+icmpv6, frame[ethernetLen+8:ethernetLen+40], body))
	return frame
}

const (
	atHopLimit = ethernetLen + 7
	atNext     = ethernetLen + 6
	atCode     = ethernetLen + ipv6Len + 1
	atOptions  = ethernetLen + ipv6Len + 24
	atTarget   = ethernetLen + ipv6Len + 8
)

// TestDecode has one case for each check. Long: one line a case.
func TestDecode(t *testing.T) {
	group := netip.MustParseAddr("ff02::1")
	probe := frameOf(t, nobody, groupOne, solicitation(hostOne, ndp.NewNonce()))
	asks := frameOf(t, hostTwo, groupOne, solicitation(hostOne, lla(ndp.Source, alice.MAC)))
	says := frameOf(t, hostOne, hostTwo, advertisement(hostOne, true, lla(ndp.Target, alice.MAC)))
	router := frameOf(t, gateway, group, &ndp.RouterAdvertisement{RouterLifetime: time.Hour})
	seeks := frameOf(t, gateway, netip.MustParseAddr("ff02::2"), &ndp.RouterSolicitation{})
	cga := &ndp.RawOption{Type: 11, Length: 24, Value: make([]byte, 190)} // RFC 3971: options of others are ignored
	for _, c := range []struct {
		name  string
		frame []byte
		want  Message
		err   error
	}{
		{"probe", probe, Message{NeighborSolicitation, alice, nobody, groupOne, hostOne}, nil},
		{"solicitation", asks, Message{NeighborSolicitation, alice, hostTwo, groupOne, hostOne}, nil},
		{"advertisement", says, Message{NeighborAdvertisement, alice, hostOne, hostTwo, hostOne}, nil},
		{"router advertisement", router,
			Message{Type: RouterAdvertisement, From: alice, Source: gateway, Dest: group}, nil},
		{"router solicitation", seeks, Message{Type: RouterSolicitation, From: alice, Source: gateway,
			Dest: netip.MustParseAddr("ff02::2")}, nil},
		{"redirect", changed(router, ethernetLen+ipv6Len, Redirect),
			Message{Type: Redirect, From: alice, Source: gateway, Dest: group}, nil},
		{"padding", append(probe[:len(probe):len(probe)], 0, 0, 0, 0, 0, 0), Message{NeighborSolicitation, alice, nobody,
			groupOne, hostOne}, nil},
		{"unknown option", frameOf(t, hostTwo, groupOne, solicitation(hostOne, cga)),
			Message{NeighborSolicitation, alice, hostTwo, groupOne, hostOne}, nil},

		{"nothing", nil, Message{}, ErrNoMessage},
		{"short", probe[:ethernetLen+ipv6Len-1], Message{}, ErrNoMessage},
		{"cut", probe[:len(probe)-1], Message{}, ErrNoMessage},
		{"IPv4", changed(probe, 12, 8, 0), Message{}, ErrNoMessage},
		{"VLAN", changed(probe, 12, 0x81, 0), Message{}, ErrNoMessage},
		{"version 4", changed(probe, ethernetLen, 0x45), Message{}, ErrNoMessage},
		{"UDP", changed(probe, atNext, 17), Message{}, ErrNoMessage},
		{"echo request", changed(probe, ethernetLen+ipv6Len, 128), Message{}, ErrNoMessage},
		{"hop-by-hop", changed(probe, atNext, 0), Message{}, ErrExtension},
		{"routing header", changed(probe, atNext, 43), Message{}, ErrExtension},
		{"fragment", changed(probe, atNext, 44), Message{}, ErrExtension},
		{"destination options", changed(probe, atNext, 60), Message{}, ErrExtension},
		{"from another link", changed(probe, atHopLimit, 254), Message{}, ErrForwarded},
		{"router advertisement from another link", changed(router, atHopLimit, 64), Message{}, ErrForwarded},
		{"code", changed(probe, atCode, 1), Message{}, ErrMalformed},
		{"checksum", append(append([]byte(nil), probe[:len(probe)-1]...), probe[len(probe)-1]+1), Message{}, ErrMalformed},
		{"from a group's MAC address", changed(probe, 6, 0x33), Message{}, ErrMalformed},
		{"from no MAC address", changed(probe, 6, make([]byte, 6)...), Message{}, ErrMalformed},
		{"from a group", changed(asks, ethernetLen+8, 0xff, 2), Message{}, ErrMalformed},
		{"from ::1", frameOf(t, netip.IPv6Loopback(), groupOne, solicitation(hostOne)), Message{}, ErrMalformed},
		{"a group as target", changed(asks, atTarget, 0xff, 2), Message{}, ErrMalformed},
		{"a group advertised", changed(says, atTarget, 0xff, 2), Message{}, ErrMalformed},
		{"nobody as target", frameOf(t, hostTwo, groupOne, solicitation(nobody)), Message{}, ErrMalformed},
		{"an option of 0 bytes", changed(probe, atOptions, 14, 0), Message{}, ErrMalformed},
		{"an option beyond the end", changed(probe, atOptions, 14, 2), Message{}, ErrMalformed},
		{"a probe to the host", frameOf(t, nobody, hostOne, solicitation(hostOne)), Message{}, ErrMalformed},
		{"a probe to another group", frameOf(t, nobody, group, solicitation(hostOne)), Message{}, ErrMalformed},
		{"a probe with a MAC address", frameOf(t, nobody, groupOne, solicitation(hostOne, lla(ndp.Source, alice.MAC))),
			Message{}, ErrMalformed},
		{"a solicitation with a target's MAC address",
			frameOf(t, hostTwo, groupOne, solicitation(hostOne, lla(ndp.Target, alice.MAC))), Message{}, ErrMalformed},
		{"an advertisement with a source's MAC address",
			frameOf(t, hostOne, group, advertisement(hostOne, false, lla(ndp.Source, alice.MAC))), Message{}, ErrMalformed},
		{"another's MAC address in a solicitation",
			frameOf(t, hostTwo, groupOne, solicitation(hostOne, lla(ndp.Source, bob.MAC))), Message{}, ErrForged},
		{"another's MAC address in an advertisement",
			frameOf(t, hostOne, group, advertisement(hostOne, false, lla(ndp.Target, bob.MAC))), Message{}, ErrForged},
		{"another's MAC address in a router solicitation",
			frameOf(t, gateway, group, &ndp.RouterSolicitation{Options: []ndp.Option{lla(ndp.Source, bob.MAC)}}),
			Message{}, ErrForged},
		{"an advertisement from nobody", frameOf(t, nobody, group, advertisement(hostOne, false)), Message{}, ErrMalformed},
		{"an answer to a group", frameOf(t, hostOne, group, advertisement(hostOne, true)), Message{}, ErrMalformed},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := Decode(c.frame)
			if !errors.Is(err, c.err) || (c.err == nil) != (err == nil) {
				t.Errorf("error %v, want %v", err, c.err)
			}
			if got != c.want {
				t.Errorf("%+v, want %+v", got, c.want)
			}
		})
	}
}

// TestOwnFramesAreSound: a receiver that checks as this package does takes what the gateway sends.
func TestOwnFramesAreSound(t *testing.T) {
	s := sender{bob.MAC, gateway}
	for name, c := range map[string]struct {
		frame func() ([]byte, error)
		want  Message
	}{
		"question": {func() ([]byte, error) { return s.question(alice, hostOne) },
			Message{NeighborSolicitation, bob, gateway, hostOne, hostOne}},
		"defence": {func() ([]byte, error) { return s.defence(alice, hostOne) },
			Message{NeighborAdvertisement, bob, gateway, allNodes, hostOne}},
		"proxied": {func() ([]byte, error) { return s.proxied(alice, hostTwo, hostOne) },
			Message{NeighborAdvertisement, bob, gateway, hostTwo, hostOne}},
	} {
		frame, err := c.frame()
		if err != nil {
			t.Fatal(err)
		}
		if got, err := Decode(frame); err != nil || got != c.want || MAC(frame[:6]) != alice.MAC {
			t.Errorf("%s: %+v to %x, %v, want %+v", name, got, frame[:6], err, c.want)
		}
	}
	if got := linkLocalOf(MAC{2, 0, 0, 0, 0, 1}); got != netip.MustParseAddr("fe80::ff:fe00:1") {
		t.Errorf("link-local address %s", got)
	}
}

// FuzzDecode: no frame breaks the decoder, and none that it takes lacks what the table relies on.
func FuzzDecode(f *testing.F) {
	for _, m := range []ndp.Message{
		solicitation(hostOne, lla(ndp.Source, alice.MAC), ndp.NewNonce()),
		advertisement(hostOne, false, lla(ndp.Target, alice.MAC)),
		&ndp.RouterSolicitation{}, &ndp.RouterAdvertisement{Options: []ndp.Option{ndp.NewMTU(1500)}},
	} {
		f.Add(frameOf(f, gateway, groupOne, m))
	}
	f.Add(frameOf(f, nobody, groupOne, solicitation(hostOne)))
	f.Fuzz(func(t *testing.T, frame []byte) {
		if len(frame) > ethernetLen+ipv6Len+4 { // else few frames pass the checksum
			size := len(frame) - ethernetLen - ipv6Len
			binary.BigEndian.PutUint16(frame[ethernetLen+4:], uint16(size))
			frame = changed(frame, 0)
		}
		m, err := Decode(frame)
		if err != nil {
			if m != (Message{}) {
				t.Errorf("%+v with the error %v", m, err)
			}
			return
		}
		about := m.Type == NeighborSolicitation || m.Type == NeighborAdvertisement
		if m.Type < RouterSolicitation || m.Type > Redirect || m.From.MAC != MAC(frame[6:12]) || frame[atHopLimit] != 255 ||
			about != m.Target.IsValid() || about && !isUnicast(m.Target) ||
			!m.Source.IsUnspecified() && !isUnicast(m.Source) {
			t.Errorf("%+v", m)
		}
	})
}
