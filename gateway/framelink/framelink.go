// Package framelink is a server's access to the frames of an Ethernet interface, which may go down, disappear and come
// back. The DHCP servers and the parts of neighbour discovery have one each.
package framelink

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/mdlayher/packet"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

const (
	// MaxFrame is how much is read of a frame, bytes: more than Ethernet's 1,514, so that longer ones are seen as such.
	MaxFrame     = 4096
	experimental = 0x88b5 // IEEE 802's local experimental EtherType: nobody sends it
	reopenPause  = 200 * time.Millisecond
)

// MAC is an Ethernet address.
type MAC = [6]byte

// Config is what a link is opened with.
type Config struct {
	Interface string
	// Frames opens the reader of received frames, with their Ethernet header, one a Read; nil: Socket is opened.
	Frames func() (io.ReadCloser, error)
	Socket Socket
	// Port is bound as long as the link is open; zero: none.
	Port Port
	Log  *slog.Logger
}

// Link is an open link. Its methods may be called by several goroutines.
type Link struct {
	cfg Config
	now atomic.Pointer[opened]
}

// opened is a link to an interface that is there.
type opened struct {
	frames io.ReadCloser
	out    *packet.Conn // receives nothing
	port   io.Closer    // nil: none
	mac    MAC
}

// Open opens a link. The interface must be there. Frames are received from now on; Run hands them on.
func Open(cfg Config) (*Link, error) {
	l := &Link{cfg: cfg}
	first, err := open(cfg)
	if err != nil {
		return nil, err
	}
	l.now.Store(first)
	return l, nil
}

func open(cfg Config) (*opened, error) {
	ifi, err := net.InterfaceByName(cfg.Interface)
	if err != nil {
		return nil, err
	}
	if len(ifi.HardwareAddr) != len(MAC{}) {
		return nil, errors.New("it is no Ethernet interface")
	}
	o := &opened{mac: MAC(ifi.HardwareAddr)}
	if err := o.open(cfg, ifi); err != nil {
		o.close()
		return nil, err
	}
	return o, nil
}

func (o *opened) open(cfg Config, ifi *net.Interface) (err error) {
	if cfg.Port != (Port{}) {
		if o.port, err = cfg.Port.hold(ifi); err != nil {
			return err
		}
	}
	nothing := []bpf.RawInstruction{{Op: unix.BPF_RET | unix.BPF_K}}
	if o.out, err = packet.Listen(ifi, packet.Raw, experimental, &packet.Config{Filter: nothing}); err != nil {
		return fmt.Errorf("opening a packet socket: %w (it needs CAP_NET_RAW)", err)
	}
	if cfg.Frames != nil {
		o.frames, err = cfg.Frames()
	} else {
		o.frames, err = cfg.Socket.Open(ifi)
	}
	return err
}

// MAC is the interface's address.
func (l *Link) MAC() MAC { return l.now.Load().mac }

// Send sends a frame with its Ethernet header.
func (l *Link) Send(frame []byte) error {
	_, err := l.now.Load().out.WriteTo(frame, &packet.Addr{HardwareAddr: frame[:len(MAC{})]})
	return err
}

// Run calls handle with each frame until ctx ends. While the interface is down or gone, it waits for it, and calls the
// function back once it is there again, unless back is nil. Frames are good until handle returns. It is called once.
func (l *Link) Run(ctx context.Context, handle func([]byte), back func()) {
	for ctx.Err() == nil {
		now := l.now.Load()
		stop := context.AfterFunc(ctx, now.interrupt)
		err := now.receive(handle)
		if !stop() {
			return
		}
		l.cfg.Log.Warn("waiting for the interface", "interface", l.cfg.Interface, "err", err)
		now.close()
		if !l.reopen(ctx) {
			return
		}
		l.cfg.Log.Info("the interface is back", "interface", l.cfg.Interface)
		if back != nil {
			back()
		}
	}
}

// reopen repeats opening the link until that works, or until ctx ends: false.
func (l *Link) reopen(ctx context.Context) bool {
	for {
		select {
		case <-ctx.Done():
			return false
		case <-time.After(reopenPause):
		}
		ifi, err := net.InterfaceByName(l.cfg.Interface)
		if err != nil || ifi.Flags&net.FlagUp == 0 {
			continue
		}
		if fresh, err := open(l.cfg); err == nil {
			l.now.Store(fresh)
			return true
		}
	}
}

// Close closes the sockets. Run has returned. It may be called more than once.
func (l *Link) Close() { l.now.Load().close() }

// receive calls f with each frame until reading fails, the interface goes down or disappears, or interrupt is called.
func (o *opened) receive(f func([]byte)) error {
	gone := make(chan error, 1)
	go func() {
		_, _, err := o.out.ReadFrom(make([]byte, 64))
		gone <- err
		o.interrupt()
	}()
	buf := make([]byte, MaxFrame)
	for {
		n, err := o.frames.Read(buf)
		if err != nil {
			o.interrupt()
			if cause := <-gone; errors.Is(err, os.ErrClosed) || !errors.Is(cause, os.ErrDeadlineExceeded) {
				err = cause // the interface's error is the cause: frames only ended with it
			}
			return fmt.Errorf("reading frames: %w", err)
		}
		f(buf[:n])
	}
}

// interrupt ends receive; sending still works.
func (o *opened) interrupt() {
	o.frames.Close()
	o.out.SetReadDeadline(time.Unix(1, 0))
}

// close may be called more than once.
func (o *opened) close() {
	if o.frames != nil {
		o.frames.Close()
	}
	if o.out != nil {
		o.out.Close()
	}
	if o.port != nil {
		o.port.Close()
	}
}
