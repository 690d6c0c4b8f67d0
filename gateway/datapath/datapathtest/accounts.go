package datapathtest

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// accounts are the behaviours of counters: every byte that passes is counted once, and nothing else is counted.
var accounts = []behaviour{
	{"PacketsAreCounted", packetsAreCounted, Shape{}},
	{"PacketsAreCountedBare", packetsAreCounted, Shape{Bare: true}},
	{"StreamsAreCounted", streamsAreCounted, Shape{}},
	{"StreamsAreCountedBare", streamsAreCounted, Shape{Bare: true}},
	{"OddPacketsAreCounted", oddPackets, Shape{Switch: true}},
	{"BooksAgree", booksAgree, Shape{}},
	{"CountersAgree", countersAgree, Shape{}},
}

// tally is the counted traffic of an address.
type tally struct{ upBytes, upPackets, downBytes, downPackets uint64 }

// tallyOf returns the traffic part of counters.
func tallyOf(c datapath.Counters) tally {
	return tally{c.UpBytes, c.UpPackets, c.DownBytes, c.DownPackets}
}

// minus returns the traffic since b.
func (a tally) minus(b tally) tally {
	return tally{a.upBytes - b.upBytes, a.upPackets - b.upPackets, a.downBytes - b.downBytes,
		a.downPackets - b.downPackets}
}

// tally returns a station's traffic so far.
func (w *World) tally(t *testing.T, s Station) tally {
	t.Helper()
	return tallyOf(w.Counters(t, s.Addr))
}

// stableTraffic returns a station's traffic once it no longer changes.
func (w *World) stableTraffic(t *testing.T, s Station) (now tally) {
	t.Helper()
	netnstest.Await(t, "the last of a count", func() error {
		before := w.tally(t, s)
		time.Sleep(50 * time.Millisecond)
		if now = w.tally(t, s); now != before {
			return fmt.Errorf("%+v became %+v", before, now)
		}
		return nil
	})
	return now
}

// counts waits until the traffic that was counted for a station after the reading since is exactly want.
func (w *World) counts(t *testing.T, s Station, since, want tally) {
	t.Helper()
	netnstest.Await(t, "a count", func() error {
		if got := w.tally(t, s).minus(since); got != want {
			return fmt.Errorf("counted %+v, want %+v", got, want)
		}
		return nil
	})
}

const headers = 20 + 8 // of IP and UDP

// packetsAreCounted: UDP packets of all sizes are counted, also 12 packets that a sender passes to its kernel as one
// (joint is what is counted of these). Long: the steps of one run, each of which needs the state that the one before
// left.
func packetsAreCounted(t *testing.T, w *World) {
	w.admit(t, w.Alice, w.Bob)
	up, down := w.Up(t, w.Alice), w.Down(t, w.Alice)
	longest := 1472
	if w.line != nil {
		longest = pppoeMTU - headers
	}
	var want tally
	for n, size := range []int{8, 17, 100, 1000, longest} {
		for range 20 + n {
			up.SendSized(size)
			down.SendSized(size)
			want.upBytes, want.upPackets = want.upBytes+uint64(size+headers), want.upPackets+1
			want.downBytes, want.downPackets = want.downBytes+uint64(size+headers), want.downPackets+1
		}
	}
	w.counts(t, w.Alice, tally{}, want)
	up.Whole(t, "up")
	down.Whole(t, "down")
	joint := tally{12 * (1200 + headers), 12, 12 * (1200 + headers), 12}
	if w.path.Joins && !w.bare {
		joint = tally{12*1200 + headers, 1, 12*1200 + headers, 1}
	} else if w.seesBridged() && !w.bare {
		const full = 1500 - headers
		packets := uint64(12*1200+full-1) / full
		joint = tally{12*1200 + packets*headers, packets, 12*1200 + packets*headers, packets}
	}
	flows := []*Flow{up, down}
	if w.path.LosesJoined {
		flows, joint.upBytes, joint.upPackets = flows[1:], 0, 0
	}
	for _, f := range flows {
		from := f.Sent() // earlier packets may still arrive
		err := f.together(12, 1200)
		if (w.bare || w.line != nil) && errors.Is(err, unix.EIO) {
			return // before Linux 6.11 only interfaces that compute checksums can send several packets as one
		}
		must(t, err)
		netnstest.Await(t, "packets sent as one", func() error {
			if got := f.CameAfter(from); got != 12 {
				return fmt.Errorf("%d of 12 came", got)
			}
			return nil
		})
	}
	want.upBytes, want.upPackets, want.downBytes, want.downPackets = want.upBytes+joint.upBytes,
		want.upPackets+joint.upPackets, want.downBytes+joint.downBytes, want.downPackets+joint.downPackets
	w.counts(t, w.Alice, tally{}, want)
	if got := w.tally(t, w.Bob); got != (tally{}) {
		t.Errorf("Bob, who sent nothing, was counted %+v", got)
	}
}

// together sends n packets by one system call, as one packet that the interface splits (udp(7), UDP_SEGMENT).
func (f *Flow) together(n, bytes int) error {
	all := make([]byte, n*bytes)
	for i := range n {
		number := f.sent.Add(1)
		for k := range 8 {
			all[i*bytes+k] = byte(number >> (56 - 8*k))
		}
	}
	rc, err := f.out.SyscallConn()
	if err != nil {
		return err
	}
	var set error
	err = rc.Control(func(fd uintptr) { set = unix.SetsockoptInt(int(fd), unix.IPPROTO_UDP, unix.UDP_SEGMENT, bytes) })
	if err = errors.Join(err, set); err != nil {
		return err
	}
	_, err = f.out.Write(all)
	rc.Control(func(fd uintptr) { set = unix.SetsockoptInt(int(fd), unix.IPPROTO_UDP, unix.UDP_SEGMENT, 0) })
	return errors.Join(err, set)
}

// plainTCP gives every segment a header of 20 bytes, except the first with 24, and a window so short that no queue
// overflows.
const plainTCP = `cd /proc/sys/net/ipv4; echo 0 >tcp_timestamps; echo 0 >tcp_sack; echo 0 >tcp_window_scaling; echo 0 >tcp_ecn; echo reno >tcp_congestion_control`

// streamsAreCounted compares TCP, aggregated or not, with the counts of both ends.
func streamsAreCounted(t *testing.T, w *World) {
	w.Alice.Run(t, plainTCP)
	w.Server.Run(t, plainTCP)
	w.admit(t, w.Alice)
	dropped := w.LinkDrops(t)
	x := w.NewStream(t, w.Alice, Server)
	x.Carry(t, x.Client, 3_000_000)
	x.Carry(t, x.Server, 3_000_000)
	x.Carry(t, x.Client, 1)
	netnstest.Await(t, "the counters", func() error {
		up, down := info(t, x.Client), info(t, x.Server)
		got := w.tally(t, w.Alice)
		// The server's SYN, ACK was sent before there was a connection to count it.
		want := tally{wire(up, 0), uint64(up.Segs_out), wire(down, 1), uint64(down.Segs_out) + 1}
		if w.path.Joins && !w.bare {
			return joined(got, want)
		}
		// A busy machine's links may drop acknowledgements, which nobody sends again.
		lost := want.minus(got)
		acks := lost.upBytes == 40*lost.upPackets && lost.downBytes == 40*lost.downPackets
		if drops := w.LinkDrops(t) - dropped; !acks || lost.upPackets+lost.downPackets > drops {
			return fmt.Errorf("counted %+v, the ends sent %+v, and links dropped %d", got, want, drops)
		}
		return nil
	})
}

// joined compares the counts of aggregated segments with the bytes that the ends sent: all data, and a header for each
// counted packet.
func joined(got, want tally) error {
	got.upBytes, want.upBytes = got.upBytes-40*got.upPackets, want.upBytes-40*want.upPackets
	got.downBytes, want.downBytes = got.downBytes-40*got.downPackets, want.downBytes-40*want.downPackets
	if got.upBytes != want.upBytes || got.downBytes != want.downBytes || got.upPackets > want.upPackets ||
		got.downPackets > want.downPackets {
		return fmt.Errorf("without headers counted %+v, the ends sent %+v", got, want)
	}
	return nil
}

// wire returns the bytes of the IP packets that an end of a connection with plainTCP sent, and of more segments without
// data.
func wire(i *unix.TCPInfo, more uint64) uint64 {
	return i.Bytes_sent + (uint64(i.Segs_out)+more)*(20+20) + 4
}

// oddPackets: padding is not counted, fragments are, answers of the gateway are not.
func oddPackets(t *testing.T, w *World) {
	w.admit(t, w.Alice)
	lan, server := NewWire(t, w.Alice.Space, clientLink), NewWire(t, w.Server, serverLink)
	padded := append(SYN(443, By(w.Alice)), make([]byte, 6)...)
	lan.Send(t, padded)
	w.counts(t, w.Alice, tally{}, tally{upBytes: 40, upPackets: 1, downBytes: 40, downPackets: 1}) // and its reset
	server.Send(t, append(SYN(443, Down), make([]byte, 6)...))
	w.counts(t, w.Alice, tally{}, tally{upBytes: 80, upPackets: 2, downBytes: 80, downPackets: 2})
	lan.Send(t, Reset("with options", By(w.Alice), Options))
	server.await(t, 0, "with options")
	before := w.tally(t, w.Alice)
	says(t, w.Alice.Space, "ping -c 1 -W 5 -s 4000 192.0.2.2", "1 received")
	want := tally{upBytes: 4008 + 3*20, upPackets: 3, downBytes: 4008 + 3*20, downPackets: 3}
	if w.path.Reassembles {
		want = tally{upBytes: 4008 + 20, upPackets: 1, downBytes: 4008 + 20, downPackets: 1}
	}
	w.counts(t, w.Alice, before, want)
	before = w.tally(t, w.Alice)
	says(t, w.Alice.Space, "ping -c 2 -i 0.1 -W 5 10.1.0.1", "2 received")
	if got, err := exchange(w.Alice, netip.AddrPortFrom(Gateway, dnsPort), "who is it"); err != nil {
		t.Errorf("DNS: %q, %v", got, err)
	}
	if got := w.tally(t, w.Alice).minus(before); got != (tally{}) {
		t.Errorf("what the gateway itself answered was counted: %+v", got)
	}
}

// booksAgree: the counters of clients, their sum, the counts of packets by reason, the list of clients and the times at
// which they were last seen agree. Long: the steps of one run, each of which needs the state that the one before left.
func booksAgree(t *testing.T, w *World) {
	const packets = 50
	began := time.Now().Add(-50 * time.Millisecond)
	if w.path.PPPoEOnly {
		w.Bob.Session = bobSession
		newPPPoEClient(t, w.Bob)
	}
	w.admit(t, w.Alice, w.Bob)
	w.lease(t, w.Intruder)
	for _, s := range []Station{w.Alice, w.Bob} {
		if c := w.Counters(t, s.Addr); !c.Seen.IsZero() {
			t.Errorf("%s was seen at %v before it sent anything", s.Addr, c.Seen)
		}
		w.Up(t, s).Send(packets)
		w.Down(t, s).Send(packets)
	}
	w.Up(t, w.Intruder).Send(packets)
	want := tally{packets * (headers + FlowBytes), packets, packets * (headers + FlowBytes), packets}
	w.counts(t, w.Alice, tally{}, want)
	w.counts(t, w.Bob, tally{}, want)
	if w.path.Moves {
		for _, want := range [][]netip.Addr{{w.Alice.Addr, w.Bob.Addr}, nil} {
			if moved := w.Moved(t); !slices.Equal(moved, want) {
				t.Errorf("%v have counted packets, want %v", moved, want)
			}
		}
	}
	total := w.Total(t)
	if got, twice := tallyOf(total),
		(tally{2 * want.upBytes, 2 * want.upPackets, 2 * want.downBytes, 2 * want.downPackets}); got != twice {
		t.Errorf("the total is %+v, the clients' sum %+v", got, twice)
	}
	netnstest.Await(t, "the count of what was forwarded", func() error {
		if n := w.Packets(t); forwarded(n) != 4*packets {
			return fmt.Errorf("%d packets, want %d: %v", forwarded(n), 4*packets, n)
		}
		return nil
	})
	for _, s := range []Station{w.Alice, w.Bob} {
		c := w.Counters(t, s.Addr)
		if c.Seen.Before(began) || c.Seen.After(time.Now().Add(50*time.Millisecond)) {
			t.Errorf("%s was last seen at %v; it sent after %v, and now is %v", s.Addr, c.Seen, began, time.Now())
		}
		if c.Epoch != total.Epoch || c.DroppedPackets != 0 {
			t.Errorf("%s: %+v in epoch %d", s.Addr, c, total.Epoch)
		}
	}
	if c := w.Counters(t, w.Intruder.Addr); !c.Seen.IsZero() || tallyOf(c) != (tally{}) {
		t.Errorf("a client before login has counters: %+v", c)
	}
	w.lists(t, w.Alice.Addr, w.Bob.Addr, w.Intruder.Addr)
	must(t, w.Remove(w.Bob.Addr))
	must(t, w.Remove(w.Bob.Addr)) // a second call has no effect
	w.lists(t, w.Alice.Addr, w.Intruder.Addr)
	w.counts(t, w.Bob, tally{}, want) // also afterwards
	for _, wrong := range []string{"10.1.0.1", "192.0.2.2"} {
		if w.Set(datapath.Client{Addrs: []netip.Addr{netip.MustParseAddr(wrong)}, MAC: w.Bob.MAC}) == nil {
			t.Errorf("%s became a client", wrong)
		}
	}
}

// countersAgree: the counts of packets by reason, the sum of all clients and each client's counters agree, also about
// aggregated packets, packets beyond a rate or quota, and packets between two clients, which count for both.
func countersAgree(t *testing.T, w *World) {
	limits := datapath.Limits{UpBps: *rateBps, DownBytes: 1_000_000}
	must(t, w.Set(w.Alice.client(admitted, func(c *datapath.Client) { c.Limits = limits })))
	x, y := w.NewStream(t, w.Alice, Server), w.NewStream(t, w.Alice, Server)
	if !w.path.PPPoEOnly {
		w.admit(t, w.Bob)
		w.Alice.Run(t, "sysctl -qw net.ipv4.conf.all.accept_redirects=0 net.ipv4.conf.c0.accept_redirects=0; ip route add "+
			w.Bob.Addr.String()+" via 10.1.0.1")
		NewFlow(t, w.Alice.Space, w.Alice.Addr, w.Bob.Space, w.Bob.Addr).Send(20)
	}
	x.Begin(x.Client)
	y.Begin(y.Server)
	netnstest.Await(t, "packets beyond the limits", func() error {
		if n := w.Counters(t, w.Alice.Addr).DroppedPackets; n < 20 {
			return fmt.Errorf("%d were dropped", n)
		}
		return nil
	})
	for _, c := range []*net.TCPConn{x.Client, x.Server, y.Client, y.Server} {
		c.SetLinger(0)
		c.Close()
	}
	netnstest.Await(t, "counters that agree", func() error {
		n, total := w.Packets(t), w.Total(t)
		alice, bob := w.Counters(t, w.Alice.Addr), w.Counters(t, w.Bob.Addr)
		passed := func(c datapath.Counters) uint64 { return c.UpPackets + c.DownPackets }
		switch dropped := n["rate"] + n["quota"]; {
		case forwarded(n) != passed(total) || passed(total) != passed(alice)+passed(bob):
			return fmt.Errorf(
				"forwarded %d, in total %d, by clients %d and %d", forwarded(n), passed(total), passed(alice), passed(bob))
		case dropped != total.DroppedPackets || dropped != alice.DroppedPackets+bob.DroppedPackets:
			return fmt.Errorf("dropped %d, in total %d, by clients %d and %d", dropped, total.DroppedPackets,
				alice.DroppedPackets, bob.DroppedPackets)
		}
		return nil
	})
}

// lists compares the result of Clients with the clients that were set.
func (w *World) lists(t *testing.T, want ...netip.Addr) {
	t.Helper()
	got := w.Clients(t)
	slices.SortFunc(got, netip.Addr.Compare)
	slices.SortFunc(want, netip.Addr.Compare)
	if !slices.Equal(got, want) {
		t.Errorf("the clients are %v, want %v", got, want)
	}
}
