package pppoe

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"

	"github.com/mdlayher/packet"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/internal/sockbuf"
	"github.com/gateweigh/gateweigh/ppp"
	"github.com/gateweigh/gateweigh/ppp/pppoe"
)

// wire is the concentrator's sockets: one for discovery, one for the control protocols of sessions. Packets of
// subscribers never reach it, whatever their data path is.
type wire struct {
	discoveryConn, sessionConn *packet.Conn // sessionConn: nil where a Carrier has their frames
}

const (
	frameMax = 2048 // the largest frame that is read, bytes
	// bytes; the kernel holds twice as much, some 20,000 frames: of 10,000 subscribers that come at once after an outage
	receiveBuffer = 8 << 20
)

// onlyControl passes frames of sessions that are neither IPv4 nor IPv6. Offsets are from the Ethernet header on.
var onlyControl = []bpf.Instruction{
	bpf.LoadAbsolute{Off: 20, Size: 2},
	bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(ppp.IPv4), SkipTrue: 2},
	bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(ppp.IPv6), SkipTrue: 1},
	bpf.RetConstant{Val: frameMax},
	bpf.RetConstant{},
}

// openWire opens the socket of discovery, and that of sessions if it is asked for.
func openWire(dev *net.Interface, sessions bool) (*wire, error) {
	filter, err := bpf.Assemble(onlyControl)
	if err != nil {
		return nil, fmt.Errorf("assembling the filter: %w", err)
	}
	w := &wire{}
	if w.discoveryConn, err = packet.Listen(dev, packet.Raw, pppoe.Discovery, nil); err == nil && sessions {
		w.sessionConn, err = packet.Listen(dev, packet.Raw, pppoe.Session, &packet.Config{Filter: filter})
	}
	if err != nil {
		w.close()
		return nil, fmt.Errorf("opening a packet socket on %s: %w (it needs CAP_NET_RAW)", dev.Name, err)
	}
	for _, c := range w.open() {
		if err := sockbuf.ReceiveOn(c, receiveBuffer); err != nil {
			w.close()
			return nil, fmt.Errorf("making room for frames of %s: %w", dev.Name, err)
		}
	}
	return w, nil
}

// discovery reads frames of discovery until close.
func (w *wire) discovery(f func([]byte)) error { return read(w.discoveryConn, f) }

// control reads frames of sessions until close.
func (w *wire) control(f func([]byte)) error { return read(w.sessionConn, f) }

// read fails after close, and when the interface is gone.
func read(c *packet.Conn, f func([]byte)) error {
	b := make([]byte, frameMax)
	for {
		n, _, err := c.ReadFrom(b)
		switch {
		case errors.Is(err, os.ErrClosed) || errors.Is(err, net.ErrClosed) || errors.Is(err, unix.EBADF) ||
			errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENXIO):
			return err
		case err == nil: // other errors: the interface was down for a moment
			f(b[:n])
		}
	}
}

// send sends a whole frame. A frame that a full queue drops is sent again by the side that waits for an answer.
func (w *wire) send(b []byte) {
	_, _ = w.discoveryConn.WriteTo(b, &packet.Addr{HardwareAddr: net.HardwareAddr(b[:6])})
}

// mtu is the interface's MTU, bytes; 0: unknown, as when the interface is gone.
func (w *wire) mtu(name string) int {
	raw, err := w.discoveryConn.SyscallConn()
	if err != nil {
		return 0
	}
	request, err := unix.NewIfreq(name)
	if err != nil {
		return 0
	}
	if ended := raw.Control(func(fd uintptr) { err = unix.IoctlIfreq(int(fd), unix.SIOCGIFMTU, request) }); ended != nil ||
		err != nil {
		return 0
	}
	return int(request.Uint32())
}

// droppedFrames is how many frames the kernel has dropped since the last call because a socket held as much as it may.
func (w *wire) droppedFrames() (n uint64) {
	for _, c := range w.open() {
		if since, err := c.Stats(); err == nil { // closed: nothing more is known
			n += uint64(since.Drops)
		}
	}
	return n
}

func (w *wire) close() {
	for _, c := range w.open() {
		_ = c.Close()
	}
}

func (w *wire) open() []*packet.Conn {
	return slices.DeleteFunc([]*packet.Conn{w.discoveryConn, w.sessionConn}, func(c *packet.Conn) bool { return c == nil })
}
