// Tests of what is logged of servers. newAttacker is a socket in place of a server, by which a test answers itself or
// keeps silent (hostile_test.go). newClient makes a Client of the servers in its Config, and accepted does a login that
// must succeed.

package radius

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"layeh.com/radius"

	"github.com/gateweigh/gateweigh/internal/logtest"
)

// accepts answers all requests until the test is over.
func (a *attacker) accepts() {
	for b := make([]byte, radius.MaxPacketLength); ; {
		n, from, err := a.conn.ReadFromUDPAddrPort(b)
		if err != nil {
			return
		}
		a.conn.WriteToUDPAddrPort(signed(b[:n], radius.CodeAccessAccept), from)
	}
}

// TestLostRedundancyIsSaid: the log says once that one of two servers does not answer while the other does, and why,
// and that it does again.
func TestLostRedundancyIsSaid(t *testing.T) {
	t.Parallel()
	first, second, log := newAttacker(t), newAttacker(t), &logtest.Log{}
	go second.accepts()
	c := newClient(t, Config{
		Servers: []Server{first.server(), second.server()}, Timeout: 200 * time.Millisecond, DeadTime: time.Millisecond,
		Log: log.Logger(),
	})
	if s := c.Stats()[0]; s.Asked || s.Trouble != "" {
		t.Errorf("before it was asked: %+v", s)
	}
	lost := fmt.Sprintf("%s does not answer, %s is asked: no answer: does it know this gateway's address and secret?",
		first.addr, second.addr)
	back := fmt.Sprintf("%s answers again", first.addr)
	says := func(phase string, losses, returns int) {
		t.Helper()
		if text := log.String(); strings.Count(text, lost) != losses || strings.Count(text, back) != returns {
			t.Errorf("%s: want the loss %d times and the return %d times:\n%s", phase, losses, returns, text)
		}
	}
	for range 3 {
		accepted(t, c, "with a silent first")
	}
	says("with a silent first", 1, 0)
	if s := c.Stats(); !s[0].Asked || !strings.HasPrefix(s[0].Trouble, "no answer") || !s[1].Asked || s[1].Trouble != "" {
		t.Errorf("states %+v", s)
	}
	go first.accepts()
	await(t, "the first server's return", func() bool {
		accepted(t, c, "with the first back")
		return c.Stats()[0].Trouble == ""
	})
	accepted(t, c, "with both")
	says("with both", 1, 1)
}
