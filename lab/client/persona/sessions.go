package persona

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"

	"github.com/mdlayher/packet"
	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/internal/sockbuf"
	"github.com/gateweigh/gateweigh/ppp/pppoe"
)

// SessionID identifies a PPPoE session: its number, and the hardware address of the concentrator that gave it.
type SessionID struct {
	ID           uint16
	Concentrator MAC
}

// Account is the name and password with which a client logs in.
type Account struct{ User, Password string }

// Sessions holds the PPPoE sessions of any number of clients. It has a packet socket for each of PPPoE's two stages,
// discovery and session. Link's eBPF programs take the clients' packets out of their sessions before these sockets, so
// only negotiation and echoes come here. Its methods may be called from many goroutines.
type Sessions struct {
	ifi     *net.Interface
	net6    netip.Prefix    // each client has a /64 of it; invalid: clients have no IPv6
	sockets [2]*packet.Conn // of discovery, of sessions
	reading sync.WaitGroup

	mu       sync.Mutex       // guards byClient
	byClient map[MAC]*Session // by the client's address
}

// NewSessions opens the sockets on an interface. net6 is the network of which the concentrator tells each client a /64;
// invalid: clients do not negotiate IPv6.
func NewSessions(name string, net6 netip.Prefix) (*Sessions, error) {
	ifi, err := net.InterfaceByName(name)
	if err != nil {
		return nil, fmt.Errorf("PPPoE on %s: %w", name, err)
	}
	s := &Sessions{ifi: ifi, net6: net6, byClient: map[MAC]*Session{}}
	for i, kind := range []int{pppoe.Discovery, pppoe.Session} {
		if s.sockets[i], err = packet.Listen(ifi, packet.Raw, kind, nil); err != nil {
			return nil, errors.Join(fmt.Errorf("PPPoE on %s: opening a packet socket: %w", name, err), s.Close())
		}
		_ = sockbuf.ReceiveOn(s.sockets[i], receiveBuffer)
		conn := s.sockets[i]
		s.reading.Go(func() { s.read(conn) })
	}
	return s, nil
}

// Close ends all sessions without a message to the concentrator. A second call does nothing.
func (s *Sessions) Close() error {
	var errs []error
	for _, conn := range s.sockets {
		if conn == nil {
			continue
		}
		if err := conn.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	s.reading.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	for mac, session := range s.byClient {
		session.stop()
		delete(s.byClient, mac)
	}
	return errors.Join(errs...)
}

// read hands each frame to the session of the client to which it is addressed, until the socket is closed.
func (s *Sessions) read(conn *packet.Conn) {
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
		s.mu.Lock()
		session := s.byClient[f.To]
		s.mu.Unlock()
		if session != nil {
			session.receive(&f)
		}
	}
}

func (s *Sessions) send(f *pppoe.Frame) error {
	return sendRetrying(s.sockets[0], f.Append(make([]byte, 0, 128)))
}

// Dial sets up a session for the client with the hardware address mac and logs it in: PADI, PADO, PADR, PADS, LCP,
// authentication, IPCP, and with IPv6 the steps of Session.autoconfigure. It repeats the frames of discovery while
// there is no answer, until ctx ends.
func (s *Sessions) Dial(ctx context.Context, mac MAC, a Account) (*Session, Tries, error) {
	tries := Tries{Count: 1}
	session := &Session{
		sessions: s, mac: mac, account: a,
		offered: make(chan struct{}), confirmed: make(chan struct{}), opened: make(chan struct{}),
		opened6: make(chan struct{}), advertised: make(chan struct{}), closed: make(chan struct{}),
	}
	s.mu.Lock()
	_, taken := s.byClient[mac]
	if !taken {
		s.byClient[mac] = session
	}
	s.mu.Unlock()
	if taken {
		return nil, tries, fmt.Errorf("%s has a PPPoE session already", mac)
	}
	if err := session.dial(ctx, &tries); err != nil {
		session.forget()
		return nil, tries, err
	}
	return session, tries, nil
}
