package gateway

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/gateway/control"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// TestLeasesDespiteFirewall: with the eBPF data path clients lease, renew and release whatever firewall and reverse
// path filter make of them, and no packet that the stack forwards is slowed down by a packet socket or a rule of
// routing for it. Long: the steps of one run, each of which needs the state that the one before left.
func TestLeasesDespiteFirewall(t *testing.T) {
	rules := sh(t, "ip rule")
	network(t)
	sh(t, `sysctl -qw net.ipv4.conf.all.rp_filter=1 net.ipv4.conf.lan0.rp_filter=1
nft 'table inet test { chain in { type filter hook input priority 0; policy drop; tcp dport { 80, 8080 } accept; }; chain pre { type filter hook prerouting priority -300; udp dport 67 drop; }; }' `)
	t.Cleanup(func() { sh(t, "nft delete table inet test") })
	dir := t.TempDir()
	d := start(t, dir)
	t.Cleanup(func() { must(t, d.stop()); must(t, Detach(d.cfg, false)) })

	text, script := filepath.Join(dir, "said"), filepath.Join(dir, "udhcpc")
	must(t, os.WriteFile(script, []byte(
		"#!/bin/sh\n[ -z \"$ip\" ] || ip addr replace $ip/24 dev $interface\necho $1 $ip >>"+text+"\n"), 0o755))
	pid := filepath.Join(dir, "pid")
	// In the foreground: a process that puts itself into the background has two numbers in turn.
	sh(t, "ip netns exec client busybox udhcpc -f -i c0 -p "+pid+" -s "+script+" >/dev/null 2>&1 &")
	t.Cleanup(func() { sh(t, "kill $(cat "+pid+")") })
	saying := func(label string) {
		t.Helper()
		netnstest.Await(t, label, func() error { _, err := try("grep -q '^" + label + "' " + text); return err })
	}
	c, err := control.Dial(d.cfg.ControlSocket())
	must(t, err)
	leases := func(n int) {
		t.Helper()
		netnstest.Await(t, "leases", func() error {
			s, err := c.Status(t.Context())
			if err == nil && s.Leases != n {
				_, err = try("false")
			}
			return err
		})
	}
	saying("bound 10.1.0.")
	leases(1)
	sh(t, "kill -USR1 $(cat "+pid+")") // by unicast, of its address
	saying("renew 10.1.0.")
	if caught := sh(t, "ip -n client route add default via 10.1.0.1; "+curl+
		`-o /dev/null -w '%{http_code}' http://192.0.2.2/`); caught != "302" {
		t.Errorf("the first look at the web is answered by %s", caught)
	}
	// The client sends its RELEASE a moment before it gives up its address, and the gateway asks for that address a second
	// later: on a busy machine that may be too early.
	sh(t, "ip netns exec client sysctl -qw net.ipv4.conf.c0.arp_ignore=8; kill -USR2 $(cat "+pid+")")
	leases(0)

	for _, line := range strings.Split(sh(t, "cat /proc/self/net/packet"), "\n")[1:] {
		if f := strings.Fields(line); len(f) > 3 && (f[3] == "0800" || f[3] == "0003") {
			t.Errorf("a packet socket sees all IPv4 packets: %s", line)
		}
	}
	if now := sh(t, "ip rule"); now != rules {
		t.Errorf("rules of routing are\n%s\nwithout the gateway\n%s", now, rules)
	}
}
