package persona

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"

	"github.com/mdlayher/packet"
	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/internal/sockbuf"
	"github.com/gateweigh/gateweigh/ppp/pppoe"
)

// Session is where a client's PPPoE session is.
type Session struct {
	ID           uint16
	Concentrator MAC
}

// Account is who logs in over a line.
type Account struct{ User, Password string }

// Lines has PPPoE sessions of any number of clients, over a packet socket for each of the two stages. Programs of
// Link take the packets of clients out of sessions first, so that only negotiation and echoes come here. Its methods
// may be called from many goroutines.
type Lines struct {
	ifi     *net.Interface
	sockets [2]*packet.Conn // of discovery, of sessions
	reading sync.WaitGroup

	mu    sync.Mutex    // guards lines
	lines map[MAC]*Line // by the client's address
}

// NewLines opens the sockets on an interface.
func NewLines(name string) (*Lines, error) {
	ifi, err := net.InterfaceByName(name)
	if err != nil {
		return nil, fmt.Errorf("PPPoE on %s: %w", name, err)
	}
	l := &Lines{ifi: ifi, lines: map[MAC]*Line{}}
	for i, kind := range []int{pppoe.Discovery, pppoe.Session} {
		if l.sockets[i], err = packet.Listen(ifi, packet.Raw, kind, nil); err != nil {
			return nil, errors.Join(fmt.Errorf("PPPoE on %s: opening a packet socket: %w", name, err), l.Close())
		}
		_ = sockbuf.ReceiveOn(l.sockets[i], receiveBuffer)
		conn := l.sockets[i]
		l.reading.Go(func() { l.read(conn) })
	}
	return l, nil
}

// Close ends all lines without a word to the concentrator. Twice is harmless.
func (l *Lines) Close() error {
	var errs []error
	for _, conn := range l.sockets {
		if conn == nil {
			continue
		}
		if err := conn.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	l.reading.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	for mac, line := range l.lines {
		line.stop()
		delete(l.lines, mac)
	}
	return errors.Join(errs...)
}

// read hands each frame to the line of the client that it is for.
func (l *Lines) read(conn *packet.Conn) {
	buf := make([]byte, 2048)
	for {
		n, _, err := conn.ReadFrom(buf)
		if errors.Is(err, unix.ENETDOWN) {
			continue
		}
		if err != nil {
			return
		}
		f, err := pppoe.Parse(buf[:n])
		if err != nil {
			continue
		}
		l.mu.Lock()
		line := l.lines[f.To]
		l.mu.Unlock()
		if line != nil {
			line.receive(&f)
		}
	}
}

func (l *Lines) send(f *pppoe.Frame) error {
	return sendRetrying(l.sockets[0], f.Append(make([]byte, 0, 128)))
}

// Dial gets the client with the hardware address mac a session and logs it in: PADI, PADO, PADR, PADS, LCP,
// authentication, IPCP. Frames of discovery are sent again while there is no answer; ctx ends it.
func (l *Lines) Dial(ctx context.Context, mac MAC, a Account) (*Line, Tries, error) {
	tries := Tries{Count: 1}
	line := &Line{
		lines: l, mac: mac, account: a,
		offered: make(chan struct{}), confirmed: make(chan struct{}), opened: make(chan struct{}),
		closed: make(chan struct{}),
	}
	l.mu.Lock()
	_, taken := l.lines[mac]
	if !taken {
		l.lines[mac] = line
	}
	l.mu.Unlock()
	if taken {
		return nil, tries, fmt.Errorf("%s has a PPPoE session already", mac)
	}
	if err := line.dial(ctx, &tries); err != nil {
		line.forget()
		return nil, tries, err
	}
	return line, tries, nil
}
