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

// passesNothingOn checks that connections end with the session that they belong to: the next session at the address
// gets and pays nothing of them. l is where ann's forward leads. Bob's connections go on.
func (w *world) passesNothingOn(t *testing.T, ann, bob *client, server *identHost, l *net.TCPListener) {
	t.Helper()
	far := map[string]net.Conn{}
	near := []net.Conn{ann.connect(server)}
	far["that it began"] = server.lastConn
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
		must(t, c.(*net.TCPConn).SetKeepAlive(false)) // which would begin the connection anew
	}

	ann.logOut()
	ann.logIn("ann")
	back(100)
	must(t, others.SetDeadline(time.Now().Add(time.Minute)))
	_, err := othersFar.Write([]byte("x"))
	must(t, err)
	if _, err := io.ReadFull(others, make([]byte, 1)); err != nil { // behind the datagrams on the wire
		t.Errorf("another's connection does not go on: %v", err)
	}
	if got := ann.session().DownBytes; got > 50*datagramBytes {
		t.Errorf("the next session pays %d bytes of the former one's connections", got)
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

// answers returns a function that sends datagrams to where the server has last received one of a client's from.
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
