package control

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"syscall"
	"time"
)

// ErrNotRunning says that nobody listens at the socket.
var ErrNotRunning = errors.New("gatewayd is not running")

// Client speaks to a daemon. It may be used from several goroutines.
type Client struct {
	path string
	http *http.Client
}

// answerTime is how long a daemon may take to begin its answer. Ending 100,000
// sessions takes longer: Logout has its own.
const answerTime = 10 * time.Second

// Dial finds out whether a daemon listens at path: ErrNotRunning if not.
func Dial(path string) (*Client, error) {
	c := &Client{path: path}
	conn, err := c.connect(context.Background())
	if err != nil {
		return nil, err
	}
	conn.Close()
	c.http = &http.Client{Transport: &http.Transport{
		DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return c.connect(ctx) },
		DisableKeepAlives: true,
		// Nothing of the environment decides whom this speaks to.
		Proxy: nil,
	}}
	return c, nil
}

func (c *Client) connect(ctx context.Context) (net.Conn, error) {
	d := net.Dialer{Timeout: answerTime}
	conn, err := d.DialContext(ctx, "unix", c.path)
	switch {
	case errors.Is(err, os.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return nil, fmt.Errorf("%w (nobody listens at %s)", ErrNotRunning, c.path)
	case errors.Is(err, os.ErrPermission):
		return nil, fmt.Errorf("%s is for root and the group of gatewayd: use sudo, or join the group", c.path)
	case err != nil:
		return nil, fmt.Errorf("connecting to gatewayd: %w", err)
	}
	return conn, nil
}

// Status asks how the daemon is.
func (c *Client) Status(ctx context.Context) (Status, error) {
	var s Status
	return s, c.call(ctx, answerTime, http.MethodGet, "/v1/status", nil, &s)
}

// Session asks for one client.
func (c *Client) Session(ctx context.Context, addr netip.Addr) (Session, error) {
	var s Session
	return s, c.call(ctx, answerTime, http.MethodGet, "/v1/sessions/"+addr.String(), nil, &s)
}

// Login admits a client.
func (c *Client) Login(ctx context.Context, req LoginRequest) (Session, error) {
	var s Session
	return s, c.call(ctx, answerTime, http.MethodPost, "/v1/login", req, &s)
}

// LoginAll admits clients, in no particular order, and says how many. It ends with
// the first that cannot be: the error names its place in the list, from 1.
func (c *Client) LoginAll(ctx context.Context, list []LoginRequest) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, loginsTime+answerTime)
	defer cancel()
	lines, w := io.Pipe()
	go func() {
		out := bufio.NewWriterSize(w, 64<<10)
		enc := json.NewEncoder(out)
		var err error
		for i := 0; i < len(list) && err == nil; i++ {
			err = enc.Encode(list[i])
		}
		w.CloseWithError(errors.Join(err, out.Flush()))
	}()
	defer lines.Close()
	var r LoginsReply
	body, err := c.open(ctx, http.MethodPost, "/v1/logins", lines)
	if err != nil {
		return 0, err
	}
	defer body.Close()
	if err := json.NewDecoder(body).Decode(&r); err != nil {
		return 0, fmt.Errorf("reading gatewayd's answer: %w", err)
	}
	return r.Admitted, nil
}

// Logout ends sessions and says how many.
func (c *Client) Logout(ctx context.Context, req LogoutRequest) (int, error) {
	var r LogoutReply
	return r.Ended, c.call(ctx, logoutTime+answerTime, http.MethodPost, "/v1/logout", req, &r)
}

// Sessions calls yield for each client, as they arrive, in the order of their
// addresses. It fails unless all have arrived; an error of yield ends it.
func (c *Client) Sessions(ctx context.Context, f Filter, yield func(Session) error) error {
	query := url.Values{}
	for key, value := range map[string]string{"user": f.User, "state": string(f.State)} {
		if value != "" {
			query.Set(key, value)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, streamTime+answerTime)
	defer cancel()
	body, err := c.open(ctx, http.MethodGet, "/v1/sessions?"+query.Encode(), nil)
	if err != nil {
		return err
	}
	defer body.Close()
	dec := json.NewDecoder(body)
	for {
		var s Session
		switch err := dec.Decode(&s); {
		case err == io.EOF:
			return nil
		case err != nil:
			return fmt.Errorf("the list of sessions broke off, it is incomplete: %w", err)
		}
		if err := yield(s); err != nil {
			return err
		}
	}
}

// call makes one request and decodes its answer.
func (c *Client) call(ctx context.Context, limit time.Duration, method, path string, req, into any) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	body, err := c.open(ctx, method, path, req)
	if err != nil {
		return err
	}
	defer body.Close()
	if err := json.NewDecoder(body).Decode(into); err != nil {
		return fmt.Errorf("reading gatewayd's answer: %w", err)
	}
	return nil
}

// open makes one request, of a value or of bytes to read, and returns the body of a good answer.
func (c *Client) open(ctx context.Context, method, path string, req any) (io.ReadCloser, error) {
	content, streamed := req.(io.Reader)
	if req != nil && !streamed {
		encoded, err := json.Marshal(req)
		if err != nil {
			return nil, err
		}
		content = bytes.NewReader(encoded)
	}
	r, err := http.NewRequestWithContext(ctx, method, "http://gatewayd"+path, content)
	if err != nil {
		return nil, err
	}
	resp, err := c.http.Do(r)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return nil, errors.New("gatewayd has not answered in time: its log says what it does")
	case errors.Is(err, ErrNotRunning):
		return nil, errors.Unwrap(err) // without the URL
	case errors.Is(err, syscall.EPIPE), errors.Is(err, syscall.ECONNRESET):
		// Also what a refusal comes to when the request was still being written.
		return nil, errors.New("gatewayd has broken the connection off: it is ending, or has too many; try again")
	case err != nil:
		return nil, fmt.Errorf("asking gatewayd: %w", err)
	}
	if resp.StatusCode == http.StatusOK {
		return resp.Body, nil
	}
	defer resp.Body.Close()
	return nil, refused(resp)
}

// refused is what an answer other than 200 says.
func refused(resp *http.Response) error {
	var f failure
	err := json.NewDecoder(io.LimitReader(resp.Body, maxBodyBytes)).Decode(&f)
	if err != nil || f.Error == "" {
		return fmt.Errorf("gatewayd answered %s", resp.Status)
	}
	return errors.New(f.Error)
}
