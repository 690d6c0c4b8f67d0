// Tests of answers that come from elsewhere than the server (hostile_test.go has the attacker).

package radius

import (
	"errors"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"layeh.com/radius"

	"github.com/gateweigh/gateweigh/gateway/session"
)

// newTwins returns an attacker, and a socket that has its port at another address.
func newTwins(t testing.TB) (*attacker, *net.UDPConn) {
	t.Helper()
	for {
		a := newAttacker(t)
		twin, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(
			netip.AddrPortFrom(netip.MustParseAddr("127.0.0.77"), a.addr.Port())))
		if errors.Is(err, syscall.EADDRINUSE) { // another program has the port at all addresses but the attacker's
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { twin.Close() })
		return a, twin
	}
}

// TestAnswersFromElsewhereAreNotSeen: a correct answer from the wrong port, or from another address and the right port.
func TestAnswersFromElsewhereAreNotSeen(t *testing.T) {
	a, twin := newTwins(t)
	others := []*net.UDPConn{newAttacker(t).conn, twin}
	c := newClient(t, Config{Servers: []Server{a.server()}, Timeout: time.Minute})
	go func() {
		r := a.receive(t)
		for _, other := range others {
			if _, err := other.WriteToUDPAddrPort(signed(r.data, radius.CodeAccessAccept), r.from); err != nil &&
				!errors.Is(err, net.ErrClosed) {
				t.Error(err)
			}
		}
		a.send(t, r.from, signed(r.data, radius.CodeAccessReject))
	}()
	if _, err := c.Authenticate(t.Context(), credentials("alice", "x")); !errors.Is(err, session.ErrRejected) {
		t.Errorf("%v, want a rejection", err)
	}
}
