// Tests of the bounds on a client's queries before login. main_test.go has the helpers: start runs the server that is
// tested, whose recorder notes which addresses it opens; dnsmasq is an upstream resolver; ask sends a query over "udp"
// or "tcp", query makes one, and values lists the data of the answer. silentUpstream never answers (upstream_test.go).

package dns

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	miekg "github.com/miekg/dns"

	"github.com/gateweigh/gateweigh/gateway/budget"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// clientFrom returns a client with its own source address.
func clientFrom(addr string) *miekg.Client {
	return &miekg.Client{Timeout: 20 * time.Second, Dialer: &net.Dialer{LocalAddr: &net.UDPAddr{IP: net.ParseIP(addr)}}}
}

// send sends a query without waiting for replies.
func send(t *testing.T, s *Server, addr, name string) {
	t.Helper()
	conn, err := net.DialUDP("udp", &net.UDPAddr{IP: net.ParseIP(addr)}, net.UDPAddrFromAddrPort(s.Addr()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	raw, err := query(name, miekg.TypeA).Pack()
	if err != nil {
		t.Fatal(err)
	}
	conn.Write(raw)
}

// admittedOnly admits one address. A client's hardware address ends in the last byte of its IP address.
func admittedOnly(addr string) func(netip.Addr) ([6]byte, bool) {
	return func(a netip.Addr) ([6]byte, bool) {
		return [6]byte{2, 5: a.As4()[3]}, a == netip.MustParseAddr(addr)
	}
}

// TestUnansweredNamesStarveNobody: unauthenticated clients ask for names whose servers never answer, which keeps each
// query in progress for seconds. Admitted clients' names are resolved, and everybody's local ones.
func TestUnansweredNamesStarveNobody(t *testing.T) {
	mute, _ := silentUpstream(t)
	resolver := dnsmasq(t, fmt.Sprintf("--server=/dead.example/%s#%d", mute.Addr(), mute.Port()),
		"--address=/shop.example/192.0.2.7", "--address=/ready.example/192.0.2.8")
	const admitted, portal = "127.0.6.1", "10.1.0.1"
	s := start(t, &recorder{}, []netip.AddrPort{resolver}, func(c *Config) {
		c.ClientOf = admittedOnly(admitted)
		c.Local = map[string]netip.Addr{"portal.example": netip.MustParseAddr(portal)}
		c.Timeout = 20 * time.Second
	})
	for i := range 16 {
		for n := range 80 {
			send(t, s, fmt.Sprintf("127.0.6.%d", 10+i), fmt.Sprintf("n%d.c%d.dead.example.", n, i))
		}
	}
	await(t, "the flood", func() bool { return s.Stats().Busy > 0 })
	if n := s.Stats().InFlight; n > 64 {
		t.Errorf("%d queries of unauthenticated clients are in progress, want at most 64", n)
	}
	for n := range 40 {
		// The flood may still fill the socket, and what comes then is lost: clients ask again.
		c := clientFrom(admitted)
		c.Timeout = 2 * time.Second
		var r *miekg.Msg
		var err error
		for range 10 {
			if r, _, err = c.Exchange(query(fmt.Sprintf("a%d.shop.example.", n), miekg.TypeA), s.Addr().String()); err == nil {
				break
			}
		}
		if err != nil || !slices.Equal(values(r), []string{"A 192.0.2.7"}) {
			t.Fatalf("the admitted client's query %d: %v, %v", n, r, err)
		}
	}
	for _, client := range []string{admitted, "127.0.6.10", "127.0.6.99"} {
		r, _, err := clientFrom(client).Exchange(query("portal.example.", miekg.TypeA), s.Addr().String())
		if err != nil || !slices.Equal(values(r), []string{"A " + portal}) {
			t.Errorf("%s asks for the portal's name: %v, %v", client, r, err)
		}
	}
}

// TestFloodOfLocalNames: a device that asks without end for names that the gateway answers itself, whether it is
// admitted or not, has few of its messages read, and others their answers.
func TestFloodOfLocalNames(t *testing.T) {
	const admitted = "127.0.6.1"
	allowed := budget.Rate{AtOnce: 100, EachSecond: 10}
	s := start(t, &recorder{}, []netip.AddrPort{dnsmasq(t, "--address=/ready.example/192.0.2.8")}, func(c *Config) {
		c.ClientOf = admittedOnly(admitted)
		c.Local = map[string]netip.Addr{"portal.example": netip.MustParseAddr("10.1.0.1")}
		c.PerDevice = allowed
	})
	for _, flooder := range []string{admitted, "127.0.6.10"} {
		began, before := time.Now(), s.Stats()
		conn, err := net.DialUDP("udp", &net.UDPAddr{IP: net.ParseIP(flooder)}, net.UDPAddrFromAddrPort(s.Addr()))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		local, _ := query("portal.example.", miekg.TypeA).Pack()
		empty, _ := query("www.example.", miekg.TypeAAAA).Pack()
		const others = 20
		for range others {
			for range 100 {
				conn.Write(local)
				conn.Write(empty)
			}
			c := clientFrom("127.0.6.20")
			netnstest.Await(t, "an answer to another client", func() error {
				_, _, err := c.Exchange(query("portal.example.", miekg.TypeA), s.Addr().String())
				return err
			})
		}
		st := s.Stats()
		most := uint64(allowed.AtOnce + int(float64(allowed.EachSecond)*time.Since(began).Seconds()) + 2*others)
		if n := st.Local - before.Local; n > most {
			t.Errorf("%s has %d messages answered, want at most %d", flooder, n, most)
		}
		if st.Throttled == before.Throttled {
			t.Errorf("of %s no message was dropped", flooder)
		}
	}
}

// TestBudgetPerDevice: a device's addresses share one budget, an exhausted budget concerns that device alone, and
// admitted clients have none. A query over TCP uses it too. Long: the steps of one run, each of which needs the state
// that the one before left.
func TestBudgetPerDevice(t *testing.T) {
	resolver := dnsmasq(t, "--address=/shop.example/192.0.2.7", "--address=/ready.example/192.0.2.8")
	s := start(t, &recorder{}, []netip.AddrPort{resolver}, func(c *Config) {
		c.ClientOf = admittedOnly("127.0.6.1")
		c.Budget = Budget{Queries: budget.Rate{AtOnce: 6, EachSecond: 1e-6}, Bytes: budget.Rate{AtOnce: 1e6, EachSecond: 1e6}}
	})
	ask := func(addr string) bool {
		c := clientFrom(addr)
		c.Timeout = 20 * time.Second
		before := s.Stats().Throttled
		answered := make(chan error, 1)
		go func() {
			_, _, err := c.Exchange(query("a.shop.example.", miekg.TypeA), s.Addr().String())
			answered <- err
		}()
		var throttled bool
		await(t, "an answer or a drop", func() bool {
			select {
			case err := <-answered:
				if err != nil {
					t.Error(err)
				}
				return true
			default:
				throttled = s.Stats().Throttled > before
				return throttled
			}
		})
		return !throttled
	}
	for i := range 6 {
		if addr := fmt.Sprintf("127.0.%d.7", 7+i%2); !ask(addr) {
			t.Errorf("query %d of six, from %s, was dropped", i, addr)
		}
	}
	for _, addr := range []string{"127.0.7.7", "127.0.8.7"} {
		if ask(addr) {
			t.Errorf("a query beyond the budget, from %s, was answered", addr)
		}
	}
	if !ask("127.0.7.8") {
		t.Error("another device's query was dropped")
	}
	for i := range 20 {
		if !ask("127.0.6.1") {
			t.Errorf("the admitted client's query %d was dropped", i)
		}
	}
	conn, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IP{127, 0, 8, 7}}}).Dial("tcp", s.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	raw, _ := query("b.shop.example.", miekg.TypeA).Pack()
	if err := writeFrame(conn, raw); err != nil {
		t.Fatal(err)
	}
	if _, err := readFrame(conn, maxBytes); err == nil {
		t.Error("over TCP the device has another budget")
	}
}

// TestTunnelRate: however a device asks, in ten minutes it gets no more than its budget in queries and in bytes; a
// device that was silent has all of it again.
func TestTunnelRate(t *testing.T) {
	const minutes = 10
	for name, size := range map[string]struct{ query, reply int }{
		"small": {40, 60}, "typical": {60, 150}, "tunnel over UDP": {255, udpBytes}, "tunnel over TCP": {255, maxBytes},
	} {
		b := &budgets{perDevice: defaultBudget}
		queries, bytes := 0, 0
		var now int64
		for tick := range minutes * 60 * 100 {
			now = int64(time.Hour) + int64(tick)*int64(10*time.Millisecond)
			for range 3 {
				if clientBucket, ok := b.spend(device{}, size.query, now); ok {
					b.charge(clientBucket, size.reply, now)
					queries++
					bytes += size.query + size.reply
				}
			}
		}
		maxQueries := int(defaultBudget.Queries.EachSecond*minutes*60) + defaultBudget.Queries.AtOnce
		maxBytes := int(defaultBudget.Bytes.EachSecond*minutes*60) + defaultBudget.Bytes.AtOnce + size.query + size.reply
		if queries > maxQueries+1 || bytes > maxBytes {
			t.Errorf("%s: %d queries and %d bytes, want at most %d and %d", name, queries, bytes, maxQueries, maxBytes)
		}
		if 2*queries < maxQueries && 2*bytes < maxBytes {
			t.Errorf("%s: %d queries and %d bytes: less than half of the budget", name, queries, bytes)
		}
		now += int64(time.Hour)
		for i := range 200 {
			clientBucket, ok := b.spend(device{}, 60, now)
			if !ok {
				t.Errorf("%s: after an hour's silence query %d is dropped", name, i)
				break
			}
			b.charge(clientBucket, 150, now)
		}
	}
}

// TestBudgetsAreBounded: made-up devices take no memory beyond the bound, and a device that asks among them has no more
// than its budget.
func TestBudgetsAreBounded(t *testing.T) {
	b := &budgets{perDevice: defaultBudget}
	n, now := 0, budget.Now()
	for i := range 2 * maxBudgets {
		var d device
		binary.BigEndian.PutUint32(d.mac[2:], uint32(i)+1)
		b.spend(d, 60, now)
		if _, ok := b.spend(device{}, 60, now); ok {
			n++
		}
	}
	if n := b.devices.Len(); n > maxBudgets {
		t.Errorf("%d budgets", n)
	}
	if most := defaultBudget.Queries.AtOnce; n > most {
		t.Errorf("%d queries of a device that may send %d", n, most)
	}
}
