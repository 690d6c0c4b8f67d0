package gateway

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/gateweigh/gateweigh/gateway/control"
	"github.com/gateweigh/gateweigh/gateway/session"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// TestDetachKeepsSessions: clients logged in before detach are still logged in when a gateway starts again, with their
// counts.
func TestDetachKeepsSessions(t *testing.T) {
	dir := t.TempDir()
	d := startWithAnn(t, dir)
	must(t, d.stop())
	if !LeftInKernel(d.cfg) {
		t.Error("nothing is seen of a gateway that has ended")
	}
	must(t, Detach(d.cfg, false))
	if LeftInKernel(d.cfg) {
		t.Error("something is left after detach")
	}
	d = start(t, dir)
	if got := d.client(t); got.State != session.Authenticated || got.UpBytes == 0 || !clientReachesServer() {
		t.Errorf("after detach and a start the client is %+v", got)
	}
	must(t, d.stop())
	d = start(t, dir)
	if got := d.client(t).State; got != session.Authenticated {
		t.Errorf("after another start it is %q", got)
	}
	must(t, d.stop())
	must(t, os.WriteFile(bootFile(d.cfg), []byte("of a former boot\n"), 0o600))
	must(t, Detach(d.cfg, false)) // as after a reboot, which sessions do not survive
	d = start(t, dir)
	if got := d.client(t).State; got == session.Authenticated {
		t.Error("detach has a session outlive a reboot")
	}
}

// TestRemovedProgramsInStatus: programs that somebody detaches are in the status.
func TestRemovedProgramsInStatus(t *testing.T) {
	d := startWithAnn(t, t.TempDir())
	detachFirst(t)
	c, err := control.Dial(d.cfg.ControlSocket())
	must(t, err)
	eventually(t, "the status to count the program and to end the word closed", func() bool {
		s, err := c.Status(t.Context())
		must(t, err)
		return s.Repairs["taken-off"] == 1 && s.Repairs["attached-again"] == 1 && s.Repairs["error"] == 0 &&
			s.Datapath == "ebpf, redirect"
	})
	must(t, d.stop())
}

// detachFirst detaches the program that LAN packets meet, and no daemon.
func detachFirst(t *testing.T) {
	t.Helper()
	if !netnstest.HasTCX() {
		sh(t, "tc filter del dev lan0 ingress")
		return
	}
	lan, err := net.InterfaceByName("lan0")
	must(t, err)
	attached, err := link.QueryPrograms(link.QueryOptions{Target: lan.Index, Attach: ebpf.AttachTCXIngress})
	must(t, err)
	if len(attached.Programs) != 1 {
		t.Fatalf("%d programs at tcx, want lan_in alone", len(attached.Programs))
	}
	id, _ := attached.Programs[0].LinkID()
	l, err := link.NewFromID(id)
	must(t, err)
	must(t, errors.Join(l.Detach(), l.Close()))
}

// TestDetachWithoutInterface: without the interface, detach fails, unless the guard identifies the LAN.
func TestDetachWithoutInterface(t *testing.T) {
	network(t)
	d := start(t, t.TempDir())
	must(t, d.stop())
	sh(t, "ip link del lan0")
	must(t, Detach(d.cfg, false)) // the guard is here
	if err := Detach(d.cfg, false); !errors.Is(err, ErrNotHere) {
		t.Errorf("detach where nothing is: %v", err)
	}
	must(t, Detach(d.cfg, true))
}

// TestDetachHalfway: a detach that fails on the way leaves the LAN closed, and can be repeated.
func TestDetachHalfway(t *testing.T) {
	d := startWithAnn(t, t.TempDir())
	must(t, d.stop())
	held := filepath.Join(d.cfg.Datapath.PinDir, "held")
	sh(t, "mkdir "+held+"; mount --bind "+held+" "+held) // cannot be removed
	err := Detach(d.cfg, false)
	sh(t, "umount "+held)
	closed := func(err error) {
		t.Helper()
		if err == nil {
			t.Error("detach says that it removed everything")
		}
		if _, err := try("ip netns exec client ping -c 1 -W 1 192.0.2.2"); err == nil {
			t.Error("after half a detach a client passes, by nobody's leave")
		}
	}
	closed(err)
	must(t, Detach(d.cfg, false))

	d = start(t, t.TempDir())
	must(t, d.stop())
	note := forwardingSwitch(d.cfg).NotePath
	must(t, os.RemoveAll(note))
	must(t, os.Mkdir(note, 0o700)) // cannot be read
	closed(Detach(d.cfg, false))
	must(t, os.Remove(note))
	must(t, Detach(d.cfg, false))
}

// TestDetachWithHiddenBPFFS: where the BPF file system is hidden, as by "ip netns exec", detach changes nothing and
// says what to use instead.
func TestDetachWithHiddenBPFFS(t *testing.T) {
	d := startWithAnn(t, t.TempDir())
	must(t, d.stop())
	sh(t, "mount -t sysfs none /sys")
	err := Detach(d.cfg, false)
	sh(t, "umount /sys")
	if err == nil || !strings.Contains(err.Error(), "nsenter") {
		t.Errorf("detach without sight of the pins: %v", err)
	}
	if !Pinned(d.cfg) || !clientReachesServer() {
		t.Error("the client that was logged in is cut off")
	}
}

// TestDetachByForce: a running daemon puts nothing back after a forced detach.
func TestDetachByForce(t *testing.T) {
	network(t)
	for range 5 {
		d := start(t, t.TempDir())
		must(t, Detach(d.cfg, true))
		c, err := control.Dial(d.cfg.ControlSocket())
		must(t, err)
		eventually(t, "the watcher to look, and the status to say so", func() bool {
			s, err := c.Status(t.Context())
			must(t, err)
			return s.Datapath == "ebpf, detached" && s.Why != ""
		})
		// has it look
		sh(t, "nft add table inet other; nft delete table inet other; tc qdisc add dev wan0 clsact; tc qdisc del dev wan0 "+
			"clsact")
		must(t, d.stop())
		if LeftInKernel(d.cfg) {
			t.Error("something is left")
		}
	}
}

// TestWithoutNFT: gatewayd needs no program nft, to run and to detach.
func TestWithoutNFT(t *testing.T) {
	network(t)
	cfg := configured(t, t.TempDir(), onEBPF)
	path := os.Getenv("PATH")
	t.Setenv("PATH", "/nowhere")
	d := serve(t, cfg)
	err := errors.Join(Refused(Check(cfg)), d.stop(), Detach(cfg, false))
	t.Setenv("PATH", path)
	if left := sh(t, "nft list ruleset"); err != nil || left != "" {
		t.Errorf("%v; left:\n%s", err, left)
	}
}

// TestDetachUnreadableFlowLog: detach with a folder of the flow log that cannot be read removes all else, and says what
// it cannot restore; forced, it has a daemon's log put nothing back.
func TestDetachUnreadableFlowLog(t *testing.T) {
	const settings = "sysctl -n net.netfilter.nf_conntrack_acct net.netfilter.nf_conntrack_timestamp"
	network(t)
	cfg := configured(t, t.TempDir(), onEBPF)
	cfg.FlowLog.Enabled = true
	before := sh(t, settings)
	logs := func(on bool) func() bool {
		return func() bool {
			_, err := try("nft list table ip gatewayd-flows-lan0")
			return (err == nil) == on && (sh(t, settings) == before) == !on
		}
	}
	d := serve(t, cfg)
	eventually(t, "the log to begin", logs(true))
	must(t, Detach(cfg, true))
	eventually(t, "the daemon to notice", func() bool {
		c, err := control.Dial(cfg.ControlSocket())
		must(t, err)
		s, err := c.Status(t.Context())
		must(t, err)
		return strings.HasSuffix(s.Datapath, "detached")
	})
	eventually(t, "nothing to be left", logs(false))
	must(t, d.stop())
	must(t, serve(t, cfg).stop())
	sh(t, "sysctl -qw net.netfilter.nf_conntrack_acct=1 net.netfilter.nf_conntrack_timestamp=1")
	t.Cleanup(func() { sh(t, "sysctl -qw net.netfilter.nf_conntrack_acct=0 net.netfilter.nf_conntrack_timestamp=0") })
	bad := *cfg
	bad.FlowLog.Folder = filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(bad.FlowLog.Folder, nil, 0o600))
	if err := Detach(&bad, false); err == nil || !strings.Contains(err.Error(), "nf_conntrack_timestamp=0") {
		t.Errorf("detach says %v", err)
	}
	if LeftInKernel(&bad) {
		t.Error("something is left")
	}
}
