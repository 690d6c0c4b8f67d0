package traffic

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/lab/traffic/socket"
)

// Timing by which both ends of a run of datagrams notice each other.
const (
	firstHello = 200 * time.Millisecond // until a hello is sent again for the first time; doubled each time
	aliveEvery = 250 * time.Millisecond // between two messages that the generator still runs
	endEvery   = 50 * time.Millisecond  // between two messages that the run is over, until the server confirms
	// datagramPatience is how long an end waits for any datagram of the other before it stops.
	datagramPatience = 10 * time.Second
	// gatherPause is the pause after datagrams were read, so that those that follow closely are read together.
	gatherPause = 500 * time.Microsecond
)

// errSilent is the error of an end that has not been heard of for datagramPatience.
var errSilent = errors.New("not heard of")

// introduceUDP sends hellos until the server answers.
func (r *run) introduceUDP(ctx context.Context, st *stream) (a serverAnswer, err error) {
	prepareDatagrams(st.fd, overheadFactor*r.cfg.bufferBytes())
	hello := header{id: r.id, index: st.index, cfg: r.cfg}.hello()
	in := newInbox(1)
	for wait, until := firstHello, time.Now().Add(handshakeTimeout); a == 0; wait *= 2 {
		if _, err := socket.SendSome(st.fd, hello); err != nil {
			return 0, fmt.Errorf("hello: %w", err)
		}
		err = awaitEvent(ctx, st.fd, unix.POLLIN, min(wait, time.Until(until)))
		if errors.Is(err, errTimeout) && time.Now().Before(until) {
			continue
		}
		if err == nil {
			err = in.drain(st.fd, func(h head, n int, _ []byte, _ *peer) {
				switch {
				case h.run != r.id:
				case h.kind == kindAnswer && a == 0:
					a = serverAnswer(h.number)
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

// datagramReceiver is the generator's thread that receives from the server, and tells
// the server that the generator is still running.
type datagramReceiver struct {
	*socket.Thread
	run        *run
	in         *inbox
	lastHeard  time.Time // when anything last came from the server
	nextStream int       // stream that sends the next message to the server
	noticed    bool      // the server says that the run is over
	leaving    bool      // the bell has rung
}

// startDatagramReceiver starts the receiving thread of a generator's run.
func startDatagramReceiver(r *run) (*socket.Thread, error) {
	t, err := r.watchStreams(unix.EPOLLIN)
	if err != nil {
		return nil, err
	}
	c := &datagramReceiver{Thread: t, run: r, in: newInbox(inboxSize), lastHeard: time.Now()}
	t.Start(context.Background(), "gw-receive", c.loop)
	return t, nil
}

// loop receives until the bell rings. Then it tells the server that the run is over, until
// the server has confirmed or closeLinger has passed.
func (c *datagramReceiver) loop() {
	wait := c.Bell()
	events := make([]unix.EpollEvent, 512)
	var speak, deadline time.Time
	for pause := aliveEvery; ; {
		now := time.Now()
		if c.leaving && (c.noticed || now.After(deadline)) {
			c.takeRest(events)
			return
		}
		if !now.Before(speak) {
			if !c.sendNextNotice(now) && c.leaving {
				return
			}
			speak = now.Add(pause)
		}
		ready, err := c.Wait(events, max(1, int(speak.Sub(now).Milliseconds())))
		if err != nil {
			return
		}
		if c.take(ready) {
			c.Hush()
			pause, speak, deadline = endEvery, time.Time{}, time.Now().Add(closeLinger)
		} else if len(ready) > 0 && !c.leaving {
			socket.Sleep(wait, gatherPause)
		}
	}
}

// take reads the streams that are ready, and reports whether the bell rang.
func (c *datagramReceiver) take(ready []unix.EpollEvent) (rang bool) {
	for _, ev := range ready {
		if ev.Fd == socket.BellID {
			rang, c.leaving = true, true
			continue
		}
		c.ready(&c.run.streams[ev.Fd-1])
	}
	return rang
}

// takeRest reads the datagrams that arrived on any stream before the server ended the run.
func (c *datagramReceiver) takeRest(events []unix.EpollEvent) {
	for range len(c.run.streams) { // a server that goes on sending must not keep the thread
		ready, err := c.Wait(events, 0)
		if err != nil || len(ready) == 0 {
			return
		}
		c.take(ready)
	}
}

// sendNextNotice has the next open stream tell the server that the run goes on, or that it is over. It reports whether
// a stream was open. If the server has been silent for datagramPatience, it ends all streams first.
func (c *datagramReceiver) sendNextNotice(now time.Time) bool {
	if now.Sub(c.lastHeard) > datagramPatience {
		c.failAll(fmt.Errorf("server %w for %s", errSilent, datagramPatience))
	}
	kind := byte(kindAlive)
	if c.leaving {
		kind = kindEnd
	}
	for range c.run.streams {
		st := &c.run.streams[c.nextStream]
		c.nextStream = (c.nextStream + 1) % len(c.run.streams)
		if st.over.Load() {
			continue
		}
		err := sendHead(st.fd, &peer{}, head{kind: kind, index: st.index, run: c.run.id})
		if err == nil {
			return true
		}
		c.fail(st, err)
	}
	return false
}

// ready reads all datagrams that wait on a stream.
func (c *datagramReceiver) ready(st *stream) {
	err := c.in.drain(st.fd, func(h head, n int, _ []byte, _ *peer) {
		if h.run != c.run.id {
			return
		}
		c.lastHeard = time.Now()
		switch {
		case h.kind == kindData && !c.run.sends:
			st.arrived(h.number, n)
		case h.kind == kindEnd:
			c.noticed = true
		}
	})
	if err != nil {
		c.fail(st, fmt.Errorf("receiving: %w", err))
	}
	if c.noticed && !c.leaving {
		c.failAll(errors.New("server knows of no such run any more"))
	}
}

// fail ends a stream. After the bell has rung, its error does not count.
func (c *datagramReceiver) fail(st *stream, err error) {
	c.Remove(st.fd)
	if c.leaving {
		err = nil
	}
	c.run.end(st, err)
}

// failAll ends all streams.
func (c *datagramReceiver) failAll(err error) {
	for i := range c.run.streams {
		c.fail(&c.run.streams[i], err)
	}
}
