package gateway

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/gateweigh/gateweigh/gateway/control"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// TestMasqueradeIsCached: with the key the server sees the gateway's address, flows are cached, and detach leaves
// neither rules nor settings. Rules of a daemon that had the key go with the start of one that has not.
func TestMasqueradeIsCached(t *testing.T) {
	netnstest.NeedTCX(t)
	dir := t.TempDir()
	d := startWithAnn(t, dir)
	must(t, d.stop())
	const key = onEBPF + "\n[nat]\nmasquerade = true"
	d = startOn(t, dir, key)
	sh(t, "ip -n server route del default 2>/dev/null || :") // packets to clients' own addresses would not come back
	if !clientReachesServer() {
		t.Error("the client does not pass")
	}
	c, err := control.Dial(d.cfg.ControlSocket())
	must(t, err)
	awaitCache(t, c, "ebpf, flow cache", "gatewayd-nat-lan0")
	must(t, d.stop())
	if !LeftInKernel(d.cfg) {
		t.Error("nothing is seen of a gateway that has ended")
	}
	d = start(t, dir)
	if clientReachesServer() {
		t.Error("without the key the server answers still")
	}
	must(t, d.stop())
	d = startOn(t, dir, key)
	must(t, d.stop())
	must(t, Detach(d.cfg, false))
	if out, err := try("nft list ruleset; sysctl -n net.netfilter.nf_conntrack_tcp_be_liberal"); err != nil ||
		strings.TrimSpace(out) != "0" {
		t.Errorf("detach leaves %s, %v", out, err)
	}
}

// TestCacheNeedsLiberalTracking: where connection tracking cannot be made liberal, as with a read-only /proc/sys, no
// flows are cached, and the cache begins once it can.
func TestCacheNeedsLiberalTracking(t *testing.T) {
	netnstest.NeedTCX(t)
	network(t)
	const setting = "/proc/sys/net/netfilter/nf_conntrack_tcp_be_liberal"
	sh(t, "mount --bind "+setting+" "+setting+"; mount -o remount,ro,bind "+setting)
	open := sync.OnceFunc(func() { sh(t, "umount "+setting) })
	t.Cleanup(open)
	d := startOn(t, t.TempDir(), onEBPF+"\n[nat]\nmasquerade = true")
	c, err := control.Dial(d.cfg.ControlSocket())
	must(t, err)
	awaitCache(t, c, "ebpf, stack", "be_liberal")
	open()
	awaitCache(t, c, "ebpf, flow cache", "gatewayd-nat-lan0")
	must(t, d.stop())
	must(t, Detach(d.cfg, false))
}

// awaitCache waits for a status of a data path.
func awaitCache(t *testing.T, c *control.Client, datapath, reason string) {
	t.Helper()
	netnstest.Await(t, datapath, func() error {
		st, err := c.Status(t.Context())
		if err != nil || st.Datapath != datapath || !strings.Contains(st.Why, reason) {
			return fmt.Errorf("%q, %q, %v", st.Datapath, st.Why, err)
		}
		return nil
	})
}
