// Tests of how a host counts probes of its ports (knocks) apart from packets that a load has sent late. labtest.NewPair
// makes two namespaces, Client and Server, with a link.

package agent

import (
	"net"
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/internal/netnstest"
	"github.com/gateweigh/gateweigh/lab/labtest"
	"github.com/gateweigh/gateweigh/lab/traffic/frames"
	"github.com/gateweigh/gateweigh/lab/traffic/socket"
)

// TestOnlyProbesOfPortsAreCounted: what a load sends late is no knock, whatever it is: segments with and without data,
// ends of connections, datagrams of any content and length, frames with their stamps, and what goes to other ports. A
// knock after it is heard.
func TestOnlyProbesOfPortsAreCounted(t *testing.T) {
	t.Parallel()
	pair := labtest.NewPair(t)
	addr := netip.AddrPortFrom(labtest.ServerIP, 5201)
	in := func(s *netnstest.Space, work func() error) {
		t.Helper()
		var err error
		if s.Do(func() { err = work() }); err != nil {
			t.Fatal(err)
		}
	}
	var l *net.TCPListener
	in(pair.Server, func() (err error) { l, err = net.ListenTCP("tcp4", net.TCPAddrFromAddrPort(addr)); return err })
	defer l.Close()
	connect := func() (near, far *net.TCPConn) {
		in(pair.Client, func() (err error) {
			near, err = net.DialTCP("tcp4", nil, net.TCPAddrFromAddrPort(addr))
			return err
		})
		far, err := l.AcceptTCP()
		if err != nil {
			t.Fatal(err)
		}
		return near, far
	}
	closing, far := connect()
	reset, far2 := connect()
	defer far.Close()
	defer far2.Close()
	send := func(port uint16, payload []byte) {
		in(pair.Client, func() error {
			c, err := net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(addr.Addr(), port)))
			if err == nil {
				_, err = c.Write(payload)
				c.Close()
			}
			return err
		})
	}
	stamp := make([]byte, frames.StampBytes+14)
	frames.Stamp{Stream: 3, Number: 9, SentNs: 1}.Put(stamp)
	knock := append([]byte(knockText), make([]byte, knockBytes-len(knockText))...)
	for _, d := range []LoadPort{
		{Server: Server{Addr4: addr.Addr()}, Port: addr.Port()},
		{Server: Server{Addr4: addr.Addr()}, Port: addr.Port(), UDP: true}} {
		a := &Agent{}
		in(pair.Server, func() error { return a.WatchPort(t.Context(), "gwt1", d) })
		if d.UDP {
			for _, payload := range [][]byte{nil, {0}, make([]byte, knockBytes), make([]byte, 1400), []byte(
				"GWUD and a stream's place"), stamp, []byte(knockText[:7])} {
				send(addr.Port(), payload)
			}
			send(addr.Port()+1, knock)
		} else {
			for _, c := range []*net.TCPConn{closing, reset} {
				if _, err := c.Write(make([]byte, 5000)); err != nil {
					t.Fatal(err)
				}
			}
			closing.Close()
			reset.SetLinger(0)
			reset.Close()
			send(addr.Port(), knock)
		}
		in(pair.Client, func() error {
			kind := unix.SOCK_STREAM
			if d.UDP {
				kind = unix.SOCK_DGRAM
			}
			fd, err := socket.New(kind, addr.Addr())
			if err == nil {
				err = d.sendKnock(fd, labtest.ClientIP, addr)
				unix.Close(fd)
			}
			return err
		})
		var heard []netip.Addr
		labtest.Await(t, "the knock", func() bool {
			from, err := a.Arrivals(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			heard = append(heard, from...)
			return len(heard) > 0
		})
		if !slices.Equal(heard, []netip.Addr{labtest.ClientIP}) { // a knock is the last that was sent
			t.Errorf("%s: %d packets taken for knocks, one was", d, len(heard))
		}
		a.UnwatchPort(t.Context())
	}
}
