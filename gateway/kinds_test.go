package gateway

import (
	"testing"

	"github.com/gateweigh/gateweigh/gateway/session"
)

// TestKindsTakeOver: after a change of data path a client is still logged in, passes, and
// keeps its counts.
func TestKindsTakeOver(t *testing.T) {
	dir := t.TempDir()
	d := startWithAnn(t, dir)
	before := d.client(t)
	const onTUN, onNFQueue, fast = `kind = "tun"`, `kind = "nfqueue"`, "\nfast = true"
	for _, keys := range []string{onTUN, onEBPF, onNFQueue, onEBPF, onNFQueue + fast, onTUN + fast, onNFQueue, onTUN, onEBPF} {
		if !passes() {
			t.Fatalf("before %s the client does not pass", keys)
		}
		must(t, d.stop())
		sh(t, "ip addr flush dev lan0")
		if keys != onTUN && keys != onTUN+fast { // with TUN the device has the address
			sh(t, "ip link del tun0 2>/dev/null || true; ip addr add 10.1.0.1/24 dev lan0")
		}
		d = startOn(t, dir, keys)
		now := d.client(t)
		if now.State != session.Authenticated || now.ID != before.ID || now.UpPackets <= before.UpPackets {
			t.Fatalf("on %s the session %+v became %+v", keys, before, now)
		}
		before = now
	}
	if !passes() {
		t.Error("in the end the client does not pass")
	}
}
