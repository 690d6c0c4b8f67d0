package routeradv

import (
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/gateway/budget"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// words are what a daemon says of its clients.
type words struct {
	mu      sync.Mutex
	adverts map[MAC]Advertisement
}

func (w *words) of(c Client) (Advertisement, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	a, ok := w.adverts[c.MAC]
	return a, ok
}

func (w *words) set(mac MAC, a Advertisement) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.adverts[mac] = a
}

func (w *words) remove(mac MAC) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.adverts, mac)
}

const (
	addrs   = "ip -o -6 addr show dev c0"
	noRoute = `echo "routes: $(ip -6 route show dev c0 default)."`
)

// TestEachClientItsPrefix: each client gets its own prefix by frames to it alone, also when the prefix changes, and no
// frame for another. One that is told nothing any more loses its router, and its addresses are deprecated.
func TestEachClientItsPrefix(t *testing.T) {
	l := newLAN(t, 2)
	first, second := l.clients[0], l.clients[1]
	said := &words{adverts: map[MAC]Advertisement{
		first.mac: slaac("2001:db8:1::/64"), second.mac: slaac("2001:db8:2::/64")}}
	cfg := config()
	cfg.Told = said.of
	s := start(t, cfg)
	first.up()
	second.up()
	wires := map[*client]*wire{first: first.wire(), second: second.wire()}
	first.shows(addrs, "2001:db8:1:", "!tentative")
	second.shows(addrs, "2001:db8:2:", "!tentative")

	said.set(first.mac, slaac("2001:db8:3::/64"))
	s.Retell(Client{MAC: first.mac})
	first.shows(addrs, "2001:db8:1:", "deprecated", "valid_lft 7")
	first.shows(addrs, "2001:db8:3:", "!deprecated", "!tentative")
	first.shows("ip -6 route show dev c0 default", "via fe80::1")

	said.remove(second.mac)
	s.Retell()
	second.shows(addrs, "2001:db8:2:", "deprecated")
	second.shows(noRoute, "routes: .")
	first.shows("ip -6 route show dev c0 default", "via fe80::1")

	wires[first].hasOnly(first.mac, "2001:db8:1::/64", "2001:db8:3::/64")
	wires[second].hasOnly(second.mac, "2001:db8:2::/64")
	netnstest.Until(t, "the second to be forgotten", func() bool { return s.Stats().Clients == 1 })
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	first.shows(noRoute, "routes: .")
	first.shows(addrs, "2001:db8:3:", "!deprecated")
}

// hasOnly checks that advertisements have come, and only such to a MAC address alone with some prefixes.
func (w *wire) hasOnly(mac MAC, prefixes ...string) {
	w.t.Helper()
	count := 0
	for a, ok := w.next(pause); ok; a, ok = w.next(pause) {
		count++
		if a.to != mac || a.toAddr != allNodes {
			w.t.Errorf("an advertisement to %x, %s reaches %x", a.to, a.toAddr, mac)
		}
		for p := range a.prefixes() {
			if !slices.Contains(prefixes, p) {
				w.t.Errorf("%x is told of %s", mac, p)
			}
		}
	}
	if count == 0 {
		w.t.Errorf("%x has received nothing", mac)
	}
}

// TestClientsOfAnEarlierServer are told without a solicitation, and an advertisement that hosts would refuse is not
// sent.
func TestClientsOfAnEarlierServer(t *testing.T) {
	l := newLAN(t, 1)
	c := l.clients[0]
	said := &words{adverts: map[MAC]Advertisement{}}
	cfg := config()
	cfg.Told = said.of
	s := start(t, cfg)
	c.up()
	w := c.wire()
	netnstest.Until(t, "a refused solicitation", func() bool { return s.Stats().Refused > 0 })
	said.set(c.mac, slaac("2001:db8:1::/60"))
	before := s.Stats().Refused
	s.Retell(Client{MAC: c.mac})
	netnstest.Until(t, "a refused advertisement", func() bool { return s.Stats().Refused > before })
	said.set(c.mac, slaac("2001:db8:1::/64"))
	s.Retell(Client{MAC: c.mac})
	if got := w.await(); got.prefixes()["2001:db8:1::/64"] != [2]int{3600, 14400} || got.to != c.mac {
		t.Errorf("%+v", got)
	}
	if err := s.Update(func(*Advertisement) {}); err == nil {
		t.Error("there is no advertisement for all to be updated")
	}
}

// TestFloodIsBounded: solicitations of one MAC address, and of many that somebody makes up, get a bounded number of
// answers and take a bounded number of clients.
func TestFloodIsBounded(t *testing.T) {
	c := newLAN(t, 1).clients[0]
	c.silence()
	c.up()
	w := c.wire()
	told := slaac("2001:db8:1::/64")
	cfg := config()
	cfg.Told = func(Client) (Advertisement, bool) { return told, true }
	cfg.PerMAC.AtOnce, cfg.PerMAC.EachSecond = 2, 1e-6
	cfg.MaxClients = 50
	s := start(t, cfg)
	count := func(label string, reached func(Stats) bool, send func()) { // some frames may be lost
		t.Helper()
		netnstest.Until(t, label, func() bool { send(); return reached(s.Stats()) })
	}
	count("refusals", func(st Stats) bool { return st.Refused > 100 }, func() { w.solicit(c.mac) })
	count("an answer", func(st Stats) bool { return st.Solicited > 0 }, func() {})
	made := 0
	madeUp := func() {
		for range 20 {
			made++
			w.solicit(macOf(0x1000 + made))
		}
	}
	before := s.Stats().Refused
	count("more refusals", func(st Stats) bool { return st.Refused > before+500 }, madeUp)
	// The first has been told once or twice: both of its solicitations may have come before the first answer.
	count("answers", func(st Stats) bool { return st.Solicited >= 50 }, func() {})
	if st := s.Stats(); st.Clients != 50 || st.Malformed != 0 || st.Solicited > 51 {
		t.Errorf("%+v", st)
	}
}

// TestEachIsAnsweredAlone: hosts that come together get answers of their own, and need not wait until all may be told
// again.
func TestEachIsAnsweredAlone(t *testing.T) {
	c := newLAN(t, 1).clients[0]
	c.silence()
	c.up()
	cfg := config()
	cfg.All = slaac("2001:db8:1::/64")
	w := c.wire()
	s := start(t, cfg)
	w.await() // what nobody has asked for
	before, begin, made := s.Stats(), time.Now(), 0
	netnstest.Until(t, "answers", func() bool {
		for range 20 {
			made++
			w.solicit(macOf(0x1000 + made))
		}
		return s.Stats().Solicited > 500
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all.solicited || s.all.last.After(begin) && s.stats.unsolicited.Load() == before.Unsolicited {
		t.Error("an advertisement to all answers some of them")
	}
}

// TestManyAreAnsweredAtOnce: when more hosts solicit than get answers of their own, one advertisement answers all of
// them.
func TestManyAreAnsweredAtOnce(t *testing.T) {
	defer func(before budget.Rate) { singleAnswers = before }(singleAnswers)
	singleAnswers = budget.Rate{AtOnce: 32, EachSecond: 16}
	c := newLAN(t, 1).clients[0]
	c.silence()
	c.up()
	cfg := config()
	cfg.All = slaac("2001:db8:1::/64")
	w := c.wire()
	s := start(t, cfg)
	w.await() // what nobody has asked for
	before, begin := s.Stats(), time.Now()
	const hosts = 5000
	for i := range hosts {
		w.solicit(macOf(0x1000 + i))
	}
	netnstest.Until(t, "an advertisement to all", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.all.last.After(begin) && len(s.clients) == 0
	})
	after := s.Stats()
	most := uint64(singleAnswers.AtOnce) + uint64(time.Since(begin).Seconds()*singleAnswers.EachSecond) + 2
	if after.Unsolicited != before.Unsolicited || after.Solicited > most || after.Refused != 0 {
		t.Errorf("%+v, then %+v", before, after)
	}
}

// TestRogueRouters are counted, and reported once each.
func TestRogueRouters(t *testing.T) {
	c := newLAN(t, 1).clients[0]
	c.up()
	var mu sync.Mutex
	var reports []Rogue
	cfg := config()
	cfg.All = slaac("2001:db8:1::/64")
	cfg.Rogue = func(r Rogue) {
		mu.Lock()
		defer mu.Unlock()
		reports = append(reports, r)
	}
	s := start(t, cfg)
	w := c.wire()
	evil := netip.MustParseAddr("fe80::bad")
	message, err := Message(slaac("2001:db8:bad::/64"))
	netnstest.Must(t, err)
	netnstest.Until(t, "the first", func() bool {
		w.send(c.mac, evil, allNodes, message)
		return s.Stats().Rogue > 2
	})
	made := 0
	netnstest.Until(t, "rogues", func() bool {
		for range 20 {
			made++
			w.send(macOf(0x1000+made), evil, allNodes, message)
		}
		return s.Stats().Rogue > 1000
	})
	mu.Lock()
	defer mu.Unlock()
	if want := (Rogue{c.mac, evil, netip.MustParsePrefix("2001:db8:bad::/64")}); reports[0] != want {
		t.Errorf("%+v", reports[0])
	}
	if len(reports) != maxRogues/2 || reports[1].MAC == c.mac {
		t.Errorf("%d reports", len(reports))
	}
}
