package kernel

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/datapath/datapathtest"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// Tests of the keeper: the process that has the files of clients' PPP interfaces (units), so that these go on when the
// daemon is killed. World.Kill kills the daemon, World.Start starts another, and Open opens its data path. Up and down
// are flows of packets from and to Alice, who is admitted; strange is a flow of Bob, who is not.

// keepers returns the processes in a network namespace that are keepers.
func keepers(router *netnstest.Space) (pids []int) {
	space, err := os.Readlink(fmt.Sprintf("/proc/%d/task/%d/ns/net", os.Getpid(), router.TID()))
	dirs, e := os.ReadDir("/proc")
	if errors.Join(err, e) != nil {
		return nil
	}
	for _, d := range dirs {
		env, _ := os.ReadFile("/proc/" + d.Name() + "/environ")
		if current, _ := os.Readlink("/proc/" + d.Name() + "/ns/net"); current != space ||
			!strings.Contains(string(env), keeperEnv+"=") {
			continue
		}
		if pid, err := strconv.Atoi(d.Name()); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// killKeeper waits until there is one keeper, and kills it.
func killKeeper(t *testing.T, w *datapathtest.World) (pid int) {
	t.Helper()
	netnstest.Await(t, "a keeper", func() error {
		all := keepers(w.Router)
		if len(all) != 1 {
			return fmt.Errorf("there are %v", all)
		}
		pid = all[0]
		return syscall.Kill(pid, syscall.SIGKILL)
	})
	return pid
}

func admit(t *testing.T, w *datapathtest.World, s datapathtest.Station, l datapath.Limits) {
	t.Helper()
	must(t, w.Set(datapath.Client{Addrs: []netip.Addr{s.Addr}, MAC: s.MAC, Session: s.Session, Admitted: true, Limits: l}))
}

var must = netnstest.Must

// TestKeeperKilled: when its keeper is killed the daemon loses nothing and starts another one, which keeps the sessions
// as well. When daemon and keeper are killed nothing passes, and the next daemon begins without clients. Long: the
// steps of one run, each of which needs the state that the one before left.
func TestKeeperKilled(t *testing.T) {
	needPPPoE(t)
	w := datapathtest.NewWorld(t, path, datapathtest.Shape{PPPoE: true})
	admit(t, w, w.Alice, datapath.Limits{})
	up, down := w.Up(t, w.Alice), w.Down(t, w.Alice)
	up.Begin()
	down.Begin()
	up.Passes(t, "up")
	unit := w.Router.Run(t, "ip -o link show type ppp")
	first := killKeeper(t, w)
	netnstest.Await(t, "another keeper", func() error {
		if all := keepers(w.Router); len(all) != 1 || all[0] == first {
			return fmt.Errorf("there are %v", all)
		}
		return nil
	})
	netnstest.Await(t, "that it keeps the session", func() error { return holds(keepers(w.Router), "/dev/ppp", 2) })
	w.Kill(t)
	up.Passes(t, "up, with a second keeper alone")
	down.Passes(t, "down, with a second keeper alone")
	w.Start(t)
	must(t, w.Open())
	up.Passes(t, "up, with a successor")
	if now := w.Router.Run(t, "ip -o link show type ppp"); now != unit {
		t.Errorf("the unit was\n%s\nand is\n%s", unit, now)
	}
	up.Halt()
	down.Halt()
	up.Whole(t, "up")
	down.Whole(t, "down")

	w.Kill(t)
	killKeeper(t, w)
	alone := w.Up(t, w.Alice)
	alone.Begin()
	alone.Ends(t, "up, daemon and keeper killed")
	w.Start(t)
	must(t, w.Open())
	if all := w.Clients(t); len(all) > 0 {
		t.Errorf("a daemon without a former one's keeper has the clients %v", all)
	}
	admit(t, w, w.Alice, datapath.Limits{})
	alone.Passes(t, "up, admitted anew")
	must(t, w.Close())
	if all := keepers(w.Router); len(all) != 1 {
		t.Errorf("after an end in order there are the keepers %v", all)
	}
	alone.Passes(t, "up, after an end in order")
	must(t, w.Detach())
	alone.Stops(t, "up, detached")
	if all := keepers(w.Router); len(all) > 0 {
		t.Errorf("after detach there are the keepers %v", all)
	}
}

// holds returns an error unless processes together have want open files of a name.
func holds(pids []int, name string, want int) error {
	n := 0
	for _, pid := range pids {
		fds, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
		for _, fd := range fds {
			if current, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", pid, fd.Name())); current == name {
				n++
			}
		}
	}
	if n != want {
		return fmt.Errorf("%d files, want %d", n, want)
	}
	return nil
}

// TestChangedRulesAtStart: after the daemon is killed, a command (tear) changes rules or interfaces. The next daemon
// then adopts Alice with her unit, or not at all. If not, nothing of hers passes until she is admitted again, as the
// sessions' table would do.
func TestChangedRulesAtStart(t *testing.T) {
	needPPPoE(t)
	for name, c := range map[string]struct {
		tear  string
		whole bool // Alice is adopted with her unit
	}{
		"rules flushed":          {"nft flush ruleset", false},
		"rule added":             {"nft insert rule ip gatewayd-lan0 upwards accept", false},
		"client's rule gone":     {"nft flush map ip gatewayd-lan0 from", false},
		"interface gone":         {"ip link del dev $(ip -o link show type ppp | cut -d: -f2)", false},
		"its route gone":         {"ip route flush dev $(ip -o link show type ppp | cut -d: -f2)", true},
		"another gateway's rule": {"nft add table ip other", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := datapathtest.NewWorld(t, path, datapathtest.Shape{PPPoE: true})
			admit(t, w, w.Alice, datapath.Limits{UpBps: 100_000_000})
			up, down, strange := w.Up(t, w.Alice), w.Down(t, w.Alice), w.Up(t, w.Bob)
			up.Begin()
			down.Begin()
			up.Passes(t, "up")
			unit := w.Router.Run(t, "ip -o link show type ppp | cut -d: -f1")
			w.Kill(t)
			w.Router.Run(t, c.tear)
			w.Start(t)
			must(t, w.Open())
			strange.Begin()
			if all := w.Clients(t); (len(all) == 1) != c.whole {
				t.Errorf("the clients are %v", all)
			}
			if !c.whole {
				up.Stops(t, "up, before the sessions' table has set the client")
				admit(t, w, w.Alice, datapath.Limits{UpBps: 100_000_000})
			}
			up.Passes(t, "up, with a successor")
			down.Passes(t, "down, with a successor")
			if now := w.Router.Run(t, "ip -o link show type ppp | cut -d: -f1"); (now == unit) != c.whole {
				t.Errorf("the unit was %s and is %s", unit, now)
			}
			strange.Stops(t, "a stranger's")
			must(t, w.Set(datapath.Client{Addrs: []netip.Addr{w.Alice.Addr}, MAC: w.Alice.MAC, Session: w.Alice.Session}))
			up.Stops(t, "up, after logout")
			down.Stops(t, "down, after logout")
			netnstest.Await(t, "that the keeper has nothing", func() error { return holds(keepers(w.Router), "/dev/ppp", 0) })
		})
	}
}

// TestKeeperQuotaWithChangedRules: while no daemon runs, Alice uses up her quota, so that the keeper ends her traffic,
// and Bob's interface is removed. The next daemon removes both clients' entries from the rules. The counters of Bob's
// new interface begin at 0.
func TestKeeperQuotaWithChangedRules(t *testing.T) {
	needPPPoE(t)
	w := datapathtest.NewWorld(t, path, datapathtest.Shape{PPPoE: true})
	bob := w.Bob
	bob.Session = 99
	admit(t, w, bob, datapath.Limits{})
	admit(t, w, w.Alice, datapath.Limits{})
	up := w.Up(t, w.Alice)
	up.Begin()
	up.Passes(t, "up")
	before := w.Counters(t, w.Alice.Addr).UpBytes
	admit(t, w, w.Alice, datapath.Limits{UpBytes: before + 200_000})
	w.Kill(t)
	const used = "nft list counter ip gatewayd-lan0 %s | grep -o 'bytes [0-9]*' | cut -d' ' -f2"
	netnstest.Await(t, "the use of the quota", func() error {
		n, err := strconv.ParseUint(strings.TrimSpace(w.Router.Run(t, fmt.Sprintf(used, fromCounter(w.Alice.Addr)))), 10, 64)
		if err == nil && n < before+200_000 {
			err = fmt.Errorf("%d bytes were counted", n)
		}
		return err
	})
	up.Ends(t, "up, with nobody but the keeper")
	w.Router.Run(t, "ping -c 1 -W 0.1 $addr || true; ip link del dev $(ip -o link show type ppp | grep -o 'gw[0-9]*p99')",
		"addr="+bob.Addr.String())
	w.Start(t)
	must(t, w.Open())
	admit(t, w, bob, datapath.Limits{})
	up.Stops(t, "up, beyond the quota")
	if out := w.Router.Run(t, "nft list map ip gatewayd-lan0 from"); strings.Contains(out, w.Alice.Addr.String()) ||
		strings.Count(out, " . "+bob.Addr.String()) != 1 {
		t.Errorf("the rules have\n%s", out)
	}
	if n := strings.TrimSpace(w.Router.Run(t, fmt.Sprintf(used, ownCounter(bob.Addr)))); n != "0" {
		t.Errorf("a new interface's counter has %s bytes", n)
	}
}

// TestKeeperClosesAfterFlush: somebody changes the clients' rules while no daemon runs. Nothing of a client passes
// until a daemon runs again. Nothing of a stranger without a PPPoE session passes either, whichever rules are gone.
func TestKeeperClosesAfterFlush(t *testing.T) {
	needPPPoE(t)
	for name, c := range map[string]struct {
		change string
		goOn   bool // clients' packets pass as before
	}{
		"flushed":          {"nft flush ruleset", false},
		"rule added":       {"nft insert rule ip gatewayd-lan0 upwards accept", false},
		"LAN's table gone": {"nft 'delete table netdev gatewayd-lan0; delete table inet gatewayd-lan0'", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := datapathtest.NewWorld(t, path, datapathtest.Shape{PPPoE: true})
			w.Bob.Run(t, "ip neigh replace 10.1.0.1 lladdr 02:00:00:00:01:01 dev c0") // nothing but the rules stops him
			admit(t, w, w.Alice, datapath.Limits{})
			up, down, strange := w.Up(t, w.Alice), w.Down(t, w.Alice), w.Up(t, w.Bob)
			for _, f := range []*datapathtest.Flow{up, down, strange} {
				f.Begin()
			}
			up.Passes(t, "up")
			w.Kill(t)
			up.Passes(t, "up, with nobody but the keeper")
			w.Router.Run(t, c.change)
			strange.Ends(t, "a stranger's, with other rules")
			if c.goOn {
				up.Passes(t, "up, with the clients' rules")
				down.Passes(t, "down, with the clients' rules")
			} else {
				up.Ends(t, "up, without rules")
				down.Ends(t, "down, without rules")
			}
			w.Start(t)
			must(t, w.Open())
			admit(t, w, w.Alice, datapath.Limits{})
			up.Passes(t, "up, with a successor")
			down.Passes(t, "down, with a successor")
			strange.Stops(t, "a stranger's, with a successor")
		})
	}
}

// TestRateWithExistingQueue: a client's rates are limited also if another program has given its interface the qdisc for
// filters (clsact).
func TestRateWithExistingQueue(t *testing.T) {
	needPPPoE(t)
	w := datapathtest.NewWorld(t, path, datapathtest.Shape{PPPoE: true})
	admit(t, w, w.Alice, datapath.Limits{})
	w.Router.Run(t, "tc qdisc add dev $(ip -o link show type ppp | cut -d: -f2) clsact")
	admit(t, w, w.Alice, datapath.Limits{UpBps: 1_000_000, DownBps: 1_000_000})
	for _, way := range []string{"ingress", "egress"} {
		if out := w.Router.Run(t, "tc filter show dev $(ip -o link show type ppp | cut -d: -f2) "+way); !strings.Contains(
			out, "police") {
			t.Errorf("%s has no limit:\n%s", way, out)
		}
	}
}

// TestKeeperEndsTime: without a daemon the keeper ends a client's unit at the end of the client's time. Without a
// client it ends itself.
func TestKeeperEndsTime(t *testing.T) {
	needPPPoE(t)
	w := datapathtest.NewWorld(t, path, datapathtest.Shape{PPPoE: true})
	must(t, w.Set(datapath.Client{Addrs: []netip.Addr{w.Alice.Addr}, MAC: w.Alice.MAC, Session: w.Alice.Session,
		Admitted: true, Until: time.Now().Add(2 * time.Second)}))
	w.Kill(t)
	netnstest.Await(t, "the end of the keeper and of all units", func() error {
		if out := w.Router.Run(t, "ip -o link show type ppp"); out != "" || len(keepers(w.Router)) > 0 {
			return errors.New("there is still something: " + out)
		}
		return nil
	})
	w.Start(t)
	must(t, w.Open())
}
