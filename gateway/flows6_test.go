package gateway

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/gateway/control"
	"github.com/gateweigh/gateweigh/gateway/flowlog"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// TestFlowLogIPv6: the flow log has a client's connections by IPv6 with user, MAC address and all bytes, finds them by
// the client's IPv6 address and port, and has their ends once the client is logged out by that address.
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
	netnstest.Await(t, "the way out", func() error { return reaches6(addr) }) // the kernel first asks for its router
	const size = 300_000
	must(t, os.WriteFile(filepath.Join(dir, "file"), make([]byte, size), 0o644))
	spawn(t, "server", "busybox", "httpd", "-f", "-p", "[::]:7000", "-h", dir)
	netnstest.Await(t, "the file", func() error {
		_, err := try(curl6 + "-f -o /dev/null --local-port 40001 http://[2001:db8:9::2]:7000/file")
		return err
	})
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
