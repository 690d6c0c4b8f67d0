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

// browser fetches a portal's pages for one client as a browser does: over the
// connection it has, while that leads there and the server keeps it. It follows no
// redirects: where a portal redirects to is the information. Ten thousand of them run
// on one machine, so a browser is small: one request at a time, no goroutines, one caller.
type browser struct {
	net       Network
	keepAlive bool // false: every request has a connection of its own
	idleConns *link
}

// link is a connection to one server.
type link struct {
	net.Conn
	host   string // "10.1.0.1:8080"
	reader *bufio.Reader
	used   bool // it has carried a request, and the server keeps it
}

// readers lends the buffers of connections, which are few at a time.
var readers = sync.Pool{New: func() any { return bufio.NewReader(nil) }}

// answer is a response with its whole body, of which maxPage bytes are read at most.
type answer struct {
	url    *url.URL // what was asked for
	status int
	header http.Header
	body   string
}

// text is the status as it is written, "404 Not Found".
func (a *answer) text() string {
	return strings.TrimSpace(strconv.Itoa(a.status) + " " + http.StatusText(a.status))
}

// redirects reports whether the status is a redirect.
func (a *answer) redirects() bool { return a.status >= 300 && a.status < 400 }

// location is where an answer redirects to; an error without a destination.
func (a *answer) location() (*url.URL, error) {
	to := a.header.Get("Location")
	if to == "" {
		return nil, http.ErrNoLocation
	}
	return a.url.Parse(to)
}

// maxPage bounds what is read of one answer of a portal, bytes.
const maxPage = 1 << 20

// userAgent resembles a captive-portal probe; openNDS's scripts log it.
const userAgent = "CaptiveNetworkSupport gateweigh"

// withoutQuery names a URL in an error without its query, which openNDS fills with
// a kilobyte of base64.
func withoutQuery(u *url.URL) string { return u.Scheme + "://" + u.Host + u.Path }

// field is a header field of a request.
type field struct{ name, value string }

// fetch asks for a page. Errors name it without its query. They wrap io.EOF when
// the server hung up without an answer, and are ctx's cause when it has ended.
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
		again := l.used
		a, heard, err := l.exchange(ctx, method, request, b.keepAlive)
		if l.used {
			b.idleConns = l
		} else {
			l.close()
		}
		if err == nil {
			a.url = to
			return a, nil
		}
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		} else if !heard && again {
			// A server may close a kept connection just when the next request is on its
			// way. Browsers then send it again, over a new one.
			continue
		}
		return nil, fmt.Errorf("asking for %s: %w", withoutQuery(to), err)
	}
}

// leave closes what is kept. The browser may be used again.
func (b *browser) leave() {
	if b.idleConns != nil {
		b.idleConns.close()
		b.idleConns = nil
	}
}

// connect takes the kept connection or makes one. Another server's is closed
// first: a client that waits for an open file holds none.
func (b *browser) connect(ctx context.Context, to *url.URL) (*link, error) {
	host := net.JoinHostPort(to.Hostname(), cmp.Or(to.Port(), "80"))
	if l := b.idleConns; l != nil && l.host == host {
		b.idleConns = nil
		return l, nil
	}
	b.leave()
	conn, err := b.net.DialContext(ctx, "tcp", host)
	if err != nil {
		return nil, err
	}
	reader := readers.Get().(*bufio.Reader)
	reader.Reset(conn)
	return &link{Conn: conn, host: host, reader: reader}, nil
}

func (l *link) close() {
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

// exchange sends a request and reads the answer; heard says that there was some
// of one. Where the link can carry another request it is used afterwards.
func (l *link) exchange(ctx context.Context, method string, request []byte, keep bool) (
	a *answer, heard bool, err error) {
	stop := context.AfterFunc(ctx, func() { l.SetDeadline(pastDeadline) })
	defer stop()
	l.used = false
	_, unsent := l.Write(request) // the answer may be there all the same: a refusal
	if _, err := l.reader.Peek(1); err != nil {
		return nil, false, cmp.Or(unsent, err)
	}
	resp := &http.Response{}
	for resp.StatusCode < 200 && resp.StatusCode != http.StatusSwitchingProtocols { // until the final one (RFC 9110, 15.2)
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

// pastDeadline ends whatever waits for a connection.
var pastDeadline = time.Unix(1, 0)
