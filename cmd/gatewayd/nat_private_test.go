// Steps of the tests of address translation, about packets from the WAN for clients' private addresses. An identHost is
// a host on the WAN (ident_test.go).

package main

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// strayPackets are packets of clients that belong to no connection that the kernel tracks: the protocol, and what
// follows the IP header.
var strayPackets = map[string]struct {
	protocol uint8
	payload  []byte
}{
	"a reset":                {unix.IPPROTO_TCP, segment(0x14)},
	"an answer to no packet": {unix.IPPROTO_TCP, segment(0x12)},
	"a segment without bits": {unix.IPPROTO_TCP, segment(0)},
	"an ICMP error": {unix.IPPROTO_ICMP, []byte{3, 3, 0, 0, 0, 0, 0, 0, 0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0,
		192, 0, 2, 2, 10, 1, 0, 77, 0, 9, 0, 9, 0, 8, 0, 0}},
	"an ICMP answer": {unix.IPPROTO_ICMP, []byte{0, 0, 0, 0, 0, 7, 0, 7}},
	"SCTP's abort":   {unix.IPPROTO_SCTP, []byte{0, 9, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 4}},
	"SCTP's data": {
		unix.IPPROTO_SCTP, []byte{0, 9, 0, 9, 0, 0, 0, 1, 0, 0, 0, 0, 0, 3, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0}},
	"UDP-Lite cut short":    {unix.IPPROTO_UDPLITE, []byte{0, 9, 0, 9, 0, 200, 0, 0}},
	"UDP of a wrong length": {unix.IPPROTO_UDP, []byte{0, 9, 0, 9, 0, 200, 0, 0}},
}

// segment returns a TCP header with flags, from port 9 to port 9.
func segment(flags byte) []byte {
	return []byte{0, 9, 0, 9, 0, 0, 0, 1, 0, 0, 0, 1, 0x50, flags, 16, 0, 0, 0, 0, 0}
}

// sends sends an IPv4 packet from an address of a host. It computes the checksum of TCP and ICMP; the host's kernel
// computes that of the IP header.
func (w *world) sends(host string, from, to netip.Addr, protocol uint8, payload []byte) {
	w.t.Helper()
	packet := append([]byte{0x45, 0, 0, 0, 0, 0, 0, 0, 64, protocol, 0, 0}, append(from.AsSlice(), to.AsSlice()...)...)
	packet = append(packet, payload...)
	switch at := packet[20:]; protocol {
	case unix.IPPROTO_TCP:
		binary.BigEndian.PutUint16(
			at[16:], ^onesSum(onesSum(0, packet[12:20]), append([]byte{0, protocol, 0, byte(len(at))}, at...)))
	case unix.IPPROTO_ICMP:
		binary.BigEndian.PutUint16(at[2:], ^onesSum(0, at))
	}
	w.inHost(host, func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
		if err != nil {
			return os.NewSyscallError("socket", err)
		}
		defer unix.Close(fd)
		return unix.Sendto(fd, packet, 0, &unix.SockaddrInet4{Addr: to.As4()})
	})
}

// onesSum adds bytes to a sum in one's complement (RFC 1071).
func onesSum(before uint16, b []byte) uint16 {
	total := uint32(before)
	for ; len(b) > 1; b = b[2:] {
		total += uint32(binary.BigEndian.Uint16(b))
	}
	if len(b) == 1 {
		total += uint32(b[0]) << 8
	}
	for total > 0xffff {
		total = total>>16 + total&0xffff
	}
	return uint16(total)
}

// hidesClientAddress checks that a client's own address is not seen on the WAN, whatever the client sends, except in
// packets to 192.0.2.3, which nat.except names.
func (w *world) hidesClientAddress(t *testing.T, c *client, server *identHost) {
	t.Helper()
	for name, p := range strayPackets {
		w.sh(`nsenter --net=/run/netns/$ID-server nft 'table ip private; delete table ip private
table ip private { chain in { type filter hook prerouting priority -500; ip saddr 10.1.0.0/24 ip daddr != 192.0.2.3 counter; }; }'`)
		w.sends(c.host, c.addr, serverAddr, p.protocol, p.payload)
		c.sourceSeenBy(server) // its packets follow the stray one
		if seen := w.sh("nsenter --net=/run/netns/$ID-server nft list table ip private"); !strings.Contains(
			seen, "counter packets 0 ") {
			t.Errorf("%s leaves with the client's own address: %s", name, seen)
		}
	}
	w.sh("nsenter --net=/run/netns/$ID-server nft delete table ip private")
}

// unsolicitedArrives sends a UDP packet from an address of the server to a client's own address, without a packet of
// the client before it, and reports whether it arrives. It checks that the packet is counted only if it arrives.
func (w *world) unsolicitedArrives(t *testing.T, from string, c *client, server *identHost) bool {
	t.Helper()
	var at, out *net.UDPConn
	w.inHost(c.host, func() (err error) {
		at, err = net.ListenUDP("udp4", &net.UDPAddr{IP: c.addr.AsSlice()})
		return err
	})
	defer at.Close()
	w.inHost("server", func() (err error) {
		out, err = net.DialUDP("udp4", &net.UDPAddr{IP: net.ParseIP(from)}, at.LocalAddr().(*net.UDPAddr))
		return err
	})
	defer out.Close()
	before := c.session().DownPackets
	_, err := out.Write(make([]byte, 1000))
	must(t, err)
	w.sh("nsenter --net=/run/netns/$ID-server ping -c 1 -I " + from + " 192.0.2.1") // follows the packet to the router
	counted := c.session().DownPackets - before
	c.sourceSeenBy(server) // and this follows it to the client
	arrived := waiting(t, at)
	if arrived != (counted > 0) {
		t.Errorf("a packet from %s to %s is counted %d times; it has arrived: %v", from, c.addr, counted, arrived)
	}
	return arrived
}

// waiting reports whether something waits at a socket now: a datagram, or a connection at a listener.
func waiting(t *testing.T, at syscall.Conn) (ready bool) {
	t.Helper()
	raw, err := at.SyscallConn()
	must(t, err)
	var polled error
	must(t, raw.Control(func(fd uintptr) {
		var n int
		for n, polled = -1, unix.EINTR; errors.Is(polled, unix.EINTR); {
			n, polled = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		}
		ready = n > 0
	}))
	must(t, polled)
	return ready
}
