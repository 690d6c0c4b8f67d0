// Tests with real DHCP clients, and comparisons with dnsmasq. main_test.go has the helpers: newLAN makes the server's
// interface and returns the name of its other end; newClient moves that to a namespace of a client; start runs a server
// with a file of leases (leasesFile) and returns a journal, which records the leases that its listener was told of.

package dhcp

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// host is a client's network namespace.
type host struct{ pid int }

// newClient moves an interface to a namespace of its own.
func newClient(t *testing.T, link string) host {
	t.Helper()
	cmd := exec.Command("sleep", "infinity")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	run(t, "ip", "link", "set", link, "netns", strconv.Itoa(cmd.Process.Pid))
	h := host{cmd.Process.Pid}
	h.run(t, "ip", "link", "set", link, "up")
	return h
}

func (h host) command(argv ...string) *exec.Cmd {
	return exec.Command("nsenter", append([]string{"-t", strconv.Itoa(h.pid), "-n"}, argv...)...)
}

func (h host) run(t *testing.T, argv ...string) {
	t.Helper()
	if out, err := h.command(argv...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(argv, " "), err, out)
	}
}

// background runs a command until the test ends.
func background(t *testing.T, cmd *exec.Cmd) *os.Process {
	t.Helper()
	netnstest.Background(t, cmd)
	return cmd.Process
}

// snmp reads a counter of /proc/net/snmp; 0 if it is not there.
func snmp(t *testing.T, text, proto, name string) int {
	t.Helper()
	var names []string
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) == 0 || words[0] != proto+":" {
			continue
		}
		if names == nil {
			names = words
			continue
		}
		if i := slices.Index(names, name); i > 0 {
			n, err := strconv.Atoi(words[i])
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	return 0
}

// script writes a client's hook, which stores its environment in a file named after the event and sets the address.
func script(t *testing.T, event, set string) (path, dir string) {
	t.Helper()
	dir = t.TempDir()
	path = filepath.Join(dir, "hook")
	text := fmt.Sprintf("#!/bin/sh\n%s\nenv > %s/$$ && mv %s/$$ %s/%s\n", set, dir, dir, dir, event)
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	return path, dir
}

// hookEnv reads the environment that a hook stored, once it is there.
func hookEnv(t *testing.T, dir, event string) map[string]string {
	t.Helper()
	var text []byte
	await(t, event, func() (ok bool) {
		var err error
		text, err = os.ReadFile(filepath.Join(dir, event))
		return err == nil
	})
	env := map[string]string{}
	for sc := bufio.NewScanner(strings.NewReader(string(text))); sc.Scan(); {
		k, v, _ := strings.Cut(sc.Text(), "=")
		env[k] = v
	}
	return env
}

func checkEnv(t *testing.T, env, want map[string]string) {
	t.Helper()
	for k, v := range want {
		if env[k] != v {
			t.Errorf("%s = %q, want %q", k, env[k], v)
		}
	}
}

func TestUdhcpc(t *testing.T) {
	c0 := newLAN(t)
	s, j := start(t, leasesFile(t), nil)
	h := newClient(t, c0)
	hook, dir := script(t, "$1",
		`case $1 in bound|renew) ip addr replace $ip/$mask broadcast + dev $interface;; deconfig) ip addr flush dev $interface;; esac`)
	p := background(t, h.command("udhcpc", "-f", "-i", c0, "-s", hook, "-O", "114", "-O", "mtu", "-x", "hostname:laptop",
		"-t", "20", "-T", "1"))

	env := hookEnv(t, dir, "bound")
	checkEnv(t, env, map[string]string{
		"ip": "10.1.1.0", "subnet": "255.255.0.0", "mask": "16", "router": "10.1.0.1", "dns": "10.1.0.1",
		"domain": "guests.example", "mtu": "1400", "lease": "3600", "serverid": "10.1.0.1", "broadcast": "10.1.255.255",
		"opt114": fmt.Sprintf("%x", "https://portal.example/api"),
	})
	if ls := s.Leases(); len(ls) != 1 || ls[0].Hostname != "laptop" {
		t.Errorf("leases %v", ls)
	}
	p.Signal(syscall.SIGUSR1) // renew: unicast, from its address
	hookEnv(t, dir, "renew")
	p.Signal(syscall.SIGUSR2) // release
	await(t, "the release", func() bool { return len(s.Leases()) == 0 })
	await(t, "the listener", func() bool { return slices.Contains(j.all(), "released "+j.mac(0)+" 10.1.1.0") })
	if st := s.Stats(); st.Malformed != 0 || st.Spoofed != 0 || st.Naks != 0 || st.Releases != 1 || st.Discovers == 0 {
		t.Errorf("stats %+v", st)
	}
}

// mac returns the client's MAC address in the nth line.
func (j *journal) mac(n int) string { return strings.Fields(j.all()[n])[1] }

func TestDhclient(t *testing.T) {
	c0 := newLAN(t)
	s, _ := start(t, leasesFile(t), nil)
	h := newClient(t, c0)
	hook, dir := script(t, "$reason", `[ -z "$new_ip_address" ] || ip addr replace $new_ip_address/16 dev $interface`)
	conf := filepath.Join(dir, "conf")
	text := "option portal code 114 = text;\nrequest subnet-mask, routers, portal, interface-mtu;\nsend host-name " +
		"\"tablet\";\n" +
		"send dhcp-client-identifier \"a-b-c\";\ntimeout 30;\ninitial-interval 1;\n"
	if err := os.WriteFile(conf, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	args := []string{"dhclient", "-4", "-d", "-cf", conf, "-lf", filepath.Join(dir, "leases"), "-pf", filepath.Join(dir,
		"pid"), "-sf", hook}
	p := background(t, h.command(append(args, c0)...))
	env := hookEnv(t, dir, "BOUND")
	checkEnv(t, env, map[string]string{
		"new_ip_address": "10.1.1.0", "new_subnet_mask": "255.255.0.0", "new_routers": "10.1.0.1",
		"new_interface_mtu": "1400",
		"new_portal":        "https://portal.example/api", "new_dhcp_server_identifier": "10.1.0.1",
		"new_dhcp_lease_time": "3600",
		"new_domain_name":     "", // not asked for
	})
	if ls := s.Leases(); len(ls) != 1 || ls[0].Hostname != "tablet" || string(ls[0].ClientID) != "a-b-c" {
		t.Errorf("leases %+v", ls)
	}
	// Again: it remembers its lease, and requests it (INIT-REBOOT).
	await(t, "dhclient's own record", func() bool {
		text, err := os.ReadFile(filepath.Join(dir, "leases"))
		return err == nil && strings.Contains(string(text), "expire ")
	})
	p.Kill()
	before := s.Stats().Discovers
	background(t, h.command(append(args, c0)...))
	checkEnv(t, hookEnv(t, dir, "REBOOT"), map[string]string{"new_ip_address": "10.1.1.0"})
	if st := s.Stats(); st.Discovers != before {
		t.Errorf("stats %+v", st)
	}
	h.run(t, append(slices.Replace(slices.Clone(args), 2, 3, "-r"), c0)...)
	await(t, "the release", func() bool { return len(s.Leases()) == 0 })
}

// TestAnswersAsDnsmasqDoes sends the same messages to both servers.
func TestAnswersAsDnsmasqDoes(t *testing.T) {
	w := newWire(t, newLAN(t))
	s, _ := start(t, leasesFile(t), nil)
	ours, oddly := w.converse(t), w.tellOdd(t)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	pid := filepath.Join(t.TempDir(), "pid")
	background(t, exec.Command(
		"dnsmasq", "-k", "-C", "/dev/null", "--port=0", "--interface="+gateway, "--bind-interfaces", "--user=root",
		"--dhcp-authoritative", "--leasefile-ro", "--no-ping", "--dhcp-sequential-ip", "--pid-file="+pid,
		"--dhcp-range=10.1.1.0,10.1.40.255,255.255.0.0,1h", "--domain=guests.example", "--dhcp-option=option:mtu,1400",
		"--dhcp-option=6,10.1.0.1", "--dhcp-option-force=114,https://portal.example/api"))
	await(t, "dnsmasq", func() bool { _, err := os.Stat(pid); return err == nil })
	theirs := w.converse(t)
	for i := range ours {
		if ours[i] != theirs[i] {
			t.Errorf("ours    %s\ndnsmasq %s", ours[i], theirs[i])
		}
	}
	for name, theirs := range w.tellOdd(t) {
		if want := oddMessages[name].answerPrefix; want == "" && oddly[name] != theirs ||
			!strings.HasPrefix(oddly[name], want) {
			t.Errorf("%s:\nours    %s\ndnsmasq %s", name, oddly[name], theirs)
		}
		if strings.Contains(name, "relay and") && !strings.HasSuffix(oddly[name], "82: true") {
			t.Errorf("%s:\nours    %s", name, oddly[name])
		}
	}
}

// converse records a server's answers to a series of messages.
func (w *wire) converse(t *testing.T) (notes []string) {
	t.Helper()
	mac := macOf(1)
	wanted := dhcpv4.WithRequestedOptions(dhcpv4.OptionInterfaceMTU, dhcpv4.OptionRouter, dhcpv4.OptionSubnetMask,
		dhcpv4.OptionDomainName, dhcpv4.OptionBroadcastAddress, dhcpv4.OptionDomainNameServer)
	wish := func(ip net.IP) dhcpv4.Modifier { return dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(ip)) }
	server := dhcpv4.WithOption(dhcpv4.OptServerIdentifier(serverAddr.AsSlice()))
	note := func(label string, st station, m *dhcpv4.DHCPv4) *dhcpv4.DHCPv4 {
		r, d := w.ask(st, m)
		to := "one"
		if d.dstMAC == broadcastMAC {
			to = "all"
		}
		line := fmt.Sprintf(
			"%s: %s to %s at %s: ciaddr %s yiaddr %s", label, r.MessageType(), to, d.dst, r.ClientIPAddr, r.YourIPAddr)
		for _, code := range []uint8{1, 3, 6, 15, 26, 28, 54, 114} {
			line += fmt.Sprintf(" %d=%x", code, r.Options.Get(dhcpv4.GenericOptionCode(code)))
		}
		for _, code := range []uint8{51, 58, 59} { // times differ, and have a random part
			line += fmt.Sprintf(" %d: %v", code, r.Options.Has(dhcpv4.GenericOptionCode(code)))
		}
		notes = append(notes, line)
		return r
	}
	st := station{mac: mac}
	id := dhcpv4.WithOption(dhcpv4.OptClientIdentifier([]byte("an identifier")))
	ip := note("discover", st,
		message(t, dhcpv4.MessageTypeDiscover, mac, wanted, id, wish(net.IP{10, 1, 2, 3}))).YourIPAddr
	note("select", st, message(t, dhcpv4.MessageTypeRequest, mac, wanted, id, server, wish(ip)))
	note("init-reboot", st, message(t, dhcpv4.MessageTypeRequest, mac, wanted, id, wish(ip)))
	addr, _ := netip.AddrFromSlice(ip.To4())
	note("renew", station{mac: mac, src: addr, dst: serverAddr},
		message(t, dhcpv4.MessageTypeRequest, mac, wanted, id, dhcpv4.WithClientIP(ip)))
	note("rebind", station{mac: mac, src: addr},
		message(t, dhcpv4.MessageTypeRequest, mac, wanted, id, dhcpv4.WithClientIP(ip)))
	note("inform", station{mac: mac, src: addr},
		message(t, dhcpv4.MessageTypeInform, mac, wanted, dhcpv4.WithClientIP(ip)))
	note("another's", station{mac: macOf(2)}, message(t, dhcpv4.MessageTypeRequest, macOf(2), wanted, wish(ip)))
	note("elsewhere", station{mac: macOf(2)},
		message(t, dhcpv4.MessageTypeRequest, macOf(2), wanted, wish(net.IP{192, 168, 1, 1})))
	note("few options", station{mac: macOf(2)}, message(t, dhcpv4.MessageTypeDiscover, macOf(2), wish(net.IP{10, 1, 2, 4}),
		dhcpv4.WithRequestedOptions(dhcpv4.OptionRouter, dhcpv4.OptionBroadcastAddress)))
	reappear(t, note)
	return notes
}

// reappear sends messages of devices that come back with another client identifier, or without one.
func reappear(t *testing.T, note func(string, station, *dhcpv4.DHCPv4) *dhcpv4.DHCPv4) {
	wish := func(ip net.IP) dhcpv4.Modifier { return dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(ip)) }
	server := dhcpv4.WithOption(dhcpv4.OptServerIdentifier(serverAddr.AsSlice()))
	for i, ids := range identities(0x20000) {
		mac, ip := macOf(0x20000+i), net.IP{10, 1, 3, byte(i)}
		st, label := station{mac: mac}, fmt.Sprintf("%x, then %x: ", ids[0], ids[1])
		first, then := named(ids[0]), named(ids[1])
		note(label+"discover", st, message(t, dhcpv4.MessageTypeDiscover, mac, first, wish(ip)))
		note(label+"select", st, message(t, dhcpv4.MessageTypeRequest, mac, first, server, wish(ip)))
		addr, _ := netip.AddrFromSlice(ip)
		renew := message(t, dhcpv4.MessageTypeRequest, mac, then, dhcpv4.WithClientIP(ip))
		note(label+"renew", station{mac: mac, src: addr, dst: serverAddr}, renew)
		note(label+"init-reboot", st, message(t, dhcpv4.MessageTypeRequest, mac, then, wish(ip)))
		other := wish(net.IP{10, 1, 4, byte(i)})
		note(label+"discover again", st, message(t, dhcpv4.MessageTypeDiscover, mac, then, other))
		note(label+"select again", st, message(t, dhcpv4.MessageTypeRequest, mac, then, server, wish(ip)))
		note(label+"as at first", st, message(t, dhcpv4.MessageTypeRequest, mac, first, wish(ip)))
	}
}

// identities are client identifiers that one device sends in turn; empty: none. i is the number of the first
// device's MAC.
func identities(i int) [][2]string {
	ethernet := func(i int) string { mac := macOf(i); return "\x01" + string(mac[:]) }
	duid := "\xff\x00\x00\x00\x01\x00\x03\x00\x01device"
	return [][2]string{
		{ethernet(i), ""}, {"", ethernet(i + 1)}, {duid + "1", ""}, {"", duid + "2"}, {duid + "3", ethernet(i + 4)},
	}
}

// named sets a client identifier; with an empty id the message has none.
func named(id string) dhcpv4.Modifier {
	if id == "" {
		return func(*dhcpv4.DHCPv4) {}
	}
	return dhcpv4.WithOption(dhcpv4.OptClientIdentifier([]byte(id)))
}

// serveUntilKilled runs a server in its own process.
func serveUntilKilled(path string) {
	s, err := New(testConfig(path), &journal{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	s.Run(context.Background())
}
