package rtt

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/lab/traffic/socket"
)

// Echo sends every probe back to where it came from.
type Echo struct {
	*socket.Thread
	fd int
}

// ServeEcho answers on a UDP address of the calling thread's network namespace until
// Close. Port 0 takes any.
func ServeEcho(addr netip.AddrPort) (*Echo, error) {
	fd, err := socket.ListenUDP(addr)
	if err != nil {
		return nil, err
	}
	e := &Echo{fd: fd}
	if e.Thread, err = socket.NewThread(); err == nil {
		if err = e.Add(fd, socket.BellID+1, unix.EPOLLIN); err != nil {
			e.Close()
		}
	}
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("udp echo: %w", err)
	}
	e.Start(context.Background(), "gw-echo", e.loop)
	return e, nil
}

func (e *Echo) loop() {
	runPromptly()
	defer unix.Close(e.fd)
	events := make([]unix.EpollEvent, 2)
	buf := make([]byte, 1<<16)
	for !e.Stopping() {
		if _, err := e.Wait(events, -1); err != nil {
			return
		}
		for {
			n, from, err := unix.Recvfrom(e.fd, buf, unix.MSG_DONTWAIT)
			if errors.Is(err, unix.EINTR) {
				continue
			}
			if err != nil {
				break
			}
			// It answers probes only. Otherwise it could be made to answer forged senders, or another echo for ever.
			if n >= minSize && [4]byte(buf[:4]) == magic && from != nil {
				_ = unix.Sendto(e.fd, buf[:n], unix.MSG_DONTWAIT, from)
			}
		}
	}
}
