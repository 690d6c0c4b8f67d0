// Tests of the error of a login that no server answered: it says why. newAttacker is a socket in place of a server, by
// which a test answers itself: signed answers are good, flip makes one wrong by one bit (hostile_test.go). newClient
// makes a Client of the servers in its Config; loopbackPort is an address at which nobody listens.

package radius

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"layeh.com/radius"
)

func TestErrorSaysWhyNobodyAnswered(t *testing.T) {
	t.Parallel()
	for want, forge := range map[string]func(request []byte) []byte{
		"answers without Message-Authenticator were dropped (1): upgrade that server": func(r []byte) []byte {
			return seal(r, answer(r, radius.CodeAccessAccept))
		},
		"answers with a wrong authenticator were dropped (1): is the secret the same": func(r []byte) []byte {
			return flip(signed(r, radius.CodeAccessAccept), 4)
		},
	} {
		a := newAttacker(t)
		c := newClient(t, Config{Servers: []Server{a.server()}, Timeout: 4 * time.Second, Retries: -1})
		go func() {
			r := a.receive(t)
			a.send(t, r.from, forge(r.data))
		}()
		_, err := c.Authenticate(t.Context(), credentials("alice", "x"))
		if !errors.Is(err, ErrNoServer) || !strings.Contains(err.Error(), a.addr.String()+": "+want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// TestReasonsReachWhoWaitsLess: a caller whose time is over before all transmissions are hears what is known of the
// server, also one that had no turn. The time is shared among servers, so that the second is asked in time.
func TestReasonsReachWhoWaitsLess(t *testing.T) {
	t.Parallel()
	unsigned, silent, good := newAttacker(t), newAttacker(t), newAttacker(t)
	go func() {
		for b := make([]byte, radius.MaxPacketLength); ; {
			n, from, err := unsigned.conn.ReadFromUDPAddrPort(b)
			if err != nil {
				return // the test is over
			}
			unsigned.conn.WriteToUDPAddrPort(seal(b[:n], answer(b[:n], radius.CodeAccessAccept)), from)
		}
	}()
	c := newClient(t, Config{Servers: []Server{unsigned.server()}, Timeout: 300 * time.Millisecond, Retries: maxRetries,
		InFlight: 1, DeadTime: time.Hour})
	ask := func(c *Client, user string, patience time.Duration) error {
		ctx, stop := context.WithTimeout(t.Context(), patience)
		defer stop()
		_, err := c.Authenticate(ctx, credentials(user, "x"))
		return err
	}
	err := ask(c, "alice", 3*time.Second)
	if !errors.Is(err, ErrNoServer) || errors.Is(err, context.DeadlineExceeded) ||
		!strings.Contains(err.Error(), "answers without Message-Authenticator were dropped") {
		t.Errorf("%v", err)
	}
	if err := c.auth.gates[byPortal].Enter(t.Context(), 0); err != nil { // another has the only turn
		t.Fatal(err)
	}
	if err := ask(c, "bob", 10*time.Millisecond); !errors.Is(err, ErrNoServer) ||
		!strings.Contains(err.Error(), "without Message-Authenticator") {
		t.Errorf("without a turn: %v", err)
	}
	go func() {
		r := good.receive(t)
		good.send(t, r.from, signed(r.data, radius.CodeAccessAccept))
	}()
	two := newClient(t, Config{Servers: []Server{silent.server(), good.server()}, Timeout: 300 * time.Millisecond,
		Retries: maxRetries, DeadTime: time.Hour})
	if err := ask(two, "alice", 6*time.Second); err != nil {
		t.Errorf("the second server of two: %v", err)
	}
}

// TestLongTimeoutsLeaveTimeForTheSecond: where a caller waits less than Timeout, each server has its part; the first is
// dead once it was silent through its own. One that had no time, because the caller waited for its turn, is not.
func TestLongTimeoutsLeaveTimeForTheSecond(t *testing.T) {
	t.Parallel()
	silent, good := newAttacker(t), newAttacker(t)
	go func() {
		for b := make([]byte, radius.MaxPacketLength); ; {
			n, from, err := good.conn.ReadFromUDPAddrPort(b)
			if err != nil {
				return // the test is over
			}
			good.conn.WriteToUDPAddrPort(signed(b[:n], radius.CodeAccessAccept), from)
		}
	}()
	c := newClient(t,
		Config{Servers: []Server{silent.server(), good.server()}, Timeout: time.Minute, InFlight: 1, DeadTime: time.Hour})
	ask := func(patience time.Duration) error {
		ctx, stop := context.WithTimeout(t.Context(), patience)
		defer stop()
		_, err := c.Authenticate(ctx, credentials("alice", "x"))
		return err
	}
	gate, left := c.auth.gates[byPortal], make(chan struct{})
	if err := gate.Enter(t.Context(), 0); err != nil { // another has the only turn
		t.Fatal(err)
	}
	time.AfterFunc(800*time.Millisecond, func() { gate.Leave(); close(left) })
	ask(time.Second) // with a tenth of a second for each server, or less
	<-left
	if s := c.Stats()[0]; s.Dead || s.Timeouts > 0 {
		t.Errorf("without time to answer it is counted as %+v", s)
	}
	if err := ask(6 * time.Second); err != nil {
		t.Errorf("with a silent first: %v", err)
	}
	if s := c.Stats()[0]; !s.Dead || s.Timeouts != 1 {
		t.Errorf("the silent one is counted as %+v", s)
	}
}

// TestAccountingAloneIsSilent: where the server answers logins, its address and secret are right; where it answers
// neither, they are asked for.
func TestAccountingAloneIsSilent(t *testing.T) {
	t.Parallel()
	const look = "log-ins are answered: look at the server's accounting"
	logins, silent := newAttacker(t), newAttacker(t)
	go logins.accepts()
	for name, port := range map[string]netip.AddrPort{"silent": silent.addr, "closed": loopbackPort()} {
		c := newClient(t, Config{
			Servers: []Server{{Address: logins.addr, AcctAddress: port, Secret: testSecret}}, Timeout: 100 * time.Millisecond,
			Retries: 1,
		})
		if err := c.AccountingOn(t.Context()); err == nil || strings.Contains(err.Error(), look) {
			t.Errorf("%s, without a login: %v", name, err)
		}
		await(t, "a login", func() bool {
			_, err := c.Authenticate(t.Context(), credentials("alice", "x"))
			return err == nil
		})
		if err := c.AccountingOn(t.Context()); err == nil || !strings.Contains(err.Error(), port.String()) ||
			!strings.Contains(err.Error(), look) {
			t.Errorf("%s, with logins: %v", name, err)
		}
		for _, s := range c.Stats() {
			if s.Accounting != strings.Contains(s.Trouble, look) {
				t.Errorf("%s: %+v", name, s)
			}
		}
	}
}
