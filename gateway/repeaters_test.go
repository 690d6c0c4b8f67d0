package gateway

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/gateway/control"
	"github.com/gateweigh/gateweigh/gateway/session"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// addRepeater plugs a repeater into the LAN, in the namespace repeater, and two devices behind it, behind1 and behind2,
// each with the link e0. The repeater is a bridge that rewrites addresses as "client bridges" and repeaters without WDS
// do: what it sends to the LAN has its own MAC address, in ARP packets too, and it finds by IPv4 address whom a frame
// for that MAC address is for. DHCP messages keep the device's own (chaddr). It returns the repeater's MAC address.
func addRepeater(t *testing.T) net.HardwareAddr {
	t.Helper()
	for _, ns := range []string{"repeater", "behind1", "behind2"} {
		sh(t, "ip netns add "+ns)
		t.Cleanup(func() { sh(t, "ip netns del "+ns) })
	}
	sh(t, `ip -n repeater link add u0 type veth peer name u1 netns hub
for i in 1 2; do ip -n behind$i link add e0 type veth peer name d$i netns repeater
ip -n behind$i link set lo up; ip -n behind$i link set e0 up; done
ip netns exec repeater sh -ec '`+netnstest.NoIPv6+`ip link add br0 type bridge
for l in u0 d1 d2; do ip link set $l master br0; ip link set $l up; done; ip link set br0 up'
ip netns exec hub sh -ec '`+netnstest.Hub+`plug u1'`)
	mac := linkMACIn(t, "repeater", "u0")
	sh(t, "ip netns exec repeater nft '"+strings.ReplaceAll(`table bridge repeater {
  map behind { type ipv4_addr : ether_addr; flags dynamic; size 1024; timeout 10m; }
  chain out { type filter hook postrouting priority 0;
    oifname "u0" ether type ip update @behind { ip saddr : ether saddr } ether saddr set MAC
    oifname "u0" arp operation 1-2 update @behind { arp saddr ip : arp saddr ether }
    oifname "u0" arp operation 1-2 arp saddr ether set MAC ether saddr set MAC
  }
  chain in { type filter hook prerouting priority -300;
    iifname "u0" ether daddr MAC ether type ip ether daddr set ip daddr map @behind
    iifname "u0" ether daddr MAC arp operation 1-2 ether daddr set arp daddr ip map @behind
  }
}`, "MAC", mac)+"'")
	parsed, err := net.ParseMAC(mac)
	must(t, err)
	return parsed
}

// TestRepeater: devices behind a repeater lease addresses and are clients of their own, with sessions and counts of
// their own, also after a restart; one of them may have an address of its own. No other device's DHCP messages may be
// in another's name, and those of a repeater that is not listed get no answer. With each data path.
func TestRepeater(t *testing.T) {
	for name, keys := range map[string]string{"ebpf": onEBPF, "nfqueue": "kind = \"nfqueue\"",
		"tun": "kind = \"tun\"\nfast = true"} {
		t.Run(name, func(t *testing.T) { repeaterOn(t, keys) })
	}
}

// repeaterOn is TestRepeater with a data path. Long: the steps of one run, each of which needs the state that the one
// before left.
func repeaterOn(t *testing.T, keys string) {
	network(t)
	repeater := addRepeater(t)
	if strings.Contains(keys, `"tun"`) {
		sh(t, "ip addr flush dev lan0")
	}
	cfg := claiming(t, keys)
	d := serve(t, cfg)
	t.Cleanup(func() { d.stop(); must(t, Detach(d.cfg, false)) })
	refused := func(namespace, link string) {
		t.Helper()
		before := d.dhcpCount(t, "spoofed")
		netnstest.Until(t, "a message to be refused", func() bool {
			try("ip netns exec " + namespace + " timeout -s KILL 5 busybox udhcpc -i " + link + " -n -q -t 1 -T 1")
			return d.dhcpCount(t, "spoofed") > before
		})
	}
	refused("behind1", "e0")
	if len(d.sessions(t)) > 0 {
		t.Errorf("behind a repeater that is not listed there are the clients %+v", d.sessions(t))
	}
	must(t, d.stop())

	cfg.LAN.Repeaters = []net.HardwareAddr{repeater}
	d = serve(t, cfg)
	var addrs [2]netip.Addr
	reaches := func(i int) bool {
		_, err := try(fmt.Sprintf("ip netns exec behind%d ping -c 1 -W 4 192.0.2.2", i+1))
		return err == nil
	}
	c, err := control.Dial(cfg.ControlSocket())
	must(t, err)
	for i := range addrs {
		addrs[i] = netip.MustParseAddr(leaseIn(t, fmt.Sprint("behind", i+1), "e0"))
		if !d.hasEntry(t, addrs[i].String(), repeater.String()) {
			t.Errorf("the clients are %+v", d.sessions(t))
		}
	}
	if again := leaseIn(t, "behind1", "e0"); addrs[0] == addrs[1] || again != addrs[0].String() {
		t.Fatalf("the devices lease %v, and the first one then %s", addrs, again)
	}
	_, err = c.Login(t.Context(), control.LoginRequest{Addr: addrs[0], User: "ann"})
	must(t, err)
	if !reaches(0) || reaches(1) {
		t.Error("not only the device that has logged in passes")
	}
	must(t, d.stop())
	d = serve(t, cfg)
	if !reaches(0) || reaches(1) {
		t.Error("after a restart not only the device that has logged in passes")
	}
	_, err = c.Login(t.Context(), control.LoginRequest{Addr: addrs[1], User: "ben"})
	must(t, err)
	if !reaches(1) {
		t.Error("the second device does not pass")
	}
	for i, user := range []string{"ann", "ben"} {
		if s, err := c.Session(t.Context(), addrs[i]); err != nil || s.User != user || s.Traffic.UpPackets == 0 {
			t.Errorf("%s has the session %+v, %v", addrs[i], s, err)
		}
	}

	// A third address behind the repeater, which nobody leased.
	sh(t, "ip -n behind2 addr add 10.1.0.20/24 dev e0")
	useAddress(t, "behind2", "10.1.0.20", "the claim", func() bool {
		return d.hasEntry(t, "10.1.0.20", repeater.String())
	})

	// Another device in the name of one behind the repeater.
	addIntruder(t)
	own := linkMACIn(t, "behind1", "e0")
	sh(t, `ip -n intruder link add br0 type bridge; ip -n intruder link set i0 master br0; ip -n intruder link set br0 up
ip -n intruder link add v0 address `+own+` type veth peer name v1; ip -n intruder link set v1 master br0
ip -n intruder link set v0 up; ip -n intruder link set v1 up
ip netns exec intruder nft 'table bridge t { chain out { type filter hook postrouting priority 0
oifname i0 ether saddr set `+linkMACIn(t, "intruder", "i0")+`; }; }'`)
	refused("intruder", "v0")
	if all := d.sessions(t); len(all) != 3 {
		t.Errorf("another device is answered in the name of one behind the repeater: %+v", all)
	}
	if s, err := c.Session(t.Context(), addrs[0]); err != nil || s.State != session.Authenticated {
		t.Errorf("the session is %+v, %v", s, err)
	}
}
