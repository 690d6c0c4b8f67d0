// Tests of the server of ident queries (RFC 1413) with peers that are silent or many.

package ident

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/gateway/budget"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// TestSilentIdentPeers: a host that connects and sends nothing, or a query byte by byte, gets a limited number of
// connections, and loses them after queryTimeout; then others get an answer. Long: the steps of one run, each of which
// needs the state that the one before left.
func TestSilentIdentPeers(t *testing.T) {
	defer func(before time.Duration) { queryTimeout = before }(queryTimeout)
	queryTimeout = time.Second
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := New(Config{
		Masquerade: true, Rate: budget.Rate{AtOnce: 1000, EachSecond: 1000}, Log: slog.New(slog.DiscardHandler),
		UserOf: func(netip.Addr) (User, bool) { return User{}, false },
	}, nil)
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- server.Serve(ctx, listener) }()
	defer func() { cancel(); <-served }()
	var all []net.Conn
	for range maxPerHost + 10 {
		conn, err := net.Dial("tcp4", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		all = append(all, conn)
	}
	go func() { // the first connection sends a byte now and then
		for _, b := range "1 , 2" + strings.Repeat(" ", 1000) {
			if _, err := all[0].Write([]byte{byte(b)}); err != nil {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
	}()
	for i, conn := range all {
		conn.SetReadDeadline(time.Now().Add(time.Minute))
		if b, err := io.ReadAll(conn); len(b) > 0 || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("connection %d is answered by %q, %v", i, b, err)
		}
	}
	if n := server.Stats(); n.Throttled != 10 || n.Invalid != maxPerHost {
		t.Errorf("%+v", n)
	}
	netnstest.Await(t, "an answer", func() error {
		conn, err := net.Dial("tcp4", listener.Addr().String())
		if err != nil {
			return err
		}
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(time.Minute))
		if _, err := io.WriteString(conn, "0 , 0\r\n"); err != nil {
			return err
		}
		b, err := io.ReadAll(conn)
		if err == nil && !strings.Contains(string(b), invalidPort) {
			err = errors.New(string(b))
		}
		return err
	})
}

// TestPayer: an IPv6 host has one budget for all addresses that it can have: those of its /64, named by the network's
// first address.
func TestPayer(t *testing.T) {
	for peer, want := range map[string]string{
		"192.0.2.2": "192.0.2.2", "2001:db8:9::2": "2001:db8:9::", "2001:db8:9::ffff:1": "2001:db8:9::",
		"2001:db8:9:1::2": "2001:db8:9:1::", "fe80::1%eth0": "fe80::",
	} {
		if got := payer(netip.MustParseAddr(peer)); got.String() != want {
			t.Errorf("%s pays as %s, want %s", peer, got, want)
		}
	}
}
