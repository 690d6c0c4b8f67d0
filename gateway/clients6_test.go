package gateway

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/gateway/config"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// program6 is a program, or the kernel alone, that configures IPv6 on a client. It runs as its package has it, with
// files of its own below /etc, /run and /var/lib.
type program6 struct {
	name  string // and that of its namespace
	mode  string // of the first gateway that it meets
	set   string // what is set before the link c0 comes up
	start string // script that ends with the program; on the link c0
	told  string // file below its folder that has the DNS server in the end; "": it takes none
}

// programs6 are in the order of the modes that they start in.
var programs6 = []program6{
	{name: "temporary", mode: config.Off, set: "sysctl -qw net.ipv6.conf.c0.use_tempaddr=2", start: "set -- sleep inf"},
	{name: "stable", mode: config.Off, set: "ip link set c0 addrgenmode random", start: "set -- sleep inf"},
	{name: "dhcpcd", mode: config.Off, set: noRA, start: "set -- dhcpcd -B -6 c0", told: "etc/resolv.conf"},
	{name: "networkd", mode: config.Off, set: noRA, told: "run/systemd/netif/links/2", start: `
mkdir -p /run/systemd/network /run/systemd/netif
printf '[Match]\nName=c0\n[Network]\nIPv6AcceptRA=yes\n' >/run/systemd/network/c0.network
chown -R systemd-network: /run/systemd; mount -o remount,ro,bind /sys # else it waits for udev
set -- /lib/systemd/systemd-networkd`},
	{name: "networkmanager", mode: config.Off, set: noRA, told: "run/NetworkManager/resolv.conf", start: `
mkdir -p /run/dbus /run/NetworkManager/conf.d /run/NetworkManager/system-connections
printf '[device]\nmatch-device=interface-name:c0\nmanaged=1\n' >/run/NetworkManager/conf.d/c0.conf
cd /run/NetworkManager/system-connections
printf '[connection]\nid=c0\ntype=ethernet\ninterface-name=c0\n' >c0.nmconnection
printf '[ipv4]\nmethod=disabled\n[ipv6]\nmethod=auto\n' >>c0.nmconnection
chmod 600 c0.nmconnection; mount -o remount,ro,bind /sys # as for networkd
set -- unshare --pid --fork --kill-child --mount-proc sh -ec \
	'dbus-daemon --system --fork --nopidfile; exec NetworkManager --no-daemon'`},
	{name: "dhclient-s", mode: config.Stateless, start: "set -- dhclient -6 -S -d c0", told: "etc/resolv.conf"},
	{name: "dhcp6c-i", mode: config.Stateless, told: "etc/resolv.conf", start: `
echo 'interface c0 { information-only; request domain-name-servers;
script "/etc/wide-dhcpv6/dhcp6c-script"; };' >/run/conf
set -- dhcp6c -f -c /run/conf c0`},
	{name: "dhclient", mode: config.Stateful, set: noSLAAC, start: "set -- dhclient -6 -d c0", told: "etc/resolv.conf"},
	{name: "dhcp6c", mode: config.Stateful, told: "etc/resolv.conf", set: noSLAAC, start: `
echo 'interface c0 { send ia-na 1; request domain-name-servers;
script "/etc/wide-dhcpv6/dhcp6c-script"; };
id-assoc na 1 { };' >/run/conf
set -- dhcp6c -f -c /run/conf c0`},
}

// What programs take from the kernel.
const (
	noSLAAC = "sysctl -qw net.ipv6.conf.c0.autoconf=0"
	noRA    = "sysctl -qw net.ipv6.conf.c0.accept_ra=0"
)

// ownFiles gives a program folders of its own.
const ownFiles = `cp -a /etc $dir/etc; mkdir $dir/run $dir/lib; mount --bind $dir/etc /etc; mount --bind $dir/run /run
for lib in dhcp dhcpcd dhcpv6 NetworkManager; do
	[ ! -d /var/lib/$lib ] || { mkdir $dir/lib/$lib; mount --bind $dir/lib/$lib /var/lib/$lib; }
done
rm -f /etc/resolv.conf; : >/etc/resolv.conf
`

// plug6 plugs a client into network's hub. Its number is 1 to 99.
func (p program6) plug6(t *testing.T, number int) {
	t.Helper()
	sh(t, fmt.Sprintf(`ip netns add %[1]s
ip link add c0 netns %[1]s address 02:00:00:00:01:%02[2]d type veth peer name p%[2]d netns hub
ip netns exec %[1]s sh -ec 'ip link set lo up; %[4]s; ip link set c0 up'; ip netns exec hub sh -ec '%[3]splug p%[2]d'`,
		p.name, number, netnstest.Hub, cmp.Or(p.set, ":")))
	t.Cleanup(func() { sh(t, "ip netns del "+p.name) })
}

// run starts the program, and returns its folder. It ends with the test, and so does what it starts.
func (p program6) run(t *testing.T) (dir string) {
	t.Helper()
	p.awaitAddr(t, "link") // ISC dhclient ends where it has only a tentative one
	dir = t.TempDir()
	cmd := exec.Command("ip", "netns", "exec", p.name, "unshare", "-m", "-p", "--fork", "--kill-child", "--mount-proc",
		"sh", "-ec", ownFiles+p.start+`; "$@"; exit`) // a program that changes its user outlives a parent's end
	cmd.Env = append(os.Environ(), "dir="+dir)
	netnstest.Background(t, cmd)
	return dir
}

// in is what a client runs.
func (p program6) in(script string) (string, error) {
	return try("ip netns exec " + p.name + " sh -ec '" + script + "'")
}

// awaitAddr awaits that the client has an address of a scope, global or link, that it may use.
func (p program6) awaitAddr(t *testing.T, scope string) {
	t.Helper()
	netnstest.Await(t, "an address of "+p.name, func() error {
		out, err := p.in("ip -6 -o addr show dev c0 scope " + scope + " -tentative")
		if err == nil && out == "" {
			err = errors.New("none yet")
		}
		return err
	})
}

// reaches reports whether the client reaches the server.
func (p program6) reaches() error {
	_, err := p.in("ping -6 -c 1 -W 4 2001:db8:9::2")
	return err
}

// curlPage gets a page, or fails after half a minute.
const curlPage, loginAt = "curl -6 -g -s --max-time 30 ", "http://[2001:db8:1::1]:8080/login"

// portal awaits that the client sees the login page, and returns it.
func (p program6) portal(t *testing.T) (page string) {
	t.Helper()
	netnstest.Await(t, "the portal at "+p.name, func() (err error) {
		page, err = p.in(curlPage + loginAt)
		return err
	})
	return page
}

// login logs the client in at the portal.
func (p program6) login(t *testing.T) {
	t.Helper()
	page := p.portal(t)
	token := regexp.MustCompile(`name="token" value="([^"]+)"`).FindStringSubmatch(page)
	if token == nil {
		t.Fatalf("%s sees no form:\n%s", p.name, page)
	}
	code, err := p.in(curlPage + `-o /dev/null -w "%{http_code}" -d username=ann -d password=right -d token=` + token[1] +
		" " + loginAt)
	if must(t, err); code != "303" {
		t.Fatalf("the login of %s is answered by %s", p.name, code)
	}
}

// knowsDNS awaits that the program's files below dir name the gateway as DNS server.
func (p program6) knowsDNS(t *testing.T, dir string) {
	t.Helper()
	if p.told == "" {
		return
	}
	netnstest.Await(t, "the DNS server in the file of "+p.name, func() error {
		text, err := os.ReadFile(filepath.Join(dir, p.told))
		if err == nil && !strings.Contains(string(text), "2001:db8:1::1") {
			err = fmt.Errorf("it has %q", text)
		}
		return err
	})
}

// TestPrograms6: programs as their packages have them configure IPv6 by router advertisements alone, by stateless and
// by stateful DHCPv6, side by side. Each learns the DNS server, logs in, has traffic, and goes on, logged in, when the
// gateway is started again in the same or another mode. None of them has IPv4, and the portal is what it speaks to
// first.
func TestPrograms6(t *testing.T) {
	network6(t)
	for i, p := range programs6 {
		p.plug6(t, i+1)
	}
	dir, loggedIn := t.TempDir(), 0
	for _, mode := range []string{config.Off, config.Stateless, config.Stateful, config.Stateful} {
		cfg := configured(t, dir, onEBPF)
		cfg.LAN.Address6, cfg.DHCP6.Mode = netip.MustParsePrefix("2001:db8:1::1/64"), mode
		d := serve(t, cfg)
		t.Cleanup(func() { must(t, Detach(cfg, false)) })
		for _, p := range programs6[:loggedIn] {
			netnstest.Await(t, "the way out of "+p.name, p.reaches)
		}
		folders := map[string]string{}
		for _, p := range programs6[loggedIn:] {
			if p.mode == mode {
				folders[p.name] = p.run(t)
			}
		}
		for _, p := range programs6[loggedIn : loggedIn+len(folders)] {
			p.awaitAddr(t, "global")
			p.knowsDNS(t, folders[p.name])
			p.login(t)
			netnstest.Await(t, "the way out of "+p.name, p.reaches)
		}
		loggedIn += len(folders)
		must(t, d.stop())
	}
}
