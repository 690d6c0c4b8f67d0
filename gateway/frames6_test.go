package gateway

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// Next headers beside those of the system (RFC 8200, section 4).
const (
	hopByHop6 = 0
	inIPv6    = 41 // a tunnel's
	routing6  = 43
	fragment6 = 44
	options6  = 60
)

// link6 makes frames from a host on a link to the gateway's end of it.
type link6 struct{ own, gateway net.HardwareAddr }

// frame is a packet by IPv6 in a frame to the gateway, or to the group that it is for (RFC 2464, section 7).
func (l link6) frame(from, to netip.Addr, next byte, payload []byte) []byte {
	dst := []byte(l.gateway)
	if to.IsMulticast() {
		end := to.As16()
		dst = append([]byte{0x33, 0x33}, end[12:]...)
	}
	head := binary.BigEndian.AppendUint16([]byte{0x60, 0, 0, 0}, uint16(len(payload)))
	return bytes.Join([][]byte{dst, l.own, {0x86, 0xdd}, head, {next, 255}, from.AsSlice(), to.AsSlice(), payload}, nil)
}

// whole is frame with a right checksum of UDP, TCP or ICMPv6.
func (l link6) whole(from, to netip.Addr, next byte, payload []byte) []byte {
	return l.frame(from, to, next, summed6(from, to, next, payload))
}

// summed6 is a payload of UDP, TCP or ICMPv6 with its checksum.
func summed6(from, to netip.Addr, next byte, payload []byte) []byte {
	at := map[byte]int{unix.IPPROTO_UDP: 6, unix.IPPROTO_TCP: 16, icmp6: 2}[next]
	b := bytes.Clone(payload)
	sum := uint32(next) + uint32(len(b))
	for _, part := range [][]byte{from.AsSlice(), to.AsSlice(), b} {
		for i := 0; i+1 < len(part); i += 2 {
			sum += uint32(binary.BigEndian.Uint16(part[i:]))
		}
		if len(part)%2 == 1 {
			sum += uint32(part[len(part)-1]) << 8
		}
	}
	for sum>>16 > 0 {
		sum = sum&0xffff + sum>>16
	}
	binary.BigEndian.PutUint16(b[at:], ^uint16(sum))
	return b
}

// datagram6 is a UDP datagram, which ends in a text.
func datagram6(source, dest uint16, text string) []byte {
	b := binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, source), dest)
	b = binary.BigEndian.AppendUint16(b, uint16(8+len(text)))
	return append(append(b, 0, 0), text...)
}

// segment6 is a first TCP segment, which ends in a text.
func segment6(source, dest uint16, text string) []byte {
	b := binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, source), dest)
	return append(append(b, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 2, 4, 0, 0, 0, 0, 0), text...)
}

// neighbour6 is a message of neighbour discovery about an address, from a MAC address, which ends in an option that
// nobody knows with a text of at most 14 bytes.
func neighbour6(kind byte, target netip.Addr, mac net.HardwareAddr, text string) []byte {
	b := append([]byte{kind, 0, 0, 0, 0x20, 0, 0, 0}, target.AsSlice()...) // "override", or of a redirect nothing
	if kind == 137 {
		b = append(b, netip.MustParseAddr(outside6).AsSlice()...)
	}
	if mac != nil {
		option := byte(1) // source
		if kind >= 136 {
			option = 2 // target
		}
		b = append(append(b, option, 1), mac...)
	}
	return append(b, unknownOption(text)...)
}

// askedAt6 is the group at which an address is asked for (RFC 4291, section 2.7.1).
func askedAt6(addr netip.Addr) netip.Addr {
	a := addr.As16()
	return netip.AddrFrom16([16]byte{0: 0xff, 1: 2, 11: 1, 12: 0xff, 13: a[13], 14: a[14], 15: a[15]})
}

func unknownOption(text string) []byte {
	return append([]byte{253, 2}, fmt.Appendf(nil, "%-14s", text)...)
}

// advertisement6 is a router advertisement of a prefix, as preferred as can be, which ends in a text.
func advertisement6(prefix netip.Addr, text string) []byte {
	b := []byte{134, 0, 0, 0, 64, 8, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0,
		3, 4, 64, 0xc0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0}
	return append(append(b, prefix.AsSlice()...), unknownOption(text)...)
}

// behind6 is what comes after extension headers of these kinds, in this order: their padding, a routing header of type
// 0 with an address left, or a fragment's that is whole.
func behind6(kinds []byte, next byte, payload []byte) []byte {
	if len(kinds) == 0 {
		return payload
	}
	follows := next
	if len(kinds) > 1 {
		follows = kinds[1]
	}
	h := []byte{follows, 0, 1, 4, 0, 0, 0, 0}
	switch kinds[0] {
	case routing6:
		h = append([]byte{follows, 2, 0, 1, 0, 0, 0, 0}, netip.MustParseAddr(outside6).AsSlice()...)
	case fragment6:
		h = []byte{follows, 0, 0, 0, 0, 0, 0, 7}
	}
	return append(h, behind6(kinds[1:], next, payload)...)
}

// orders6 are all orders of the extension headers, each with one to four of them.
func orders6() (all [][]byte) {
	var grow func(so []byte)
	grow = func(so []byte) {
		for _, kind := range []byte{hopByHop6, routing6, fragment6, options6} {
			if !bytes.Contains(so, []byte{kind}) {
				all = append(all, append(bytes.Clone(so), kind))
				grow(all[len(all)-1])
			}
		}
	}
	grow(nil)
	return all
}

// gun sends frames on an interface of a namespace.
type gun struct{ stdin io.Writer }

func newGun(t *testing.T, namespace, link string) gun {
	t.Helper()
	cmd := exec.Command("ip", "netns", "exec", namespace, "env", framesEnv+"="+link, os.Args[0])
	stdin, err := cmd.StdinPipe()
	must(t, err)
	netnstest.Background(t, cmd)
	return gun{stdin}
}

func (g gun) send(t *testing.T, frames ...[]byte) {
	t.Helper()
	for _, f := range frames {
		if _, err := fmt.Fprintf(g.stdin, "%x\n", f); err != nil {
			t.Fatal("sending frames: ", err)
		}
	}
}

// watch6 writes all frames at an interface of a namespace to a file, and returns that once it does.
func watch6(t *testing.T, namespace, link string) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), link)
	spawn(t, namespace, "tcpdump", "-U", "--immediate-mode", "-Z", "root", "-i", link, "-w", file)
	eventually(t, "a watch at "+link, func() bool {
		info, err := os.Stat(file)
		return err == nil && info.Size() > 0
	})
	return file
}
