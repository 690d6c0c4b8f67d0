package dhcp6

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// dhcpcd starts dhcpcd, which asks for an address and a prefix. release has it release both, and end.
func (h host) dhcpcd(t *testing.T) (release func()) {
	t.Helper()
	conf := h.file(t, "dhcpcd.conf", `duid
ipv6only
noipv6rs
option dhcp6_name_servers, dhcp6_domain_search
interface c0
  iaid 1
  ia_na 1
  ia_pd 2/::/64
`)
	cmd := h.program(t, "dhcpcd", "-B", "-d", "-f", conf, "-c", h.hook(t, ""), "c0")
	return func() { cmd.Process.Signal(syscall.SIGALRM) }
}

// TestDhcpcd: dhcpcd gets an address and a prefix, renews them, and releases them when it ends.
func TestDhcpcd(t *testing.T) {
	newLAN(t)
	run := start(t, leasesFile(t), nil)
	h := newHost(t, 0)
	run.net.set(briefly())
	release := h.dhcpcd(t)
	env := h.event(t, "BOUND6")
	list := run.Leases()
	if len(list) != 2 || env["new_dhcp6_ia_na1_ia_addr1"] != list[0].Prefix.Addr().String() ||
		env["new_dhcp6_ia_pd1_prefix1"] != list[1].Prefix.Addr().String() || env["new_dhcp6_ia_pd1_prefix1_length"] != "64" ||
		env["new_dhcp6_name_servers"] != "2001:db8:1:1::1" || env["new_dhcp6_domain_search"] != "guests.example" {
		t.Errorf("leases %v, told %v", list, env)
	}
	run.net.set(usualPrefixes()) // dhcpcd releases nothing while it renews: it is to do that once
	h.event(t, "RENEW6")
	tries := 0
	await(t, "the release", func() bool {
		if tries++; tries%100 == 1 { // dhcpcd loses a signal that comes while its hook runs
			release()
		}
		return len(run.Leases()) == 0
	})
	if st := run.Stats(); st.Malformed+st.Foreign+st.Spoofed > 0 || st.Releases == 0 {
		t.Errorf("stats %+v", st)
	}
}

// TestDhcp6c: WIDE's client gets a prefix and puts a network of it on another interface. It follows a change of the
// prefix with its next renewal.
func TestDhcp6c(t *testing.T) {
	newLAN(t)
	run := start(t, leasesFile(t), func(cfg *Config) { cfg.Lengths = Lengths{Usual: 64, Shortest: 60} })
	run.net.set(briefly())
	h := newHost(t, 0)
	h.Run(t, "ip link add inner type bridge; ip link set inner up")
	conf := h.file(t, "dhcp6c.conf", `interface c0 { send ia-pd 1; send ia-na 1; request domain-name-servers; };
id-assoc na 1 { };
id-assoc pd 1 { prefix ::/62 infinity; prefix-interface inner { sla-id 1; sla-len 2; }; };
`)
	cmd := h.program(t, "dhcp6c", "-f", "-D", "-c", conf, "-p", filepath.Join(h.dir, "pid"), "c0")
	hasNetworkOf := func(of netip.Prefix) bool {
		out, err := h.Try("ip -6 -o addr show dev inner scope global")
		netnstest.Must(t, err)
		for _, word := range strings.Fields(out) {
			if prefix, err := netip.ParsePrefix(word); err == nil && of.Contains(prefix.Addr()) {
				return true
			}
		}
		return false
	}
	await(t, "a network on its inner interface", func() bool { return hasNetworkOf(parcels) })
	list := run.Leases()
	if len(list) != 2 || list[1].Prefix.Bits() != 62 || !hasNetworkOf(list[1].Prefix) {
		t.Errorf("leases %v", list)
	}
	run.net.set(Prefixes{OnLink: []netip.Prefix{newOnLink}, Addresses: []Pool{pool(newOnLink)},
		Delegated: []Pool{pool(newParcels)}})
	await(t, "a network of the new prefix", func() bool { return hasNetworkOf(newParcels) })
	await(t, "the end of the former one", func() bool { return !hasNetworkOf(parcels) })
	netnstest.Must(t, cmd.Process.Signal(syscall.SIGTERM))
	await(t, "the release", func() bool { return len(run.Leases()) == 0 })
	if st := run.Stats(); st.Malformed+st.Foreign+st.Spoofed > 0 || st.Releases == 0 {
		t.Errorf("stats %+v", st)
	}
}

// TestSeveralRouters: each of several clients gets a prefix of its own.
func TestSeveralRouters(t *testing.T) {
	newLAN(t)
	run := start(t, leasesFile(t), nil)
	const routers = 3
	for i := range routers {
		h := newHost(t, i)
		h.program(t, h.dhclient(t, "", "-P")...)
	}
	await(t, "the leases", func() bool { return run.Stats().Prefixes == routers })
	seen := map[string]bool{}
	for _, lease := range run.Leases() {
		seen[fmt.Sprint(lease.Prefix, lease.MAC, lease.Via)] = true
		if lease.Prefix.Bits() != 64 || !parcels.Overlaps(lease.Prefix) {
			t.Errorf("delegated %s", lease.Prefix)
		}
	}
	if len(seen) != routers {
		t.Errorf("leases %v", run.Leases())
	}
}
