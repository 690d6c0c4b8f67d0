// Tests of devices with ever new MAC addresses that take all addresses. macOf(i) is the MAC of device i, addr parses an
// IP address, and testConfig is the configuration of a server (main_test.go, table_test.go).

package dhcp

import (
	"errors"
	"net/netip"
	"testing"
	"time"
)

// TestStarvation: a device with 66,000 MAC addresses takes all addresses of a /16. Clients that are logged in renew
// their leases meanwhile and keep their addresses after a pause, and newcomers get addresses again once the brief
// leases have ended. Long: the steps of one run, each of which needs the state that the one before left.
func TestStarvation(t *testing.T) {
	cfg := testConfig("-")
	cfg.Pools = []Range{{addr("10.1.0.2"), addr("10.1.255.254")}}
	cfg.Lease, cfg.ShortLease = time.Hour, 5*time.Minute
	const guests, first = 100, 1 << 20 // clients before the attack, and the number of the attacker's first MAC
	cfg.Settled = func(mac MAC, _ netip.Addr) bool { return mac[3] < first>>16 }
	cfg, err := cfg.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	tb, now := newTable(cfg), time.Now()
	take := func(i int) (netip.Addr, error) {
		c := client{mac: macOf(i)}
		b, err := tb.offer(c, "", netip.Addr{}, now)
		if err == nil {
			b, err = tb.confirm(c, "", b.addr, now)
		}
		if err != nil {
			return netip.Addr{}, err
		}
		return b.addr, nil
	}
	has := map[int]netip.Addr{}
	for i := range guests {
		if has[i], err = take(i); err != nil {
			t.Fatal(err)
		}
	}
	flood := func() {
		for i := range 66_000 {
			take(first + i)
		}
	}
	for minute := range 16 {
		if minute%15 == 0 {
			flood()
			if _, err := take(guests); !errors.Is(err, errExhausted) {
				t.Fatalf("in minute %d the pool is not exhausted: %v", minute, err)
			}
		}
		for i := minute % 30; i < guests; i += 30 {
			if b, err := tb.confirm(client{mac: macOf(i)}, "", has[i], now); err != nil || b.addr != has[i] {
				t.Fatalf("in minute %d a renewal fails: %v", minute, err)
			}
		}
		now = now.Add(time.Minute)
		for len(tb.expire(now, maxBatch)) > 0 {
		}
	}
	now = now.Add(cfg.ShortLease - time.Minute) // since the last flood
	for len(tb.expire(now, maxBatch)) > 0 {
	}
	if _, err := take(guests); err != nil {
		t.Errorf("a brief lease's length after the attack a newcomer gets no address: %v", err)
	}
	if got := tb.leases(); got != guests+1 {
		t.Errorf("%d addresses are leased, want %d", got, guests+1)
	}
}
