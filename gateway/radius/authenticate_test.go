// Tests of logins. newFreeRADIUS and startFreeRADIUS are real servers (freeradius_test.go), and newAttacker a socket in
// place of one, by which a test answers itself (hostile_test.go). newClient makes a Client of the servers in its
// Config.

package radius

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"layeh.com/radius"

	"github.com/gateweigh/gateweigh/gateway/session"
)

var testKey = session.Key{MAC: [6]byte{2, 0, 0, 0xab, 0xcd, 0xef}, Addr: netip.MustParseAddr("10.1.0.5")}

// credentials returns the credentials of a login from the test's client.
func credentials(user, password string) session.Credentials {
	return session.Credentials{User: user, Password: password, Key: testKey}
}

// testPasswords are around the sizes of PAP's blocks, up to the longest.
func testPasswords() []string {
	var all []string
	for _, n := range []int{1, 15, 16, 17, 32, 127, 128} {
		all = append(all, strings.Repeat("Passwörter: 0123456789#", 6)[:n])
	}
	return all
}

// TestAuthenticate: logins that FreeRADIUS accepts and rejects, by each method. Long: most lines are the table of
// cases.
func TestAuthenticate(t *testing.T) {
	f := startFreeRADIUS(t)
	granted := session.Login{
		User:  "limited@example.org",
		Class: [][]byte{{0x00, 0xff, 0x0a}, []byte("second")},
		Limits: session.Limits{
			SessionTimeout: time.Hour, IdleTimeout: 5 * time.Minute, Interim: 10 * time.Minute,
			UpBps: 2_000_000, DownBps: 1<<32 - 1, UpBytes: 1<<32 + 1000, DownBytes: 1<<32 - 1, TotalBytes: 2 << 32,
		},
	}
	granted.Explicit = session.ExplicitLimits{
		SessionTimeout: true, IdleTimeout: true, UpBytes: true, DownBytes: true, TotalBytes: true, UpBps: true, DownBps: true}
	swapped := granted
	swapped.Limits.UpBytes, swapped.Limits.DownBytes = granted.Limits.DownBytes, granted.Limits.UpBytes
	for _, tt := range []struct {
		name, user, password string
		change               func(*Config)
		want                 session.Login
		message              string // of the rejection when want is zero
		unfit                bool   // accepted, on terms that cannot be carried out
	}{
		{name: "accept", user: "alice", password: "correct horse", want: session.Login{User: "alice"}},
		{name: "default interim", user: "alice", password: "correct horse",
			change: func(c *Config) { c.InterimDefault = 5 * time.Minute },
			want:   session.Login{User: "alice", Limits: session.Limits{Interim: 5 * time.Minute}}},
		{name: "attributes", user: "limited", password: "correct horse", want: granted},
		{name: "attributes with octets swapped", user: "limited", password: "correct horse",
			change: func(c *Config) { c.SwapOctets = true }, want: swapped},
		{name: "interim below its floor", user: "hasty", password: "correct horse",
			want: session.Login{User: "hasty", Limits: session.Limits{Interim: time.Minute}}},
		{name: "wrong password", user: "alice", password: "battery staple"},
		{name: "no password", user: "alice", password: ""},
		{name: "unknown user", user: "mallory", password: "correct horse"},
		{name: "message", user: "expired", password: "correct horse",
			message: "Your account has expired.\n" + "Renew it at the desk. " + f.Long},
		{name: "service that is no network access", user: "administrator", password: "correct horse", unfit: true},
	} {
		for _, method := range []Method{PAP, CHAP} {
			t.Run(tt.name+" "+string(method), func(t *testing.T) {
				cfg := Config{Servers: []Server{f.server()}, Method: method}
				if tt.change != nil {
					tt.change(&cfg)
				}
				got, err := newClient(t, cfg).Authenticate(t.Context(), credentials(tt.user, tt.password))
				if diff := cmp.Diff(tt.want, got, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
					t.Error(diff)
				}
				if tt.want.User != "" {
					if err != nil {
						t.Error(err)
					}
					return
				}
				if tt.unfit {
					if !errors.Is(err, session.ErrUnfit) || errors.Is(err, session.ErrRejected) ||
						!strings.Contains(err.Error(), "Service-Type 6") {
						t.Errorf("error %v, want that its terms cannot be carried out", err)
					}
					return
				}
				var r *session.Rejection
				if !errors.Is(err, session.ErrRejected) || !errors.As(err, &r) || r.Message != tt.message {
					t.Errorf("error %v, want a rejection with %q", err, tt.message)
				}
			})
		}
	}
}

func TestPasswordsOfAllLengths(t *testing.T) {
	f := startFreeRADIUS(t)
	for _, method := range []Method{PAP, CHAP} {
		c := newClient(t, Config{Servers: []Server{f.server()}, Method: method})
		for _, password := range testPasswords() {
			user := fmt.Sprintf("length%d", len(password))
			if _, err := c.Authenticate(t.Context(), credentials(user, password)); err != nil {
				t.Errorf("%s, %d bytes: %v", method, len(password), err)
			}
			if _, err := c.Authenticate(t.Context(), credentials(user, password[:len(password)-1])); !errors.Is(
				err, session.ErrRejected) {
				t.Errorf("%s, %d bytes without the last: %v", method, len(password), err)
			}
		}
	}
}

// TestInvalidCredentialsNotSent: credentials that no server can accept are not sent.
func TestInvalidCredentialsNotSent(t *testing.T) {
	c := newClient(t, Config{Servers: []Server{{Address: loopbackPort(), Secret: testSecret}}})
	for name, who := range map[string]session.Credentials{
		"no user":           credentials("", "x"),
		"long user":         credentials(strings.Repeat("x", 254), "x"),
		"line in user":      credentials("alice\nroot", "x"),
		"escape in user":    credentials("\x1b[2J", "x"),
		"user not text":     credentials("\xff\xfe", "x"),
		"long password":     credentials("alice", strings.Repeat("x", 129)),
		"zero in password":  credentials("alice", "correct horse\x00"),
		"megabyte of both":  credentials(strings.Repeat("x", 1<<20), strings.Repeat("x", 1<<20)),
		"C1 control in use": credentials("alice\u0085", "x"),
	} {
		if _, err := c.Authenticate(t.Context(), who); !errors.Is(err, session.ErrRejected) {
			t.Errorf("%s: %v, want a rejection", name, err)
		}
	}
	if n := c.Stats()[0].Requests; n != 0 {
		t.Errorf("%d requests sent", n)
	}
}

func TestAttributesOfAnAccessRequest(t *testing.T) {
	f := startFreeRADIUS(t)
	cfg := Config{
		Servers: []Server{f.server()}, NASIdentifier: "gateway-1", NASAddress: netip.MustParseAddr("192.0.2.1"),
		NASPortID: "eth1", CalledStationID: "02-00-00-00-00-FF:Guests",
	}
	want := record{
		"Packet-Type": {"Access-Request"}, "User-Name": {"alice"}, "User-Password": {"correct horse"},
		"Service-Type":   {"Login-User"},
		"NAS-Identifier": {"gateway-1"}, "NAS-IP-Address": {"192.0.2.1"}, "NAS-Port-Type": {"Wireless-802.11"},
		"NAS-Port-Id":        {"eth1"},
		"Calling-Station-Id": {"02-00-00-AB-CD-EF"}, "Called-Station-Id": {"02-00-00-00-00-FF:Guests"},
		"Framed-IP-Address": {"10.1.0.5"}, "Framed-IPv6-Address": {"2001:db8:1::5", "fd00:1::5"},
		"Acct-Session-Id": {"00deadbeef001234"},
	}
	askedFor := func(c Config) record {
		t.Helper()
		who := credentials("alice", "correct horse")
		who.SessionID, who.FurtherAddrs = "00deadbeef001234", testFurther
		if _, err := newClient(t, c).Authenticate(t.Context(), who); err != nil {
			t.Fatal(err)
		}
		r := f.last(t, "asked")
		if len(r["Message-Authenticator"]) != 1 {
			t.Errorf("Message-Authenticator %v, want one", r["Message-Authenticator"])
		}
		// These differ between packets, or are added by FreeRADIUS.
		for _, name := range []string{"Message-Authenticator", "CHAP-Challenge", "CHAP-Password", "Timestamp"} {
			delete(r, name)
		}
		return r
	}
	if diff := cmp.Diff(want, askedFor(cfg)); diff != "" {
		t.Error(diff)
	}
	delete(want, "User-Password")
	delete(want, "Called-Station-Id")
	delete(want, "NAS-Port-Id")
	want["NAS-Port-Type"] = []string{"Ethernet"}
	cfg.Method, cfg.NASPortType, cfg.CalledStationID, cfg.NASPortID = CHAP, Ethernet, "", ""
	if diff := cmp.Diff(want, askedFor(cfg)); diff != "" {
		t.Error(diff)
	}
}

func TestNewRefuses(t *testing.T) {
	server := Server{Address: netip.MustParseAddrPort("192.0.2.1:1812"), Secret: "x"}
	for want, cfg := range map[string]Config{
		"radius: no server given": {NASIdentifier: "x"},
		"radius: neither the gateway's identifier nor its address given": {Servers: []Server{server}},
		"radius: server 2: 192.0.2.2:1812: the secret is empty": {
			NASIdentifier: "x", Servers: []Server{server, {Address: netip.MustParseAddrPort("192.0.2.2:1812")}}},
		"radius: server 1: must have an address and a port": {
			NASIdentifier: "x", Servers: []Server{{Secret: "x"}}},
		"radius: 2001:db8::1 as the gateway's address": {
			NASAddress: netip.MustParseAddr("2001:db8::1"), Servers: []Server{server}},
		`radius: method "mschap"`: {
			NASIdentifier: "x", Servers: []Server{server}, Method: "mschap"},
		`radius: port type "token ring"`: {
			NASIdentifier: "x", Servers: []Server{server}, NASPortType: "token ring"},
		"radius: interim updates every 1s": {
			NASIdentifier: "x", Servers: []Server{server}, InterimDefault: time.Second},
		"radius: 1000 retries": {
			NASIdentifier: "x", Servers: []Server{server}, Retries: 1000},
		"radius: -1 requests in flight": {
			NASIdentifier: "x", Servers: []Server{server}, InFlight: -1},
		"radius: a time or a bound is negative": {
			NASIdentifier: "x", Servers: []Server{server}, Timeout: -1},
		`must be 253 bytes at most`: {
			NASIdentifier: strings.Repeat("x", 254), Servers: []Server{server}},
	} {
		if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

func TestCloseEndsWhatIsUnderWay(t *testing.T) {
	a := newAttacker(t) // never answers
	c := newClient(t, Config{Servers: []Server{a.server()}, Timeout: time.Minute})
	outcome := make(chan error)
	go func() {
		_, err := c.Authenticate(context.Background(), credentials("alice", "x"))
		outcome <- err
	}()
	a.receive(t)
	c.Close()
	if err := <-outcome; !errors.Is(err, net.ErrClosed) {
		t.Errorf("under way: %v", err)
	}
	if _, err := c.Authenticate(t.Context(), credentials("alice", "x")); !errors.Is(err, net.ErrClosed) {
		t.Errorf("afterwards: %v", err)
	}
	c.Close()
}

func TestContextEndsTheWait(t *testing.T) {
	a := newAttacker(t)
	c := newClient(t, Config{Servers: []Server{a.server()}, Timeout: time.Minute})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		a.receive(t)
		cancel()
	}()
	if _, err := c.Authenticate(ctx, credentials("alice", "x")); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want the context's error", err)
	}
}

// BenchmarkAuthenticate has 100 logins in flight to one FreeRADIUS on the same machine.
func BenchmarkAuthenticate(b *testing.B) {
	for _, method := range []Method{PAP, CHAP} {
		b.Run(string(method), func(b *testing.B) {
			f := newFreeRADIUS(b, loopback())
			f.Log = false
			f.configure(b)
			f.start(b)
			c := newClient(b, Config{Servers: []Server{f.server()}, Method: method, InFlight: 100})
			todo := make(chan struct{}, b.N)
			for range b.N {
				todo <- struct{}{}
			}
			close(todo)
			var all sync.WaitGroup
			b.ResetTimer()
			for range 100 {
				all.Go(func() {
					for range todo {
						if _, err := c.Authenticate(b.Context(), credentials("alice", "correct horse")); err != nil {
							b.Error(err)
						}
					}
				})
			}
			all.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "logins/s")
			b.ReportMetric(float64(c.Stats()[0].Retransmits), "retransmits")
		})
	}
}

// TestFloodsLeaveOtherLogins: the server answers none of the requests of one way in, which are many more than may be in
// flight; a login by another way is answered.
func TestFloodsLeaveOtherLogins(t *testing.T) {
	t.Parallel()
	portal, line, device := session.Credentials{}, session.Credentials{Port: 1}, session.Credentials{CallCheck: true}
	for _, c := range []struct {
		flood, right session.Credentials
		most         int // in flight
	}{{line, portal, 6}, {portal, line, 6}, {device, portal, 4}, {portal, device, 6}} {
		server := newAttacker(t)
		client := newClient(t, Config{Servers: []Server{server.server()}, InFlight: 8, Timeout: time.Hour})
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		var guesses sync.WaitGroup
		for i := range 50 {
			guesses.Go(func() {
				who := credentials(fmt.Sprint("guess", i), "wrong")
				who.Port, who.CallCheck = c.flood.Port, c.flood.CallCheck
				client.Authenticate(ctx, who)
			})
		}
		for range c.most {
			server.receive(t)
		}
		go func() {
			for ctx.Err() == nil {
				if q := server.receive(t); bytes.Contains(q.data, []byte("alice")) {
					server.send(t, q.from, signed(q.data, radius.CodeAccessAccept))
					return
				}
			}
		}()
		who := credentials("alice", "correct horse")
		who.Port, who.CallCheck = c.right.Port, c.right.CallCheck
		if _, err := client.Authenticate(ctx, who); err != nil {
			t.Errorf("with a flood of %+v, a login of %+v: %v", c.flood, c.right, err)
		}
		stop()
		guesses.Wait()
	}
}
