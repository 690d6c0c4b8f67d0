// Clients at the portal in the soak test (soak_test.go). All devices share one namespace, devicesHost.

package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"syscall"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/dhcpv4/nclient4"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// device is a client that uses the portal: an interface with an address and routes of its own. All devices share one
// namespace, so each binds its sockets to its interface.
type device struct {
	*soak
	r     *rand.Rand
	slot  int
	mac   net.HardwareAddr
	name  string // of the interface
	link  netlink.Link
	addr  netip.Addr
	renew time.Time // when half of its lease is over
}

// plug connects the device, without an address.
func (d *device) plug() error {
	d.name = fmt.Sprint("d", d.slot)
	d.link = &netlink.Macvlan{Mode: netlink.MACVLAN_MODE_PRIVATE,
		LinkAttrs: netlink.LinkAttrs{Name: d.name, ParentIndex: d.lower.Attrs().Index, HardwareAddr: d.mac}}
	if err := d.links.LinkAdd(d.link); err != nil {
		return fmt.Errorf("connecting %s: %w", d.name, err)
	}
	return d.links.LinkSetUp(d.link)
}

// pull disconnects the device without any message: packets that are sent to it are lost.
func (d *device) pull() {
	if err := d.links.LinkDel(d.link); err != nil {
		d.fault("disconnecting %s: %v", d.name, err)
	}
}

// lease gets the device an address: the one that it had, or the one that it is offered.
func (d *device) lease(before netip.Addr) error {
	var conn net.PacketConn
	err := d.inHostErr(devicesHost, func() (err error) {
		conn, err = nclient4.NewRawUDPConn(d.name, 68)
		return err
	})
	if err != nil {
		return err
	}
	defer conn.Close()
	hello, err := dhcpv4.NewDiscovery(d.mac)
	if err != nil {
		return err
	}
	if before.IsValid() {
		hello.UpdateOption(dhcpv4.OptMessageType(dhcpv4.MessageTypeRequest))
		hello.UpdateOption(dhcpv4.OptRequestedIPAddress(before.AsSlice()))
	}
	hello.UpdateOption(dhcpv4.OptHostName(fmt.Sprintf("device-%d", d.slot)))
	offered, err := exchange(conn, hello, nclient4.DefaultServers)
	if err == nil && offered.MessageType() == dhcpv4.MessageTypeOffer {
		request, bad := dhcpv4.NewRequestFromOffer(offered)
		if bad != nil {
			return bad
		}
		offered, err = exchange(conn, request, nclient4.DefaultServers)
	}
	if err != nil {
		return err
	}
	if offered.MessageType() == dhcpv4.MessageTypeNak && before.IsValid() {
		return d.lease(netip.Addr{})
	}
	return d.useLease(offered)
}

// exchange sends a DHCP message until it is answered.
func exchange(conn net.PacketConn, m *dhcpv4.DHCPv4, to net.Addr) (*dhcpv4.DHCPv4, error) {
	b := make([]byte, 2048)
	for limit := 2 * time.Second; limit < soakWait; limit *= 2 {
		if _, err := conn.WriteTo(m.ToBytes(), to); err != nil {
			return nil, fmt.Errorf("sending %s: %w", m.MessageType(), err)
		}
		_ = conn.SetReadDeadline(time.Now().Add(limit))
		for {
			n, _, err := conn.ReadFrom(b)
			if err != nil {
				break
			}
			got, err := dhcpv4.FromBytes(b[:n])
			if err == nil && got.OpCode == dhcpv4.OpcodeBootReply && got.TransactionID == m.TransactionID {
				return got, nil
			}
		}
	}
	return nil, fmt.Errorf("no answer to %s", m.MessageType())
}

// useLease uses the address that the device was leased.
func (d *device) useLease(ack *dhcpv4.DHCPv4) error {
	addr, ok := netip.AddrFromSlice(ack.YourIPAddr.To4())
	if ack.MessageType() != dhcpv4.MessageTypeAck || !ok {
		return fmt.Errorf("asked for an address, and was answered: %s", ack.Summary())
	}
	d.renew = time.Now().Add(ack.IPAddressLeaseTime(time.Minute) / 2)
	if d.addr == addr {
		return nil
	}
	d.addr = addr
	lan := &net.IPNet{IP: addr.AsSlice(), Mask: net.CIDRMask(16, 32)}
	if err := d.links.AddrReplace(d.link, &netlink.Addr{IPNet: lan, Flags: unix.IFA_F_NOPREFIXROUTE}); err != nil {
		return fmt.Errorf("taking %s: %w", addr, err)
	}
	index, metric := d.link.Attrs().Index, d.slot+1
	all := &net.IPNet{IP: net.IPv4(10, 1, 0, 0).To4(), Mask: net.CIDRMask(16, 32)}
	near := &netlink.Route{LinkIndex: index, Dst: all, Priority: metric, Scope: netlink.SCOPE_LINK, Src: addr.AsSlice()}
	if err := d.links.RouteReplace(near); err != nil {
		return fmt.Errorf("a route by %s: %w", d.name, err)
	}
	far := &netlink.Route{LinkIndex: index, Gw: net.IPv4(10, 1, 0, 1), Priority: metric, Src: addr.AsSlice()}
	return d.links.RouteReplace(far)
}

// renewLease renews the lease with its server or, with rebind, with any, as if its server did not answer.
func (d *device) renewLease(rebind bool) error {
	to := &net.UDPAddr{IP: net.IPv4(10, 1, 0, 1), Port: 67}
	if rebind {
		to = nclient4.DefaultServers
	}
	m, err := dhcpv4.New(dhcpv4.WithMessageType(dhcpv4.MessageTypeRequest), dhcpv4.WithHwAddr(d.mac),
		dhcpv4.WithClientIP(d.addr.AsSlice()))
	if err != nil {
		return err
	}
	conn, err := d.packets(68)
	if err != nil {
		return err
	}
	defer conn.Close()
	ack, err := exchange(conn, m, to)
	if err != nil {
		return err
	}
	return d.useLease(ack)
}

// release gives the address back and disconnects: the gateway would not take the address from a device that still
// answers.
func (d *device) release() error {
	m, err := dhcpv4.New(dhcpv4.WithMessageType(dhcpv4.MessageTypeRelease), dhcpv4.WithHwAddr(d.mac),
		dhcpv4.WithClientIP(d.addr.AsSlice()), dhcpv4.WithOption(dhcpv4.OptServerIdentifier(net.IPv4(10, 1, 0, 1))))
	if err != nil {
		return err
	}
	conn, err := d.packets(68)
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = conn.WriteTo(m.ToBytes(), &net.UDPAddr{IP: net.IPv4(10, 1, 0, 1), Port: 67})
	return err
}

// bound binds a socket to the device's interface.
func (d *device) bound(_, _ string, raw syscall.RawConn) (err error) {
	if bad := raw.Control(func(fd uintptr) {
		broadcast := unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_BROADCAST, 1)
		err = errors.Join(unix.BindToDevice(int(fd), d.name), broadcast)
	}); bad != nil {
		return bad
	}
	return err
}

// packets opens a socket for datagrams from the device's address.
func (d *device) packets(port int) (conn net.PacketConn, err error) {
	err = d.inHostErr(devicesHost, func() error {
		address := fmt.Sprintf("%s:%d", d.addr, port)
		conn, err = (&net.ListenConfig{Control: d.bound}).ListenPacket(context.Background(), "udp4", address)
		return err
	})
	return conn, err
}

// dial connects the device to an address.
func (d *device) dial(network, to string) (conn net.Conn, err error) {
	err = d.inHostErr(devicesHost, func() error {
		conn, err = (&net.Dialer{Timeout: soakWait, Control: d.bound}).Dial(network, to)
		return err
	})
	return conn, err
}

// portalConn is a connection to the portal's pages.
type portalConn struct {
	conn   net.Conn
	reader *bufio.Reader
}

const portalName = "login.example.org"

// connectPortal connects to the portal.
func (d *device) connectPortal() (*portalConn, error) {
	plain, err := d.dial("tcp4", "10.1.0.1:8443")
	if err != nil {
		return nil, err
	}
	_ = plain.SetDeadline(time.Now().Add(soakWait))
	secure := tls.Client(plain, &tls.Config{ServerName: portalName, InsecureSkipVerify: true})
	if err := secure.Handshake(); err != nil {
		plain.Close()
		return nil, err
	}
	return &portalConn{secure, bufio.NewReader(secure)}, nil
}

// request requests a page, with a form's fields if there are any.
func (v *portalConn) request(path string, form url.Values) (status int, body string, err error) {
	method := http.MethodGet
	if form != nil {
		method = http.MethodPost
	}
	r, err := http.NewRequest(method, "https://"+portalName+":8443"+path, strings.NewReader(form.Encode()))
	if err != nil {
		return 0, "", err
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if err := r.Write(v.conn); err != nil {
		return 0, "", err
	}
	answer, err := http.ReadResponse(v.reader, r)
	if err != nil {
		return 0, "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, 1<<20))
	return answer.StatusCode, string(text), err
}

// requestForm requests a page with a form, and returns its token; "": the client is sent to another page.
func (v *portalConn) requestForm(path string) (token string, err error) {
	status, text, err := v.request(path, nil)
	if err != nil || status == http.StatusSeeOther {
		return "", err
	}
	m := tokenField.FindStringSubmatch(text)
	if m == nil {
		return "", fmt.Errorf("%d and no form on the page %s: %s", status, path, text)
	}
	return m[1], nil
}

// logIn submits the portal's form, unless the device is logged in already, and returns the HTTP status.
func (d *device) logIn(user, password string) (status int, err error) {
	v, err := d.connectPortal()
	if err != nil {
		return 0, fmt.Errorf("the portal: %w", err)
	}
	defer v.conn.Close()
	token, err := v.requestForm("/login")
	if err != nil || token == "" {
		return http.StatusSeeOther, err
	}
	status, _, err = v.request("/login", url.Values{"token": {token}, "username": {user}, "password": {password}})
	return status, err
}

// logOut submits the form of the status page.
func (d *device) logOut(user string) error {
	v, err := d.connectPortal()
	if err != nil {
		return fmt.Errorf("the portal: %w", err)
	}
	defer v.conn.Close()
	token, err := v.requestForm("/status")
	if err == nil && token == "" {
		err = errors.New("there is no session to log out of")
	}
	if err != nil {
		return err
	}
	_, _, err = v.request("/logout", url.Values{"token": {token}, "username": {user}})
	return err
}

// echo sends a datagram and waits for its answer, and counts both.
func (d *device) echo(conn net.Conn, l *clientSession, seq uint64) error {
	out := make([]byte, 8+d.r.IntN(1200))
	binary.BigEndian.PutUint64(out, seq)
	began := time.Now()
	_ = conn.SetDeadline(began.Add(soakWait))
	if _, err := conn.Write(out); err != nil {
		return fmt.Errorf("datagram %d: %w", seq, err)
	}
	l.traffic.UpBytes += uint64(udpHeaders + len(out))
	l.traffic.UpPackets++
	in := make([]byte, 2048)
	n, err := conn.Read(in)
	if err != nil {
		return fmt.Errorf("datagram %d has no answer after %v: %w", seq, time.Since(began).Round(time.Millisecond), err)
	}
	if n != len(out) || binary.BigEndian.Uint64(in) != seq {
		return fmt.Errorf("datagram %d of %d bytes is answered by %d with %d", seq, len(out), binary.BigEndian.Uint64(in), n)
	}
	l.traffic.DownBytes += uint64(udpHeaders + n)
	l.traffic.DownPackets++
	return nil
}
