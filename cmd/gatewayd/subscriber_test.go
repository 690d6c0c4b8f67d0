// PPPoE clients of the tests (subscriber), which are parts of the test's process, and the interface of a client's host
// by which they send (access).

package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/mdlayher/packet"
	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/internal/sockbuf"
	"github.com/gateweigh/gateweigh/ppp"
	"github.com/gateweigh/gateweigh/ppp/pppoe"
)

// access is the interface of a client's host by which PPPoE clients of this process send, with packet sockets for
// discovery and for sessions.
type access struct {
	dev     *net.Interface
	sockets [2]*packet.Conn

	mu      sync.Mutex // guards clients
	clients map[pppoe.MAC]*subscriber
}

// subscriber is a PPPoE client within this process: it speaks discovery and PPP itself, without the kernel's PPP.
type subscriber struct {
	t testing.TB
	*access
	mac  pppoe.MAC
	cfg  ppp.Config
	uniq []byte
	tags []pppoe.Tag // that an access node adds to its discovery

	mu         sync.Mutex // guards what follows
	server     pppoe.MAC
	id         uint16
	link       *ppp.Link
	cookie     []byte
	earlyFrame []byte // a frame of the session that was read before its PADS
	terms      ppp.Terms
	opened     int
	endReason  error
	ended      bool
	gotPADT    bool        // a PADT came
	packet     chan []byte // IP packets that came, for ping; the host's if it has tun
	tun        *os.File    // the host's device for the session's packets, see route; nil: it has none
}

var _ ppp.Handler = (*subscriber)(nil)

// subscriber returns a PPPoE client with the MAC address of the host's interface. It ends with the test.
func (c *client) subscriber(cfg ppp.Config) *subscriber {
	c.w.t.Helper()
	a := c.access()
	return a.subscriber(c.w.t, pppoe.MAC(a.dev.HardwareAddr), cfg)
}

// subscriber adds a PPPoE client with a MAC address.
func (a *access) subscriber(t testing.TB, mac pppoe.MAC, cfg ppp.Config) *subscriber {
	s := &subscriber{t: t, access: a, mac: mac, cfg: cfg, uniq: mac[:], packet: make(chan []byte, 64)}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.clients[mac] = s
	return s
}

// access opens the sockets. They end with the test.
func (c *client) access() *access {
	c.w.t.Helper()
	a := &access{clients: map[pppoe.MAC]*subscriber{}}
	c.w.inHost(c.host, func() (err error) {
		if a.dev, err = net.InterfaceByName("c0"); err != nil {
			return err
		}
		for i, kind := range []int{pppoe.Discovery, pppoe.Session} {
			if a.sockets[i], err = packet.Listen(a.dev, packet.Raw, kind, nil); err != nil {
				return err
			}
			must(c.w.t, sockbuf.ReceiveOn(a.sockets[i], socketBytes))
		}
		return nil
	})
	var working sync.WaitGroup
	for _, conn := range a.sockets {
		working.Go(func() { a.read(conn) })
	}
	end := make(chan struct{})
	working.Go(func() {
		for {
			select {
			case <-end:
				return
			case <-time.After(50 * time.Millisecond):
				for _, s := range a.subscribers() {
					s.mu.Lock()
					if s.link != nil {
						s.link.Tick(time.Now())
					}
					s.mu.Unlock()
				}
			}
		}
	})
	c.w.t.Cleanup(func() {
		close(end)
		for _, conn := range a.sockets {
			conn.Close()
		}
		working.Wait()
	})
	return a
}

// subscribers returns all clients.
func (a *access) subscribers() []*subscriber {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Collect(maps.Values(a.clients))
}

func (a *access) read(conn *packet.Conn) {
	b := make([]byte, 2048)
	for {
		n, _, err := conn.ReadFrom(b)
		if err != nil {
			return
		}
		f, err := pppoe.Parse(b[:n])
		if err != nil {
			continue
		}
		a.mu.Lock()
		s := a.clients[f.To]
		a.mu.Unlock()
		if s != nil {
			s.mu.Lock()
			s.receive(&f)
			s.mu.Unlock()
		}
	}
}

func (s *subscriber) receive(f *pppoe.Frame) {
	cookie, _ := f.Tag(pppoe.ACCookie)
	switch {
	case f.Code == pppoe.PADO && s.id == 0:
		s.server, s.cookie = f.From, append([]byte(nil), cookie...)
		s.write(&pppoe.Frame{Code: pppoe.PADR, Tags: append([]pppoe.Tag{{Type: pppoe.ServiceName}, {Type: pppoe.HostUniq,
			Value: s.uniq}, {Type: pppoe.ACCookie, Value: s.cookie}}, s.tags...)})
	case f.Code == pppoe.PADS && s.id == 0 && f.Session != 0:
		s.id = f.Session
		s.link = ppp.New(s.cfg, s)
		s.link.Open(time.Now())
		if early := s.earlyFrame; len(early) > 0 {
			s.earlyFrame = nil
			s.link.Receive(time.Now(), early)
		}
	case f.PPP != nil && s.id == 0: // the session's frame was read before the PADS, which comes to the other socket
		s.earlyFrame = append([]byte(nil), f.PPP...)
	case f.Code == pppoe.PADT && f.Session == s.id:
		s.gotPADT = true
		if s.link != nil {
			s.link.Abort(ppp.ErrPeerClosed)
		}
	case f.PPP != nil && f.Session == s.id && s.link != nil:
		if proto, ip, err := ppp.SplitFrame(f.PPP); err == nil && (proto == ppp.IPv4 || proto == ppp.IPv6) {
			if s.tun != nil {
				_, _ = s.tun.Write(ip)
				return
			}
			select {
			case s.packet <- append([]byte(nil), ip...):
			default:
			}
			return
		}
		s.link.Receive(time.Now(), f.PPP)
	}
}

// write sends a frame to the concentrator.
func (s *subscriber) write(f *pppoe.Frame) {
	f.From = s.mac
	if f.To == (pppoe.MAC{}) {
		f.To = s.server
	}
	_, _ = s.sockets[0].WriteTo(f.Append(nil), &packet.Addr{HardwareAddr: f.To[:]})
}

// Send implements ppp.Handler.
func (s *subscriber) Send(frame []byte) { s.write(&pppoe.Frame{Session: s.id, PPP: frame}) }

// Authenticate implements ppp.Handler; a client is not asked.
func (s *subscriber) Authenticate(ppp.Credentials) {}

// Opened implements ppp.Handler.
func (s *subscriber) Opened(t ppp.Terms) { s.terms = t; s.opened++ }

// Closed implements ppp.Handler.
func (s *subscriber) Closed(reason error) { s.endReason, s.ended = reason, true }

// dial asks for a session until the link is up, and returns what was agreed on, or until it has ended, and returns the
// reason.
func (s *subscriber) dial() (ppp.Terms, error) {
	s.t.Helper()
	var asked time.Time
	var terms ppp.Terms
	var reason error
	eventually(s.t, "a PPPoE session", func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.id == 0 && time.Since(asked) > time.Second { // frames may be lost
			asked = time.Now()
			s.write(&pppoe.Frame{To: pppoe.Broadcast, Code: pppoe.PADI, Tags: []pppoe.Tag{{Type: pppoe.ServiceName}, {
				Type: pppoe.HostUniq, Value: s.uniq}}})
		}
		terms, reason = s.terms, s.endReason
		if s.opened == 0 && !s.ended {
			return fmt.Errorf("session %d, not open", s.id)
		}
		return nil
	})
	return terms, reason
}

// route gives the client's host a TUN device with the session's address, and all routes by it: the host's own TCP then
// uses the session.
func (s *subscriber) route(c *client, terms ppp.Terms) {
	s.t.Helper()
	var tun *os.File
	c.w.inHost(c.host, func() error {
		fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		req, err := unix.NewIfreq("ppp0")
		must(s.t, err)
		req.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
		if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, req); err != nil {
			return err
		}
		must(s.t, unix.SetNonblock(fd, true))
		tun = os.NewFile(uintptr(fd), "ppp0")
		return nil
	})
	c.sh(fmt.Sprintf("sh -ec 'ip addr add %s peer %s dev ppp0; ip link set ppp0 up mtu %d; ip route add default dev ppp0'",
		terms.Local, terms.Peer, terms.MTU))
	var sending sync.WaitGroup
	sending.Go(func() {
		b := make([]byte, 2+2048)
		for {
			n, err := tun.Read(b[2:])
			if err != nil {
				return
			}
			proto, known := map[byte]ppp.Protocol{4: ppp.IPv4, 6: ppp.IPv6}[b[2]>>4]
			if binary.BigEndian.PutUint16(b, uint16(proto)); known && (proto == ppp.IPv4 || s.cfg.IPv6) {
				s.write(&pppoe.Frame{Session: s.id, PPP: b[:2+n]})
			}
		}
	})
	s.t.Cleanup(func() { tun.Close(); sending.Wait() })
	s.mu.Lock()
	s.tun = tun
	s.mu.Unlock()
}

// ping sends an echo request of some bytes of IP to an address until it is answered, and returns how many it sent.
func (s *subscriber) ping(from, to netip.Addr, bytes int) (sent int) {
	s.t.Helper()
	for i := range 30 {
		if s.echo(from, to, bytes, i, time.Second) {
			return i + 1
		}
	}
	s.t.Errorf("%s does not answer echo requests of %d bytes", to, bytes)
	return 30
}

// echo sends one echo request of some bytes of IP, and reports whether it is answered in time.
func (s *subscriber) echo(from, to netip.Addr, bytes, seq int, limit time.Duration) bool {
	s.t.Helper()
	const headers = ipv4.HeaderLen + 8
	m := icmp.Message{Type: ipv4.ICMPTypeEcho, Body: &icmp.Echo{ID: 7, Seq: seq, Data: make([]byte, bytes-headers)}}
	body, err := m.Marshal(nil)
	must(s.t, err)
	h := ipv4.Header{
		Version: 4, Len: ipv4.HeaderLen, TotalLen: bytes, TTL: 64, Protocol: 1, Src: from.AsSlice(), Dst: to.AsSlice()}
	ip, err := h.Marshal()
	must(s.t, err)
	binary.BigEndian.PutUint16(ip[2:], uint16(bytes)) // the package has the byte order of raw sockets
	binary.BigEndian.PutUint16(ip[10:], headerSum(ip))
	s.write(&pppoe.Frame{
		Session: s.id, PPP: append(binary.BigEndian.AppendUint16(nil, uint16(ppp.IPv4)), append(ip, body...)...)})
	select {
	case got := <-s.packet:
		if len(got) >= headers && got[ipv4.HeaderLen] == 0 && netip.AddrFrom4([4]byte(got[12:16])) == to {
			if len(got) != bytes {
				s.t.Errorf("the echo of %d bytes has %d", bytes, len(got))
			}
			return true
		}
	case <-time.After(limit):
	}
	return false
}

// vanish has the client neither send nor answer any more.
func (s *subscriber) vanish() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.link = nil
}

// hangUp ends the link in order.
func (s *subscriber) hangUp() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.link.Close(time.Now(), errHungUp)
}

var errHungUp = errors.New("the client hung up")

// padt ends the session by a PADT alone, without ending PPP's link.
func (s *subscriber) padt() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.write(&pppoe.Frame{Code: pppoe.PADT, Session: s.id})
}

// headerSum is the checksum of an IPv4 header whose field is zero.
func headerSum(b []byte) uint16 {
	var sum uint32
	for ; len(b) > 1; b = b[2:] {
		sum += uint32(binary.BigEndian.Uint16(b))
	}
	sum = sum&0xffff + sum>>16
	return ^uint16(sum&0xffff + sum>>16)
}

// awaitEnd waits for the link's end and returns why.
func (s *subscriber) awaitEnd() (reason error) {
	s.t.Helper()
	eventually(s.t, "the link's end", func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !s.ended {
			return errors.New("the link is up")
		}
		reason = s.endReason
		return nil
	})
	return reason
}
