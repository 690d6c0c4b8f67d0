// Tests and benchmarks of many DHCP clients and of floods. main_test.go has the helpers: newLAN makes the server's
// interface and returns the name of its other end; newWire sends and receives frames there; start runs a server with a
// file of leases (leasesFile); macOf(i) is the MAC of device i, and message makes a DHCP message of it.

package dhcp

import (
	"fmt"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/mdlayher/packet"

	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// leaseAll leases addresses for n clients, inFlight of them at once, each repeating its
// requests until it has one, and returns the addresses' clients.
func (w *wire) leaseAll(n, inFlight int) map[netip.Addr]MAC {
	w.t.Helper()
	got := map[netip.Addr]MAC{}
	waiting := map[MAC]bool{}
	begun := 0
	discover := func(mac MAC) { w.send(station{mac: mac}, message(w.t, dhcpv4.MessageTypeDiscover, mac)) }
	for late, again := 0, time.Now().Add(time.Second); len(got) < n; {
		for ; begun < n && len(waiting) < inFlight; begun++ {
			waiting[macOf(begun)] = true
			discover(macOf(begun))
		}
		m, _ := w.next(time.Until(again))
		if time.Now().After(again) { // a message was lost
			if late++; late > 20 {
				w.t.Fatalf("%d of %d clients have no address", n-len(got), n)
			}
			for mac := range waiting {
				discover(mac)
			}
			again = time.Now().Add(time.Second)
		}
		if m == nil {
			continue
		}
		mac := MAC(m.ClientHWAddr)
		if _, taken := got[addrOf(m)]; !waiting[mac] && !taken {
			continue // others are in progress
		}
		switch m.MessageType() {
		case dhcpv4.MessageTypeOffer:
			w.send(station{mac: mac}, message(w.t, dhcpv4.MessageTypeRequest, mac,
				dhcpv4.WithOption(dhcpv4.OptServerIdentifier(m.ServerIdentifier())),
				dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(m.YourIPAddr))))
		case dhcpv4.MessageTypeAck:
			addr := addrOf(m)
			if owner, taken := got[addr]; taken && owner != mac {
				w.t.Fatalf("%s was given to two clients", addr)
			}
			got[addr] = mac
			delete(waiting, mac)
			late = 0
		case dhcpv4.MessageTypeNak: // another client was faster
			discover(mac)
		default:
			w.t.Fatalf("%s to %x", m.MessageType(), mac)
		}
	}
	return got
}

func addrOf(m *dhcpv4.DHCPv4) netip.Addr {
	a, _ := netip.AddrFromSlice(m.YourIPAddr.To4())
	return a
}

func TestStormOfClients(t *testing.T) {
	w := newWire(t, newLAN(t))
	s, j := start(t, leasesFile(t), nil)
	const n = 2000
	got := w.leaseAll(n, n)
	if len(got) != n || s.Stats().Naks != 0 || len(s.Leases()) != n || len(j.all()) < n {
		t.Errorf("%d addresses, %d leases, %d calls of the listener, want %d", len(got), len(s.Leases()), len(j.all()), n)
	}
	for _, l := range s.Leases() {
		if got[l.Addr] != MAC(l.MAC) {
			t.Fatalf("%s is %s's for the server, %x's on the wire", l.Addr, l.MAC, got[l.Addr])
		}
	}
}

// TestFloodOfDiscovers: a client that sends DISCOVERs with many identifiers and accepts no
// offer keeps no other client from getting a lease, at any rate.
func TestFloodOfDiscovers(t *testing.T) {
	lan := newLAN(t)
	s, _ := start(t, leasesFile(t), func(c *Config) {
		c.Pools = []Range{{netip.MustParseAddr("10.1.1.0"), netip.MustParseAddr("10.1.1.90")}}
	})
	flood, stop, ended := newWire(t, lan), make(chan struct{}), make(chan struct{})
	var sent atomic.Int64
	go func() {
		defer close(ended)
		for i := 0; ; i++ {
			if i%20 == 0 { // some 10,000 a second: the server's excess is lost for all senders
				time.Sleep(time.Millisecond)
			}
			select {
			case <-stop:
				return
			default:
			}
			mac := macOf(0x10000 + i)
			frame := (station{mac: mac}).datagram(message(t, dhcpv4.MessageTypeDiscover, mac)).frame()
			flood.conn.WriteTo(frame, &packet.Addr{HardwareAddr: frame[:6]})
			sent.Add(1)
		}
	}()
	netnstest.Await(t, "offers of all addresses in a flood", func() error {
		if n := s.Stats().Offered; n < 91 || sent.Load() < 300 {
			return fmt.Errorf("%d of %d", n, sent.Load())
		}
		return nil
	})
	if got := newWire(t, lan).leaseAll(91, 10); len(got) != 91 {
		t.Errorf("%d clients got an address", len(got))
	}
	close(stop)
	<-ended
}

// TestFloodOfOneMAC: of a device that sends requests without end the server reads few. Other clients get leases
// meanwhile.
func TestFloodOfOneMAC(t *testing.T) {
	lan := newLAN(t)
	s, _ := start(t, leasesFile(t), nil)
	flood, others, mac := newWire(t, lan), newWire(t, lan), macOf(0xbad)
	frame := (station{mac: mac}).datagram(message(t, dhcpv4.MessageTypeDiscover, mac)).frame()
	began := time.Now()
	for range 4 {
		for range 1000 {
			flood.sendFrame(frame)
		}
		others.leaseAll(5, 5)
	}
	netnstest.Await(t, "the flood", func() error {
		if n := s.Stats().Throttled; n < 1000 {
			return fmt.Errorf("%d requests of it were dropped", n)
		}
		return nil
	})
	st := s.Stats()
	if most := 16 + uint64(2*time.Since(began).Seconds()); st.Offers > most+20*4 || st.Leased != 5 {
		t.Errorf("%d offers, of a device that may send %d requests and five others; stats %+v", st.Offers, most, st)
	}
}

// BenchmarkDORA measures the whole exchange over a veth pair with leases on disk,
// including the clients' work in the same process.
func BenchmarkDORA(b *testing.B) {
	for _, clients := range []int{1, 64, 2000} {
		b.Run(fmt.Sprintf("clients=%d", clients), func(b *testing.B) {
			w := newWire(b, newLAN(b))
			start(b, leasesFile(b), func(c *Config) {
				c.Pools = []Range{{netip.MustParseAddr("10.1.0.2"), netip.MustParseAddr("10.1.255.254")}}
			})
			b.ResetTimer()
			w.leaseAll(b.N, clients)
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "DORA/s")
		})
	}
}

// BenchmarkOffer measures an offer to a new client when n have leases.
func BenchmarkOffer(b *testing.B) {
	for _, n := range []int{100, 100_000} {
		b.Run(fmt.Sprintf("leases=%d", n), func(b *testing.B) {
			cfg := testConfig("-")
			cfg.Server, cfg.Subnet = netip.MustParseAddr("10.0.0.1"), netip.MustParsePrefix("10.0.0.0/8")
			cfg.Pools = []Range{{netip.MustParseAddr("10.1.0.0"), netip.MustParseAddr("10.1.0.0")}}
			for range n + 1 {
				cfg.Pools[0].Last = cfg.Pools[0].Last.Next()
			}
			cfg, err := cfg.withDefaults()
			if err != nil {
				b.Fatal(err)
			}
			t, now := newTable(cfg), time.Now()
			for i := range n {
				c := client{mac: macOf(i)}
				o, err := t.offer(c, "", netip.Addr{}, now)
				if err == nil {
					_, err = t.confirm(c, "", o.addr, now)
				}
				if err != nil {
					b.Fatal(err)
				}
			}
			b.ResetTimer()
			for i := range b.N {
				c := client{mac: macOf(n + i)}
				if _, err := t.offer(c, "", netip.Addr{}, now); err != nil {
					b.Fatal(err)
				}
				t.withdraw(c)
			}
		})
	}
}
