package main

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// hold connects a client to the server, until the test closes it.
func (w *world) hold(c *client) (conn net.Conn, err error) {
	w.t.Helper()
	var l net.Listener
	w.in("server", func() error {
		l, err = net.Listen("tcp4", netip.AddrPortFrom(serverAddr, 0).String())
		return err
	})
	w.t.Cleanup(func() { l.Close() })
	w.in(c.host, func() error {
		conn, err = net.DialTimeout("tcp4", l.Addr().String(), 30*time.Second)
		return nil
	})
	return conn, err
}

// TestWhois: with the flow log enabled, the command names the user of a connection through the
// gateway, while it runs and after it was killed. Connections that go on then are found after the next start.
func TestWhois(t *testing.T) {
	w := newWorld(t)
	path := filepath.Join(w.Dir, "gatewayd.toml")
	text, err := os.ReadFile(path)
	must(t, err)
	must(t, os.WriteFile(path, append(text, "\n[flowlog]\nenabled = true\n"...), 0o600))
	w.start()
	ann := w.client()
	ann.logIn("ann")
	from := w.transfer(ann, 1000)
	at := time.Now().UTC().Format(time.RFC3339Nano)
	whois := func() error {
		out, err := w.try(fmt.Sprintf("gatewayd whois --folder $DIR/state/flows %s --at %s", from, at))
		if err == nil && (!strings.Contains(out, "ann") || !strings.Contains(out, serverAddr.String())) {
			err = fmt.Errorf("whois says %q", out)
		}
		return err
	}
	eventually(t, "whois", whois)
	hold := func() net.Conn {
		c, err := w.hold(ann)
		must(t, err)
		return c
	}
	before := hold() // its line may not be on the disk yet
	defer before.Close()
	w.kill()
	must(t, whois())
	without := hold() // the data path goes on
	defer without.Close()
	w.start()
	for what, c := range map[string]net.Conn{"that began before the daemon was killed": before, "that began without a daemon": without} {
		eventually(t, "whois of a connection "+what, func() error {
			out, err := w.try(fmt.Sprintf("gatewayd whois --folder $DIR/state/flows %s --at %s", c.LocalAddr(), time.Now().UTC().Format(time.RFC3339Nano)))
			if err == nil && !strings.Contains(out, "ann") {
				err = fmt.Errorf("whois says %q", out)
			}
			return err
		})
	}
	w.kill()
	if out := w.sh("nsenter --net=/run/netns/$ID-router gatewayd detach -c $DIR/gatewayd.toml >/dev/null; nsenter --net=/run/netns/$ID-router nft list ruleset"); strings.Contains(out, "gatewayd-flows") {
		t.Errorf("after detach there is still\n%s", out)
	}
}
