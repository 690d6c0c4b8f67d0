package traffic

import (
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/lab/traffic/socket"
)

// closeLinger bounds how long a receiving generator waits for the server to end
// its side of the streams.
const closeLinger = time.Second

// drain takes what waits on a stream and counts it. An error means that the
// stream is over, io.EOF that the peer ended it.
func (r *run) drain(st *stream) error {
	n, err := discardSome(st.fd)
	st.bytes.Add(int64(n))
	switch {
	case err == nil || errors.Is(err, unix.EAGAIN):
		return nil
	case errors.Is(err, io.EOF):
		return io.EOF
	}
	return fmt.Errorf("receiving: %w", err)
}

// receiver drains the streams of a generator whose server sends, from one
// locked thread: one wait and one call per ready stream, whatever is queued.
type receiver struct {
	run  *run
	poll *socket.Poller
	open int // streams still watched; the thread's

	stopping atomic.Bool
	clock    socket.Clock
	done     chan struct{}
}

func startReceiver(r *run) (*receiver, error) {
	poll, err := socket.NewPoller()
	if err != nil {
		return nil, err
	}
	c := &receiver{run: r, poll: poll, open: len(r.streams), done: make(chan struct{})}
	for i := range r.streams {
		if err := poll.Add(r.streams[i].fd, int32(i+1), unix.EPOLLIN|unix.EPOLLRDHUP); err != nil {
			poll.Close()
			return nil, err
		}
	}
	go c.loop()
	return c, nil
}

// stop ends the sending direction of every stream, waits until the server has
// done the same or closeLinger is over, and then for the thread.
func (c *receiver) stop() {
	c.stopping.Store(true)
	c.poll.Ring()
	<-c.done
}

func (c *receiver) time() *socket.Clock { return &c.clock }

func (c *receiver) loop() {
	defer close(c.done)
	c.clock.Enter("gw-receive")
	defer c.clock.Finish()
	defer c.poll.Close()
	var deadline time.Time
	events := make([]unix.EpollEvent, 512)
	for c.open > 0 || deadline.IsZero() {
		ms := -1
		if !deadline.IsZero() {
			if ms = int(time.Until(deadline).Milliseconds()); ms <= 0 {
				return
			}
		}
		ready, err := c.poll.Wait(events, ms)
		if err != nil {
			return
		}
		for _, ev := range ready {
			if ev.Fd != socket.BellID {
				c.ready(&c.run.streams[ev.Fd-1])
				continue
			}
			c.poll.Hush()
			deadline = time.Now().Add(closeLinger)
			c.shutdownAll()
		}
	}
}

func (c *receiver) ready(st *stream) {
	err := c.run.drain(st)
	if err == nil {
		return
	}
	c.poll.Remove(st.fd)
	c.open--
	switch {
	case c.stopping.Load():
		c.run.end(st)
	case errors.Is(err, io.EOF):
		// A stream that ends before its run was stopped is a fault of the server's side.
		c.run.fail(st, fmt.Errorf("server ended the stream: %w", io.ErrUnexpectedEOF))
	default:
		c.run.fail(st, err)
	}
}

func (c *receiver) shutdownAll() {
	for i := range c.run.streams {
		_ = unix.Shutdown(c.run.streams[i].fd, unix.SHUT_WR) // a broken one has nothing to end
	}
}
