package delegation

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"
)

const (
	clientPort = 546 // RFC 8415 7.2
	serverPort = 547
	// maxMessage is the longest message that is read whole, bytes. Servers' answers fit a link's MTU, mostly 1500.
	maxMessage = 4096
	// reopenPause is how long to wait before a socket that cannot be read is opened again.
	reopenPause = time.Second
)

// allServers is All_DHCP_Relay_Agents_and_Servers (RFC 8415 7.1). It has no zone: the socket belongs to one
// interface, and the package net goes on for a minute with the index of an interface that has gone.
var allServers = &net.UDPAddr{IP: net.ParseIP("ff02::1:2"), Port: serverPort}

// link is the interface: its UDP port for DHCPv6 clients, and the kernel's messages about it. It outlives the
// interface.
type link struct {
	name     string
	received chan []byte // datagrams to the interface's link-local address
	changes  *netlink.Conn
	closed   chan struct{}
	reading  sync.WaitGroup

	mu   sync.Mutex
	conn *ipv6.PacketConn // guarded by mu; nil: the interface has gone, and the socket is to be opened again
}

func openLink(name string) (*link, error) {
	l := &link{name: name, received: make(chan []byte), closed: make(chan struct{})}
	changes, err := netlink.Dial(unix.NETLINK_ROUTE, nil)
	if err == nil {
		if err = changes.JoinGroup(unix.RTNLGRP_LINK); err != nil {
			changes.Close()
		}
	}
	if err != nil {
		return nil, fmt.Errorf("following the state of %s: %w", name, err)
	}
	l.changes = changes
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.open(); err != nil {
		changes.Close()
		return nil, err
	}
	return l, nil
}

// open opens the socket and begins to read it; mu is held. The socket belongs to the interface and not to its address,
// which goes when the link does. Packets from it have the link-local address, because allServers is of the same scope.
func (l *link) open() error {
	config := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var failed error
		err := raw.Control(func(fd uintptr) { failed = unix.BindToDevice(int(fd), l.name) })
		return errors.Join(err, failed)
	}}
	packets, err := config.ListenPacket(context.Background(), "udp6", fmt.Sprintf("[::]:%d", clientPort))
	if errors.Is(err, unix.EADDRINUSE) {
		return fmt.Errorf("UDP port %d of %s is taken: end the other DHCPv6 client there (%w)", clientPort, l.name, err)
	}
	if err != nil {
		return fmt.Errorf("opening UDP port %d of %s: %w", clientPort, l.name, err)
	}
	conn := ipv6.NewPacketConn(packets)
	if err := conn.SetControlMessage(ipv6.FlagDst|ipv6.FlagInterface, true); err != nil {
		conn.Close()
		return fmt.Errorf("opening UDP port %d of %s: %w", clientPort, l.name, err)
	}
	l.conn = conn
	l.reading.Go(func() { l.read(conn) })
	return nil
}

// read hands on datagrams until the socket is closed. A datagram to another than a link-local address may come from
// beyond the link, and no server sends such a one.
func (l *link) read(conn *ipv6.PacketConn) {
	b := make([]byte, maxMessage)
	for {
		n, control, _, err := conn.ReadFrom(b)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // the interface is down or gone
			if !l.wait(reopenPause) {
				return
			}
			continue
		}
		if control == nil || !control.Dst.IsLinkLocalUnicast() {
			continue
		}
		select {
		case l.received <- append([]byte(nil), b[:n]...):
		case <-l.closed:
			return
		}
	}
}

// wait waits, and reports whether the link is not closed meanwhile.
func (l *link) wait(pause time.Duration) bool {
	select {
	case <-l.closed:
		return false
	case <-time.After(pause):
		return true
	}
}

// send sends a message to all servers of the link. A message that cannot be sent counts as lost: it is sent again.
func (l *link) send(message []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn == nil {
		if err := l.open(); err != nil {
			return err
		}
	}
	_, err := l.conn.WriteTo(message, nil, allServers)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EADDRNOTAVAIL), errors.Is(err, unix.ENETUNREACH):
		return fmt.Errorf("asking for a prefix on %s: it has no link-local address (is it up, and is IPv6 on?): %w",
			l.name, err)
	}
	l.forget()
	return fmt.Errorf("asking for a prefix on %s: %w", l.name, err)
}

// forget has the socket opened again before the next message; mu is held. Its interface may have gone, and another one
// have its name.
func (l *link) forget() {
	if l.conn != nil {
		l.conn.Close()
		l.conn = nil
	}
}

// follow calls up when the link comes up, until ctx ends. Where messages of the kernel were lost it may have. It is
// called once.
func (l *link) follow(ctx context.Context, up func()) {
	defer context.AfterFunc(ctx, func() { l.changes.SetReadDeadline(time.Unix(1, 0)) })()
	running, index := l.now()
	for {
		messages, err := l.changes.Receive()
		if ctx.Err() != nil {
			return
		}
		if err != nil { // some are lost
			former := running
			if running, index = l.now(); running && (!former || errors.Is(err, unix.ENOBUFS)) {
				up()
			}
			if !l.wait(reopenPause) {
				return
			}
		}
		for _, message := range messages {
			state, ok := linkState(message)
			if !ok || state.name != l.name {
				continue
			}
			if state.index != index {
				l.mu.Lock()
				l.forget()
				l.mu.Unlock()
			}
			if state.running && (!running || state.index != index) {
				up()
			}
			running, index = state.running, state.index
		}
	}
}

// now tells whether the link carries packets, and the interface's index.
func (l *link) now() (running bool, index int) {
	ifi, err := net.InterfaceByName(l.name)
	if err != nil {
		return false, 0
	}
	return ifi.Flags&net.FlagRunning != 0, ifi.Index
}

// Close ends reading.
func (l *link) Close() error {
	close(l.closed)
	err := l.changes.Close()
	l.mu.Lock()
	l.forget()
	l.mu.Unlock()
	l.reading.Wait()
	return err
}

// interfaceState is what a message of the kernel says about an interface.
type interfaceState struct {
	name    string
	index   int
	running bool // carries packets
}

// sizeofIfinfomsg is the length of struct ifinfomsg (linux/rtnetlink.h), bytes. Its index is at 4, and its flags at 8.
const sizeofIfinfomsg = 16

// linkState decodes a message; false: it is about something else.
func linkState(message netlink.Message) (s interfaceState, ok bool) {
	deleted := message.Header.Type == unix.RTM_DELLINK
	if message.Header.Type != unix.RTM_NEWLINK && !deleted || len(message.Data) < sizeofIfinfomsg {
		return s, false
	}
	s.index = int(binary.NativeEndian.Uint32(message.Data[4:]))
	s.running = !deleted && binary.NativeEndian.Uint32(message.Data[8:])&unix.IFF_RUNNING != 0
	attributes, err := netlink.NewAttributeDecoder(message.Data[sizeofIfinfomsg:])
	if err != nil {
		return s, false
	}
	for attributes.Next() {
		if attributes.Type() == unix.IFLA_IFNAME {
			s.name = attributes.String()
		}
	}
	return s, attributes.Err() == nil
}
