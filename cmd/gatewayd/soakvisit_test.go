// Visits in the soak test (soak_test.go): a client comes, logs in, sends, and leaves in one of several ways.

package main

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"time"

	"layeh.com/radius"

	"github.com/gateweigh/gateweigh/gateway/control"
	"github.com/gateweigh/gateweigh/ppp"
	"github.com/gateweigh/gateweigh/ppp/pppoe"
)

// probeAdmitted is the admitted probe: it logs in once, sends twenty datagrams a second until the end, renews its
// lease, and gets every answer.
func (s *soak) probeAdmitted(r *rand.Rand) {
	d := &device{soak: s, r: r, slot: *soakDevices, mac: net.HardwareAddr{2, 0x50, 0, 0, 0, 1}}
	l, err := d.arrive("guest-stays", netip.Addr{})
	if err != nil {
		s.fault("the admitted probe: %v", err)
		return
	}
	d.sendUntil(l, s.endsAt, 50*time.Millisecond, false)
	l.endedBy = "stayed"
	fmt.Printf("the admitted probe sent %d datagrams and received %d answers\n", l.traffic.UpPackets,
		l.traffic.DownPackets)
}

// comeAndGo has the devices of a user visit one after the other until the end.
func (s *soak) comeAndGo(slot int, r *rand.Rand) {
	addrs := [3]netip.Addr{} // the last address of each device
	s.sleep(r, 30*time.Second)
	for !s.isOver() {
		n := r.IntN(len(addrs))
		d := &device{soak: s, r: r, slot: slot, mac: net.HardwareAddr{2, 0x50, 1, byte(n), byte(slot >> 8), byte(slot)}}
		if err := d.runVisit(fmt.Sprintf("guest-%d", slot), addrs[n]); err != nil {
			s.fault("device %s at %s: %v", d.mac, d.addr, err)
		}
		addrs[n] = d.addr
	}
}

// arrive connects a device and logs it in, unless it is still logged in.
func (d *device) arrive(user string, before netip.Addr) (*clientSession, error) {
	if err := d.plug(); err != nil {
		return nil, err
	}
	if err := d.lease(before); err != nil {
		return nil, err
	}
	return d.enterPortal(user)
}

// enterPortal logs the device in.
func (d *device) enterPortal(user string) (*clientSession, error) {
	status, err := d.logIn(user, "right")
	if err != nil || status != http.StatusSeeOther {
		return nil, fmt.Errorf("logging in is answered with %d, %v", status, err)
	}
	return d.sessionOf(d.addr, user)
}

// runVisit is one stay of a device, from its connection to its disconnection.
func (d *device) runVisit(user string, before netip.Addr) error {
	l, err := d.arrive(user, before)
	defer func() {
		if d.link != nil {
			d.pull()
		}
	}()
	if err != nil {
		return err
	}
	d.countAction("login")
	for {
		d.sendUntil(l, time.Now().Add(time.Duration(10+d.r.IntN(90))*time.Second), 700*time.Millisecond, true)
		again, err := d.endSession(l)
		if err != nil || !again || d.isOver() {
			return err
		}
		if l, err = d.enterPortal(user); err != nil {
			return fmt.Errorf("again: %w", err)
		}
		d.countAction("login again")
	}
}

// sendUntil has the device send datagrams until a time, each a pause after the answer to the one before, and renew its
// lease. If it is restless, it also does other things in between.
func (d *device) sendUntil(l *clientSession, until time.Time, pause time.Duration, restless bool) {
	conn, err := d.dial("udp4", fmt.Sprintf("%s:%d", serverAddr, echoPort))
	if err != nil {
		d.fault("device %s: %v", d.mac, err)
		return
	}
	defer func() { conn.Close() }()
	for seq := uint64(0); time.Now().Before(until) && !d.isOver(); seq++ {
		if err := d.echo(conn, l, seq); err != nil {
			l.uncounted = true
			d.fault("session %s of %s at %s for %v: %v", l.id, l.user, d.addr, time.Since(l.began).Round(time.Second), err)
		}
		if time.Now().After(d.renew) {
			rebind := d.r.IntN(3) == 0
			if err := d.renewLease(rebind); err != nil {
				d.fault("device %s at %s renews its lease (rebinding %v): %v", d.mac, d.addr, rebind, err)
			}
			d.countAction("renewal")
		}
		if restless {
			next, err := d.actRandomly(l, conn)
			if err != nil {
				d.fault("device %s at %s: %v", d.mac, d.addr, err)
				return
			}
			conn = next
		}
		time.Sleep(time.Duration((0.5 + d.r.Float64()) * float64(pause)))
	}
}

// actRandomly does one of the things that devices do now and then, and returns the socket to go on with.
func (d *device) actRandomly(l *clientSession, conn net.Conn) (net.Conn, error) {
	switch n := d.r.IntN(600); {
	case n < 2: // the power fails; the device asks for its address again
		d.countAction("power cycle")
		conn.Close()
		before := d.addr
		d.pull()
		d.addr = netip.Addr{}
		if err := d.plug(); err != nil {
			return conn, err
		}
		if d.r.IntN(2) == 0 {
			before = netip.Addr{}
		}
		if err := d.lease(before); err != nil {
			return conn, err
		}
		return d.dial("udp4", fmt.Sprintf("%s:%d", serverAddr, echoPort))
	case n < 3: // a TCP connection
		d.countAction("download")
		l.uncounted = true
		return conn, d.download()
	case n < 4: // a port where nobody listens, which answers with an ICMP error
		d.countAction("refused datagram")
		l.uncounted = true
		if other, err := d.dial("udp4", fmt.Sprintf("%s:%d", serverAddr, shutPort)); err == nil {
			_, _ = other.Write([]byte("nobody"))
			other.Close()
		}
	case n < 6: // another port outside
		d.countAction("another port")
		conn.Close()
		return d.dial("udp4", fmt.Sprintf("%s:%d", serverAddr, echoPort))
	}
	return conn, nil
}

// download fetches a file by TCP.
func (d *device) download() error {
	conn, err := d.dial("tcp4", serverAddr.String()+":8081")
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(2 * soakWait))
	if _, err := io.WriteString(conn, "GET / HTTP/1.0\r\n\r\n"); err != nil {
		return err
	}
	n, err := io.Copy(io.Discard, conn)
	if err == nil && n < fileBytes {
		err = fmt.Errorf("%d of %d bytes came", n, fileBytes)
	}
	return err
}

// endSession ends a device's session in one of many ways, and reports whether the device is still connected.
func (d *device) endSession(l *clientSession) (still bool, err error) {
	ways := [...]string{"log out", "log out", "log out and release", "release", "vanish", "vanish for long", "disconnect",
		"time is up", "sent away"}
	manner := ways[d.r.IntN(len(ways))]
	if d.isOver() {
		manner = "log out and release"
	}
	d.countAction(manner)
	l.endedBy = manner
	switch manner {
	case "log out", "log out and release":
		if err := d.logOut(l.user); err != nil {
			return true, err
		}
		if !d.awaitEnd(l, d.addr) || manner == "log out" {
			return true, nil
		}
		fallthrough
	case "release":
		if err := d.release(); err != nil {
			return true, err
		}
		d.pull()
		d.link = nil
		d.awaitEnd(l, d.addr)
		d.sleep(d.r, soakIdle/2)
		return false, nil
	case "vanish", "vanish for long":
		d.pull()
		d.link = nil
		if manner == "vanish" {
			d.sleep(d.r, soakIdle/3)
		} else if d.awaitEnd(l, d.addr) {
			d.sleep(d.r, soakIdle)
		}
		return false, nil
	case "disconnect":
		return true, d.endedByServer(l, d.changes(radius.CodeDisconnectRequest, l.id, 0))
	case "time is up":
		return true, d.endedByServer(l, d.changes(radius.CodeCoARequest, l.id, 1))
	}
	_, err = d.soak.control.Logout(d.t.Context(), control.LogoutRequest{Addr: d.addr})
	d.awaitEnd(l, d.addr)
	return true, err
}

// endedByServer has the RADIUS server end the session.
func (d *device) endedByServer(l *clientSession, request []byte) error {
	if err := d.asksFor(request); err != nil {
		return err
	}
	d.awaitEnd(l, d.addr)
	return nil
}

// dialAndHangUp has a PPPoE client dial, send and hang up, again and again until the end.
func (s *soak) dialAndHangUp(slot int, r *rand.Rand) {
	mac := pppoe.MAC{2, 0x50, 2, 0, byte(slot >> 8), byte(slot)}
	s.sleep(r, 10*time.Second)
	for n := 0; !s.isOver(); n++ {
		line := s.access.subscriber(s.t, mac, ppp.Config{User: fmt.Sprintf("guest-line-%d", slot), Password: "right"})
		line.uniq = []byte{byte(n >> 8), byte(n)}
		terms, err := line.dial()
		if err != nil {
			s.fault("line %d is refused: %v", slot, err)
			s.sleep(r, 10*time.Second)
			continue
		}
		s.countAction("dial")
		l, err := s.sessionOf(terms.Local, line.cfg.User)
		if err != nil {
			s.fault("line %d: %v", slot, err)
			continue
		}
		s.sendEchoes(line, l, terms, r)
		s.endLine(line, l, terms.Local, r)
	}
}

// endLine ends a line's session in one of many ways.
func (s *soak) endLine(line *subscriber, l *clientSession, addr netip.Addr, r *rand.Rand) {
	manner := [...]string{"hang up", "PADT", "line vanishes", "line loses power", "line is disconnected"}[r.IntN(5)]
	s.countAction(manner)
	l.endedBy = manner
	switch manner {
	case "hang up":
		line.hangUp()
	case "PADT":
		line.padt()
		line.vanish()
	case "line vanishes":
		line.vanish()
	case "line loses power": // the client dials again at once, which ends its former session
		line.vanish()
		return
	case "line is disconnected":
		if err := s.asksFor(s.changes(radius.CodeDisconnectRequest, l.id, 0)); err != nil {
			s.fault("%s: %v", l.user, err)
		}
	}
	s.awaitEnd(l, addr)
	s.sleep(r, 20*time.Second)
}

// sendEchoes has a line's client send echo requests for a while.
func (s *soak) sendEchoes(line *subscriber, l *clientSession, terms ppp.Terms, r *rand.Rand) {
	until := time.Now().Add(time.Duration(10+r.IntN(110)) * time.Second)
	for seq := 0; time.Now().Before(until) && !s.isOver(); seq++ {
		bytes := 28 + r.IntN(1400)
		l.traffic.UpBytes += uint64(bytes)
		l.traffic.UpPackets++
		if !line.echo(terms.Local, serverAddr, bytes, seq, soakWait) {
			l.uncounted = true
			s.fault("session %s of %s at %s: echo request %d of %d bytes has no answer", l.id, l.user, terms.Local, seq, bytes)
			continue
		}
		l.traffic.DownBytes += uint64(bytes)
		l.traffic.DownPackets++
		time.Sleep(time.Duration(500+r.IntN(1000)) * time.Millisecond)
	}
}
