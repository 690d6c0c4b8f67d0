// Steps of the tests of address translation, about connections of clients whose session ends. An identHost is a host on
// the WAN (ident_test.go); a flow sends numbered UDP datagrams through the gateway (flow_test.go).

package main

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"
)

// nextSessionGetsNothing checks that connections of a client, ann, end with her session: her next session at the same
// address gets no packets of them and none are counted for it. l is the listener to which the forwarded port leads.
// Connections of bob go on.
func (w *world) nextSessionGetsNothing(t *testing.T, ann, bob *client, server *identHost, l *net.TCPListener) {
	t.Helper()
	far := map[string]net.Conn{}
	near := []net.Conn{ann.connect(server)}
	far["that the client began"] = server.lastConn
	others := bob.connect(server)
	othersFar := server.lastConn
	for name, host := range map[string]string{
		"forwarded from outside": "server", "forwarded from another client": bob.host} {
		w.inHost(host, func() (err error) {
			far[name], err = net.DialTimeout("tcp4", netip.AddrPortFrom(outside, 8080).String(), 20*time.Second)
			return err
		})
		c, err := l.Accept()
		must(t, err)
		near = append(near, c)
	}
	datagrams := w.flow(ann, true, 0)
	datagrams.sendFew(3)
	datagrams.expectAll(t, "datagrams of the session")
	back := w.answers(t, datagrams)
	for _, c := range near {
		defer c.Close()
		must(t, c.(*net.TCPConn).SetKeepAlive(false)) // a keep-alive would begin the connection again at the gateway
	}

	ann.logOut()
	ann.logIn("ann")
	back(100)
	must(t, others.SetDeadline(time.Now().Add(time.Minute)))
	_, err := othersFar.Write([]byte("x"))
	must(t, err)
	if _, err := io.ReadFull(others, make([]byte, 1)); err != nil { // sent after the datagrams
		t.Errorf("another client's connection does not go on: %v", err)
	}
	if got := ann.session().DownBytes; got > 50*datagramBytes {
		t.Errorf("%d bytes of the former session's connections are counted for the next", got)
	}
	for name, c := range far {
		defer c.Close()
		must(t, c.SetDeadline(time.Now().Add(time.Minute)))
		_, err := c.Write([]byte("x"))
		must(t, err)
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("a connection %s goes on after the session: %v", name, err)
		}
	}
}

// answers returns a function that sends datagrams from the server to the address and port from which it has received
// the last one of a client's flow.
func (w *world) answers(t *testing.T, f *flow) func(n int) {
	t.Helper()
	f.receiver.SetReadDeadline(time.Now()) // ends its receiver
	f.running.Wait()
	must(t, f.receiver.SetReadDeadline(time.Now().Add(time.Minute)))
	must(t, func() error { _, err := f.sender.Write([]byte("x")); return err }())
	_, from, err := f.receiver.ReadFromUDPAddrPort(make([]byte, 1))
	must(t, err)
	return func(n int) {
		b := make([]byte, datagramBytes)
		for range n {
			_, err := f.receiver.WriteToUDPAddrPort(b, from)
			must(t, err)
			time.Sleep(time.Millisecond)
		}
	}
}
