// Tests of the capabilities with which the daemon runs. newNetwork makes the host of a gateway with clients and a
// server, in namespaces (world_test.go). eventually waits until a function returns no error.

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/config"
	"github.com/gateweigh/gateweigh/gateway/control"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// Capabilities as /proc/PID/status shows them.
const (
	netBindAdminRaw = uint64(1<<10 | 1<<12 | 1<<13)
	bpf             = uint64(1 << 39)
)

// TestCapabilities: a daemon that root started gives up the capabilities that its data path does not need, on all of
// its threads. It can still log clients in, read its configuration again, and restore what others remove from the
// kernel.
func TestCapabilities(t *testing.T) {
	t.Parallel()
	if builtWithCgo() {
		t.Fatal("built with cgo, which the daemon cannot confine: set CGO_ENABLED=0, as make does")
	}
	w := newNetwork(t)
	ann := w.addUnaddressed()
	ann.addr = netip.MustParseAddr("10.1.0.99")
	ann.sh("sh -c 'ip addr add 10.1.0.99/24 dev c0; ip route add default via 10.1.0.1'")
	t.Cleanup(func() { w.t = t })
	for _, c := range []struct {
		name, keys string
		held       uint64
	}{
		{"ebpf", "", netBindAdminRaw | bpf},
		{"nfqueue", `kind = "nfqueue"`, netBindAdminRaw},
		{"nfqueue-fast", "kind = \"nfqueue\"\nfast = true", netBindAdminRaw},
		{"tun", `kind = "tun"`, netBindAdminRaw},
		{"tun-fast", "kind = \"tun\"\nfast = true", netBindAdminRaw},
	} {
		t.Run(c.name, func(t *testing.T) {
			w.t, w.Path = t, c.keys
			if strings.HasPrefix(c.name, "tun") {
				w.sh("ip -n $ID-router addr flush dev lan0")
			}
			w.write("gatewayd.toml", "gatewayd.toml", w)
			w.sh("rm -f $DIR/gatewayd.log")
			w.start()
			w.awaitLog(t, "gatewayd is ready")
			w.confined(t, c.held)
			w.served(t, ann)
			if c.name == "ebpf" {
				w.takenOff(t)
			}
			w.confined(t, c.held) // also threads that were started since
			if w.daemon.signalAndWait(syscall.SIGTERM); strings.Contains(w.daemon.output(), "capabilities") ||
				strings.Contains(w.daemon.output(), "level=ERROR msg=\"keeping") {
				t.Errorf("the daemon lacks a capability:\n%s", w.daemon.output())
			}
			w.sh(`nsenter --net=/run/netns/$ID-router ` + w.program + ` detach -c $DIR/gatewayd.toml`)
		})
	}
}

// TestCapabilitiesOfSystemdUnit: with the data path ebpf the daemon starts with the capabilities of packaging's unit,
// and if one of them is missing it does not.
func TestCapabilitiesOfSystemdUnit(t *testing.T) {
	t.Parallel()
	w := newNetwork(t)
	w.write("gatewayd.toml", "gatewayd.toml", w)
	unit, err := os.ReadFile("../../packaging/gatewayd.service")
	must(t, err)
	bound := regexp.MustCompile(`(?m)^CapabilityBoundingSet=(.*)$`).FindSubmatch(unit)
	ambient := regexp.MustCompile(`(?m)^AmbientCapabilities=(.*)$`).FindSubmatch(unit)
	if bound == nil || ambient == nil || string(bound[1]) != string(ambient[1]) {
		t.Fatalf("the unit's capabilities: %q, %q", bound, ambient)
	}
	all := strings.Fields(strings.ToLower(string(bound[1])))
	with := func(names []string) []string {
		set := "-all"
		for _, name := range names {
			set += ",+" + strings.TrimPrefix(name, "cap_")
		}
		return []string{"setpriv", "--no-new-privs", "--bounding-set=" + set, "--inh-caps=" + set, "--ambient-caps=" + set,
			w.program, "run", "-c", filepath.Join(w.Dir, "gatewayd.toml")}
	}
	w.daemon = w.spawn("gatewayd.log", with(all)...)
	w.awaitLog(t, "gatewayd is ready")
	w.daemon.signalAndWait(syscall.SIGTERM)
	for i, name := range all {
		p := w.spawn(name+".log", with(slices.Delete(slices.Clone(all), i, i+1))...)
		eventually(t, "the daemon ends without "+name, func() error {
			select {
			case <-p.ended:
				return nil
			default:
				return errors.New(p.output())
			}
		})
		if text := p.output(); strings.Contains(text, "is ready") || !strings.Contains(text, "gatewayd: ") {
			t.Errorf("without %s:\n%s", name, text)
		}
	}
	w.sh(`nsenter --net=/run/netns/$ID-router ` + w.program + ` detach -c $DIR/gatewayd.toml`)
}

// halfConfined is the test program's main function as a daemon that gives up capabilities only in part: the system call
// by which it would keep the others for new threads fails.
func halfConfined() {
	const noAmbientRaise = 1 << 6 // SECBIT_NO_CAP_AMBIENT_RAISE
	if err := allThreads("forbidding", unix.SYS_PRCTL, unix.PR_SET_SECUREBITS, noAmbientRaise, 0); err != nil {
		fmt.Println(err)
	}
	cfg := &config.Config{}
	cfg.Datapath.Kind = "ebpf"
	dropPrivileges(cfg, slog.New(slog.NewTextHandler(os.Stdout, nil)))
}

// TestPartlyDroppedCapabilities: a daemon that could give up capabilities only in part logs which it still has.
func TestPartlyDroppedCapabilities(t *testing.T) {
	t.Parallel()
	if builtWithCgo() {
		t.Fatal("built with cgo, which the daemon cannot confine: set CGO_ENABLED=0, as make does")
	}
	out, err := exec.Command("half-confined").CombinedOutput()
	if err != nil || strings.Contains(string(out), "all") ||
		!strings.Contains(string(out), `kept="net_bind_service net_admin net_raw bpf" err="handing on`) {
		t.Errorf("%v, it logged %s", err, out)
	}
}

func builtWithCgo() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "CGO_ENABLED", Value: "1"})
}

// confined checks that all of the daemon's threads have the capabilities in held, and no others.
func (w *world) confined(t *testing.T, held uint64) {
	t.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", w.daemon.cmd.Process.Pid))
	if err != nil || len(threads) < 2 {
		t.Fatalf("%d threads, %v", len(threads), err)
	}
	for _, path := range threads {
		text, err := os.ReadFile(path)
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue
		}
		must(t, err)
		for _, set := range []string{"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"} {
			if line := fmt.Sprintf("%s:\t%016x\n", set, held); !strings.Contains(string(text), line) {
				t.Errorf("%s: want %s in\n%s", path, line, text)
			}
		}
		if !strings.Contains(string(text), "NoNewPrivs:\t1\n") {
			t.Errorf("%s: may get new privileges", path)
		}
	}
}

// served checks that the daemon logs a client in, reads its configuration again, and restores rules that are flushed.
func (w *world) served(t *testing.T, ann *client) {
	t.Helper()
	verbs, err := w.control()
	must(t, err)
	mac := strings.Fields(w.sh("ip -n $ID-" + ann.host + " -br link show c0"))[2]
	if _, err := verbs.Login(
		context.Background(), control.LoginRequest{Addr: ann.addr, MAC: mac, User: "ann"}); err != nil {
		t.Fatal(err)
	}
	passes := func() error { _, err := ann.try("ping -c 1 -W 1 192.0.2.2"); return err }
	eventually(t, "a client that is logged in passes", passes)
	w.daemon.cmd.Process.Signal(syscall.SIGHUP)
	w.awaitLog(t, "read the configuration again")
	before := w.tables()
	w.sh("nsenter --net=/run/netns/$ID-router nft flush ruleset || :") // a table that its owner holds stays
	eventually(t, "the rules are back", func() error {
		if now := w.tables(); now != before {
			return fmt.Errorf("%s instead of %s", now, before)
		}
		return nil
	})
	eventually(t, "a client that is logged in passes", passes)
}

// awaitLog waits until the present daemon has logged a text.
func (w *world) awaitLog(t *testing.T, label string) {
	t.Helper()
	eventually(t, label, func() error {
		if text := w.daemon.output(); !strings.Contains(text, label) {
			return errors.New(text)
		}
		return nil
	})
}

// tables lists the tables of nftables, without the one in which gateways record shared settings of the kernel: it
// exists only while there is a setting to restore.
func (w *world) tables() string {
	w.t.Helper()
	all := strings.Split(w.sh("nsenter --net=/run/netns/$ID-router nft list tables"), "\n")
	all = slices.DeleteFunc(all, func(line string) bool { return strings.Contains(line, "gatewayd-shared-settings") })
	slices.Sort(all)
	return strings.Join(all, "\n")
}

// takenOff detaches an eBPF program from lan0, which the daemon must attach again.
func (w *world) takenOff(t *testing.T) {
	t.Helper()
	if netnstest.HasTCX() {
		w.detachFirst()
	} else {
		w.sh("nsenter --net=/run/netns/$ID-router tc filter del dev lan0 ingress")
	}
	eventually(t, "the program is attached again", func() error {
		s, err := w.status()
		if err == nil && (s.Repairs["attached-again"] == 0 || s.Repairs["error"] > 0 || s.Datapath != "ebpf, redirect") {
			err = fmt.Errorf("%s, repairs %v:\n%s", s.Datapath, s.Repairs, w.daemon.output())
		}
		return err
	})
}

// detachFirst detaches the link of the program that LAN packets meet.
func (w *world) detachFirst() {
	w.t.Helper()
	w.inHost("router", func() error {
		lan, err := net.InterfaceByName("lan0")
		if err != nil {
			return err
		}
		attached, err := link.QueryPrograms(link.QueryOptions{Target: lan.Index, Attach: ebpf.AttachTCXIngress})
		if err != nil {
			return err
		}
		id, _ := attached.Programs[0].LinkID()
		l, err := link.NewFromID(id)
		if err != nil {
			return err
		}
		return errors.Join(l.Detach(), l.Close())
	})
}
