// Tests of address translation over restarts of the daemon, and of what the manual says of it. translating makes the
// host of a gateway that translates addresses, with two clients, which are logged in as the users ann and frugal
// (nat_test.go); newLines makes one with PPPoE clients (pppoe_test.go). outside is the router's address towards the
// server.

package main

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestNATSurvivesFlushAndRestart: translated connections go on when other programs flush the rules, while the daemon is
// dead, and under the next daemon.
func TestNATSurvivesFlushAndRestart(t *testing.T) {
	t.Parallel()
	w, ann, _ := translating(t, "", "[nat]\nmasquerade = true")
	up, down := w.stream(ann, true, cmp.Or(min(*tcpMbps, 20), 1)), w.stream(ann, false, cmp.Or(min(*tcpMbps, 20), 1))
	moves := func(after string) {
		t.Helper()
		u, d := up.received.Load(), down.received.Load()
		eventually(t, "data both ways after "+after, func() error {
			if up.received.Load() < u+100_000 || down.received.Load() < d+100_000 {
				return fmt.Errorf("%d and %d bytes", up.received.Load()-u, down.received.Load()-d)
			}
			return nil
		})
	}
	rules := func() string { return w.sh("nsenter --net=/run/netns/$ID-router nft list table ip gatewayd-nat-lan0") }
	moves("the start")
	w.sh("nsenter --net=/run/netns/$ID-router nft flush ruleset")
	moves("flush ruleset")
	rules()
	eventually(t, "the guard is back", func() error { // the next daemon could not open the flushed one
		st, err := w.status()
		if err == nil && st.Repairs["guarded-again"] == 0 {
			err = fmt.Errorf("%v", st.Repairs)
		}
		return err
	})
	w.kill()
	moves("kill -9")
	rules()
	w.start()
	moves("the successor")
	w.replace()
	moves("another")
	if err := errors.Join(ended(up.client), ended(down.client)); err != nil {
		t.Error(err)
	}
	server := w.identHost("192.0.2.2")
	if got := ann.sourceSeenBy(server); got.Addr() != outside {
		t.Errorf("the server sees %v", got)
	}
	up.halt()
	down.halt()
}

// ended returns an error if a connection is no longer established.
func ended(c *net.TCPConn) error {
	const established = 1
	i, err := info(c)
	if err == nil && i.State != established {
		err = fmt.Errorf("a connection is in state %d", i.State)
	}
	return err
}

// TestNATOfSubscribers: PPPoE clients are translated as others are.
func TestNATOfSubscribers(t *testing.T) {
	t.Parallel()
	w := newLines(t,
		"echo = \"1s\"\necho_failures = 60\n[nat]\nmasquerade = true\n[[nat.forward]]\nproto = \"tcp\"\nports = 8080\nto = "+
			"\"10.1.0.100:7000\"")
	c := w.onLine("ann")
	if got := c.sourceSeenBy(w.identHost("192.0.2.2")); got.Addr() != outside {
		t.Errorf("the server sees %v", got)
	}
	l, _ := c.serving(7000)
	if got, err := w.reaches("server", netip.AddrPortFrom(outside, 8080), l); err != nil || got.Addr() != serverAddr {
		t.Errorf("forwarded from %v, %v", got, err)
	}
}

// TestNATNamesForeignMasquerade: check-config and the log name rules of others that masquerade too.
func TestNATNamesForeignMasquerade(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.configure("[nat]\nmasquerade = true\n[[nat.forward]]\nproto = \"tcp\"\nports = 80\nto = \"10.1.0.9\"")
	w.sh(`nsenter --net=/run/netns/$ID-router nft 'table ip isp { chain out { type nat hook postrouting priority srcnat; oifname "wan0" masquerade; }; }'`)
	out := w.sh("nsenter --net=/run/netns/$ID-router gatewayd check-config $DIR/gatewayd.toml 2>&1")
	for _, want := range []string{"nat.masquerade: rules in ip isp out translate addresses too",
		"nat.forward.to: whichever client leases 10.1.0.9 gets"} {
		if !strings.Contains(out, want) {
			t.Errorf("check-config does not say %q:\n%s", want, out)
		}
	}
	w.start()
	if text := w.daemon.output(); !strings.Contains(text, "ip isp out") {
		t.Errorf("the log has no warning:\n%s", text)
	}
}

// TestManualTranslates: with the configuration of the manual's quick start, its commands for NAT and its input rules, a
// client that logs in reaches a server that has no route to the LAN. Long: the steps of one run, each of which needs
// the state that the one before left.
func TestManualTranslates(t *testing.T) {
	t.Parallel()
	var text []byte
	for _, page := range []string{"gateway.md", "nat.md"} {
		part, err := os.ReadFile("../../docs/" + page)
		must(t, err)
		text = append(text, part...)
	}
	between := func(from, begin, end string) string {
		t.Helper()
		_, rest, found := strings.Cut(string(text), from)
		_, rest, found2 := strings.Cut(rest, begin)
		block, _, found3 := strings.Cut(rest, end)
		if !found || !found2 || !found3 {
			t.Fatalf("the manual has no %q after %q", begin, from)
		}
		return block
	}
	w := newNetwork(t)
	w.sh(`for i in lan0:eth1 wan0:eth0; do ip -n $ID-router link set ${i%:*} down; ip -n $ID-router link set ${i%:*} name ${i#*:}; ip -n $ID-router link set ${i#*:} up; done
ip -n $ID-router addr flush dev eth1; ip -n $ID-server route del 10.1.0.0/24`)
	here := func(text string) string { return strings.ReplaceAll(text, "/etc/gatewayd", w.Dir) }
	folders := fmt.Sprintf(
		"state_dir = \"%s/state\"\nrun_dir = \"%[1]s/run\"\ndatapath.pin_dir = \"%[2]s\"\n", w.Dir, w.Pins)
	must(t, os.WriteFile(filepath.Join(w.Dir, "gatewayd.toml"), []byte(folders+between(
		"All that `/etc/gatewayd/gatewayd.toml` needs", "```toml\n", "```")), 0o600))
	must(t, os.WriteFile(
		filepath.Join(w.Dir, "users"), []byte("ann:"+w.sh("printf right | gatewayd hash-password")+"\n"), 0o600))
	rules := strings.ReplaceAll(between("**Input rules**", "\n\n    #!", "\n\n"), "\n    ", "\n")
	must(t, os.WriteFile(filepath.Join(w.Dir, "nftables.conf"), []byte("#!"+rules), 0o600))
	translate := here(between("# NAT and firewalls", "```sh\n", "```"))
	commands := strings.ReplaceAll(between("so set them first", "    sudo", "\n\n"), "sudo ", "") + "\n" + translate
	must(t, os.WriteFile(filepath.Join(w.Dir, "commands.sh"), []byte(commands), 0o600))
	if message := w.sh("nsenter --net=/run/netns/$ID-router sh -ex $DIR/commands.sh 2>&1"); !strings.Contains(
		message, "gatewayd.toml is good") {
		t.Errorf("the commands say\n%s", message)
	}
	// The same commands on the example with every key, which has the section already.
	must(t, os.WriteFile(filepath.Join(w.Dir, "example.sh"), []byte(strings.ReplaceAll(strings.ReplaceAll(translate,
		"gatewayd.toml", "example.toml"), "check-config", "check-config --file-only")), 0o600))
	if message := w.sh(
		"gatewayd example-config >$DIR/example.toml; sh -ex $DIR/example.sh 2>&1; grep -c '^masquerade = true' " +
			"$DIR/example.toml"); !strings.HasSuffix(message, "\n1") {
		t.Errorf("on the example the commands say\n%s", message)
	}
	w.start()
	w.sh("nsenter --net=/run/netns/$ID-router nft -f $DIR/nftables.conf")
	c := w.client()
	c.logIn("ann")
	if got := c.sourceSeenBy(w.identHost("192.0.2.2")); got.Addr() != outside {
		t.Errorf("the server sees %v", got)
	}
}
