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

	"github.com/gateweigh/gateweigh/ppp"
)

// kernelPPPoE skips where the kernel has no PPPoE.
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

// pppd needs PPP in the kernel.
func pppd(t *testing.T) {
	t.Helper()
	kernelPPPoE(t)
	if _, err := exec.LookPath("pppd"); err != nil {
		t.Fatalf("%v: apt-get install ppp", err)
	}
}

// dialUp starts a client's pppd with a password and one method.
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

// kernelPath are lines of [datapath] for the kernel's PPPoE.
const kernelPath = `kind = "kernel"

[portal]
enabled = false`

func stockClient(t *testing.T, method ppp.Method, path string) {
	w := newLinesAt(t, path, fmt.Sprintf("methods = [%q]\nmtu = 1500\nipv6 = true", method))
	c := w.addUnaddressed()
	c.sh("sysctl -qw net.ipv6.conf.all.disable_ipv6=0 net.ipv6.conf.default.disable_ipv6=0")
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
	eventually(t, "link-local addresses", func() error {
		out, err := c.try("ip -o -6 addr show dev ppp0")
		if err == nil && !strings.Contains(out, "fe80::") {
			err = errors.New("none")
		}
		return err
	})
	w.sh("gatewayd logout --socket $DIR/run/control.sock --user ann")
	<-p.ended
	if r := w.acct.awaitAccounting("Stop", one.ID); r.number("Acct-Input-Octets") != 20*1492 {
		t.Errorf("accounted as %v", r)
	}
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
