package gateway

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/gateway/control"
	"github.com/gateweigh/gateweigh/gateway/flowlog"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// acceptsAllVerbs checks that the control socket's verbs know a client that is logged in by an IPv6 address, and show
// it with that.
func acceptsAllVerbs(t *testing.T, c *control.Client, addr netip.Addr) {
	t.Helper()
	shown := func(s control.Session) bool { return s.Addr == addr || slices.Contains(s.Further, addr) }
	if s, err := c.Session(t.Context(), addr); err != nil || !shown(s) || s.User != "ann" {
		t.Errorf("asked for %s: %+v, %v", addr, s, err)
	}
	limits := control.Limits{UpBps: 1e9, SessionTimeoutSeconds: 3600}
	n, err := c.LoginAll(t.Context(), []control.LoginRequest{{Addr: addr, User: "ann", Limits: limits}})
	if err != nil || n != 1 {
		t.Errorf("logging a list of %s in: %d, %v", addr, n, err)
	}
	found := 0
	must(t, c.Sessions(t.Context(), control.Filter{User: "ann"}, func(s control.Session) error {
		if found++; !shown(s) || s.Limits != limits {
			t.Errorf("the session of %s is %+v", addr, s)
		}
		return nil
	}))
	if found != 1 {
		t.Errorf("%d sessions of one client", found)
	}
}

// download6 has the client fetch a file from port 7000 of the server, from port 40001.
func download6(t *testing.T, dir string, size int) {
	t.Helper()
	must(t, os.WriteFile(filepath.Join(dir, "file"), make([]byte, size), 0o644))
	spawn(t, "server", "busybox", "httpd", "-f", "-p", "[::]:7000", "-h", dir)
	netnstest.Await(t, "the server", func() error {
		_, err := try("ip netns exec server ss -ltn | grep :7000")
		return err
	})
	sh(t, curl6+"-f -o /dev/null --local-port 40001 http://[2001:db8:9::2]:7000/file")
}

// TestFlowLogIPv6: the flow log has a client's connections by IPv6 with user, MAC address and all bytes, finds them by
// the client's IPv6 address and port, and has their ends once the client is logged out by that address. All verbs take
// the address.
func TestFlowLogIPv6(t *testing.T) {
	network6(t)
	dir := t.TempDir()
	cfg := configured(t, dir, onEBPF)
	cfg.LAN.Address6 = netip.MustParsePrefix("2001:db8:1::1/64")
	cfg.FlowLog.Enabled, cfg.FlowLog.Folder = true, filepath.Join(dir, "flows")
	d := serve(t, cfg)
	t.Cleanup(func() { d.stop(); must(t, Detach(d.cfg, false)) })
	lease(t)
	addr := awaitAddrs6(t, 1)[0]
	c, err := control.Dial(d.cfg.ControlSocket())
	must(t, err)
	netnstest.Await(t, "the client's address", func() error {
		_, err := c.Login(t.Context(), control.LoginRequest{Addr: addr, User: "ann"})
		return err
	})
	acceptsAllVerbs(t, c, addr)
	netnstest.Await(t, "the way out", func() error { return reaches6(addr) }) // the kernel first asks for its router
	const size = 300_000
	download6(t, dir, size)
	near, far := netip.AddrPortFrom(addr, 40001), netip.MustParseAddrPort("[2001:db8:9::2]:7000")
	find := func(event string, at time.Time) (flow flowlog.Flow) {
		t.Helper()
		netnstest.Await(t, "the connection's "+event, func() error {
			found, err := flowlog.FindFlows(cfg.FlowLog.Folder, near, at)
			if err != nil || len(found.Flows) != 1 || found.Flows[0].Event != event {
				return fmt.Errorf("found %+v, %v", found.Flows, err)
			}
			flow = found.Flows[0]
			return nil
		})
		if flow.Client != near || flow.Peer != far || flow.Outside.IsValid() || flow.User != "ann" || flow.Session == "" ||
			flow.MAC != d.client(t).MAC || flow.Protocol != 6 || flow.Inbound {
			t.Errorf("the %s has %+v", event, flow)
		}
		return flow
	}
	began := find(flowlog.Begins, time.Now())
	_, err = c.Logout(t.Context(), control.LogoutRequest{Addr: addr})
	must(t, err)
	end := find(flowlog.Ends, began.Start)
	if end.DownBytes < size || end.DownBytes > size+size/10 || end.UpPkts == 0 {
		t.Errorf("of %d bytes the end has %+v", size, end)
	}
}
