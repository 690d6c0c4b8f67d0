package portal

import (
	"crypto/tls"
	"errors"
	"io"
	"os"
	"slices"
	"sync/atomic"
	"time"
)

// idleableConn is a connection as net/http has it, from the first byte of a request until an answer after which no next
// request has come yet. net/http then reads io.EOF and closes the idleableConn, which does not close the client's
// connection but gives it to idleConns.
type idleableConn struct {
	*limitedConn
	pool          *idleConns
	buffer        int         // size of net/http's read buffer; a shorter Read: the buffer holds something already
	working       bool        // a request was read, and no answer has begun
	answered      bool        // the last request was answered, and no next one has begun
	awaitsRequest bool        // net/http awaits the first bytes of the next request
	isIdle        atomic.Bool // Close does not close the connection but gives it to pool
	closed        atomic.Bool
}

func newIdleable(g *limitedConn, pool *idleConns) *idleableConn {
	v := &idleableConn{limitedConn: g, pool: pool}
	g.httpConn = v
	return v
}

func (v *idleableConn) Read(p []byte) (int, error) {
	if v.buffer == 0 {
		v.buffer = len(p)
	}
	if !v.answered || len(p) < v.buffer {
		n, err := v.limitedConn.Read(p)
		if plain := (tls.RecordHeaderError{}); errors.As(err, &plain) && plain.Conn != nil && isHTTP(plain.RecordHeader) {
			return n, v.refusePlain()
		}
		return n, err
	}
	v.wire.nonBlocking = true
	n, err := v.limitedConn.Read(p)
	v.wire.nonBlocking = false
	if errors.Is(err, os.ErrDeadlineExceeded) && n == 0 {
		v.isIdle.Store(true)
		return 0, io.EOF
	}
	return n, err
}

// isHTTP reports whether what came instead of a TLS record begins a request.
func isHTTP(header [5]byte) bool {
	return slices.Contains([]string{"GET /", "HEAD ", "POST ", "PUT /", "OPTIO"}, string(header[:]))
}

// refusePlain answers a request that came without TLS. The rest of it is read, because it would reset the connection
// otherwise, and the answer with it.
func (v *idleableConn) refusePlain() error {
	_, err := io.WriteString(v.wire, "HTTP/1.0 400 Bad Request\r\n\r\nThis port speaks HTTPS.\n")
	err = errors.Join(err, v.wire.CloseWrite())
	if err == nil {
		_, err = io.CopyN(io.Discard, v.wire, maxHeaderBytes+maxFormBytes) // until net/http's deadline at most
	}
	return errors.Join(io.EOF, err)
}

// work has the connection stay open while its request is answered; false: it was closed for another one.
func (v *idleableConn) work() bool {
	v.working = v.limiter.works(v.limitedConn)
	return v.working
}

// Write ends the work for a request: the rest is up to the client.
func (v *idleableConn) Write(p []byte) (int, error) {
	if v.working {
		v.working = false
		v.limiter.expects(v.limitedConn)
	}
	return v.limitedConn.Write(p)
}

// SetReadDeadline is how net/http tells that the next request has begun. After an answer it sets one deadline before it
// waits for the first bytes, and the next one when they are there. These bytes may be a part of the header that ends
// with a line, so net/http's buffer is empty although the request has begun.
func (v *idleableConn) SetReadDeadline(t time.Time) error {
	if v.awaitsRequest {
		v.answered = false
	}
	v.awaitsRequest = v.answered
	return v.limitedConn.SetReadDeadline(t)
}

// SetWriteDeadline also sets a deadline between two requests, where net/http sets none: TLS writes also while it reads.
func (v *idleableConn) SetWriteDeadline(t time.Time) error {
	if t.IsZero() {
		t = time.Now().Add(writeTimeout)
	}
	return v.limitedConn.SetWriteDeadline(t)
}

// CloseWrite ends the answer to a request that the client may not have sent whole: a close alone would answer the rest
// with a reset, which may overtake the answer. net/http waits for a moment then.
func (v *idleableConn) CloseWrite() error {
	if c, ok := v.Conn.(*tls.Conn); ok {
		return c.CloseWrite()
	}
	return v.wire.CloseWrite()
}

// Close may be called twice, as net/http does.
func (v *idleableConn) Close() error {
	if v.closed.Swap(true) {
		return nil
	}
	if v.isIdle.Load() && v.pool.add(v.limitedConn) == nil {
		return nil
	}
	return v.limitedConn.Close()
}
