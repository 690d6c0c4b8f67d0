package main

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/gateway/control"
)

// translated are the lines of a pair that translates to the address that moves.
const translated = "\n[nat]\nsource = [\"192.0.2.1\"]"

// tcpPair is a connection of a client to the server.
type tcpPair struct {
	t           *testing.T
	near, there net.Conn // the client's end, the server's
}

// connects opens a connection of a client to a port of the server.
func (p *pairWorld) connects(t *testing.T, c *client, port int) *tcpPair {
	t.Helper()
	var l net.Listener
	out := &tcpPair{t: t}
	to := netip.AddrPortFrom(serverAddr, uint16(port)).String()
	p.inHost("server", func() (err error) { l, err = net.Listen("tcp4", to); return err })
	defer l.Close()
	p.inHost(c.host, func() (err error) { out.near, err = net.DialTimeout("tcp4", to, 30*time.Second); return err })
	var err error
	out.there, err = l.Accept()
	must(t, err)
	for _, end := range []net.Conn{out.near, out.there} {
		must(t, end.SetDeadline(time.Now().Add(2*time.Minute)))
		t.Cleanup(func() { end.Close() })
	}
	if from := out.there.RemoteAddr().String(); !strings.HasPrefix(from, "192.0.2.1:") {
		t.Fatalf("the server sees %s", from)
	}
	out.passes(out.near, out.there, "hello")
	out.passes(out.there, out.near, "HELLO")
	return out
}

// passes sends a text from one end to the other.
func (c *tcpPair) passes(from, to net.Conn, text string) {
	c.t.Helper()
	_, err := io.WriteString(from, text)
	must(c.t, err)
	c.arrives(to, text)
}

// arrives reads a text that was sent.
func (c *tcpPair) arrives(at net.Conn, text string) {
	c.t.Helper()
	got := make([]byte, len(text))
	if _, err := io.ReadFull(at, got); err != nil || string(got) != text {
		c.t.Fatalf("%q arrives as %q, %v", text, got, err)
	}
}

// switchOver ends the active gateway's keepalived.
func switchOver(active, standby *pairGateway) {
	standby.awaitReady()
	active.keepalived.signalAndWait(syscall.SIGTERM)
	standby.await(control.Active)
}

// TestPairTranslated: TCP connections with translated addresses go on after a planned switch, whoever sends first. The
// new gateway does not know them, and does not reset one whose server's segment comes first: it goes on once the client
// sends. A port that the gateway itself does not serve is still refused.
func TestPairTranslated(t *testing.T) {
	t.Parallel()
	p := newPair(t, translated)
	active, standby := p.startAll()
	ann := p.client().atGateway(active)
	began := ann.logIn("ann")
	standby.awaitSession(ann, began.ID)
	ann.pings()
	client, server := p.connects(t, ann, 7001), p.connects(t, ann, 7002)
	switchOver(active, standby)
	client.passes(client.near, client.there, "the client first")
	client.passes(client.there, client.near, "an answer")
	_, err := io.WriteString(server.there, "the server first")
	must(t, err)
	eventually(t, "the server repeats its segment, which nobody answers", func() error {
		out, err := p.try(`nsenter --net=/run/netns/$ID-server ss -Htino "sport = :7002"`)
		if err == nil && !strings.Contains(out, "retrans:") {
			err = fmt.Errorf("%s", out)
		}
		return err
	})
	server.passes(server.near, server.there, "still here")
	server.arrives(server.near, "the server first")
	p.inHost("server", func() error {
		if c, err := net.DialTimeout("tcp4", "192.0.2.1:7003", 30*time.Second); err == nil {
			c.Close()
			return fmt.Errorf("the gateway serves port 7003")
		} else if !strings.Contains(err.Error(), "refused") {
			return err
		}
		return nil
	})
}
