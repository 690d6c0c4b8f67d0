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

// ErrNotRunning means that no daemon listens on the socket.
var ErrNotRunning = errors.New("gatewayd is not running")

// Client sends requests to a daemon. It may be used from several goroutines.
type Client struct {
	path string
	http *http.Client
}

// answerTimeout is the time within which a daemon must begin its answer. Logout adds logoutTimeout, because ending
// 100,000 sessions takes longer.
const answerTimeout = 10 * time.Second

// reloadTimeout is the time within which a configuration is applied: a network that is added takes about a second, and
// there may be 64.
const reloadTimeout = 5 * time.Minute

// Dial checks whether a daemon listens at path, and returns ErrNotRunning if not.
func Dial(path string) (*Client, error) {
	if path == "" {
		return nil, errors.New("the socket's path is empty: name that of run_dir/control.sock")
	}
	c := &Client{path: path}
	conn, err := c.connect(context.Background())
	if err != nil {
		return nil, err
	}
	conn.Close()
	c.http = &http.Client{Transport: &http.Transport{
		DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return c.connect(ctx) },
		DisableKeepAlives: true,
		Proxy:             nil, // proxies of the environment must not get the requests
	}}
	return c, nil
}

func (c *Client) connect(ctx context.Context) (net.Conn, error) {
	d := net.Dialer{Timeout: answerTimeout}
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

// Status returns the daemon's status.
func (c *Client) Status(ctx context.Context) (Status, error) {
	var s Status
	return s, c.call(ctx, answerTimeout, http.MethodGet, "/v1/status", nil, &s)
}

// Session returns one client.
func (c *Client) Session(ctx context.Context, addr netip.Addr) (Session, error) {
	var client Session
	return client, c.call(ctx, answerTimeout, http.MethodGet, "/v1/sessions/"+addr.String(), nil, &client)
}

// Login admits a client.
func (c *Client) Login(ctx context.Context, req LoginRequest) (Session, error) {
	var client Session
	return client, c.call(ctx, answerTimeout, http.MethodPost, "/v1/login", req, &client)
}

// LoginAll admits clients, in no particular order, and returns their number. It ends with the first failure.
func (c *Client) LoginAll(ctx context.Context, list []LoginRequest) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, loginsTimeout+answerTimeout)
	defer cancel()
	lines, w := io.Pipe()
	go func() {
		out := bufio.NewWriterSize(w, 64<<10)
		encoder := json.NewEncoder(out)
		var err error
		for i := 0; i < len(list) && err == nil; i++ {
			err = encoder.Encode(list[i])
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

// Logout ends sessions.
func (c *Client) Logout(ctx context.Context, req LogoutRequest) (r LogoutReply, err error) {
	err = c.call(ctx, logoutTimeout+answerTimeout, http.MethodPost, "/v1/logout", req, &r)
	return r, err
}

// Reload has the daemon read its configuration again, and waits until networks that it adds are served.
func (c *Client) Reload(ctx context.Context) (r ReloadReply, err error) {
	err = c.call(ctx, reloadTimeout, http.MethodPost, "/v1/reload", nil, &r)
	return r, err
}

// Sessions calls yield with each client as it arrives, ordered by network and address. It returns an error if the list
// is incomplete, or yield's first error.
func (c *Client) Sessions(ctx context.Context, f Filter, yield func(Session) error) error {
	query := url.Values{}
	for key, value := range map[string]string{"user": f.User, "state": string(f.State), "network": f.Network} {
		if value != "" {
			query.Set(key, value)
		}
	}
	return listed(ctx, c, "/v1/sessions?"+query.Encode(), yield)
}

// listed calls yield with each value of a list at path as it arrives. It returns an error if the list is incomplete, or
// yield's first error.
func listed[T any](ctx context.Context, c *Client, path string, yield func(T) error) error {
	ctx, cancel := context.WithTimeout(ctx, listTimeout+answerTimeout)
	defer cancel()
	body, err := c.open(ctx, http.MethodGet, path, nil)
	if err != nil {
		return err
	}
	defer body.Close()
	decoder := json.NewDecoder(body)
	for {
		var one T
		switch err := decoder.Decode(&one); {
		case err == io.EOF:
			return nil
		case err != nil:
			return errBroken(err)
		}
		if err := yield(one); err != nil {
			return err
		}
	}
}

// errBroken is the error of a list that ended too early.
func errBroken(err error) error {
	return fmt.Errorf("the list of sessions broke off, it is incomplete: %w", err)
}

// call sends one request and decodes its answer.
func (c *Client) call(ctx context.Context, limit time.Duration, method, path string, req, target any) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	body, err := c.open(ctx, method, path, req)
	if err != nil {
		return err
	}
	defer body.Close()
	if err := json.NewDecoder(body).Decode(target); err != nil {
		return fmt.Errorf("reading gatewayd's answer: %w", err)
	}
	return nil
}

// open sends one request, with a value or a reader as body, and returns the body of a successful answer.
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
		return nil, fmt.Errorf("gatewayd has not answered in time: its log says what it does (%w)", ErrUncertain)
	case errors.Is(err, ErrNotRunning):
		return nil, errors.Unwrap(err) // without the URL
	case errors.Is(err, syscall.EPIPE), errors.Is(err, syscall.ECONNRESET):
		// The daemon also refuses a request by closing the connection while the client still writes.
		return nil, fmt.Errorf("gatewayd has broken the connection off: it is ending, or has too many; try again (%w)",
			ErrUncertain)
	case err != nil:
		return nil, fmt.Errorf("asking gatewayd: %w: %w", ErrUncertain, err)
	}
	if resp.StatusCode == http.StatusOK {
		return resp.Body, nil
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusNotImplemented {
		return nil, ErrNoVouchers
	}
	return nil, responseError(resp)
}

// responseError returns the error of an answer other than 200.
func responseError(resp *http.Response) error {
	var f failure
	err := json.NewDecoder(io.LimitReader(resp.Body, maxBodyBytes)).Decode(&f)
	if err != nil || f.Error == "" {
		return fmt.Errorf("gatewayd answered %s", resp.Status)
	}
	return errors.New(f.Error)
}
