// Tests with pppd as the PPPoE client. newLines makes the host of a gateway with PPPoE clients, in namespaces
// (pppoe_test.go), newLines6 the same with IPv6 (pppoe6_test.go). eventually waits until a function returns no error.

package main

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/gateweigh/gateweigh/gateway/control"
	"github.com/gateweigh/gateweigh/ppp"
)

// kernelPPPoE skips a test where the kernel has no PPPoE.
func kernelPPPoE(t *testing.T) {
	t.Helper()
	_ = exec.Command("modprobe", "-a", "ppp_generic", "pppoe").Run() // where they are modules
	fd, err := syscall.Socket(24, syscall.SOCK_STREAM, 0)            // AF_PPPOX, PX_PROTO_OE
	if err == nil {
		syscall.Close(fd)
		_, err = os.Stat("/dev/ppp")
	}
	if err != nil {
		t.Skip("the kernel lacks PPPoE (CONFIG_PPPOE)")
	}
}

// pppd skips a test where the kernel has no PPPoE, which pppd needs, and fails it where pppd is missing.
func pppd(t *testing.T) {
	t.Helper()
	kernelPPPoE(t)
	if _, err := exec.LookPath("pppd"); err != nil {
		t.Fatalf("%v: apt-get install ppp", err)
	}
}

// dialUp starts a client's pppd as the user ann with a password, one method, and more options. It does not read the
// machine's /etc/ppp/options.
func (c *client) dialUp(method ppp.Method, password string, more ...string) *process {
	c.w.t.Helper()
	none := filepath.Join(c.w.Dir, "options")
	must(c.w.t, os.WriteFile(none, nil, 0o600))
	args := []string{"unshare", "-m", "sh", "-ec", `mount --bind "$1" /etc/ppp/options; shift; exec "$@"`, "sh", none,
		"pppd", "plugin", "rp-pppoe.so", "nic-c0", "user", "ann", "password", password, "noauth", "nodefaultroute",
		"noipdefault", "noccp", "novj", "nodetach",
		"debug", "linkname", c.w.id + c.host, "maxfail", "1", "refuse-eap", "refuse-mschap"}
	for option, m := range map[string]ppp.Method{
		"refuse-pap": ppp.MethodPAP, "refuse-chap": ppp.MethodCHAP, "refuse-mschap-v2": ppp.MethodMSCHAPv2} {
		if m != method {
			args = append(args, option)
		}
	}
	return c.w.spawnAt(c.host, c.host+".pppd", append(args, more...)...)
}

// awaitPPP waits for a client's ppp0 and returns its address.
func (c *client) awaitPPP(p *process) (addr netip.Addr) {
	c.w.t.Helper()
	eventually(c.w.t, "pppd's session", func() error {
		select {
		case <-p.ended:
			c.w.t.Fatalf("pppd ended:\n%s\n%s", p.output(), c.w.daemon.output())
		default:
		}
		out, err := c.try("ip -o -4 addr show up dev ppp0 scope global")
		if err != nil {
			return err
		}
		var fields = strings.Fields(out)
		if len(fields) < 4 {
			return errors.New(out)
		}
		addr, err = netip.ParseAddr(strings.SplitN(fields[3], "/", 2)[0])
		return err
	})
	return addr
}

// TestPPPDClient: Debian's pppd logs in by each method through FreeRADIUS, sends, is counted to the byte, and is ended
// by gatewayd logout; a wrong password is refused.
func TestPPPDClient(t *testing.T) {
	pppd(t)
	for _, method := range ppp.Methods {
		t.Run(string(method), func(t *testing.T) { stockClient(t, method, "") })
	}
	t.Run("kernel", func(t *testing.T) { stockClient(t, ppp.MethodMSCHAPv2, kernelPath) })
}

// TestPPPDClientOfTheKernel: with PAP and with CHAP, pppd has both families of a gateway with the kernel's PPPoE, and
// its host's hosts have a delegated prefix. Accounting has octets and packets as the server outside counts them.
func TestPPPDClientOfTheKernel(t *testing.T) {
	pppd(t)
	for _, method := range []ppp.Method{ppp.MethodPAP, ppp.MethodCHAP} {
		t.Run(string(method), func(t *testing.T) {
			w := newLines6At(t, kernelPath, prefixes6, fmt.Sprintf("methods = [%q]\n", method)+lines6)
			count := w.countAtServer("2001:db8:100::/48", delegated6)
			c := w.addUnaddressed()
			c.sh("sysctl -qw net.ipv6.conf.default.disable_ipv6=0")
			p := c.dialUp(method, "right", "+ipv6", "mtu", "1492", "mru", "1492")
			c.awaitPPP(p)
			c.sh("ip route add " + serverAddr.String() + " dev ppp0")
			own := c.global6("ppp0")
			eventually(t, "the way out by IPv6", func() error { return c.ping6(own) })
			must(t, c.ping6(c.asks6()))
			w.transferTo(c, serverAddr.String(), 200_000)
			w.transferTo(c, server6, 200_000)
			one, err := w.session("ann")
			must(t, err)
			w.sh("gatewayd logout --socket $DIR/run/control.sock --user ann")
			<-p.ended
			count.equals(w.acct.awaitAccounting("Stop", one.ID))
		})
	}
}

// kernelPath are lines of [datapath] for the kernel's PPPoE.
const kernelPath = `kind = "kernel"

[portal]
enabled = false`

// stockClient is TestPPPDClient for a method and a data path.
func stockClient(t *testing.T, method ppp.Method, path string) {
	w := newLines6At(t, path, prefixes6, fmt.Sprintf("methods = [%q]\nmtu = 1500\n", method)+lines6)
	c := w.addUnaddressed()
	c.sh("sysctl -qw net.ipv6.conf.default.disable_ipv6=0")
	refused := c.dialUp(method, "wrong")
	<-refused.ended
	if _, err := w.session("ann"); err == nil {
		t.Fatal("a session with a wrong password")
	}
	p := c.dialUp(method, "right", "+ipv6", "mtu", "1492", "mru", "1492")
	addr := c.awaitPPP(p)
	one, err := w.session("ann")
	must(t, err)
	if one.Addr != addr {
		t.Errorf("pppd has %s, the session %s", addr, one.Addr)
	}
	c.sh("ip route add " + serverAddr.String() + " dev ppp0")
	c.sh("ping -q -c 20 -i 0.05 -s 1464 -M do " + serverAddr.String())
	eventually(t, "the session's bytes", func() error {
		one, err := w.session("ann")
		if err == nil && (one.UpBytes != 20*1492 || one.DownBytes != 20*1492) {
			err = fmt.Errorf("counted %d and %d bytes, want %d each", one.UpBytes, one.DownBytes, 20*1492)
		}
		return err
	})
	up := c.stock6(one)
	w.sh("gatewayd logout --socket $DIR/run/control.sock --user ann")
	<-p.ended
	if r := w.acct.awaitAccounting("Stop", one.ID); uint64(r.number("Acct-Input-Octets")) != up {
		t.Errorf("accounted as %v, want %d bytes", r, up)
	}
}

// stock6 checks that pppd's host has an IPv6 address, of a prefix of the session's own, and that a host behind it has
// one of a prefix that is delegated to the session. Packets from both pass, and are counted in the same session as those
// by IPv4. It returns how many bytes the session has sent.
func (c *client) stock6(before control.Session) (up uint64) {
	w, t := c.w, c.w.t
	t.Helper()
	addr := c.global6("ppp0")
	if !netip.MustParsePrefix("2001:db8:100::/48").Contains(addr) {
		t.Errorf("pppd's host has %s", addr)
	}
	eventually(t, "the way out by IPv6", func() error { return c.ping6(addr) })
	one, err := w.session(before.User)
	must(t, err)
	c.sh("ping -6 -q -c 5 -i 0.05 -s 1444 -M do " + server6)
	eventually(t, "the session's bytes by IPv6", func() error {
		now, err := w.session(before.User)
		up = now.UpBytes
		if down := now.DownBytes - one.DownBytes; err == nil && (up != one.UpBytes+5*1492 || down != 5*1492) {
			err = fmt.Errorf("counted %d and %d bytes, want %d each", up-one.UpBytes, down, 5*1492)
		}
		return err
	})
	must(t, c.ping6(c.asks6()))
	up += 104
	eventually(t, "the bytes of the host behind", func() error {
		now, err := w.session(before.User)
		if err == nil && now.UpBytes != up {
			err = fmt.Errorf("counted %d bytes, want %d", now.UpBytes, up)
		}
		return err
	})
	return up
}

// TestPPPDClientLargeMTU: with frames of 1508 bytes pppd and gatewayd agree on an MTU of 1500 (RFC 4638), and
// packets of that size pass.
func TestPPPDClientLargeMTU(t *testing.T) {
	pppd(t)
	w := newLines(t, "mtu = 1500")
	c := w.addUnaddressed()
	w.sh(`for port in br0 lan ` + c.host + `; do ip -n $ID-hub link set $port mtu 1508; done
ip -n $ID-router link set lan0 mtu 1508; ip -n $ID-` + c.host + ` link set c0 mtu 1508`)
	p := c.dialUp(ppp.MethodMSCHAPv2, "right", "mtu", "1500", "mru", "1500")
	c.awaitPPP(p)
	c.sh("ip route add " + serverAddr.String() + " dev ppp0")
	c.sh("ping -q -c 5 -i 0.05 -s 1472 -M do " + serverAddr.String())
}
