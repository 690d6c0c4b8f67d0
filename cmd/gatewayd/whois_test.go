// Tests of gatewayd whois, which finds the user of an address in the flow log. newWorld makes the host of a gateway
// with clients and a server, in namespaces, and starts RADIUS servers (world_test.go). eventually waits until a
// function returns no error.

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/gateweigh/gateweigh/gateway/flowlog"
)

// holdConn connects a client to the server, until the test closes it.
func (w *world) holdConn(c *client) (conn net.Conn, err error) {
	w.t.Helper()
	var l net.Listener
	w.inHost("server", func() error {
		l, err = net.Listen("tcp4", netip.AddrPortFrom(serverAddr, 0).String())
		return err
	})
	w.t.Cleanup(func() { l.Close() })
	w.inHost(c.host, func() error {
		conn, err = net.DialTimeout("tcp4", l.Addr().String(), 30*time.Second)
		return nil
	})
	return conn, err
}

// TestWhois: with the flow log enabled, gatewayd whois names the user of a connection through the gateway, while the
// daemon runs and after it was killed. Connections that begin or go on without a daemon are found after the next start.
func TestWhois(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	path := filepath.Join(w.Dir, "gatewayd.toml")
	text, err := os.ReadFile(path)
	must(t, err)
	must(t, os.WriteFile(path, append(text, "\n[flowlog]\nenabled = true\n"...), 0o600))
	w.start()
	ann := w.client()
	ann.logIn("ann")
	from := w.transfer(ann, 1000)
	instant := time.Now().UTC().Format(time.RFC3339Nano)
	whois := func() error {
		out, err := w.try(fmt.Sprintf("gatewayd whois --folder $DIR/state/flows %s --at %s", from, instant))
		if err == nil && (!strings.Contains(out, "ann") || !strings.Contains(out, serverAddr.String())) {
			err = fmt.Errorf("whois says %q", out)
		}
		return err
	}
	eventually(t, "whois", whois)
	hold := func() net.Conn {
		c, err := w.holdConn(ann)
		must(t, err)
		return c
	}
	before := hold() // its record may not be on the disk when the daemon is killed
	defer before.Close()
	w.kill()
	must(t, whois())
	without := hold() // the data path forwards without a daemon
	defer without.Close()
	w.start()
	for label, c := range map[string]net.Conn{
		"that began before the daemon was killed": before, "that began without a daemon": without} {
		eventually(t, "whois of a connection "+label, func() error {
			out, err := w.try(fmt.Sprintf("gatewayd whois --folder $DIR/state/flows %s --at %s", c.LocalAddr(),
				time.Now().UTC().Format(time.RFC3339Nano)))
			if err == nil && !strings.Contains(out, "ann") {
				err = fmt.Errorf("whois says %q", out)
			}
			return err
		})
	}
	w.kill()
	if out := w.sh("nsenter --net=/run/netns/$ID-router gatewayd detach -c $DIR/gatewayd.toml >/dev/null; nsenter " +
		"--net=/run/netns/$ID-router nft list ruleset"); strings.Contains(out, "gatewayd-flows") {
		t.Errorf("after detach there is still\n%s", out)
	}
}

// TestFlowLogAcrossKill: the record of a connection in the flow cache has the bytes that passed before the daemon was
// killed, while there was no daemon, and under the next one.
func TestFlowLogAcrossKill(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.configure("[flowlog]\nenabled = true")
	w.start()
	ann := w.client()
	ann.logIn("ann")
	conn := w.echo(ann)
	const bytes = 1_000_000
	carry := func() {
		t.Helper()
		must(t, conn.SetDeadline(time.Now().Add(time.Minute)))
		sent := make(chan error, 1)
		go func() { _, err := conn.Write(make([]byte, bytes)); sent <- err }()
		_, err := io.CopyN(io.Discard, conn, bytes)
		must(t, errors.Join(err, <-sent))
	}
	carry()
	s, err := w.status()
	must(t, err)
	if s.Datapath != "ebpf, flow cache" {
		t.Errorf("forwarded by %s: %s", s.Datapath, s.Why)
	}
	w.kill()
	carry()
	w.start()
	carry()
	instant := time.Now().UTC().Format(time.RFC3339Nano)
	w.inHost("router", func() error { return netlink.ConntrackTableFlush(netlink.ConntrackTable) })
	eventually(t, "the whole record", func() error {
		out, err := w.try(
			fmt.Sprintf("gatewayd whois --json --folder $DIR/state/flows %s --at %s", conn.LocalAddr(), instant))
		var f flowlog.Flow // only the first record: a late acknowledgement may have begun another connection
		if err = errors.Join(err, json.NewDecoder(strings.NewReader(out)).Decode(&f)); err != nil {
			return fmt.Errorf("%w in %s", err, out)
		}
		const least, most = 3 * bytes, 3*bytes + bytes/2 // with headers, and segments that were sent again
		if f.User != "ann" || f.UpBytes < least || f.UpBytes > most || f.DownBytes < least || f.DownBytes > most {
			return fmt.Errorf("whois says %s", out)
		}
		return nil
	})
}

// echo connects a client to a server that sends back what it receives, until the test ends.
func (w *world) echo(c *client) (conn net.Conn) {
	w.t.Helper()
	var l net.Listener
	w.inHost("server", func() (err error) {
		l, err = net.Listen("tcp4", netip.AddrPortFrom(serverAddr, 0).String())
		return err
	})
	w.t.Cleanup(func() { l.Close() })
	go func() {
		if peer, err := l.Accept(); err == nil {
			io.Copy(peer, peer)
			peer.Close()
		}
	}()
	w.inHost(c.host, func() (err error) {
		conn, err = net.DialTimeout("tcp4", l.Addr().String(), 30*time.Second)
		return err
	})
	w.t.Cleanup(func() { conn.Close() })
	return conn
}
