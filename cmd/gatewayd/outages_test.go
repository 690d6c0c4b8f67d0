// Tests of a RADIUS server that is away, of slow clients, and of a full disk. newWorld makes the host of a gateway with
// clients and a server, in namespaces, and starts RADIUS servers (world_test.go). eventually waits until a function
// returns no error.

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/gateway/control"
	"github.com/gateweigh/gateweigh/gateway/session"
)

// TestRADIUSOutage: while the RADIUS server does not answer, nobody can log in, clients that are logged in stay, and
// when it answers again logins work. Long: the steps of one run, each of which needs the state that the one before
// left.
func TestRADIUSOutage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start()
	w.web()
	ann, bob := w.client(), w.client()
	ann.logIn("ann")
	for _, c := range []struct {
		name, reason string
		fail, mend   func()
	}{
		{"down", "nothing listens there", w.auth.stop, w.auth.start},
		{"silent", "no answer", func() { w.auth.process.cmd.Process.Signal(syscall.SIGSTOP) },
			func() { w.auth.process.cmd.Process.Signal(syscall.SIGCONT) }},
		{"with another secret", "no answer: does it know this gateway's address and secret?",
			func() { w.auth.restart("another secret, as long") }, func() { w.auth.restart(w.Secret) }},
	} {
		token, err := bob.token("login")
		must(t, err)
		c.fail()
		seen := len(w.daemon.output())
		if code, err := bob.try(bob.fillIn(token, "ann")); err == nil && code != "503" {
			t.Errorf("%s: a login is answered with %s", c.name, code)
		}
		eventually(t, c.name+": the reason in the log", func() error {
			logged := w.daemon.output()[seen:]
			if !strings.Contains(logged, c.reason) || strings.Contains(logged, "context deadline exceeded") {
				return errors.New(logged)
			}
			return nil
		})
		if s := bob.session(); s.State == session.Authenticated {
			t.Errorf("%s: the client is %q", c.name, s.State)
		}
		if out, err := bob.try(reachesWeb + " -f -o /dev/null"); err == nil {
			t.Errorf("%s: the client passes:\n%s", c.name, out)
		}
		ann.sh(reachesWeb)
		c.mend()
		eventually(t, c.name+": a login when it is over", func() error {
			token, err := bob.token("login")
			if err == nil {
				_, err = bob.try(bob.fillIn(token, "ann"))
			}
			if bob.session().State == session.Authenticated { // possibly by an earlier request
				return nil
			}
			return errors.Join(err, errors.New("not let in"))
		})
		bob.sh(reachesWeb)
		bob.logOut()
	}
}

// restart restarts the server with another secret.
func (r *radiusServer) restart(secret string) {
	r.stop()
	r.Secret = secret
	r.w.write("radius/radiusd.conf", r.Kind+"/radiusd.conf", r)
	r.start()
}

// TestSlowClients: a client that holds as many connections to the portal as it can, and sends almost nothing, keeps no
// other client from logging in.
func TestSlowClients(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start()
	slow, bob := w.client(), w.client()
	const many = 300
	var conns []net.Conn
	w.inHost(slow.host, func() error {
		for range many {
			c, err := net.Dial("tcp4", portalAddr)
			if err == nil { // an error: it has as many as it may
				conns = append(conns, c)
			}
		}
		return nil
	})
	var dribbling sync.WaitGroup
	for _, c := range conns {
		dribbling.Go(func() {
			defer c.Close()
			for range 600 {
				if _, err := c.Write([]byte("a")); err != nil {
					return
				}
				time.Sleep(100 * time.Millisecond)
			}
			t.Error("the portal accepted bytes of one request for a minute")
		})
	}
	bob.logIn("ann")
	if got := bob.session(); got.State != session.Authenticated {
		t.Errorf("the client is %q", got.State)
	}
	dribbling.Wait()
}

// TestFullDisk: when the disk is full, no new client is admitted, admitted ones continue, and confirmed logins survive
// kill -9.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.sh("mkdir -p $DIR/state; mount -t tmpfs -o size=768k none $DIR/state")
	t.Cleanup(func() { w.sh("umount -l $DIR/state") })
	w.start()
	w.web()
	ann := w.client()
	ann.logIn("ann")
	bob := w.client()
	bob.logIn("ann")
	w.sh("dd if=/dev/zero of=$DIR/state/full bs=4k 2>/dev/null || :")
	verbs, err := w.control()
	must(t, err)
	let, refused := map[netip.Addr]bool{}, 0 // whether each client was let in
	login := func(n byte) error {
		addr := netip.AddrFrom4([4]byte{10, 1, 0, n})
		_, err := verbs.Login(context.Background(), control.LoginRequest{Addr: addr, MAC: fmt.Sprintf("02:00:00:00:07:%02x",
			n), User: fmt.Sprintf("%0200d", n)})
		let[addr] = err == nil
		return err
	}
	for n := byte(100); n < 240; n++ {
		if login(n) != nil {
			refused++
		}
	}
	if refused == 0 {
		t.Error("the disk was not full")
	}
	inAre(t, verbs, "with the disk full", let)
	ann.sh(reachesWeb)
	bob.sh(reachesWeb)
	throwOut(t, verbs, bob)
	w.kill()
	ann.sh(reachesWeb)
	w.sh("dd if=/dev/zero of=$DIR/state/full2 bs=1 2>/dev/null || :")
	w.start()
	w.sh("rm $DIR/state/full*")
	verbs, err = w.control()
	must(t, err)
	inAre(t, verbs, "after kill -9", let)
	ann.sh(reachesWeb)
	for addr, in := range let {
		if !in {
			must(t, login(addr.As4()[3]))
		}
	}
}

// throwOut ends a client's session although the disk is full.
func throwOut(t *testing.T, verbs *control.Client, c *client) {
	t.Helper()
	if _, err := verbs.Logout(t.Context(), control.LogoutRequest{Addr: c.addr}); err != nil {
		t.Errorf("with the disk full nobody can be thrown out: %v", err)
	}
	if answer, err := c.try(reachesWeb); err == nil {
		t.Errorf("a client that was thrown out with the disk full still gets %q", answer)
	}
}

// inAre checks that the clients in let are logged in if they were let in, and otherwise not.
func inAre(t *testing.T, verbs *control.Client, phase string, let map[netip.Addr]bool) {
	t.Helper()
	now := map[netip.Addr]bool{}
	must(t, verbs.Sessions(context.Background(), control.Filter{State: session.Authenticated}, func(
		s control.Session) error {
		now[s.Addr] = true
		return nil
	}))
	for addr, in := range let {
		if now[addr] != in {
			t.Errorf("%s: %s was let in: %v, is logged in: %v", phase, addr, in, now[addr])
		}
	}
}
