// Package arp asks whether hosts of a LAN are there, and answers hosts that the kernel may not answer. A host that has
// an address answers ARP requests for it (RFC 826), also while it is idle, so an answer tells a client that uses its
// address from one that has left.
package arp

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/mdlayher/packet"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// MAC is an Ethernet address.
type MAC = [6]byte

const (
	probes       = 3                      // requests to a host that does not answer
	defaultPause = 700 * time.Millisecond // after each of them
	// maxAsked bounds the hosts that are asked at once.
	maxAsked = 512
)

// ErrBusy is returned when too many hosts are being asked.
var ErrBusy = errors.New("too many hosts are being asked whether they are there")

// Prober asks hosts at one interface by ARP whether they are there. Its socket is open only while a question is.
type Prober struct {
	Interface string
	Source    netip.Addr // the gateway's address, the sender of requests
	// AllProtocols opens the socket for all protocols: only for data paths that keep the interface's packets from the
	// kernel's stack. Such a socket receives every packet.
	AllProtocols bool

	pause       time.Duration // 0: defaultPause
	mu          sync.Mutex
	conn        *packet.Conn       // guarded by mu; nil: nobody is asked
	readerEnded chan struct{}      // guarded by mu: closed when conn is read no more
	ownMAC      MAC                // guarded by mu: the interface's
	questions   map[host]*question // guarded by mu
}

// host is an address with the MAC address that answers for it.
type host struct {
	addr netip.Addr
	mac  MAC
}

// question is the state of a host that is being asked. Several callers may wait for its answer.
type question struct {
	callers    int
	answered   chan struct{} // closed by the answer
	answerOnce sync.Once
	holders    []MAC // of a question to everybody: who answered, without repetition
}

// Present asks a host, and reports whether it answers for its address with its MAC address. It takes some 2 s for a
// host that does not. The error is ErrBusy, ctx's, or that of the interface.
func (p *Prober) Present(ctx context.Context, addr netip.Addr, mac MAC) (bool, error) {
	h := host{addr, mac}
	q, err := p.addQuestion(h)
	if err != nil {
		return false, err
	}
	defer p.removeQuestion(h)
	for range probes {
		if err := p.sendRequest(addr); err != nil {
			return false, fmt.Errorf("asking whether %s is there: %w", addr, err)
		}
		wait := time.NewTimer(cmp.Or(p.pause, defaultPause))
		select {
		case <-q.answered:
			wait.Stop()
			return true, nil
		case <-ctx.Done():
			wait.Stop()
			return false, ctx.Err()
		case <-wait.C:
		}
	}
	return false, nil
}

// PresentInTurn is Present for a caller that can wait: while too many hosts are being asked it tries again, as long as
// wanted returns true. The error is ErrBusy where it gave up.
func (p *Prober) PresentInTurn(ctx context.Context, addr netip.Addr, mac MAC, wanted func() bool) (bool, error) {
	for {
		found, err := p.Present(ctx, addr, mac)
		if !errors.Is(err, ErrBusy) || !wanted() {
			return found, err
		}
		wait := time.NewTimer(cmp.Or(p.pause, defaultPause))
		select {
		case <-ctx.Done():
			wait.Stop()
			return false, ctx.Err()
		case <-wait.C:
		}
	}
}

// addQuestion begins a question and opens the socket for the first one.
func (p *Prober) addQuestion(h host) (*question, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	q := p.questions[h]
	if q == nil {
		if len(p.questions) >= maxAsked {
			return nil, ErrBusy
		}
		if p.conn == nil {
			if err := p.open(); err != nil {
				return nil, fmt.Errorf("asking whether %s is there: %w", h.addr, err)
			}
		}
		q = &question{answered: make(chan struct{})}
		if p.questions == nil {
			p.questions = map[host]*question{}
		}
		p.questions[h] = q
	}
	q.callers++
	return q, nil
}

// removeQuestion ends a question. After the last one it closes the socket, and waits until nobody reads it.
func (p *Prober) removeQuestion(h host) {
	if ended := p.drop(h); ended != nil {
		<-ended // without mu, which the reader locks
	}
}

// drop ends a question, and closes the socket after the last one; ended is nil before.
func (p *Prober) drop(h host) (ended <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	q := p.questions[h]
	if q.callers--; q.callers == 0 {
		delete(p.questions, h)
	}
	if len(p.questions) > 0 {
		return nil
	}
	p.conn.Close()
	p.conn = nil
	return p.readerEnded
}

// open opens the socket and begins to read it; mu is held.
func (p *Prober) open() error {
	ifi, err := net.InterfaceByName(p.Interface)
	if err != nil {
		return err
	}
	if len(ifi.HardwareAddr) != len(p.ownMAC) {
		return fmt.Errorf("%s is no Ethernet interface", p.Interface)
	}
	filter, err := bpf.Assemble(answers)
	if err != nil {
		return err
	}
	protocol := unix.ETH_P_ARP
	if p.AllProtocols {
		protocol = unix.ETH_P_ALL
	}
	conn, err := packet.Listen(ifi, packet.Raw, protocol, &packet.Config{Filter: filter})
	if err != nil {
		return fmt.Errorf("opening a packet socket: %w (it needs CAP_NET_RAW)", err)
	}
	if p.AllProtocols {
		if err := ignoreOutgoing(conn); err != nil {
			return errors.Join(fmt.Errorf("setting up a packet socket: %w", err), conn.Close())
		}
	}
	ended := make(chan struct{})
	p.conn, p.readerEnded, p.ownMAC = conn, ended, MAC(ifi.HardwareAddr)
	go func() { defer close(ended); p.read(conn) }()
	return nil
}

// answers passes ARP replies that other hosts sent.
var answers = []bpf.Instruction{
	bpf.LoadExtension{Num: bpf.ExtType},
	bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.PACKET_OUTGOING, SkipTrue: 5},
	bpf.LoadAbsolute{Off: 12, Size: 2},
	bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.ETH_P_ARP, SkipTrue: 3},
	bpf.LoadAbsolute{Off: ethernetLen + 6, Size: 2},
	bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: reply, SkipTrue: 1},
	bpf.RetConstant{Val: frameLen},
	bpf.RetConstant{Val: 0},
}

// read notes answers until the socket is closed or its interface is gone.
func (p *Prober) read(conn *packet.Conn) {
	b := make([]byte, frameLen)
	for {
		n, _, err := conn.ReadFrom(b)
		if isOver(err) {
			return
		}
		if err != nil { // the interface was down for a moment
			continue
		}
		if h, ok := parse(b[:n]); ok {
			p.mu.Lock()
			if q := p.questions[h]; q != nil {
				q.answerOnce.Do(func() { close(q.answered) })
			}
			if q := p.questions[host{addr: h.addr}]; q != nil {
				q.note(h.mac)
			}
			p.mu.Unlock()
		}
	}
}

// isOver reports whether reading a socket cannot go on: the socket was closed while it was read
// (net.ErrClosed) or before (EBADF), or its interface is gone.
func isOver(err error) bool {
	return errors.Is(err, net.ErrClosed) || errors.Is(err, unix.EBADF) || errors.Is(err, unix.ENODEV)
}

// sendRequest sends a request to everybody: a switch may believe that the host is elsewhere.
func (p *Prober) sendRequest(addr netip.Addr) error {
	p.mu.Lock()
	conn, ownMAC := p.conn, p.ownMAC
	p.mu.Unlock()
	_, err := conn.WriteTo(question4(ownMAC, p.Source, addr), &packet.Addr{HardwareAddr: broadcast[:]})
	return err
}

const (
	ethernetLen = 14
	arpLen      = 28
	frameLen    = ethernetLen + arpLen
	request     = 1
	reply       = 2
)

var broadcast = MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// question4 returns the frame of a request.
func question4(ownMAC MAC, source, addr netip.Addr) []byte {
	b := make([]byte, 0, frameLen)
	b = append(append(b, broadcast[:]...), ownMAC[:]...)
	for _, v := range []uint16{unix.ETH_P_ARP, unix.ARPHRD_ETHER, unix.ETH_P_IP, 6<<8 | 4, request} {
		b = binary.BigEndian.AppendUint16(b, v)
	}
	b = append(append(b, ownMAC[:]...), source.AsSlice()...)
	return append(append(b, make([]byte, 6)...), addr.AsSlice()...)
}

// parse returns the sender of a reply.
func parse(frame []byte) (host, bool) {
	h, operation, ok := sender(frame)
	return h, ok && operation == reply
}

// sender returns the sender of an ARP packet, and what it is; false for one in another's name.
func sender(frame []byte) (h host, operation uint16, ok bool) {
	if len(frame) < frameLen || binary.BigEndian.Uint16(frame[12:]) != unix.ETH_P_ARP {
		return host{}, 0, false
	}
	a := frame[ethernetLen:]
	if MAC(a[8:14]) != MAC(frame[6:12]) {
		return host{}, 0, false // says another device's MAC address than its frame has
	}
	for i, want := range []uint16{unix.ARPHRD_ETHER, unix.ETH_P_IP, 6<<8 | 4} {
		if binary.BigEndian.Uint16(a[2*i:]) != want {
			return host{}, 0, false
		}
	}
	return host{netip.AddrFrom4([4]byte(a[14:18])), MAC(a[8:14])}, binary.BigEndian.Uint16(a[6:]), true
}
