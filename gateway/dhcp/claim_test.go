package dhcp

import (
	"net/netip"
	"testing"
	"time"
)

// TestBehindRepeater: what is behind a repeater has reservations by its own MAC address, and more addresses together
// than a device. Nobody else has them by an identifier that looks like one behind a repeater.
func TestBehindRepeater(t *testing.T) {
	tb, now := smallTable(t), time.Now()
	repeater, reserved := macOf(1), behindRepeater(macOf(1), macOf(5))
	tb.cfg.Repeaters, tb.cfg.BehindRepeater = map[MAC]bool{repeater: true}, 5
	if b, err := tb.offer(behindRepeater(macOf(2), macOf(5)), "", addr("10.1.0.5"), now); err != nil ||
		b.addr == addr("10.1.0.5") {
		t.Errorf("a device that is no repeater is offered %+v, %v", b, err)
	}
	if b, err := tb.confirm(reserved, "", addr("10.1.0.5"), now); err != nil || b.client.mac != repeater {
		t.Errorf("the device behind the repeater leases %+v, %v", b, err)
	}
	if !tb.claim(repeater, addr("10.1.0.3"), now) {
		t.Fatal("no device behind the repeater claims an address")
	}
	if b, err := tb.offer(behindRepeater(repeater, macOf(30)), "", addr("10.1.0.3"), now); err != nil ||
		b.addr == addr("10.1.0.3") {
		t.Errorf("another device behind the repeater is offered what one has claimed: %+v, %v", b, err)
	} else {
		tb.free(b, now)
	}
	tb.free(tb.byAddr[addr("10.1.0.3")], now)
	seen := map[netip.Addr]bool{}
	for i := range 6 {
		b, err := tb.offer(behindRepeater(repeater, macOf(20+i)), "", netip.Addr{}, now)
		if err == nil {
			seen[b.addr] = true
		}
		if (err == nil) != (i < 4) {
			t.Errorf("device %d behind the repeater: %v", i, err)
		}
	}
	if len(seen) != 4 {
		t.Errorf("four devices are offered %v", seen)
	}
}

// TestClaimedIsNotLeased: DHCP leases no address that a device has claimed, except to the device itself, and no address
// outside the pools after a claim of it. Nobody claims what DHCP has given, or reserves. Long: the steps of one life.
func TestClaimedIsNotLeased(t *testing.T) {
	tb, now := smallTable(t), time.Now()
	device, another := macOf(1), macOf(2)
	claims := func(mac MAC, a string, want bool) {
		t.Helper()
		if got := tb.claim(mac, addr(a), now); got != want {
			t.Errorf("a claim of %s: %v", a, got)
		}
	}
	claims(device, "10.1.0.2", true)
	claims(another, "10.1.0.2", false)
	claims(device, "10.1.0.20", true) // outside the pools
	claims(device, "10.1.0.5", false) // reserved
	claims(macOf(5), "10.1.0.5", true)
	claims(device, "10.1.0.1", false) // the server's
	for i := range byte(20) {
		for _, wish := range []string{"10.1.0.2", "10.1.0.20"} {
			c := client{mac: macOf(int(i) + 10)}
			if b, err := tb.offer(c, "", addr(wish), now); err == nil && b.addr == addr(wish) {
				t.Fatalf("%s is offered", b.addr)
			}
			if _, err := tb.confirm(c, "", addr(wish), now); err == nil {
				t.Fatalf("%s is leased", wish)
			}
		}
	}
	own := client{mac: device, id: "x"}
	if b, err := tb.offer(own, "", addr("10.1.0.2"), now); err != nil || b.addr != addr("10.1.0.2") || b.state != claimed {
		t.Errorf("the device is offered %+v, %v", b, err)
	}
	if b, err := tb.confirm(own, "", addr("10.1.0.2"), now); err != nil || b.state != leased {
		t.Errorf("the device leases %+v, %v", b, err)
	}
	claims(another, "10.1.0.2", false)
	if tb.claimOf(device, addr("10.1.0.2")) != nil {
		t.Error("a lease counts as a claim")
	}
	for mac, a := range map[MAC]netip.Addr{device: addr("10.1.0.20"), macOf(5): addr("10.1.0.5")} {
		tb.free(tb.claimOf(mac, a), now)
	}
	if b := tb.byAddr[addr("10.1.0.20")]; b != nil || tb.queues[claimed].count != 0 || tb.queues[blank].count != 0 {
		t.Errorf("after the claims there are %+v, %d claims, %d free addresses", b, tb.queues[claimed].count,
			tb.queues[blank].count)
	}
	if tb.byAddr[addr("10.1.0.5")].state != reserved {
		t.Error("a reserved address is none after a claim")
	}
}
