package rtt

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/lab/traffic/socket"
)

// listenID is the id under which the echo's socket is watched.
const listenID = socket.BellID + 1

// Echo sends every datagram back to where it came from.
type Echo struct {
	fd        int
	poll      *socket.Poller
	stopping  atomic.Bool
	done      chan struct{}
	closeOnce sync.Once
}

// ServeEcho answers on a bound, non-blocking UDP socket (see ListenUDP), which
// it owns from the call on, until Close.
func ServeEcho(fd int) (*Echo, error) {
	e := &Echo{fd: fd, done: make(chan struct{})}
	poll, err := socket.NewPoller()
	if err == nil {
		if err = poll.Add(fd, listenID, unix.EPOLLIN); err != nil {
			poll.Close()
		}
	}
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("udp echo: %w", err)
	}
	e.poll = poll
	go e.loop()
	return e, nil
}

// Close ends the echo and its socket. It may be called twice.
func (e *Echo) Close() error {
	e.closeOnce.Do(func() {
		e.stopping.Store(true)
		e.poll.Ring()
		<-e.done
	})
	return nil
}

func (e *Echo) loop() {
	defer close(e.done)
	socket.OwnThread("gw-echo")
	runPromptly()
	defer unix.Close(e.fd)
	defer e.poll.Close()
	events := make([]unix.EpollEvent, 2)
	buf := make([]byte, 1<<16)
	for !e.stopping.Load() {
		if _, err := e.poll.Wait(events, -1); err != nil {
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
			// Only our own probes: an open echo answers forged senders, or another echo for ever.
			if n >= minSize && [4]byte(buf[:4]) == magic && from != nil {
				_ = unix.Sendto(e.fd, buf[:n], unix.MSG_DONTWAIT, from)
			}
		}
	}
}
