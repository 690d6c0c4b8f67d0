package main

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/gateway/control"
	"github.com/gateweigh/gateweigh/ppp"
	"github.com/gateweigh/gateweigh/ppp/pppoe"
)

// The tests of PPPoE with a daemon. A subscriber (subscriber_test.go) is a PPPoE client within this process, which
// dial logs in and awaitEnd waits for.

// session returns a user's session as the daemon has it.
func (w *world) session(user string) (control.Session, error) {
	c, err := w.control()
	if err != nil {
		return control.Session{}, err
	}
	var found []control.Session
	err = c.Sessions(w.t.Context(), control.Filter{User: user}, func(s control.Session) error {
		found = append(found, s)
		return nil
	})
	if err == nil && len(found) != 1 {
		err = fmt.Errorf("%d sessions of %s", len(found), user)
	}
	if err != nil {
		return control.Session{}, err
	}
	return found[0], nil
}

// newLines returns a world whose daemon takes PPPoE clients ("lines"). settings are lines of [pppoe].
func newLines(t *testing.T, settings string) *world { return newLinesAt(t, "", settings) }

// newLinesAt is newLines on a data path, which is given by lines of [datapath].
func newLinesAt(t *testing.T, path, settings string) *world {
	w := newNetwork(t)
	w.Path, w.Lines = path, settings
	w.auth, w.acct = w.radius("auth", 1812), w.radius("acct", 1813)
	w.write("radius/gatewayd.toml", "gatewayd.toml", w)
	w.start()
	return w
}

// TestSubscribers: clients log in over PPPoE by each method, through FreeRADIUS. A session is listed, accounted with
// its address, and ended by either side. Long: the steps of one run, each of which needs the state that the one before
// left.
func TestSubscribers(t *testing.T) {
	t.Parallel()
	for _, method := range ppp.Methods {
		t.Run(string(method), func(t *testing.T) {
			w := newLines(t, fmt.Sprintf("methods = [%q]\necho = \"1s\"", method))
			s := w.addUnaddressed().subscriber(ppp.Config{User: "ann", Password: "right", AskDNS: true})
			s.tags = []pppoe.Tag{{Type: pppoe.VendorSpecific, Value: []byte("\x00\x00\x0d\xe9\x01\x06eth 7\x2f\x02\x05line9")}}
			terms, err := s.dial()
			must(t, err)
			if terms.Local != netip.MustParseAddr("10.1.0.100") || terms.Peer != netip.MustParseAddr("10.1.0.1") ||
				terms.DNS[0] != terms.Peer || terms.MTU != 1492 {
				t.Errorf("agreed on %+v", terms)
			}
			one, err := w.session("ann")
			must(t, err)
			if one.Addr != terms.Local || one.MAC != s.dev.HardwareAddr.String() || one.PPPoE != s.id {
				t.Errorf("listed as %+v, session %d", one, s.id)
			}
			asked := w.auth.accessRequests(one.ID)
			if len(asked) != 1 || asked[0].value("Framed-Protocol") != "PPP" || asked[0].value("NAS-Port") != fmt.Sprint(s.id) ||
				asked[0].value("NAS-Port-Type") != "Ethernet" {
				t.Errorf("the server was asked %v", asked)
			}
			if asked[0].value("ADSL-Agent-Circuit-Id") == "" || asked[0].value("ADSL-Agent-Remote-Id") == "" {
				t.Errorf("the server was not told of the line: %v", asked)
			}
			if r := w.acct.awaitAccounting("Start", one.ID); r.value("Framed-IP-Address") != "10.1.0.100" {
				t.Errorf("accounted as %v", r)
			}
			for _, to := range []netip.Addr{terms.Peer, serverAddr} {
				for _, bytes := range []int{28, 1492} {
					s.ping(terms.Local, to, bytes)
				}
			}
			out := w.sh("gatewayd logout --socket $DIR/run/control.sock --user ann")
			if !strings.Contains(out, "1") {
				t.Errorf("gatewayd logout says %q", out)
			}
			if err := s.awaitEnd(); err == nil {
				t.Error("the link ended without a reason")
			}
			eventually(t, "a PADT", func() error {
				s.mu.Lock()
				defer s.mu.Unlock()
				if !s.gotPADT {
					return errors.New("none")
				}
				return nil
			})
			if r := w.acct.awaitAccounting("Stop", one.ID); r.value("Acct-Terminate-Cause") != "Admin-Reset" {
				t.Errorf("accounted as %v", r)
			}
		})
	}
}

// TestSubscribersTraffic: a subscriber's TCP arrives whole both ways, although the gateway's kernel aggregates its
// packets, and is counted to the byte. It goes on while the daemon is dead, and that is counted too.
func TestSubscribersTraffic(t *testing.T) {
	t.Parallel()
	w := newLines(t, "echo = \"1s\"\necho_failures = 60")
	w.sh("nsenter --net=/run/netns/$ID-router ethtool -K wan0 gro on") // the gateway aggregates what it receives
	c := w.onLine("ann")
	w.transfer(c, 20_000_000)
	w.checkCounters("ann", c)
	if out := w.sh("ip -n $ID-router -j -s link show type veth"); !hasSplit(t, out) {
		t.Error("the kernel aggregated no packet, so this test did not show that aggregated packets are split")
	}
	w.kill()
	w.transfer(c, 1_000_000)
	w.start()
	one, err := w.session("ann")
	must(t, err)
	if up, down := c.counted(); one.UpBytes != up || one.DownBytes != down {
		t.Errorf("after the daemon was killed, counted %d and %d, its host has sent %d and received %d", one.UpBytes,
			one.DownBytes, up, down)
	}
}

// onLine returns a client that has logged in over PPPoE. Its host sends and receives over the session, through this
// process, which does not compute the checksums that a virtual link leaves to its receiver. So the server computes all.
func (w *world) onLine(user string) *client {
	w.t.Helper()
	w.sh("nsenter --net=/run/netns/$ID-server ethtool -K s0 tx off")
	c := w.addUnaddressed()
	s := c.subscriber(ppp.Config{User: user, Password: "right"})
	terms, err := s.dial()
	must(w.t, err)
	s.route(c, terms)
	c.addr = terms.Local
	return c
}

// checkCounters waits until the daemon has counted as many bytes for a user's session as the client's host.
func (w *world) checkCounters(user string, c *client) {
	w.t.Helper()
	eventually(w.t, "the session's bytes", func() error {
		one, err := w.session(user)
		up, down := c.counted()
		if err == nil && (one.UpBytes != up || one.DownBytes != down) {
			err = fmt.Errorf("counted %d and %d, its host has sent %d and received %d", one.UpBytes, one.DownBytes, up, down)
		}
		return err
	})
}

// counted returns how many bytes of IP packets a client's host has sent and received over its PPPoE session.
func (c *client) counted() (up, down uint64) {
	c.w.t.Helper()
	var links []struct {
		Stats64 struct{ RX, TX struct{ Bytes uint64 } }
	}
	out := c.sh("ip -j -s link show ppp0")
	if err := json.Unmarshal([]byte(out), &links); err != nil || len(links) != 1 {
		c.w.t.Fatalf("%v: %s", err, out)
	}
	return links[0].Stats64.TX.Bytes, links[0].Stats64.RX.Bytes
}

// hasSplit reports whether gatewayd's link that splits aggregated packets ("cut…") has sent any. list is ip's list of
// links.
func hasSplit(t *testing.T, list string) bool {
	t.Helper()
	var links []struct {
		Ifname  string
		Stats64 struct{ TX struct{ Packets uint64 } }
	}
	must(t, json.Unmarshal([]byte(list), &links))
	for _, l := range links {
		if strings.HasPrefix(l.Ifname, "cut") && l.Stats64.TX.Packets > 0 {
			return true
		}
	}
	return false
}

// TestSubscribersInUserSpace: the data path tun carries a subscriber's TCP in both modes.
func TestSubscribersInUserSpace(t *testing.T) {
	t.Parallel()
	for _, fast := range []bool{false, true} {
		t.Run(fmt.Sprintf("fast=%v", fast), func(t *testing.T) {
			w := newNetwork(t)
			w.Lines, w.Path = "echo = \"1s\"", fmt.Sprintf("kind = \"tun\"\nfast = %v", fast)
			w.auth, w.acct = w.radius("auth", 1812), w.radius("acct", 1813)
			w.write("radius/gatewayd.toml", "gatewayd.toml", w)
			w.sh("ip -n $ID-router addr flush dev lan0") // the TUN device has the gateway's address
			w.start()
			w.sh("nsenter --net=/run/netns/$ID-router ethtool -K wan0 gro on")
			w.transfer(w.onLine("ann"), 5_000_000)
		})
	}
}

// transfer sends bytes over TCP from the server to a client and back, and compares them. It returns the client's
// address and port.
func (w *world) transfer(c *client, bytes int) netip.AddrPort {
	w.t.Helper()
	return w.transferTo(c, serverAddr.String(), bytes)
}

// transferTo is transfer with an address of the server.
func (w *world) transferTo(c *client, server string, bytes int) netip.AddrPort {
	w.t.Helper()
	want := make([]byte, bytes)
	rand.Read(want)
	var l net.Listener
	w.inHost("server", func() (err error) {
		l, err = net.Listen("tcp", net.JoinHostPort(server, "0"))
		return err
	})
	defer l.Close()
	failed := make(chan error, 1)
	go func() {
		conn, err := l.Accept()
		if err != nil {
			failed <- err
			return
		}
		defer conn.Close()
		sent := make(chan error, 1)
		go func() { _, err := conn.Write(want); sent <- err }()
		got := make([]byte, bytes)
		_, err = io.ReadFull(conn, got)
		if err = errors.Join(err, <-sent); err == nil && !slices.Equal(got, want) {
			err = errors.New("what the client sent back differs")
		}
		failed <- err
	}()
	var conn net.Conn
	w.inHost(c.host, func() (err error) {
		conn, err = net.DialTimeout("tcp", l.Addr().String(), 30*time.Second)
		return err
	})
	defer conn.Close()
	must(w.t, conn.SetDeadline(time.Now().Add(2*time.Minute)))
	if _, err := io.Copy(conn, io.LimitReader(conn, int64(bytes))); err != nil {
		w.t.Fatal(err)
	}
	must(w.t, <-failed)
	return netip.MustParseAddrPort(conn.LocalAddr().String())
}

// TestSubscriberRefused: a wrong password gets no session, whatever the method is.
func TestSubscriberRefused(t *testing.T) {
	t.Parallel()
	w := newLines(t, `name = "tests"`)
	for _, method := range ppp.Methods {
		s := w.addUnaddressed().subscriber(ppp.Config{User: "ann", Password: "wrong", Methods: []ppp.Method{method}})
		if _, err := s.dial(); !errors.Is(err, ppp.ErrRefused) {
			t.Errorf("%s: %v", method, err)
		}
	}
	if _, err := w.session("ann"); err == nil {
		t.Error("ann has a session")
	}
}

// TestFramedAddress: a user gets the address that the RADIUS server gives it (Framed-IP-Address), also when it logs in
// on another device while its former session has not ended.
func TestFramedAddress(t *testing.T) {
	t.Parallel()
	w := newLines(t, "name = \"tests\"\necho = \"10m\"")
	first := w.addUnaddressed().subscriber(ppp.Config{User: "fixed", Password: "right"})
	terms, err := first.dial()
	must(t, err)
	if terms.Local != netip.MustParseAddr("10.1.0.77") {
		t.Fatalf("agreed on %+v", terms)
	}
	second := w.addUnaddressed().subscriber(ppp.Config{User: "fixed", Password: "right"})
	terms, err = second.dial()
	must(t, err)
	if terms.Local != netip.MustParseAddr("10.1.0.77") {
		t.Errorf("agreed on %+v", terms)
	}
	first.awaitEnd()
	one, err := w.session("fixed")
	must(t, err)
	if one.MAC != second.dev.HardwareAddr.String() {
		t.Errorf("the session is of %s", one.MAC)
	}
	if got := one.Limits.IdleTimeoutSeconds; got != 0 {
		t.Errorf("the session ends when it is silent for %v s", got)
	}
	comesBack(t, w)
}

// comesBack checks that a client which lost its power can log in again at once, although its former session has not
// ended, its user may have only one session, and its pool has only one address. Another client of the user is refused.
func comesBack(t *testing.T, w *world) {
	as := ppp.Config{User: "single", Password: "right"}
	before := w.addUnaddressed().subscriber(as)
	_, err := before.dial()
	must(t, err)
	former, err := w.session("single")
	must(t, err)
	if _, err := w.addUnaddressed().subscriber(as).dial(); !errors.Is(err, ppp.ErrRefused) {
		t.Errorf("another client: %v", err)
	}
	again := before.access.subscriber(t, before.mac, as) // takes the place of before, which gets no more frames
	again.uniq = []byte("another")
	terms, err := again.dial()
	must(t, err)
	if terms.Local != netip.MustParseAddr("10.1.0.210") {
		t.Errorf("agreed on %+v", terms)
	}
	if r := w.acct.awaitAccounting("Stop", former.ID); r.value("Acct-Terminate-Cause") != "User-Request" {
		t.Errorf("accounted as %v", r)
	}
	if now, err := w.session("single"); err != nil || now.ID == former.ID || now.PPPoE != again.id {
		t.Errorf("the session is %+v, %v", now, err)
	}
}

// TestSubscribersSurviveRestart: the next daemon takes over PPPoE sessions, after a crash and after SIGTERM, and ends
// the session of a client that does not answer echo requests.
func TestSubscribersSurviveRestart(t *testing.T) {
	t.Parallel()
	w := newLines(t, "echo = \"1s\"\necho_failures = 2")
	s := w.addUnaddressed().subscriber(
		ppp.Config{User: "ann", Password: "right", EchoInterval: time.Second, EchoFailures: 30})
	_, err := s.dial()
	must(t, err)
	one, err := w.session("ann")
	must(t, err)
	w.kill()
	w.start()
	w.daemon.signalAndWait(syscall.SIGTERM)
	w.start()
	again, err := w.session("ann")
	must(t, err)
	if again.ID != one.ID || again.PPPoE != s.id {
		t.Errorf("was %+v, is %+v", one, again)
	}
	s.vanish()
	if r := w.acct.awaitAccounting("Stop", one.ID); r.value("Acct-Terminate-Cause") != "Lost-Carrier" {
		t.Errorf("accounted as %v", r)
	}
	if _, err := w.session("ann"); err == nil {
		t.Error("the session is still there")
	}
}

// TestDetachTellsSubscribers: detach tells clients that their sessions have ended, whether a daemon runs or not.
func TestDetachTellsSubscribers(t *testing.T) {
	t.Parallel()
	for _, force := range []string{"", "--force"} {
		t.Run(force, func(t *testing.T) {
			w := newLines(t, `echo = "10m"`)
			subscribers := []*subscriber{w.addUnaddressed().subscriber(ppp.Config{User: "ann", Password: "right"}),
				w.addUnaddressed().subscriber(ppp.Config{User: "fixed", Password: "right"})}
			for _, s := range subscribers {
				_, err := s.dial()
				must(t, err)
			}
			if force == "" {
				w.kill()
			}
			w.sh(`nsenter --net=/run/netns/$ID-router ` + w.program + ` detach -c $DIR/gatewayd.toml ` + force)
			for _, s := range subscribers {
				if reason := s.awaitEnd(); !errors.Is(reason, ppp.ErrPeerClosed) {
					t.Errorf("ended by %v", reason)
				}
				eventually(t, "a PADT", func() error {
					s.mu.Lock()
					defer s.mu.Unlock()
					if !s.gotPADT {
						return errors.New("none")
					}
					return nil
				})
			}
		})
	}
}
