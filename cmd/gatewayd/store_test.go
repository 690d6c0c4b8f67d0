// Tests of a daemon whose sessions have copies in a server of Redis. newWorld makes the host of a gateway with clients
// and a server, in namespaces (world_test.go). eventually waits until a function returns no error.

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/gateweigh/gateweigh/gateway/session"
	"github.com/gateweigh/gateweigh/internal/redistest"
)

// shareStore has the world's daemon use a server.
func (w *world) shareStore(addr, name string) {
	w.t.Helper()
	path := filepath.Join(w.Dir, "gatewayd.toml")
	text, err := os.ReadFile(path)
	must(w.t, err)
	text = fmt.Appendf(text, "\n[store]\nkind = \"redis\"\naddresses = [%q]\nname = %q\n", addr, name)
	must(w.t, os.WriteFile(path, text, 0o600))
}

// shareWith has the daemons of two worlds, gw1 and gw2, use a server on this one's router.
func (w *world) shareWith(two *world) *redistest.Server {
	w.t.Helper()
	w.sh(`ip link add store0 netns $ID-router type veth peer name store0 netns ` + two.id + `-router
		ip -n $ID-router addr add 10.9.0.1/24 dev store0 && ip -n $ID-router link set store0 up
		ip -n ` + two.id + `-router addr add 10.9.0.2/24 dev store0 && ip -n ` + two.id + `-router link set store0 up
		until ip -n ` + two.id + `-router link show store0 | grep -q "state UP"; do sleep 0.01; done`)
	w.shareStore("127.0.0.1", "gw1")
	two.shareStore("10.9.0.1:6379", "gw2")
	return redistest.Start(w.t, redistest.Place{Also: "10.9.0.1", Port: 6379,
		Inside: []string{"nsenter", "--net=/run/netns/" + w.id + "-router"}})
}

// cluster returns what "gatewayd cluster status" prints.
func (w *world) cluster() string {
	w.t.Helper()
	return w.sh(w.program + ` --socket $DIR/run/control.sock cluster status 2>&1 || true`)
}

// TestSharedStore: two gateways share a server, one of them with several networks. While it is away both go on:
// sessions stay, also of a daemon that is killed, and people log in and out. Afterwards the server has the sessions
// that there are, and no other. Long: the steps of one run, each of which needs the state that the one before left.
func TestSharedStore(t *testing.T) {
	t.Parallel()
	one, two := newWorld(t), newNetwork(t)
	two.configureNetworks(false, networkOf("stays", 0, ""), networkOf("second", 1, ""))
	two.addLAN(1)
	server := one.shareWith(two)
	one.start()
	two.start()
	ann, bob, eve := one.client(), one.client(), two.client()
	began := ann.logIn("ann")
	two.admit(eve)
	// holds waits until the server has a gateway's record of a client, in which the user's name is; "": nobody's.
	holds := func(label, set string, c *client, user string) {
		t.Helper()
		_, gateway, _ := strings.Cut(set, ":")
		eventually(t, label, func() error {
			record := server.CLI("HGET", "gateweigh:"+set, c.addr.String())
			found := ""
			for _, name := range []string{"ann", "frugal"} {
				if strings.Contains(record, name) {
					found = name
				}
			}
			if !strings.Contains(record, " "+gateway+" ") || found != user {
				return fmt.Errorf("%q", record)
			}
			return nil
		})
	}
	holds("ann is in the store", "sessions:gw1", ann, "ann")
	holds("eve is in the store", "sessions.stays:gw2", eve, "ann")
	everybody := one.sh(one.program + ` --socket $DIR/run/control.sock cluster sessions`)
	for _, want := range []string{`(?m)^gw1 +- +` + ann.addr.String() + ` .* authenticated .* ann$`,
		`(?m)^gw2 +stays +` + eve.addr.String() + ` .* authenticated .* ann$`} {
		if !regexp.MustCompile(want).MatchString(everybody) {
			t.Errorf("cluster sessions has no %s:\n%s", want, everybody)
		}
	}
	if n := len(server.CLI("HGET", "gateweigh:sessions:gw1", ann.addr.String())); n > 400 {
		t.Errorf("a session's record has %d bytes: a test of gateway/cluster takes 400 for the most", n)
	}
	eventually(t, "both gateways are there", func() error {
		if out := one.cluster(); strings.Count(out, " there ") != 2 || !strings.Contains(out, "gw2") {
			return fmt.Errorf("%s", out)
		}
		return nil
	})

	server.Kill()
	bob.logIn("frugal")
	ann.logOut()
	ann.logIn("ann")
	one.kill()
	one.start()
	if s := bob.session(); s.State != session.Authenticated || s.User != "frugal" {
		t.Errorf("after a crash without the store: %+v", s)
	}
	ann.logOut()
	eventually(t, "the status says that the store is away", func() error {
		if out := one.sh(one.program + ` --socket $DIR/run/control.sock status`); !strings.Contains(out, "as gw1: away") {
			return fmt.Errorf("%s", out)
		}
		return nil
	})
	if out := one.cluster(); !strings.Contains(out, "asking the store") {
		t.Errorf("cluster status without the store: %s", out)
	}

	server.Restart()
	holds("ann has logged out", "sessions:gw1", ann, "")
	holds("bob is in the store", "sessions:gw1", bob, "frugal")
	server.CLI("FLUSHALL")
	holds("bob is in the emptied store", "sessions:gw1", bob, "frugal")
	holds("eve is in the emptied store", "sessions.stays:gw2", eve, "ann")
	again := ann.logIn("ann")
	if again.ID == began.ID {
		t.Error("a new login has the former session")
	}
	holds("ann is in the store again", "sessions:gw1", ann, "ann")
	two.daemon.signalAndWait(syscall.SIGTERM)
	eventually(t, "the other gateway is away", func() error {
		if out := one.cluster(); !strings.Contains(out, "away for") || strings.Count(out, " there ") != 1 {
			return fmt.Errorf("%s", out)
		}
		return nil
	})
	gatewayd := one.program + ` --socket $DIR/run/control.sock cluster `
	if out := one.sh(gatewayd + `sessions`); !regexp.MustCompile(`(?m)^gw2 \(away\) +stays .* ann$`).MatchString(out) {
		t.Errorf("the other gateway's sessions are not marked:\n%s", out)
	}
	if out := one.sh(gatewayd + `forget gw1 2>&1 || true`); !strings.Contains(out, "gw1 is there") {
		t.Errorf("a gateway that is there is forgotten: %s", out)
	}
	one.sh(gatewayd + `forget gw2`)
	if out := one.cluster() + one.sh(gatewayd+`sessions`); strings.Contains(out, "gw2") {
		t.Errorf("after forget:\n%s", out)
	}
}
