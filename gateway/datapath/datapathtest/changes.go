package datapathtest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// changes are the behaviours of clients that are set, changed and removed: each change takes effect at once.
var changes = []behaviour{
	{"OutAtOnce", outAtOnce, Shape{}},
	{"SameEntryIsNoInterruption", sameEntry, Shape{}},
	{"AddressChangesHands", changesHands, Shape{}},
	{"ManyHands", manyHands, Shape{}},
	{"SeveralAddresses", several, Shape{}},
	{"ManyClients", manyClients, Shape{Prefix: netip.MustParsePrefix("10.1.0.0/18")}},
}

// outAtOnce: once Set or Remove has returned, no packet passes that the client has lost the right to, also of existing
// connections.
func outAtOnce(t *testing.T, w *World) {
	up, down := w.Up(t, w.Alice), w.Down(t, w.Alice)
	up.Begin()
	down.Begin()
	up.Stops(t, "up, of a client that was never set")
	down.Stops(t, "down, of a client that was never set")
	for _, c := range []struct {
		label string
		out   func() error
	}{
		{"after Remove", func() error { return w.Remove(w.Alice.Addr) }},
		{"after logout", func() error { return w.Set(w.Alice.client()) }},
		{"after another got the address", func() error {
			return w.Set(datapath.Client{Addrs: []netip.Addr{w.Alice.Addr}, MAC: w.Bob.MAC, Admitted: true})
		}},
	} {
		w.admit(t, w.Alice)
		up.Passes(t, "up, admitted")
		down.Passes(t, "down, admitted")
		x, y := w.NewStream(t, w.Alice, Server), w.NewStream(t, w.Alice, Server)
		x.Begin(x.Client)
		y.Begin(y.Server)
		x.Passes(t, "a connection up")
		y.Passes(t, "a connection down")
		must(t, c.out())
		from, fromDown := up.Sent(), down.Sent() // what is sent from here on must not arrive
		stopped(t, c.label, x, y)
		up.Settled(t, from, "up "+c.label)
		down.Settled(t, fromDown, "down "+c.label)
	}
}

// sameEntry: setting an unchanged entry, or new limits, disturbs no client.
func sameEntry(t *testing.T, w *World) {
	w.admit(t, w.Alice)
	up, down := w.Up(t, w.Alice), w.Down(t, w.Alice)
	up.Begin()
	down.Begin()
	x := w.NewStream(t, w.Alice, Server)
	for n := range 100 {
		must(t, w.Set(w.Alice.client(admitted, func(c *datapath.Client) {
			switch n % 3 {
			case 1:
				c.Until = time.Now().Add(time.Hour)
			case 2:
				c.Limits = datapath.Limits{UpBps: 1e9, DownBps: 1e9, TotalBytes: 1 << 40}
			}
		})))
		must(t, w.Set(w.Bob.client()))
		must(t, w.Remove(w.Bob.Addr))
		x.Carry(t, x.Client, 2000)
	}
	up.Halt()
	down.Halt()
	up.Whole(t, "up")
	down.Whole(t, "down")
	if got := w.Counters(t, w.Alice.Addr).DroppedPackets; got != 0 {
		t.Errorf("%d packets were dropped", got)
	}
}

// manyHands: while eight goroutines change other clients and the garden and read counters, no packet of a client is
// lost.
func manyHands(t *testing.T, w *World) {
	w.admit(t, w.Alice)
	up, down := w.Up(t, w.Alice), w.Down(t, w.Alice)
	up.Begin()
	down.Begin()
	var hands sync.WaitGroup
	for i := range 8 {
		addr := netip.AddrFrom4([4]byte{10, 1, 0, 100 + byte(i)})
		hands.Go(func() {
			for n := range 25 {
				c := datapath.Client{Addrs: []netip.Addr{addr}, MAC: datapath.MAC{2, 1, 0, 0, 0, byte(n)}, Admitted: n%2 == 0}
				err := errors.Join(w.Set(c), w.OpenGarden(fmt.Sprintf("203.0.113.%d/32", i), time.Now().Add(time.Hour)),
					w.Remove(addr))
				var total datapath.Counters
				if err = errors.Join(err, w.call("Total", Nothing{}, &total)); err != nil || total.UpPackets > up.Sent() {
					t.Errorf("%v; all were counted %d packets of %d", err, total.UpPackets, up.Sent())
				}
			}
		})
	}
	hands.Wait()
	up.Halt()
	down.Halt()
	up.Whole(t, "up")
	down.Whole(t, "down")
	w.lists(t, w.Alice.Addr)
}

// changesHands: the new owner of an address gets its packets, the former one no more.
func changesHands(t *testing.T, w *World) {
	w.admit(t, w.Alice)
	old := w.Up(t, w.Alice)
	old.Begin()
	old.Passes(t, "of the first owner")
	w.Down(t, w.Alice).Send(20)
	w.Bob.Run(t, "ip addr add 10.1.0.10/24 dev c0")
	must(t, w.Set(datapath.Client{Addrs: []netip.Addr{w.Alice.Addr}, MAC: w.Bob.MAC, Admitted: true}))
	old.Stops(t, "of the former owner")
	heir := NewFlow(t, w.Bob.Space, w.Alice.Addr, w.Server, Server)
	heir.Begin()
	heir.Passes(t, "of the new owner")
	lan := NewWire(t, w.Intruder.Space, clientLink)
	down := NewFlow(t, w.Server, Server, w.Bob.Space, w.Alice.Addr)
	down.Begin()
	down.Passes(t, "to the new owner")
	for _, f := range lan.Frames() {
		if isMark(f) && strings.HasPrefix(string(f), string(w.Alice.MAC[:])) {
			t.Fatalf("the former owner still gets packets:\n%s", anatomy(f))
		}
	}
}

// manyClients: among ten thousand clients, each is admitted, counted and listed on its own.
func manyClients(t *testing.T, w *World) {
	const many = 10_000
	all := make([]datapath.Client, many)
	addrs := make([]netip.Addr, many)
	for i := range all {
		b := [4]byte{10, 1}
		binary.BigEndian.PutUint16(b[2:], uint16(i+300))
		addrs[i] = netip.AddrFrom4(b)
		all[i] = datapath.Client{Addrs: []netip.Addr{addrs[i]}, MAC: datapath.MAC{2, 1, 0, 0, b[2], b[3]},
			Admitted: i%100 == 0, Limits: datapath.Limits{UpBps: uint64(i+1) * 1000}}
	}
	must(t, w.Set(all...))
	w.admit(t, w.Alice)
	if n := len(w.Clients(t)); n != many+1 {
		t.Errorf("%d clients, want %d", n, many+1)
	}
	up, down := w.Up(t, w.Alice), w.Down(t, w.Alice)
	up.Send(50)
	down.Send(50)
	const bytes = 50 * (headers + FlowBytes)
	w.counts(t, w.Alice, tally{}, tally{upBytes: bytes, upPackets: 50, downBytes: bytes, downPackets: 50})
	lan, server := NewWire(t, w.Intruder.Space, clientLink), NewWire(t, w.Server, serverLink)
	lan.Send(t, Reset("let me in", From(addrs[0], all[0].MAC)), Reset("before login", From(addrs[1], all[1].MAC)),
		Reset("of another", From(addrs[2], all[0].MAC)))
	up.Send(20)
	server.await(t, 0, "let me in")
	netnstest.Await(t, "the reference flow", func() error {
		if up.Came() != 70 {
			return fmt.Errorf("%d of 70", up.Came())
		}
		return nil
	})
	if f := server.Frames(); holding(f, "let me in") != 1 || holding(f, "before login") != 0 ||
		holding(f, "of another") != 0 {
		t.Error("what one of ten thousand may do depends on the others")
	}
	if got := tallyOf(w.Total(t)); got != (tally{bytes + 20*(headers+FlowBytes) + 40 + 9, 71, bytes, 50}) {
		t.Errorf("the total is %+v", got) // with "let me in": 40 bytes of headers and 9 of text
	}
	must(t, w.Remove(addrs...))
	w.lists(t, w.Alice.Addr)
}
