// A test of networks that are added, changed and removed while clients of others send. newNetwork makes the host of a
// gateway with clients and a server, in namespaces (world_test.go); a stream sends by TCP through it (flow_test.go).

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/gateweigh/gateweigh/gateway/control"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// networksHead has the keys for all networks, with the world's folder, its folder of pins, and whether flows are
// logged.
const networksHead = `state_dir = "%[1]s/state"
run_dir = "%[1]s/run"
wan.interface = "wan0"
dns.upstreams = ["192.0.2.2"]
auth.methods = ["click-through"]
datapath.pin_dir = "%[2]s"
flowlog.enabled = %[3]v
`

// networkOf returns the table of a network at lan0, lan1 and so on, by n. more is further lines.
func networkOf(name string, n int, more string) string {
	return fmt.Sprintf("[[network]]\nname = \"%s\"\ninterface = \"lan%d\"\naddress = \"10.%d.0.1/24\"\n%s\n", name, n, n+1,
		more)
}

// configureNetworks writes a configuration with several networks.
func (w *world) configureNetworks(logged bool, networks ...string) {
	w.t.Helper()
	text := fmt.Sprintf(networksHead, w.Dir, w.Pins, logged) + strings.Join(networks, "\n")
	must(w.t, os.WriteFile(filepath.Join(w.Dir, "gatewayd.toml"), []byte(text), 0o600))
}

// addLAN adds a LAN, lan1 and so on, with a bridge of its own and a client behind it, which has no address yet.
func (w *world) addLAN(n int) *client {
	w.t.Helper()
	w.made++
	c := &client{w: w, host: fmt.Sprint("client", w.made)}
	space := w.space(c.host)
	space.Veth(w.t, netnstest.End{Name: "c0"}, w.hub, netnstest.End{Name: c.host})
	space.Enable(w.t, "c0")
	w.sh(fmt.Sprintf(`ip -n $ID-router link add lan%[1]d type veth peer name lan%[1]d netns $ID-hub
ip -n $ID-router addr add 10.%[2]d.0.1/24 dev lan%[1]d; ip -n $ID-router link set lan%[1]d up
ip -n $ID-hub link add br%[1]d type bridge; ip -n $ID-hub link set br%[1]d up
for p in lan%[1]d %[3]s; do ip -n $ID-hub link set $p master br%[1]d up
	until ip netns exec $ID-hub bridge link show dev $p | grep -q forwarding; do sleep 0.01; done; done
ip -n $ID-server route add 10.%[2]d.0.0/24 via 192.0.2.1`, n, n+1, c.host))
	space.AwaitUp(w.t, "c0")
	w.plainTCP(c.host)
	return c
}

// admit leases an address to a client and logs it in.
func (w *world) admit(c *client) control.Session {
	w.t.Helper()
	c.lease()
	verbs, err := w.control()
	must(w.t, err)
	s, err := verbs.Login(context.Background(), control.LoginRequest{Addr: c.addr, User: "ann"})
	must(w.t, err)
	return s
}

// passes reports whether a client reaches the server. want is what the test expects: only then it waits for an answer.
func (c *client) passes(want bool) bool {
	flags := "-c 1 -W 5"
	if !want {
		flags = "-c 2 -i 0.1 -W 0.2"
	}
	_, err := c.try("ping " + flags + " 192.0.2.2")
	return err == nil
}

// reload has the daemon read its configuration again, and checks that its reports begin with the texts wanted.
func (w *world) reload(want ...string) control.ReloadReply {
	w.t.Helper()
	verbs, err := w.control()
	must(w.t, err)
	r, err := verbs.Reload(context.Background())
	must(w.t, err)
	got := slices.Concat(r.Networks, r.Waiting, r.Problems)
	if !slices.EqualFunc(got, want, strings.HasPrefix) {
		w.t.Fatalf("reload says %q, want %q\n%s", got, want, w.daemon.output())
	}
	return r
}

// TestReloadUnderTraffic: networks are added, changed and removed while a client of another one loses no packet,
// although the daemon has given up capabilities. A network that is removed from the file while no daemon runs is closed
// by the next daemon. a, b and c are the clients of the networks stays, second and third. Long: the steps of one run,
// each of which needs the state that the one before left.
func TestReloadUnderTraffic(t *testing.T) {
	t.Parallel()
	w := newNetwork(t)
	w.plainTCP("server")
	stays, second := networkOf("stays", 0, ""), networkOf("second", 1, "")
	w.configureNetworks(false, stays, second)
	b := w.addLAN(1)
	w.start()
	a := w.client()
	began := w.admit(a)
	w.admit(b)
	up, down, stream := w.flow(a, true, 300), w.flow(a, false, 300), w.stream(a, true, 5)
	moves := func(after string) {
		t.Helper()
		u, d, s := up.received.Load(), down.received.Load(), stream.received.Load()
		eventually(t, "packets of another network's client after "+after, func() error {
			if up.received.Load() < u+50 || down.received.Load() < d+50 || stream.received.Load() < s+50_000 {
				return errors.New("too few arrive")
			}
			return nil
		})
	}
	up.start()
	down.start()
	moves("the start")

	c := w.addLAN(2)
	third := networkOf("third", 2, "[network.nat]\nmasquerade = true")
	w.configureNetworks(false, stays, second, third)
	w.reload("third: added")
	moves("one was added")
	w.admit(c)
	if !c.passes(true) {
		t.Error("the client of a network that was added does not reach the server")
	}
	retitled := strings.Replace(second, "[[network]]", "[[network]]\nportal.title = \"x\"", 1)
	w.configureNetworks(false, stays, retitled, third)
	w.reload("second: changed")
	moves("one was changed")
	if !b.passes(true) {
		t.Error("a client that was logged in does not reach the server after its network was changed")
	}
	w.configureNetworks(false, stays, strings.Replace(second, "10.2.0.1", "10.3.0.1", 1), third)
	w.reload(filepath.Join(w.Dir, "gatewayd.toml") + ":23: network.address: 10.3.0.0/24 overlaps 10.3.0.0/24 of network")
	w.configureNetworks(true, stays, retitled, third)
	if r := w.reload("flowlog.enabled"); r.Held {
		t.Errorf("a reload that changes no network: %+v", r)
	}
	w.configureNetworks(true, stays, third)
	if r := w.reload("flowlog.enabled"); !r.Held {
		t.Errorf("a reload that would remove a network: %+v", r)
	}
	if !b.passes(true) {
		t.Error("a reload that applies nothing cuts a client off")
	}
	w.configureNetworks(false, stays, third)
	w.daemon.cmd.Process.Signal(syscall.SIGHUP)
	eventually(t, "a network is removed", func() error {
		if b.passes(false) {
			return errors.New("its client still passes")
		}
		return nil
	})
	w.awaitLog(t, "network removed")
	moves("one was removed")
	if left := w.sh("ls " + w.Pins + "; nsenter --net=/run/netns/$ID-router nft list tables"); strings.Contains(
		left, "second") || strings.Count(left, "lan1") != 1 { // the guard
		t.Errorf("the network that was removed leaves:\n%s", left)
	}
	w.kill()
	moves("kill -9")
	if !c.passes(true) {
		t.Error("without the daemon a client is cut off")
	}
	w.configureNetworks(false, stays)
	w.start()
	moves("the next daemon")
	if c.passes(false) {
		t.Error("the client of a network that is no longer in the file passes")
	}

	up.halt()
	down.halt()
	stream.halt()
	up.expectAll(t, "all datagrams from the client of the network that stays")
	down.expectAll(t, "all datagrams to it")
	if err := ended(stream.client); err != nil {
		t.Error(err)
	}
	if s := a.session(); s.ID != began.ID || s.Network != "stays" {
		t.Errorf("its session is %+v, was %+v", s, began)
	}
	w.daemon.signalAndWait(syscall.SIGTERM)
	w.sh("nsenter --net=/run/netns/$ID-router gatewayd detach -c $DIR/gatewayd.toml")
	left := w.sh("ls -A " + w.Pins + "; nsenter --net=/run/netns/$ID-router nft list tables")
	if guards := "table inet gatewayd-lan1\ntable inet gatewayd-lan2"; left != guards {
		t.Errorf("detach leaves\n%s\nwant\n%s", left, guards)
	}
}
