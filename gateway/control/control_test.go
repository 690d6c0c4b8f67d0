// Tests of the daemon's control socket. clients is a table of sessions in memory. start serves a table and returns the
// path of the socket, dial connects to it, and numbered(n) is the n-th address of 10.0.0.0/8.

package control

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/session"
)

// TestMain lets the test binary be a daemon that has a socket until it is killed.
func TestMain(m *testing.M) {
	if path := os.Getenv("CONTROL_TEST_HOLD"); path != "" {
		s, err := Listen(path)
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println("listening")
		unix.Pause() // the runtime would end a process in which all goroutines wait
		s.Close()
	}
	os.Exit(m.Run())
}

// clients is a table in memory, sorted by address.
type clients struct {
	mu  sync.Mutex // guards all
	all []session.Session
	// The session of the address broken cannot end, and that of refused cannot begin.
	broken, refused netip.Addr
	endErr          error // of End, of sessions that have ended
}

var _ Sessions = (*clients)(nil)

func (c *clients) find(a netip.Addr) (int, bool) {
	return slices.BinarySearchFunc(c.all, a,
		func(client session.Session, a netip.Addr) int { return client.Addr.Compare(a) })
}

func (c *clients) Get(a netip.Addr) (session.Session, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i, ok := c.find(a)
	if !ok {
		return session.Session{}, false
	}
	return c.all[i], true
}

func (c *clients) Each(yield func(session.Session) bool) {
	c.mu.Lock()
	all := slices.Clone(c.all)
	c.mu.Unlock()
	for _, client := range all {
		if !yield(client) {
			return
		}
	}
}

func (c *clients) Lease(key session.Key, _ string, end time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	i, ok := c.find(key.Addr)
	if ok || !end.IsZero() {
		return fmt.Errorf("lease %s: not a new client for good", key)
	}
	c.all = slices.Insert(c.all, i, session.Session{Key: key, State: session.Leased})
	return nil
}

func (c *clients) ForgetStranger(key session.Key) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i, ok := c.find(key.Addr); ok {
		c.all = slices.Delete(c.all, i, i+1)
	}
	return true, nil
}

func (c *clients) Admit(a netip.Addr, l session.Login) (session.Session, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i, ok := c.find(a)
	if !ok || a == c.refused {
		return session.Session{}, errors.New("gone")
	}
	c.all[i].State, c.all[i].Login, c.all[i].ID = session.Authenticated, l, "0123456789abcdef"
	c.all[i].Began = time.Now()
	return c.all[i], nil
}

func (c *clients) End(a netip.Addr, cause session.Cause) (session.Session, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i, ok := c.find(a)
	if !ok || a == c.broken || cause != session.AdminReset {
		return session.Session{}, fmt.Errorf("end the session of %s: the disk is full", a)
	}
	ended := c.all[i]
	c.all[i].State, c.all[i].Login = session.PreAuth, session.Login{}
	return ended, c.endErr
}

// numbered is the n-th address of 10.0.0.0/8.
func numbered(n int) netip.Addr {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], 10<<24+uint32(n))
	return netip.AddrFrom4(b)
}

// authenticated makes n clients; every third is "ann", the others "bob".
func authenticated(n int) *clients {
	c := &clients{}
	for i := range n {
		client := session.Session{
			State: session.Authenticated, Login: session.Login{User: "bob"}, Began: time.Unix(1_700_000_000, 0)}
		if i%3 == 0 {
			client.User = "ann"
		}
		client.Addr, client.MAC = numbered(i), [6]byte{2, 0, 0, byte(i >> 16), byte(i >> 8), byte(i)}
		c.all = append(c.all, client)
	}
	return c
}

// start serves a table until the test ends and returns the socket's path.
func start(t *testing.T, table Sessions, stall time.Duration) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "run", "c.sock")
	s, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	s.stallAfter = stall
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() {
		ended <- s.Serve(
			ctx, Single(Network{Table: table}, func() Status {
				return Status{Version: "1.2.3", Sessions: map[State]int{session.PreAuth: 7}}
			}))
	}()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return path
}

func dial(t *testing.T, path string) *Client {
	t.Helper()
	c, err := Dial(path)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestRequestTypes(t *testing.T) {
	table := authenticated(6)
	table.all[4].State, table.all[4].Login, table.all[4].Hostname = session.Leased, session.Login{}, "phone\x1b[2J"
	c, ctx := dial(t, start(t, table, stallTimeout)), t.Context()
	status, err := c.Status(ctx)
	if err != nil || status.Version != "1.2.3" || status.Sessions[session.PreAuth] != 7 {
		t.Errorf("status %+v, %v", status, err)
	}
	client, err := c.Session(ctx, numbered(4))
	want := Session{Addr: numbered(4), MAC: "02:00:00:00:00:04", State: session.Leased, Hostname: "phone\x1b[2J",
		Began: time.Unix(1_700_000_000, 0)}
	sameAddr := cmp.Comparer(func(a, b netip.Addr) bool { return a == b })
	if diff := cmp.Diff(want, client, sameAddr); diff != "" || err != nil {
		t.Errorf("%v\n%s", err, diff)
	}
	client, err = c.Login(ctx, LoginRequest{Addr: numbered(4), User: "carl", Limits: Limits{SessionTimeoutSeconds: 90,
		UpBps: 1e6, TotalBytes: 5}})
	if err != nil || client.State != session.Authenticated || client.User != "carl" {
		t.Errorf("login: %+v, %v", client, err)
	}
	if got, _ := table.Get(numbered(4)); got.Limits != (session.Limits{SessionTimeout: 90 * time.Second, UpBps: 1e6,
		TotalBytes: 5}) {
		t.Errorf("granted %+v", got.Limits)
	}
	for _, f := range []struct {
		filter Filter
		want   []int
	}{{Filter{}, []int{0, 1, 2, 3, 4, 5}}, {Filter{User: "ann"}, []int{0, 3}}, {Filter{User: "ANN"}, []int{0, 3}},
		{Filter{State: session.PreAuth}, nil}, {Filter{User: "carl", State: session.Authenticated}, []int{4}}} {
		var got []netip.Addr
		err := c.Sessions(ctx, f.filter, func(client Session) error { got = append(got, client.Addr); return nil })
		var want []netip.Addr
		for _, n := range f.want {
			want = append(want, numbered(n))
		}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%+v: %v, %v", f.filter, got, err)
		}
	}
	for _, l := range []struct {
		req  LogoutRequest
		want int
	}{{LogoutRequest{Addr: numbered(4)}, 1}, {LogoutRequest{User: "ann"}, 2}, {LogoutRequest{All: true}, 3},
		{LogoutRequest{All: true}, 0}} {
		if n, err := c.Logout(ctx, l.req); n.Ended != l.want || err != nil {
			t.Errorf("logout %+v: %d, %v", l.req, n, err)
		}
	}
}

func TestRefusals(t *testing.T) {
	table := authenticated(3)
	table.all[1].State, table.broken, table.refused = session.PreAuth, numbered(2), numbered(7)
	c := dial(t, start(t, table, stallTimeout))
	ctx := t.Context()
	login := func(req LoginRequest) error { _, err := c.Login(ctx, req); return err }
	logout := func(req LogoutRequest) error { _, err := c.Logout(ctx, req); return err }
	get := func(path string) error { return c.call(ctx, answerTimeout, "GET", path, nil, &struct{}{}) }
	for _, tt := range []struct {
		err  error
		want string
	}{
		{get("/v1/sessions/10.9.0.0"), "no client has 10.9.0.0"},
		{get("/v1/sessions/x"), `ParseAddr("x"): unable to parse IP`},
		{get("/v1/sessions?state=gone"), `"gone": there are leased, preauth and authenticated`},
		{get("/v2"), "there is no GET /v2"},
		{get("/v1/login"), "there is no GET /v1/login"},
		{login(LoginRequest{User: "x"}), "addr must be a client's address"},
		{login(LoginRequest{Addr: netip.MustParseAddr("::1"), User: "x"}), "addr must be a client's address"},
		{login(LoginRequest{Addr: numbered(9), User: "x"}), "no client has 10.0.0.9"},
		{login(LoginRequest{Addr: numbered(1)}), "user must be a name"},
		{login(LoginRequest{Addr: numbered(1), User: "a\nb"}), "user must be a name"},
		{login(LoginRequest{Addr: numbered(1), User: strings.Repeat("x", 254)}), "user must be a name"},
		{login(LoginRequest{Addr: numbered(1), User: "x", Limits: Limits{IdleTimeoutSeconds: -1}}),
			"time-outs must be seconds"},
		{login(LoginRequest{Addr: numbered(1), User: "x", Limits: Limits{IdleTimeoutSeconds: 1e300}}),
			"time-outs must be seconds"},
		{login(LoginRequest{Addr: numbered(1), User: strings.Repeat("x", maxBodyBytes)}), "body too large"},
		{logout(LogoutRequest{}), "give one of addr, user and all"},
		{logout(LogoutRequest{All: true, User: "x"}), "give one of addr, user and all"},
		{logout(LogoutRequest{Addr: numbered(9)}), "no client has 10.0.0.9"},
		{logout(LogoutRequest{Addr: numbered(1)}), "10.0.0.1 is not logged in: it is preauth"},
		{logout(LogoutRequest{User: "zoe"}), `no session is "zoe"'s`},
		{logout(LogoutRequest{Addr: numbered(2)}), "end the session of 10.0.0.2: the disk is full"},
		{login(LoginRequest{Addr: table.refused, MAC: "02:00:00:00:00:07", User: "x"}), "gone"},
	} {
		if tt.err == nil || !strings.Contains(tt.err.Error(), tt.want) {
			t.Errorf("no %q in: %v", tt.want, tt.err)
		}
	}
	if _, found := table.Get(table.refused); found {
		t.Error("a client without a lease stays although its login was refused")
	}
	if err := logout(LogoutRequest{All: true}); err == nil || !strings.Contains(err.Error(), "of 2 sessions") ||
		!strings.Contains(err.Error(), "10.0.0.2: the disk is full") {
		t.Errorf("logout of all, one of them failing: %v", err)
	}
}

func TestLogoutOfThousands(t *testing.T) {
	c := dial(t, start(t, authenticated(5000), stallTimeout))
	if n, err := c.Logout(t.Context(), LogoutRequest{User: "ann"}); n.Ended != 1667 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if n, err := c.Logout(t.Context(), LogoutRequest{All: true}); n.Ended != 3333 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
}

// selfEnding is a table whose sessions have ended just before End is called.
type selfEnding struct{ *clients }

func (e selfEnding) End(a netip.Addr, cause session.Cause) (session.Session, error) {
	if _, err := e.clients.End(a, cause); err != nil {
		return session.Session{}, err
	}
	return session.Session{}, errors.New("not logged in")
}

func TestLogoutOfEndedSessions(t *testing.T) {
	c := dial(t, start(t, selfEnding{authenticated(100)}, stallTimeout))
	if n, err := c.Logout(t.Context(), LogoutRequest{All: true}); n.Ended != 0 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
}
