package traffic

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/lab/traffic/socket"
)

// How both ends of a run of datagrams know of each other.
const (
	firstHello = 200 * time.Millisecond // until a hello is said again; then twice as long
	aliveEvery = 250 * time.Millisecond
	endEvery   = 50 * time.Millisecond
	// An end that has received nothing from the other for so long stops.
	datagramPatience = 10 * time.Second
	// Pause after datagrams were taken: those that follow back to back are then taken
	// together, and the thread is not woken for each.
	gatherPause = 500 * time.Microsecond
)

var errSilent = errors.New("not heard of")

// introduceUDP says hello until the server answers.
func (r *run) introduceUDP(ctx context.Context, st *stream) (answer, error) {
	prepareDatagrams(st.fd, r.cfg)
	hello := header{id: r.id, index: st.index, cfg: r.cfg}.hello()
	var a answer
	in := newInbox(1)
	until := time.Now().Add(handshakeTimeout)
	for wait := firstHello; a == 0; wait *= 2 {
		if err := tell(st.fd, &peer{}, hello); err != nil {
			return 0, fmt.Errorf("hello: %w", err)
		}
		err := awaitUntil(ctx, st.fd, unix.POLLIN, earlier(time.Now().Add(wait), until))
		if errors.Is(err, errTimeout) && time.Now().Before(until) {
			continue
		}
		if err == nil {
			err = in.drain(st.fd, func(h head, n int, _ []byte, _ *peer) {
				switch {
				case h.run != r.id.short():
				case h.kind == kindAnswer && a == 0:
					a = answer(h.number)
				case h.kind == kindData: // the answer was lost, or comes behind it
					a = accepted
					st.arrived(h.number, n)
				}
			})
		}
		if err != nil {
			return 0, fmt.Errorf("waiting for the server to accept: %w", err)
		}
	}
	return a, nil
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// datagramReceiver is the generator's thread that hears the server, tells it that the
// generator is there, and takes what it sends.
type datagramReceiver struct {
	run   *run
	poll  *socket.Poller
	in    *inbox
	heard time.Time // when the server last said anything; the thread's
	turn  int       // stream that speaks next; the thread's
	gone  bool      // the server says that the run is over; the thread's

	leaving bool // the bell has rung; the thread's
	clock   socket.Clock
	done    chan struct{}
}

func startDatagramReceiver(r *run) (*datagramReceiver, error) {
	poll, err := socket.NewPoller()
	if err != nil {
		return nil, err
	}
	c := &datagramReceiver{run: r, poll: poll, in: newInbox(inboxSize), heard: time.Now(), done: make(chan struct{})}
	for i := range r.streams {
		if err := poll.Add(r.streams[i].fd, int32(i+1), unix.EPOLLIN); err != nil {
			poll.Close()
			return nil, err
		}
	}
	go c.loop()
	return c, nil
}

func (c *datagramReceiver) time() *socket.Clock { return &c.clock }

// stop tells the server that the run is over, until it has said so too or closeLinger
// has passed.
func (c *datagramReceiver) stop() {
	c.poll.Ring()
	<-c.done
}

func (c *datagramReceiver) loop() {
	defer close(c.done)
	c.clock.Enter("gw-receive")
	defer c.clock.Finish()
	defer c.poll.Close()
	wait := c.poll.Bell()
	events := make([]unix.EpollEvent, 512)
	var speak, deadline time.Time
	for {
		now := time.Now()
		if c.leaving && (c.gone || now.After(deadline)) {
			c.takeRest(events)
			return
		}
		if !now.Before(speak) {
			if !c.speak(now) && c.leaving {
				return
			}
			speak = now.Add(c.pause())
		}
		ready, err := c.poll.Wait(events, max(1, int(speak.Sub(now).Milliseconds())))
		if err != nil {
			return
		}
		took := false
		for _, ev := range ready {
			if ev.Fd != socket.BellID {
				c.ready(&c.run.streams[ev.Fd-1])
				took = true
				continue
			}
			c.poll.Hush()
			c.leaving, speak, deadline = true, time.Time{}, time.Now().Add(closeLinger)
		}
		if took && !c.leaving {
			socket.Sleep(wait, gatherPause)
		}
	}
}

// takeRest takes what had arrived before the server said that the run is over, on
// other streams than the one it said so on.
func (c *datagramReceiver) takeRest(events []unix.EpollEvent) {
	for range len(c.run.streams) { // a server that goes on sending must not keep the thread
		ready, err := c.poll.Wait(events, 0)
		if err != nil || len(ready) == 0 {
			return
		}
		for _, ev := range ready {
			if ev.Fd != socket.BellID {
				c.ready(&c.run.streams[ev.Fd-1])
			}
		}
	}
}

// pause is how long until the thread speaks again.
func (c *datagramReceiver) pause() time.Duration {
	if c.leaving {
		return endEvery
	}
	return aliveEvery
}

// speak has the next open stream tell the server that the run goes on, or that it is
// over. It reports whether there was one. Where the server is silent, all have ended.
func (c *datagramReceiver) speak(now time.Time) bool {
	r := c.run
	if silent := now.Sub(c.heard); silent > datagramPatience {
		c.failAll(fmt.Errorf("server %w for %s", errSilent, datagramPatience))
	}
	h := head{kind: kindAlive, run: r.id.short()}
	if c.leaving {
		h.kind = kindEnd
	}
	for range r.streams {
		st := &r.streams[c.turn]
		c.turn = (c.turn + 1) % len(r.streams)
		if st.state.Load() != streamOpen {
			continue
		}
		var b [headSize]byte
		h.index = st.index
		h.put(b[:])
		if err := tell(st.fd, &peer{}, b[:]); err != nil {
			c.fail(st, err)
			continue
		}
		return true
	}
	return false
}

// ready takes what waits on a stream.
func (c *datagramReceiver) ready(st *stream) {
	err := c.in.drain(st.fd, func(h head, n int, _ []byte, _ *peer) {
		if h.run != c.run.id.short() {
			return
		}
		c.heard = time.Now()
		switch {
		case h.kind == kindData && !c.run.sends:
			st.arrived(h.number, n)
		case h.kind == kindEnd:
			c.gone = true
		}
	})
	if err != nil {
		c.fail(st, fmt.Errorf("receiving: %w", err))
	}
	if c.gone && !c.leaving {
		c.failAll(errors.New("server knows of no such run any more"))
	}
}

func (c *datagramReceiver) fail(st *stream, err error) {
	c.poll.Remove(st.fd)
	if c.leaving {
		c.run.end(st)
		return
	}
	c.run.fail(st, err)
}

func (c *datagramReceiver) failAll(err error) {
	for i := range c.run.streams {
		if st := &c.run.streams[i]; st.state.Load() == streamOpen {
			c.fail(st, err)
		}
	}
}
