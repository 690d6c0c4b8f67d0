package traffic

import (
	"context"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/lab/traffic/socket"
)

// dialParallel is the number of streams that are set up at the same time. It is large enough to hide the round-trip
// time, and small enough that their SYNs fit into any link's queue.
const dialParallel = 32

// connectAll sets up all streams. The first failure cancels the others. After an error the caller must call
// closeSockets, which closes the sockets that exist by then.
func (r *run) connectAll(ctx context.Context, dial DialFunc) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var wg sync.WaitGroup
	connect, firstByte := make([]time.Duration, len(r.streams)), make([]time.Duration, len(r.streams))
	for range min(dialParallel, len(r.streams)) {
		wg.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= len(r.streams) {
					return
				}
				if err := r.connectOne(ctx, i, dial, &connect[i], &firstByte[i]); err != nil {
					cancel(fmt.Errorf("client %d: %w", i, err)) // only the first cause is kept
				}
			}
		})
	}
	wg.Wait()
	r.connect, r.firstByte = delays(connect), delays(firstByte)
	return context.Cause(ctx)
}

// connectOne connects stream i, sends its header to the server, and stores how long each step took.
func (r *run) connectOne(ctx context.Context, i int, dial DialFunc, connect, firstByte *time.Duration) error {
	start := time.Now()
	fd, err := dial(ctx, i)
	if err != nil {
		return err
	}
	*connect = time.Since(start)
	r.streams[i].fd = fd
	introduce := r.introduceTCP
	if r.cfg.UDP {
		introduce = r.introduceUDP
	}
	start = time.Now()
	a, err := introduce(ctx, &r.streams[i])
	if err != nil {
		return err
	}
	*firstByte = time.Since(start)
	if a != accepted {
		return fmt.Errorf("server refused: %s", a)
	}
	r.accepted.Add(1)
	if r.sends || r.cfg.UDP {
		return nil
	}
	return prepareReceiver(fd, r.cfg) // only now: the answer is shorter than a burst
}

// introduceTCP sends the header of a stream and returns the server's answer.
func (r *run) introduceTCP(ctx context.Context, st *stream) (serverAnswer, error) {
	if r.sends {
		if err := prepareSender(st.fd, r.cfg); err != nil {
			return 0, err
		}
	}
	h := header{id: r.id, index: st.index, cfg: r.cfg}.encode()
	n, err := socket.SendSome(st.fd, h)
	if err == nil && n != len(h) { // it always fits into a new connection's buffer
		err = io.ErrShortWrite
	}
	if err != nil {
		return 0, fmt.Errorf("header: %d bytes sent: %w", n, err)
	}
	return readAnswer(ctx, st.fd)
}

// readAnswer reads the server's answer, which is one byte. It reads no more, because payload may already follow.
func readAnswer(ctx context.Context, fd int) (serverAnswer, error) {
	var b [1]byte
	err := awaitEvent(ctx, fd, unix.POLLIN, handshakeTimeout)
	if err == nil {
		var n int
		if n, err = unix.Read(fd, b[:]); n == 0 {
			err = fmt.Errorf("server closed the connection: %w", io.ErrUnexpectedEOF)
		}
	}
	if err != nil {
		return 0, fmt.Errorf("waiting for the server to accept: %w", err)
	}
	return serverAnswer(b[0]), nil
}
