package kernel

import (
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"testing"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/datapath/datapathtest"
	"github.com/gateweigh/gateweigh/gateway/netfilter/guard"
)

// keeperEnv is an environment variable with which this test program is a keeper (package keeper): the process that has
// a killed daemon's files until the next one starts.
const keeperEnv = "GATEWAY_TEST_KEEPER"

var path = datapathtest.Path{
	Name: "kernel",
	Open: func(in datapath.Setup) (datapath.Running, error) {
		in.Keeper = func() *exec.Cmd {
			cmd := exec.Command("/proc/self/exe")
			cmd.Env = append(os.Environ(), keeperEnv+"=1")
			return cmd
		}
		return open(in)
	},
	Remove: func(in datapath.Setup) error {
		return errors.Join(Clear(in.LAN()), guard.RemoveFrames(in.LAN()), guard.Remove(in.LAN()))
	},
	Promises: datapathtest.Promises{SharesWAN: true, Unattended: true, Keeps: true, PPPoE: true, Outside: true,
		PPPoEOnly: true, Restores: true, Moves: true, Netfilter: true, Burst: burst},
}

func TestMain(m *testing.M) {
	if os.Getenv(keeperEnv) != "" {
		if err := Keep(os.NewFile(3, "listener"), slog.New(slog.NewTextHandler(os.Stderr, nil))); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	datapathtest.Main(m, path)
}

// needPPPoE skips a test if the kernel has no PPPoE.
func needPPPoE(t *testing.T) {
	t.Helper()
	if err := hasPPPoE(); errors.Is(err, datapath.ErrNotSupported) {
		t.Skip("the kernel lacks PPPoE (CONFIG_PPPOE)")
	} else if err != nil {
		t.Fatal(err)
	}
}

// TestSuite runs the tests that every data path with PPPoE must pass (package datapathtest).
func TestSuite(t *testing.T) {
	needPPPoE(t)
	datapathtest.RunPPPoE(t, path)
}

// TestQuotasEnd: soon after a client has reached a quota, of either direction or of both together, none of its packets
// pass, until it gets a larger quota. Up and down are flows of packets from and to Alice. "set again": the same quota,
// which is used up, is set once more.
func TestQuotasEnd(t *testing.T) {
	needPPPoE(t)
	w := datapathtest.NewWorld(t, path, datapathtest.Shape{PPPoE: true})
	set := func(l datapath.Limits) {
		t.Helper()
		c := datapath.Client{Addrs: []netip.Addr{w.Alice.Addr}, MAC: w.Alice.MAC, Session: w.Alice.Session, Admitted: true,
			Limits: l}
		if err := w.Set(c); err != nil {
			t.Fatal(err)
		}
	}
	up, down := w.Up(t, w.Alice), w.Down(t, w.Alice)
	up.Begin()
	down.Begin()
	for name, of := range map[string]func(up, down uint64) datapath.Limits{
		"up":    func(up, _ uint64) datapath.Limits { return datapath.Limits{UpBytes: up + 50_000} },
		"down":  func(_, down uint64) datapath.Limits { return datapath.Limits{DownBytes: down + 50_000} },
		"total": func(up, down uint64) datapath.Limits { return datapath.Limits{TotalBytes: up + down + 100_000} },
	} {
		set(datapath.Limits{})
		up.Passes(t, name+", up without a quota")
		down.Passes(t, name+", down without a quota")
		before := w.Counters(t, w.Alice.Addr)
		set(of(before.UpBytes, before.DownBytes))
		up.Ends(t, name+", up beyond the quota")
		down.Ends(t, name+", down beyond the quota")
		current := w.Counters(t, w.Alice.Addr)
		if current.UpBytes-before.UpBytes < 50_000 && current.DownBytes-before.DownBytes < 50_000 {
			t.Errorf("%s: it was %+v and ended with %+v", name, before, current)
		}
		set(of(before.UpBytes, before.DownBytes))
		up.Stops(t, name+", up, set again")
	}
}
