package main

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"sync"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/gateweigh/gateweigh/gateway/control"
	"github.com/gateweigh/gateweigh/gateway/session"
	"github.com/gateweigh/gateweigh/lab/client/persona"
)

// vanished are the subscribers of TestSubscribersVanish.
const vanished = 1000

// TestSubscribersVanish: a thousand subscribers send and receive, and vanish without a word. Echo requests find them
// gone; each is accounted as lost, with the bytes that it has sent and received.
func TestSubscribersVanish(t *testing.T) {
	w := newNetwork(t)
	w.Wide, w.Lines = true, "methods = [\"chap\"]\necho = \"1s\"\necho_failures = 10"
	w.auth, w.acct = w.radius("auth", 1812), w.radius("acct", 1813)
	w.write("radius/gatewayd.toml", "gatewayd.toml", w)
	w.sh(`ip -n $ID-router addr flush dev lan0; ip -n $ID-router addr add 10.1.0.1/16 dev lan0; ip -n $ID-server route replace 10.1.0.0/16 via 192.0.2.1`)
	w.start()

	var server net.PacketConn
	w.in("server", func() (err error) {
		server, err = net.ListenPacket("udp4", serverAddr.String()+":7")
		return err
	})
	defer server.Close()
	go func() { // RFC 862
		buf := make([]byte, 2048)
		for n, from, err := server.ReadFrom(buf); err == nil; n, from, err = server.ReadFrom(buf) {
			_, _ = server.WriteTo(buf[:n], from)
		}
	}()

	var link *persona.Link
	var lines *persona.Lines
	host := w.stranger().host
	w.in(host, func() (err error) {
		if link, err = persona.Open(persona.Config{Interface: "c0", LAN: netip.MustParsePrefix("10.1.0.0/16"), Clients: vanished, MTU: 1492, Singly: true}); err == nil {
			lines, err = persona.NewLines("c0")
		}
		return err
	})
	defer func() { must(t, errors.Join(lines.Close(), link.Close())) }()
	addrs := subscribe(t, link, lines, func(terms netip.Addr, mac persona.MAC) {
		w.in(host, func() error { return errors.Join(link.SetRouter(terms), link.Meet(terms, mac)) })
	})
	w.in(host, func() error { return echoes(addrs) })

	counted := map[netip.Addr]control.Traffic{}
	for i, addr := range addrs {
		bytes := uint64(echoBytes(i) + 28)
		counted[addr] = control.Traffic{UpBytes: bytes, UpPackets: 1, DownBytes: bytes, DownPackets: 1}
	}
	must(t, lines.Close())
	eventually(t, "the end of all sessions", func() error {
		s, err := w.status()
		if err == nil && (s.Sessions[session.Authenticated] > 0 || s.Outbox > 0) {
			err = fmt.Errorf("%d sessions, %d messages to send", s.Sessions[session.Authenticated], s.Outbox)
		}
		return err
	})
	billed := map[netip.Addr]control.Traffic{}
	for _, r := range w.acct.records("told", "") {
		if r.one("Acct-Status-Type") != "Stop" {
			continue
		}
		if cause := r.one("Acct-Terminate-Cause"); cause != "Lost-Carrier" {
			t.Errorf("a session ended by %s", cause)
		}
		billed[netip.MustParseAddr(r.one("Framed-IP-Address"))] = r.counts()
	}
	if !maps.Equal(billed, counted) {
		for addr, want := range counted {
			if got := billed[addr]; got != want {
				t.Fatalf("%s is billed %+v, it has %+v", addr, got, want)
			}
		}
		t.Errorf("%d are billed, of %d", len(billed), len(counted))
	}
}

// subscribe brings all subscribers up, each with an address of its own, which it returns. first is called once, with
// the concentrator's addresses.
func subscribe(t *testing.T, link *persona.Link, lines *persona.Lines, first func(netip.Addr, persona.MAC)) (addrs []netip.Addr) {
	t.Helper()
	var once sync.Once
	var all errgroup.Group
	all.SetLimit(64)
	addrs = make([]netip.Addr, vanished)
	for i := range addrs {
		all.Go(func() error {
			mac := persona.MAC{2, 0x67, 0x77, 'v', byte(i >> 8), byte(i)}
			line, tries, err := lines.Dial(t.Context(), mac, persona.Account{User: "ann", Password: "right"})
			if err != nil {
				return fmt.Errorf("subscriber %d: %w (tries: %+v)", i, err, tries)
			}
			terms := line.Terms()
			once.Do(func() { first(terms.Peer, line.Session().Concentrator) })
			addrs[i] = terms.Local
			return link.PutOnLine(terms.Local, mac, line.Session())
		})
	}
	must(t, all.Wait())
	return addrs
}

// echoBytes are the payload of subscriber i's datagram.
func echoBytes(i int) int { return 100 + i }

// echoes sends a datagram from each address to the server and waits for its return; few at once, so that none is lost.
func echoes(addrs []netip.Addr) error {
	var all errgroup.Group
	all.SetLimit(32)
	for i, addr := range addrs {
		conn, err := net.DialUDP("udp4", &net.UDPAddr{IP: addr.AsSlice()}, net.UDPAddrFromAddrPort(netip.AddrPortFrom(serverAddr, 7)))
		if err != nil {
			return err
		}
		all.Go(func() error {
			defer conn.Close()
			_, err := conn.Write(make([]byte, echoBytes(i)))
			if err == nil {
				_, err = conn.Read(make([]byte, 2048))
			}
			return err
		})
	}
	return all.Wait()
}
