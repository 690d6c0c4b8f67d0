package kernel

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/framelink"
	"github.com/gateweigh/gateweigh/ppp/pppoe"
)

// What clients say about their IPv6 addresses comes by two ways, as frames of their sessions:
//
//	neighbour discovery, DHCPv6, echo requests ──▶ packet socket on the LAN ─────────────┬─▶ Heard6
//	first packet of an address ──▶ rules ──▶ setSeen ──▶ seen, headers alone, seconds later ─┘
//
// The units have no IPv6 address, so the stack answers nothing of it.

// seenRead is how often the set of addresses that clients have sent from is read.
const seenRead = time.Second

// ear is the open reader of Heard6.
type ear struct {
	frames io.ReadCloser
	heard  chan []byte
	ended  chan struct{}
	once   sync.Once
	both   sync.WaitGroup
}

// Heard6 returns a reader of frames that tell clients' IPv6 addresses. Only one may be open at a time.
func (d *Datapath) Heard6() (io.ReadCloser, error) {
	const buffer = 4 << 20 // bytes: some 5,000 messages
	frames, err := framelink.Socket{Filter: onLinks, Buffer: buffer}.Open(d.lan)
	if err != nil {
		return nil, fmt.Errorf("listening to neighbour discovery: %w", err)
	}
	e := &ear{frames: frames, heard: make(chan []byte), ended: make(chan struct{})}
	e.both.Go(e.listen)
	e.both.Go(func() { d.readSeen(e) })
	return e, nil
}

// Read implements io.Reader: one frame each call.
func (e *ear) Read(b []byte) (int, error) {
	select {
	case <-e.ended:
		return 0, os.ErrClosed
	case frame := <-e.heard:
		return copy(b, frame), nil
	}
}

// Close ends Read. It may be called more than once.
func (e *ear) Close() (err error) {
	e.once.Do(func() {
		close(e.ended)
		err = e.frames.Close()
		e.both.Wait()
	})
	return err
}

// say hands a frame to Read, and reports whether there will be another call.
func (e *ear) say(frame []byte) bool {
	select {
	case <-e.ended:
		return false
	case e.heard <- frame:
		return true
	}
}

// listen reads the packet socket until Close. It goes on while the LAN's interface is down.
func (e *ear) listen() {
	for {
		b := make([]byte, framelink.MaxFrame)
		n, err := e.frames.Read(b)
		if err == nil && e.say(b[:n]) {
			continue
		}
		select {
		case <-e.ended:
			return
		case <-time.After(seenRead):
		}
	}
}

// readSeen tells of addresses that clients have begun to send from, until Close.
func (d *Datapath) readSeen(e *ear) {
	every := time.NewTicker(seenRead)
	defer every.Stop()
	told := map[string]bool{}
	for {
		select {
		case <-e.ended:
			return
		case <-every.C:
		}
		present, err := d.rules.SomeElements(table6Of(d.net.Interface), setSeen) // a missing one is there a second later
		if err != nil {
			if !errors.Is(err, unix.ENOENT) { // others have removed the rules for a moment
				d.cfg.Log.Error("reading from which addresses clients send", "lan", d.net.Interface, "err", err)
			}
			continue
		}
		if !d.tell(e, present, told) {
			return
		}
		told = present
	}
}

// tell tells of the addresses in present that are not in told, and reports whether there will be another call.
func (d *Datapath) tell(e *ear, present, told map[string]bool) bool {
	var sessions map[uint32]sessionKey
	for key := range present {
		if told[key] || len(key) != keyLen6 {
			continue
		}
		if sessions == nil {
			sessions = d.sessionsByUnit()
		}
		s, found := sessions[uint32Of(key)]
		if !found {
			continue
		}
		addr := netip.AddrFrom16([16]byte([]byte(key[4:])))
		to := framelink.Host{MAC: datapath.MAC(d.lan.HardwareAddr), Session: s.id}
		if !e.say(framelink.Frame(to, s.mac, headerFrom(addr))) {
			return false
		}
	}
	return true
}

// sessionsByUnit are the sessions of clients, by the index of their interface.
func (d *Datapath) sessionsByUnit() map[uint32]sessionKey {
	all := map[uint32]sessionKey{}
	for _, c := range d.all() {
		c.mu.Lock()
		if c.pppoe != nil {
			all[uint32(c.pppoe.index)] = c.pppoe.key
		}
		c.mu.Unlock()
	}
	return all
}

// headerFrom is an IPv6 header without anything behind it, from an address to nobody.
func headerFrom(addr netip.Addr) []byte {
	const nothing = 59 // next header (RFC 8200, 4.7)
	source := addr.As16()
	h := make([]byte, 40)
	h[0], h[6], h[7] = 6<<4, nothing, 1
	copy(h[8:], source[:])
	return h
}

// Portal6 fails: clients reach no portal.
func (d *Datapath) Portal6(syscall.Conn) error { return datapath.ErrNotSupported }

// onLinks passes frames of PPPoE sessions with what the daemon answers by IPv6, which arrived on the interface:
// neighbour discovery (ICMPv6 of the types 133 to 137), echo requests to link-local addresses, and UDP to the ports of
// DHCPv6. Offsets are from the Ethernet header on.
func onLinks(ifindex uint32) []bpf.Instruction {
	const (
		kind, protocol           = 12, 20 // Ethernet's, PPP's
		header                   = 22     // of IPv6
		next, destination        = header + 6, header + 24
		upper                    = header + 40
		ipv6, echo, first, last  = 0x57, 128, 133, 137
		linkLocal, linkLocalMask = 0xfe80, 0xffc0
		destinationPort          = upper + 2
		serversPort, clientsPort = 547, 546
	)
	return []bpf.Instruction{
		bpf.LoadExtension{Num: bpf.ExtInterfaceIndex},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: ifindex, SkipTrue: 20},
		bpf.LoadExtension{Num: bpf.ExtType},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.PACKET_HOST, SkipTrue: 18},
		bpf.LoadAbsolute{Off: kind, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: pppoe.Session, SkipTrue: 16},
		bpf.LoadAbsolute{Off: protocol, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: ipv6, SkipTrue: 14},
		bpf.LoadAbsolute{Off: next, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.IPPROTO_UDP, SkipTrue: 8},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.IPPROTO_ICMPV6, SkipTrue: 11},
		bpf.LoadAbsolute{Off: upper, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: echo, SkipTrue: 2},
		bpf.JumpIf{Cond: bpf.JumpLessThan, Val: first, SkipTrue: 8},
		bpf.JumpIf{Cond: bpf.JumpGreaterThan, Val: last, SkipTrue: 7, SkipFalse: 6},
		bpf.LoadAbsolute{Off: destination, Size: 2},
		bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: linkLocalMask},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: linkLocal, SkipTrue: 3, SkipFalse: 4},
		bpf.LoadAbsolute{Off: destinationPort, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: serversPort, SkipTrue: 1},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: clientsPort, SkipTrue: 1},
		bpf.RetConstant{Val: framelink.MaxFrame},
		bpf.RetConstant{},
	}
}
