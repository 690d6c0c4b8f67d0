package gateway

import (
	"net/netip"
	"testing"

	"github.com/gateweigh/gateweigh/gateway/session"
)

// TestHangUpCost: the networks of a session that ends cost the same however many others have some, so that
// 100,000 sessions can end at once.
func TestHangUpCost(t *testing.T) {
	var n networks
	nth := func(i int) (session.Key, session.PPPoESession) {
		network := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 0}), 24)
		return session.Key{Addr: netip.AddrFrom4([4]byte{100, 64, byte(i >> 8), byte(i)})},
			session.PPPoESession{Session: uint16(i + 1), Routes: []netip.Prefix{network}}
	}
	enter := func(first, last int) {
		for i := first; i < last; i++ {
			key, pppoe := nth(i)
			must(t, n.claim(key, pppoe, "ann"))
		}
	}
	cost := func() float64 {
		key, pppoe := nth(0)
		return testing.AllocsPerRun(3, func() {
			n.remove(key, pppoe)
			if _, found := n.Owner(pppoe.Routes[0]); found {
				t.Error("it is there still")
			}
			must(t, n.claim(key, pppoe, "ann"))
		})
	}
	enter(0, 2)
	costOfFew := cost()
	enter(2, 20_000)
	if costOfMany := cost(); costOfMany > costOfFew+8 {
		t.Errorf("it allocates %v times beside one other network, and %v times beside 20,000", costOfFew, costOfMany)
	}
}
