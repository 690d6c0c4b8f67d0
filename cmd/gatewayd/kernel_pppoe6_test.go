// Tests of IPv6 over PPPoE with the kernel's PPP (data path "kernel"), by the steps of the tests with programs at tc
// (pppoe6_test.go, pppoe6pd_test.go).

package main

import (
	"strings"
	"testing"
)

// TestSubscribersOfTheKernelIPv6: with the kernel's PPPoE, subscribers have IPv6 as with programs at tc. Packets from
// outside that they did not ask for do not reach them, those for a prefix that nobody has lead nowhere, and detach
// leaves nothing.
func TestSubscribersOfTheKernelIPv6(t *testing.T) {
	kernelPPPoE(t)
	open := func(t *testing.T, lan, settings string) *world { return newLines6At(t, kernelPath, lan, settings) }
	t.Run("families", func(t *testing.T) { open(t, prefixes6, "ipv6 = true\necho_failures = 60").bothFamilies() })
	t.Run("first packets", func(t *testing.T) { open(t, prefixes6, "ipv6 = true\necho_failures = 60").firstPackets() })
	t.Run("granted", func(t *testing.T) { open(t, granted6, lines6).grants() })
	t.Run("delegated", func(t *testing.T) {
		open(t, prefixes6, lines6).delegatesNetworks(func(w *world) {
			out := w.sh("ip -n $ID-router -6 route show proto 103")
			if strings.Count(out, "unreachable ") != 2 || strings.Count(out, " dev gw") != 4 {
				t.Errorf("the kernel has other routes than those of the two pools and of two sessions:\n%s", out)
			}
		})
	})
	t.Run("limits", func(t *testing.T) { open(t, prefixes6, "ipv6 = true\necho_failures = 60").limitsBoth() })
	t.Run("strangers", func(t *testing.T) { open(t, prefixes6, lines6).closedToStrangers6() })
}

// closedToStrangers6 checks what passes to clients of the kernel's PPPoE, with a daemon, without one, and after detach.
// Long: the steps of one run, each of which needs the state that the one before left.
func (w *world) closedToStrangers6() {
	t := w.t
	t.Helper()
	ann, line := w.dial6("ann")
	must(t, ann.ping6(ann.addr))
	unasked := func(when string) {
		t.Helper()
		const got = "cat /proc/net/snmp6"
		before := received(t, ann.sh(got))
		ping := "nsenter --net=/run/netns/$ID-server ping -6 -q -c 3 -i 0.2 -W 1 " + ann.addr.String()
		if _, err := w.try(ping); err == nil {
			t.Errorf("%s: the server's echo requests are answered", when)
		}
		if now := received(t, ann.sh(got)); now != before {
			t.Errorf("%s: %d echo requests reach the client", when, now-before)
		}
	}
	unasked("with a daemon")
	from := local6(line.terms6().LocalID).String() + "%ppp0"
	if _, err := ann.try("ping -6 -q -c 1 -W 1 -I " + from + " " + gateway6); err == nil {
		t.Error("the gateway's address answers outside of the session's link")
	}
	st, err := w.status()
	must(t, err)
	if st.Packets["unasked"] != 3 || st.Packets["local"] == 0 {
		t.Errorf("the data path has %v", st.Packets)
	}
	out, err := w.try("nsenter --net=/run/netns/$ID-server ping -6 -c 1 -W 4 2001:db8:100:ffff::1")
	if err == nil || !strings.Contains(out, "Destination unreachable") {
		t.Errorf("a prefix that nobody has: %v, %s", err, out)
	}
	w.kill()
	unasked("without a daemon")
	must(t, ann.ping6(ann.addr))
	w.start()
	must(t, ann.ping6(ann.addr))
	w.kill()
	w.LAN += "\ninbound6 = [\"2001:db8:9::/64\"]"
	w.write("radius/gatewayd.toml", "gatewayd.toml", w)
	w.start() // with other rules
	w.sh("nsenter --net=/run/netns/$ID-server ping -6 -q -c 1 -W 9 " + ann.addr.String())
	line.hangUp()
	line.awaitEnd()
	w.kill()
	w.sh("nsenter --net=/run/netns/$ID-router gatewayd detach -c $DIR/gatewayd.toml")
	if out := w.sh("ip -n $ID-router -o link show type ppp; ip -n $ID-router -6 route show proto 103; " +
		"nsenter --net=/run/netns/$ID-router nft list ruleset"); strings.TrimSpace(out) != "" {
		t.Errorf("after detach there is\n%s", out)
	}
}

// limitsBoth checks that a session's rate is enforced for its IPv6 packets, and that both families use up its quota.
func (w *world) limitsBoth() {
	t := w.t
	t.Helper()
	ann, line := w.dial6("ann")
	one, err := w.session("ann")
	must(t, err)
	change := func(attribute string) {
		t.Helper()
		if out := w.radclient("coa", w.Secret, "User-Name = ann, "+attribute); !strings.Contains(out, "CoA-ACK") {
			t.Fatalf("%s is answered by\n%s", attribute, out)
		}
	}
	w.transferTo(ann, serverAddr.String(), 100_000) // each way
	w.transferTo(ann, server6, 100_000)
	change("WISPr-Bandwidth-Max-Up = 8000") // of which 128 KiB are let through at once
	_, _ = ann.try("ping -6 -q -c 200 -i 0.005 -W 1 -s 1400 -I " + ann.addr.String() + " " + server6)
	st, err := w.status()
	must(t, err)
	if st.Packets["rate"] == 0 {
		t.Errorf("no packet is beyond the rate: %v", st.Packets)
	}
	change("WISPr-Bandwidth-Max-Up = 0, ChilliSpot-Max-Total-Octets = 100000000")
	must(t, ann.ping6(ann.addr))
	change("ChilliSpot-Max-Total-Octets = 350000") // less than both families have had, more than either
	line.awaitEnd()
	r := w.acct.awaitAccounting("Stop", one.ID)
	if n := r.counts(); n.UpBytes+n.DownBytes < 400_000 {
		t.Errorf("accounted as %v", r)
	}
	w.refused(ann, ann.addr)
}
