// What clients of the soak test (soak_test.go) send now and then: wrong, odd and forged packets.

package main

import (
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/dhcpv4/nclient4"
	"github.com/mdlayher/packet"

	"github.com/gateweigh/gateweigh/ppp/pppoe"
)

// oddDevice is a device that misbehaves: it sends malformed frames, declines addresses, or disconnects in the middle of
// a request.
type oddDevice struct {
	device
	raw         *packet.Conn     // sends frames
	lastDecline time.Time        // when it declined an address
	router      net.HardwareAddr // the gateway's, on the LAN
}

// beOdd has an odd device misbehave until the end.
func (s *soak) beOdd(slot int, r *rand.Rand) {
	mac := net.HardwareAddr{2, 0x50, 3, 0, 0, byte(slot)}
	o := &oddDevice{device: device{soak: s, r: r, slot: *soakDevices + 1 + slot, mac: mac}}
	if err := o.begin(); err != nil {
		s.fault("odd device %d: %v", slot, err)
		return
	}
	defer o.pull()
	defer o.raw.Close()
	tricks := []struct {
		name   string
		action func() error
	}{
		{"odd: damaged DHCP", o.damagedDHCP}, {"odd: declined address", o.decline}, {"odd: spoofed source", o.spoof},
		{"odd: spoofed ARP", o.spoofARP}, {"odd: HTTP garbage", o.garbage}, {"odd: cut TLS", o.cutTLS},
		{"odd: wrong password", o.guess}, {"odd: ICMP error", o.icmpError}, {"odd: PPPoE", o.line}, {"odd: DNS", o.names},
		{"odd: random frame", o.sendNoise}, {"odd: half a form", o.halfForm},
	}
	for !s.isOver() {
		trick := tricks[r.IntN(len(tricks))]
		if err := trick.action(); err != nil {
			s.countAction(trick.name + " in vain")
		} else {
			s.countAction(trick.name)
		}
		s.sleep(r, 2*time.Second)
		if time.Now().After(o.renew) {
			if err := o.renewLease(false); err != nil { // the device then begins without its address
				o.addr = netip.Addr{}
				_ = o.lease(netip.Addr{})
			}
		}
	}
}

// begin connects the device and leases it an address.
func (o *oddDevice) begin() error {
	if err := o.plug(); err != nil {
		return err
	}
	if err := o.lease(netip.Addr{}); err != nil {
		return err
	}
	if err := o.inHostErr("router", func() error {
		dev, err := net.InterfaceByName("lan0")
		if err == nil {
			o.router = dev.HardwareAddr
		}
		return err
	}); err != nil {
		return err
	}
	return o.inHostErr(devicesHost, func() error {
		dev, err := net.InterfaceByName(o.name)
		if err == nil {
			o.raw, err = packet.Listen(dev, packet.Raw, 0x88b5, nil) // receives nothing
		}
		return err
	})
}

// frame sends bytes as a frame of a kind from a hardware address to another.
func (o *oddDevice) frame(to, from net.HardwareAddr, kind uint16, content []byte) error {
	b := append(append(append([]byte(nil), to...), from...), byte(kind>>8), byte(kind))
	_, err := o.raw.WriteTo(append(b, content...), &packet.Addr{HardwareAddr: to})
	return err
}

var broadcast = net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// damage changes some bytes, or cuts some off.
func (o *oddDevice) damage(b []byte) []byte {
	for range 1 + o.r.IntN(6) {
		b[o.r.IntN(len(b))] = byte(o.r.Uint32())
	}
	if o.r.IntN(3) == 0 {
		b = b[:1+o.r.IntN(len(b))]
	}
	return b
}

func (o *oddDevice) damagedDHCP() error {
	m, err := dhcpv4.NewDiscovery(o.mac)
	if err != nil {
		return err
	}
	kinds := []dhcpv4.MessageType{dhcpv4.MessageTypeDiscover, dhcpv4.MessageTypeRequest, dhcpv4.MessageTypeInform,
		dhcpv4.MessageTypeDecline, dhcpv4.MessageTypeRelease, dhcpv4.MessageTypeOffer, dhcpv4.MessageTypeAck, 77}
	m.UpdateOption(dhcpv4.OptMessageType(kinds[o.r.IntN(len(kinds))]))
	b := m.ToBytes()
	if o.r.IntN(4) > 0 {
		b = o.damage(b)
	}
	return o.frame(broadcast, o.mac, 0x0800, datagram([4]byte{}, [4]byte{255, 255, 255, 255}, 68, 67, b))
}

// decline leases an address as another device behind this one, and declines it, as if somebody else used it.
func (o *oddDevice) decline() error {
	if time.Since(o.lastDecline) < time.Minute {
		return fmt.Errorf("not again yet")
	}
	o.lastDecline = time.Now()
	var conn net.PacketConn
	if err := o.inHostErr(devicesHost, func() (err error) {
		conn, err = nclient4.NewRawUDPConn(o.name, 68)
		return err
	}); err != nil {
		return err
	}
	defer conn.Close()
	m, err := dhcpv4.NewDiscovery(o.mac, dhcpv4.WithOption(dhcpv4.OptClientIdentifier([]byte{0, 1, byte(o.r.IntN(8))})))
	if err != nil {
		return err
	}
	offer, err := exchange(conn, m, nclient4.DefaultServers)
	if err != nil {
		return err
	}
	no, err := dhcpv4.New(dhcpv4.WithMessageType(dhcpv4.MessageTypeDecline), dhcpv4.WithHwAddr(o.mac),
		dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(offer.YourIPAddr)),
		dhcpv4.WithOption(dhcpv4.OptServerIdentifier(net.IPv4(10, 1, 0, 1))))
	if err == nil {
		_, err = conn.WriteTo(no.ToBytes(), nclient4.DefaultServers)
	}
	return err
}

// spoof sends a datagram with a source address that is not its own: that of a client, of nobody, or of another network.
func (o *oddDevice) spoof() error {
	n := byte(o.r.IntN(256))
	from := [][4]byte{{10, 1, 32 + n%2, byte(o.r.IntN(256))}, {10, 1, 250, n}, {10, 1, 0, 1}, {198, 51, 100, n}, {127, 0,
		0, 1}}[o.r.IntN(5)]
	sent := datagram(from, serverAddr.As4(), uint16(o.r.IntN(65536)), echoPort, make([]byte, o.r.IntN(500)))
	return o.frame(o.router, o.mac, 0x0800, sent)
}

// spoofARP claims the address of somebody else.
func (o *oddDevice) spoofARP() error {
	arp := []byte{0, 1, 8, 0, 6, 4, 0, byte(1 + o.r.IntN(2))}
	sender := append(append([]byte(nil), o.mac...), 10, 1, 32, byte(o.r.IntN(256)))
	target := append(append([]byte(nil), make([]byte, 6)...), 10, 1, byte(32*o.r.IntN(2)), byte(1+o.r.IntN(200)))
	return o.frame(broadcast, o.mac, 0x0806, append(append(arp, sender...), target...))
}

// garbage sends the portal random bytes instead of HTTP, and ends the connection in one of several ways.
func (o *oddDevice) garbage() error {
	to := []string{portalAddr, "10.1.0.1:8443", "10.1.0.1:80", "192.0.2.2:80", "10.1.0.1:53"}[o.r.IntN(5)]
	conn, err := o.dial("tcp4", to)
	if err != nil {
		return err
	}
	defer conn.Close()
	b := make([]byte, 1+o.r.IntN(4000))
	for i := range b {
		b[i] = byte(o.r.Uint32())
	}
	if o.r.IntN(2) == 0 {
		b = append([]byte("GET /"), b...)
	}
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	if _, err := conn.Write(b); err != nil {
		return nil
	}
	if o.r.IntN(2) == 0 {
		return conn.(*net.TCPConn).SetLinger(0) // a reset
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(conn, 1<<16))
	return nil
}

// cutTLS breaks off a TLS connection before, during or after its handshake.
func (o *oddDevice) cutTLS() error {
	conn, err := o.dial("tcp4", "10.1.0.1:8443")
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(2 * time.Second))
	cut := &cutConn{Conn: conn, remaining: o.r.IntN(700)}
	secure := tls.Client(cut, &tls.Config{ServerName: portalName, InsecureSkipVerify: true})
	if secure.Handshake() == nil {
		_, _ = secure.Write([]byte("GET /login HTTP/1.1\r\nHost: " + portalName))
	}
	return nil
}

// cutConn is a connection that fails after a number of bytes were written.
type cutConn struct {
	net.Conn
	remaining int
}

func (c *cutConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b[:min(len(b), c.remaining)])
	if c.remaining -= n; err == nil && n < len(b) {
		err = io.ErrShortWrite
	}
	return n, err
}

// guess logs in with a wrong password.
func (o *oddDevice) guess() error {
	_, err := o.logIn(fmt.Sprintf("guest-odd-%d", o.slot), "wrong")
	return err
}

// halfForm sends a part of a login form, and closes the connection.
func (o *oddDevice) halfForm() error {
	v, err := o.connectPortal()
	if err != nil {
		return err
	}
	defer v.conn.Close()
	_, err = fmt.Fprintf(
		v.conn, "POST /login HTTP/1.1\r\nHost: %s:8443\r\nContent-Type: application/x-www-form-urlencoded\r\n"+
			"Content-Length: %d\r\n\r\ntoken=x&user", portalName, 20+o.r.IntN(1<<20))
	return err
}

// icmpError sends an error about a datagram of somebody else.
func (o *oddDevice) icmpError() error {
	victim := [4]byte{10, 1, 32, byte(o.r.IntN(256))}
	original := unreachable(datagram(victim, serverAddr.As4(), uint16(o.r.IntN(65536)), echoPort, make([]byte, 8)))
	from := o.addr.As4()
	if o.r.IntN(2) == 0 {
		from = victim
	}
	to := [][4]byte{serverAddr.As4(), {10, 1, 0, 1}}[o.r.IntN(2)]
	return o.frame(o.router, o.mac, 0x0800, ipv4Packet(from, to, layers.IPProtocolICMPv4, original))
}

// line sends the PPPoE concentrator frames that begin no session.
func (o *oddDevice) line() error {
	asked := []pppoe.Tag{{Type: pppoe.ServiceName}, {Type: pppoe.HostUniq, Value: make([]byte, o.r.IntN(64))}}
	f := pppoe.Frame{To: pppoe.Broadcast, From: pppoe.MAC(o.mac), Code: pppoe.PADI, Tags: asked}
	session := uint16(1 + o.r.IntN(200))
	switch o.r.IntN(4) {
	case 0:
	case 1: // asks for a session with a made-up cookie
		f.To, f.Code = pppoe.MAC(o.router), pppoe.PADR
		f.Tags = append(f.Tags, pppoe.Tag{Type: pppoe.ACCookie, Value: make([]byte, 16)})
	case 2: // ends a session of somebody else
		f.To, f.Code, f.Session, f.Tags = pppoe.MAC(o.router), pppoe.PADT, session, nil
	case 3: // sends a frame in a session of somebody else
		lcp := o.damage([]byte{0xc0, 0x21, 1, 1, 0, 8, 3, 4, 0xc0, 0x23})
		f = pppoe.Frame{To: pppoe.MAC(o.router), From: pppoe.MAC(o.mac), Session: session, PPP: lcp}
	}
	b := f.Append(nil)
	if o.r.IntN(2) == 0 {
		b = append(b[:14], o.damage(b[14:])...)
	}
	_, err := o.raw.WriteTo(b, &packet.Addr{HardwareAddr: f.To[:]})
	return err
}

// names sends the resolver queries, also damaged ones.
func (o *oddDevice) names() error {
	conn, err := o.dial("udp4", "10.1.0.1:53")
	if err != nil {
		return err
	}
	defer conn.Close()
	query := []byte("\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x03www\x07example\x03org\x00\x00\x01\x00\x01")
	if o.r.IntN(2) == 0 {
		query = o.damage(query)
	}
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	if _, err = conn.Write(query); err == nil {
		_, _ = conn.Read(make([]byte, 4096))
	}
	return err
}

// sendNoise sends a frame of any kind with any content.
func (o *oddDevice) sendNoise() error {
	b := make([]byte, 1+o.r.IntN(1400))
	for i := range b {
		b[i] = byte(o.r.Uint32())
	}
	kind := []uint16{0x0800, 0x0806, 0x86dd, 0x8863, 0x8864, 0x8100, uint16(o.r.Uint32())}[o.r.IntN(7)]
	if kind == 0x0800 {
		b[0] = 0x45
	}
	to := o.router
	if o.r.IntN(4) == 0 {
		to = broadcast
	}
	return o.frame(to, o.mac, kind, b)
}

// datagram is a UDP packet with its headers.
func datagram(from, to [4]byte, fromPort, toPort uint16, content []byte) []byte {
	var udp []byte
	for _, field := range []uint16{fromPort, toPort, uint16(8 + len(content)), 0} { // without a checksum
		udp = binary.BigEndian.AppendUint16(udp, field)
	}
	return ipv4Packet(from, to, layers.IPProtocolUDP, append(udp, content...))
}

// ipv4Packet puts a header before a packet's content.
func ipv4Packet(from, to [4]byte, proto layers.IPProtocol, content []byte) []byte {
	b := gopacket.NewSerializeBuffer()
	ip := &layers.IPv4{Version: 4, TTL: 64, Protocol: proto, SrcIP: from[:], DstIP: to[:]}
	whole := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	if err := gopacket.SerializeLayers(b, whole, ip, gopacket.Payload(content)); err != nil {
		panic(err) // of a packet that fits
	}
	return b.Bytes()
}

// unreachable returns an ICMP error "port unreachable" about a packet.
func unreachable(original []byte) []byte {
	b := gopacket.NewSerializeBuffer()
	kind := layers.CreateICMPv4TypeCode(layers.ICMPv4TypeDestinationUnreachable, layers.ICMPv4CodePort)
	whole := gopacket.SerializeOptions{ComputeChecksums: true}
	if err := gopacket.SerializeLayers(b, whole, &layers.ICMPv4{TypeCode: kind}, gopacket.Payload(original)); err != nil {
		panic(err) // of a packet that fits
	}
	return b.Bytes()
}
