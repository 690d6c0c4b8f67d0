// Traffic of the tests: a flow of numbered UDP datagrams, and a stream of TCP, through the gateway of a world
// (world_test.go).

package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/control"
	"github.com/gateweigh/gateweigh/internal/sockbuf"
)

// Sizes on the wire.
const (
	datagramBytes = 1448 // of a numbered datagram's payload
	udpHeaders    = 20 + 8
	tcpHeaders    = 20 + 32 // with timestamps, without SACK
	synBytes      = 20 + 40
	socketBytes   = 64 << 20 // of buffers: packets may be lost in the gateway's queues only
)

// flow sends numbered UDP datagrams from one host to another, and records which of them arrived.
type flow struct {
	sender, receiver *net.UDPConn
	perSecond        int

	stop     atomic.Bool
	sent     atomic.Uint64
	received atomic.Uint64 // each number once
	highest  atomic.Uint64 // number that arrived
	repeated atomic.Uint64 // datagrams whose number had arrived before
	sending  sync.WaitGroup
	running  sync.WaitGroup
}

// flow creates sockets for datagrams from a client to the server (up) or from the server to the client; it does not
// send yet. The sockets stay open for the test, so that no ICMP errors are sent.
func (w *world) flow(c *client, up bool, perSecond int) *flow {
	w.t.Helper()
	if !up {
		return w.flowTo("server", c.host, c.addr, perSecond)
	}
	return w.flowTo(c.host, "server", serverAddr, perSecond)
}

// flowTo is flow between two hosts, to an address of either family.
func (w *world) flowTo(from, to string, addr netip.Addr, perSecond int) *flow {
	w.t.Helper()
	f := &flow{perSecond: perSecond}
	w.inHost(to, func() (err error) {
		if f.receiver, err = net.ListenUDP("udp", &net.UDPAddr{IP: addr.AsSlice()}); err == nil {
			err = enlargeBuffers(f.receiver)
		}
		return err
	})
	w.inHost(from, func() (err error) {
		if f.sender, err = net.DialUDP("udp", nil, f.receiver.LocalAddr().(*net.UDPAddr)); err == nil {
			err = enlargeBuffers(f.sender)
		}
		return err
	})
	f.running.Go(f.receive)
	w.t.Cleanup(func() { f.halt(); f.sender.Close(); f.receiver.Close(); f.running.Wait() })
	return f
}

// enlargeBuffers gives a socket large buffers.
func enlargeBuffers(conn *net.UDPConn) error {
	return errors.Join(sockbuf.ReceiveOn(conn, socketBytes), sockbuf.SendOn(conn, socketBytes))
}

func (f *flow) receive() {
	b := make([]byte, 2*datagramBytes)
	var seen []uint64 // a bit for each number
	for {
		k, err := f.receiver.Read(b)
		if err != nil {
			return
		}
		if k != datagramBytes {
			continue
		}
		n := binary.BigEndian.Uint64(b)
		for uint64(len(seen)) <= n/64 {
			seen = append(seen, 0)
		}
		if seen[n/64]&(1<<(n%64)) != 0 {
			f.repeated.Add(1)
			continue
		}
		seen[n/64] |= 1 << (n % 64)
		f.highest.Store(max(f.highest.Load(), n))
		f.received.Add(1)
	}
}

// send sends one datagram and reports whether the kernel took it.
func (f *flow) send(b []byte) bool {
	binary.BigEndian.PutUint64(b, f.sent.Load())
	if _, err := f.sender.Write(b); err != nil {
		return false // an ICMP error about an earlier datagram is reported here
	}
	f.sent.Add(1)
	return true
}

// sendFew sends a few datagrams, slowly.
func (f *flow) sendFew(n int) {
	b := make([]byte, datagramBytes)
	for range n {
		f.send(b)
		time.Sleep(time.Millisecond)
	}
}

// start sends at the flow's rate until halt. It wakes each millisecond, and leaves out datagrams that it could not send
// in time.
func (f *flow) start() {
	f.sending.Go(func() {
		b := make([]byte, datagramBytes)
		began, sent := time.Now(), 0
		for !f.stop.Load() {
			due := int(time.Since(began).Seconds()*float64(f.perSecond)) - sent
			if most := max(f.perSecond/200, 1); due > most {
				sent += due - most
				due = most
			}
			for range due {
				f.send(b)
				sent++
			}
			time.Sleep(time.Millisecond)
		}
	})
}

// halt stops sending: when it returns nothing more is sent.
func (f *flow) halt() { f.stop.Store(true); f.sending.Wait() }

// expectAll checks that every datagram has arrived once.
func (f *flow) expectAll(t testing.TB, label string) {
	t.Helper()
	eventually(t, label, func() error {
		if sent, received := f.sent.Load(), f.received.Load(); received != sent || sent == 0 {
			return fmt.Errorf("%d of %d datagrams arrived", received, sent)
		}
		return nil
	})
	if n := f.repeated.Load(); n > 0 {
		t.Errorf("%s: %d datagrams arrived twice", label, n)
	}
}

// traffic returns what the flow should be counted as.
func (f *flow) traffic(up bool) control.Traffic {
	n := f.sent.Load()
	if up {
		return control.Traffic{UpBytes: n * (udpHeaders + datagramBytes), UpPackets: n}
	}
	return control.Traffic{DownBytes: n * (udpHeaders + datagramBytes), DownPackets: n}
}

// stream is a TCP connection of a client that carries data in one direction.
type stream struct {
	client, server *net.TCPConn
	up             bool
	stop           atomic.Bool
	sent, received atomic.Uint64 // bytes
	sending        sync.WaitGroup
	running        sync.WaitGroup
}

// stream connects, and sends at a rate until halt.
func (w *world) stream(c *client, up bool, mbps int) *stream {
	w.t.Helper()
	s := &stream{up: up}
	var l *net.TCPListener
	w.inHost("server", func() (err error) {
		l, err = net.ListenTCP("tcp4", &net.TCPAddr{IP: serverAddr.AsSlice()})
		return err
	})
	defer l.Close()
	w.inHost(c.host, func() (err error) {
		s.client, err = net.DialTCP("tcp4", nil, l.Addr().(*net.TCPAddr))
		return err
	})
	var err error
	s.server, err = l.AcceptTCP()
	must(w.t, err)
	must(w.t, errors.Join(s.client.SetKeepAlive(false), s.server.SetKeepAlive(false)))
	from, to := s.client, s.server
	if !up {
		from, to = to, from
	}
	must(w.t, ofSocket(from, func(fd int) error {
		return errors.Join(unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, "cubic"),
			unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_MAX_PACING_RATE, mbps*1_000_000/8))
	}))
	s.sending.Go(func() {
		b := make([]byte, 64<<10)
		for !s.stop.Load() {
			n, err := from.Write(b)
			s.sent.Add(uint64(n))
			if err != nil {
				return
			}
		}
	})
	s.running.Go(func() {
		b := make([]byte, 256<<10)
		for {
			n, err := to.Read(b)
			s.received.Add(uint64(n))
			if err != nil {
				return
			}
		}
	})
	w.t.Cleanup(func() { s.stop.Store(true); s.client.Close(); s.server.Close(); s.sending.Wait(); s.running.Wait() })
	return s
}

// halt stops sending: when it returns nothing more is written.
func (s *stream) halt() { s.stop.Store(true); s.sending.Wait() }

func ofSocket(c syscall.Conn, fn func(fd int) error) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	return errors.Join(raw.Control(func(fd uintptr) { failed = fn(int(fd)) }), failed)
}

// info returns the kernel's counters of one end of a connection.
func info(c *net.TCPConn) (i *unix.TCPInfo, err error) {
	err = ofSocket(c, func(fd int) (err error) {
		i, err = unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
		return err
	})
	return i, err
}

// expectAll checks that every byte has arrived, and that no segment was sent twice.
func (s *stream) expectAll(t testing.TB, label string) {
	t.Helper()
	eventually(t, label, func() error {
		if sent, received := s.sent.Load(), s.received.Load(); sent != received || sent == 0 {
			return fmt.Errorf("%d of %d bytes arrived", received, sent)
		}
		return nil
	})
	for end, c := range map[string]*net.TCPConn{"client": s.client, "server": s.server} {
		i, err := info(c)
		must(t, err)
		if i.Total_retrans != 0 {
			t.Errorf("%s: the %s sent %d segments again", label, end, i.Total_retrans)
		}
	}
}

// traffic returns what the gateway should count for the connection: the packets and bytes that the client's kernel has
// sent and received.
func (s *stream) traffic(t *testing.T) control.Traffic {
	t.Helper()
	i, err := info(s.client)
	must(t, err)
	return control.Traffic{
		UpBytes: uint64(i.Segs_out)*tcpHeaders + synBytes - tcpHeaders + i.Bytes_sent, UpPackets: uint64(i.Segs_out),
		DownBytes: uint64(i.Segs_in)*tcpHeaders + synBytes - tcpHeaders + i.Bytes_received, DownPackets: uint64(i.Segs_in),
	}
}

func sum(all ...control.Traffic) (s control.Traffic) {
	for _, t := range all {
		s.UpBytes, s.UpPackets = s.UpBytes+t.UpBytes, s.UpPackets+t.UpPackets
		s.DownBytes, s.DownPackets = s.DownBytes+t.DownBytes, s.DownPackets+t.DownPackets
	}
	return s
}

// dropped lists how many packets full queues of the world's links have dropped, which is not the gateway's fault. Tests
// show it when they fail.
func (w *world) dropped() string {
	var all []string
	for _, address := range []struct{ host, dev string }{
		{"router", "lan0"}, {"router", "wan0"}, {"server", "s0"}, {"hub", "lan"}} {
		n, _ := w.try("nsenter --net=/run/netns/$ID-" + address.host + " ip -s -j link show " + address.dev +
			` | grep -o '"dropped":[0-9]*' | tr '\n' ' '`)
		all = append(all, address.dev+" "+n)
	}
	return strings.Join(all, ", ")
}
