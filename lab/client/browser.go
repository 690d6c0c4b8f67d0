package client

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"
)

// browser fetches a portal's pages for one client as a browser does. It reuses its last connection where that leads to
// the same server and is still open. It does not follow redirects, because its callers want to know where a portal
// redirects to. Ten thousand browsers run on one machine, so each is small: it has one caller, no goroutines, and sends
// one request at a time.
type browser struct {
	net       Network
	keepAlive bool        // false: every request has a connection of its own
	idle      *serverConn // the last connection, kept for the next request; nil: none
}

// serverConn is a connection to one server.
type serverConn struct {
	net.Conn
	host   string // "10.1.0.1:8080"
	reader *bufio.Reader
	used   bool // it has carried a request, and can carry another
}

// readers lends out the buffers of open connections, of which there are few at a time.
var readers = sync.Pool{New: func() any { return bufio.NewReader(nil) }}

// answer is a response with its whole body, of which maxPage bytes are read at most.
type answer struct {
	url    *url.URL // of the request
	status int
	header http.Header
	body   string
}

// text returns the status with its text, "404 Not Found".
func (a *answer) text() string {
	return strings.TrimSpace(strconv.Itoa(a.status) + " " + http.StatusText(a.status))
}

// redirects reports whether the status is a redirect.
func (a *answer) redirects() bool { return a.status >= 300 && a.status < 400 }

// location returns where the answer redirects to, or an error where it has no destination.
func (a *answer) location() (*url.URL, error) {
	to := a.header.Get("Location")
	if to == "" {
		return nil, http.ErrNoLocation
	}
	return a.url.Parse(to)
}

// maxPage is how much is read of a portal's answer at most, in bytes.
const maxPage = 1 << 20

// userAgent resembles that of a phone's captive-portal probe; openNDS's scripts log it.
const userAgent = "CaptiveNetworkSupport gateweigh"

// withoutQuery returns a URL without its query, for errors: openNDS's queries have a kilobyte of base64.
func withoutQuery(u *url.URL) string { return u.Scheme + "://" + u.Host + u.Path }

// field is a header field of a request.
type field struct{ name, value string }

// fetch requests a page. Its error wraps io.EOF when the server closed the connection without an answer, and ctx's
// cause when ctx has ended.
func (b *browser) fetch(ctx context.Context, method, address, body string, fields ...field) (*answer, error) {
	to, err := url.Parse(address)
	if err == nil && (to.Scheme != "http" || to.Host == "") {
		err = errors.New("not a complete http URL")
	}
	if err != nil {
		return nil, fmt.Errorf("asking for %.200q: %w", address, err)
	}
	request := formatRequest(method, to, body, b.keepAlive, fields)
	for {
		l, err := b.connect(ctx, to)
		if err != nil {
			return nil, fmt.Errorf("asking for %s: %w", withoutQuery(to), err)
		}
		reused := l.used
		a, answered, err := l.exchange(ctx, method, request, b.keepAlive)
		if l.used {
			b.idle = l
		} else {
			l.close()
		}
		if err == nil {
			a.url = to
			return a, nil
		}
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		} else if !answered && reused {
			// A server may close a kept connection just when the next request is on its way. Browsers then send the request
			// again over a new connection.
			continue
		}
		return nil, fmt.Errorf("asking for %s: %w", withoutQuery(to), err)
	}
}

// closeIdle closes the kept connection. The browser may be used again.
func (b *browser) closeIdle() {
	if b.idle != nil {
		b.idle.close()
		b.idle = nil
	}
}

// connect returns the kept connection to the server, or a new one. It first closes a connection to another server, so
// that a client never waits for a free file descriptor while it holds one.
func (b *browser) connect(ctx context.Context, to *url.URL) (*serverConn, error) {
	host := net.JoinHostPort(to.Hostname(), cmp.Or(to.Port(), "80"))
	if l := b.idle; l != nil && l.host == host {
		b.idle = nil
		return l, nil
	}
	b.closeIdle()
	conn, err := b.net.DialContext(ctx, "tcp", host)
	if err != nil {
		return nil, err
	}
	reader := readers.Get().(*bufio.Reader)
	reader.Reset(conn)
	return &serverConn{Conn: conn, host: host, reader: reader}, nil
}

func (l *serverConn) close() {
	l.Close()
	l.reader.Reset(nil)
	readers.Put(l.reader)
}

// formatRequest writes a request (RFC 9112, 3).
func formatRequest(method string, to *url.URL, body string, keep bool, fields []field) []byte {
	if method == http.MethodPost {
		fields = append(fields, field{"Content-Length", strconv.Itoa(len(body))})
	}
	if !keep {
		fields = append(fields, field{"Connection", "close"})
	}
	request := make([]byte, 0, 512+len(body))
	request = fmt.Appendf(
		request, "%s %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: %s\r\n", method, to.RequestURI(), to.Host, userAgent)
	for _, f := range fields {
		request = fmt.Appendf(request, "%s: %s\r\n", f.name, f.value)
	}
	return append(append(request, "\r\n"...), body...)
}

// exchange sends a request and reads the answer; answered is true when the server sent at least a part of one.
// Afterwards l.used tells whether the connection can carry another request.
func (l *serverConn) exchange(ctx context.Context, method string, request []byte, keep bool) (
	a *answer, answered bool, err error) {
	stop := context.AfterFunc(ctx, func() { l.SetDeadline(pastDeadline) })
	defer stop()
	l.used = false
	_, unsent := l.Write(request) // also after an error there may be an answer: a refusal that came early
	if _, err := l.reader.Peek(1); err != nil {
		return nil, false, cmp.Or(unsent, err)
	}
	resp := &http.Response{}
	for resp.StatusCode < 200 && resp.StatusCode != http.StatusSwitchingProtocols { // skips interim ones (RFC 9110, 15.2)
		if resp, err = http.ReadResponse(l.reader, &http.Request{Method: method}); err != nil {
			return nil, true, err
		}
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxPage))
	if err != nil {
		return nil, true, fmt.Errorf("reading its body: %w", err)
	}
	whole := len(body) < maxPage && l.reader.Buffered() == 0
	l.used = keep && whole && unsent == nil && !resp.Close && stop()
	return &answer{status: resp.StatusCode, header: resp.Header, body: string(body)}, true, nil
}

// pastDeadline is a deadline in the past: once set, it ends reads and writes that wait.
var pastDeadline = time.Unix(1, 0)
