package traffic

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/lab/traffic/socket"
)

// closeLinger bounds how long a receiving generator waits for the server to end the streams.
const closeLinger = time.Second

// drain reads and counts the bytes that wait on a stream. An error means that the
// stream is over, io.EOF that the peer ended it.
func (r *run) drain(st *stream) error {
	n, err := discardSome(st.fd)
	st.bytes.Add(int64(n))
	switch err {
	case nil, unix.EAGAIN:
		return nil
	case io.EOF:
		return err
	}
	return fmt.Errorf("receiving: %w", err)
}

// discardRegion is 64 MiB of addresses without memory behind them. With
// MSG_TRUNC TCP drops what it would copy (tcp(7)), so nothing is ever written
// there; a kernel that did write would get EFAULT, not our memory.
var discardRegion = sync.OnceValues(func() ([]byte, error) {
	return unix.Mmap(-1, 0, 64<<20, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
})

// discardSome removes all bytes that wait in the socket, without copying them, and returns their number. The error is
// io.EOF at the end of the stream, and EAGAIN if no byte waits.
func discardSome(fd int) (int, error) {
	region, err := discardRegion()
	if err != nil {
		return 0, fmt.Errorf("reserving addresses: %w", err)
	}
	n, errno := socket.Call(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(region))),
		uintptr(len(region)), unix.MSG_TRUNC|unix.MSG_DONTWAIT, 0, 0)
	switch {
	case errno != 0:
		return 0, errno
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}

// receiver is the thread that drains the streams of a generator whose server sends.
type receiver struct {
	*socket.Thread
	run  *run
	open int // streams still watched
}

func startReceiver(r *run) (*socket.Thread, error) {
	t, err := r.watchStreams(unix.EPOLLIN | unix.EPOLLRDHUP)
	if err != nil {
		return nil, err
	}
	t.Start(context.Background(), "gw-receive", (&receiver{t, r, len(r.streams)}).loop)
	return t, nil
}

// loop receives until the bell rings. Then it ends the sending direction of every stream,
// and waits until the server has done the same or closeLinger is over.
func (c *receiver) loop() {
	var deadline time.Time
	events := make([]unix.EpollEvent, 512)
	for c.open > 0 || deadline.IsZero() {
		ms := -1
		if !deadline.IsZero() {
			if ms = int(time.Until(deadline).Milliseconds()); ms <= 0 {
				return
			}
		}
		ready, err := c.Wait(events, ms)
		if err != nil {
			return
		}
		for _, ev := range ready {
			if ev.Fd != socket.BellID {
				c.ready(&c.run.streams[ev.Fd-1])
				continue
			}
			c.Hush()
			deadline = time.Now().Add(closeLinger)
			for i := range c.run.streams {
				_ = unix.Shutdown(c.run.streams[i].fd, unix.SHUT_WR) // fails where the stream is broken
			}
		}
	}
}

func (c *receiver) ready(st *stream) {
	err := c.run.drain(st)
	if err == nil {
		return
	}
	c.Remove(st.fd)
	c.open--
	if c.Stopping() {
		err = nil
	} else if errors.Is(err, io.EOF) {
		// A stream that ends before its run was stopped is a fault of the server's side.
		err = fmt.Errorf("server ended the stream: %w", io.ErrUnexpectedEOF)
	}
	c.run.end(st, err)
}
