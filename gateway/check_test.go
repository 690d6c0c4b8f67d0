package gateway

import (
	"fmt"
	"log/slog"
	"net/netip"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/config"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// TestCheckKernelPPPoE: the data path "kernel" is refused only if the kernel has no PPPoE, and the message says which
// module to load.
func TestCheckKernelPPPoE(t *testing.T) {
	network(t)
	cfg := *start(t, t.TempDir()).cfg
	cfg.Datapath.Kind = "kernel"
	fd, err := unix.Socket(unix.AF_PPPOX, unix.SOCK_STREAM, 0)
	if err == nil {
		unix.Close(fd)
		if all := fmt.Sprint(Check(&cfg)); strings.Contains(all, "PPPoE") {
			t.Errorf("found %s", all)
		}
		return
	}
	expectFindings(t, cfg, Refusal, "the kernel has no PPPoE", "modprobe pppoe", "CONFIG_PPPOE")
}

// TestCheckPPPoEMTU: Check warns of a pppoe.mtu that the LAN's interface cannot carry, and says which MTU clients get.
func TestCheckPPPoEMTU(t *testing.T) {
	network(t)
	cfg := *start(t, t.TempDir()).cfg
	cfg.PPPoE.Enabled, cfg.PPPoE.MTU = true, 1492
	if all := fmt.Sprint(Check(&cfg)); strings.Contains(all, "pppoe.mtu") {
		t.Errorf("found %s", all)
	}
	cfg.PPPoE.MTU = 1500
	expectFindings(t, cfg, Warning, "pppoe.mtu", "carries 1500 bytes", "an MTU of 1492", "ip link set lan0 mtu 1508")
}

// TestCheckGarden: Check warns of names in the walled garden by which devices probe for a portal: they would find none.
// It also warns of addresses of this machine.
func TestCheckGarden(t *testing.T) {
	network(t)
	cfg := *start(t, t.TempDir()).cfg
	cfg.Garden.Domains = []string{"login.shop.example", "accounts.google.com"}
	if all := fmt.Sprint(Check(&cfg)); strings.Contains(all, "garden") {
		t.Errorf("found %s", all)
	}
	for pattern, name := range map[string]string{"*.apple.com": "captive.apple.com",
		"conn1.oppomobile.com": "conn1.oppomobile.com", "*.google.com": "www.google.com",
		"*.gstatic.com": "connectivitycheck.gstatic.com"} {
		cfg.Garden.Domains = []string{pattern}
		expectFindings(t, cfg, Warning, "garden.domains", pattern, name)
	}
	cfg.Garden.Domains, cfg.Garden.Ports = nil,
		[]config.GardenPort{{Domain: "*.google.com", Protocol: unix.IPPROTO_TCP, Port: 443}}
	expectFindings(t, cfg, Warning, "garden.ports", "www.google.com")
	cfg.Garden.Prefixes = []netip.Prefix{netip.MustParsePrefix("192.0.2.1/32"), netip.MustParsePrefix("192.0.2.2/32")}
	cfg.Garden.Ports = []config.GardenPort{{Prefix: cfg.Garden.Prefixes[0], Protocol: unix.IPPROTO_TCP, Port: 443}}
	expectFindings(t, cfg, Warning, "garden.prefixes: 192.0.2.1 is an address of this machine",
		"garden.ports: 192.0.2.1:443 is an address of this machine")
	if all := fmt.Sprint(Check(&cfg)); strings.Contains(all, "192.0.2.2") {
		t.Errorf("found %s", all)
	}
}

// TestCheckFiles: a process that may open too few files for its sessions in the kernel says how many it needs.
func TestCheckFiles(t *testing.T) {
	network(t)
	cfg := *start(t, t.TempDir()).cfg
	cfg.Datapath.Kind, cfg.PPPoE.Enabled, cfg.PPPoE.MaxSessions, cfg.Auth.Methods = "kernel", true, 65535,
		[]string{"users"}
	// The pool has 2048 addresses.
	cfg.PPPoE.Pools = []config.Range{{First: netip.MustParseAddr("10.1.8.0"), Last: netip.MustParseAddr("10.1.15.255")}}
	var limit unix.Rlimit
	must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	t.Cleanup(func() { unix.Setrlimit(unix.RLIMIT_NOFILE, &limit) })
	for _, c := range []struct {
		files   uint64
		most    int
		missing bool
	}{{6000, 65535, true}, {6400, 65535, false}, {6000, 1900, false}} {
		must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: c.files, Max: limit.Max}))
		cfg.PPPoE.MaxSessions = c.most
		if c.missing {
			expectFindings(t, cfg, Warning, "LimitNOFILE=6400", "2048", "pppoe.sessions = 1914")
		} else if all := fmt.Sprint(Check(&cfg)); strings.Contains(all, "LimitNOFILE") {
			t.Errorf("with %d files and %d sessions: %s", c.files, c.most, all)
		}
	}
}

// TestCheck: Check finds everything that Run refuses on this machine, without running the gateway, and says what to do.
// On a machine without faults it finds no refusals, also while the gateway runs. Long: most lines are the table of
// cases.
func TestCheck(t *testing.T) {
	network(t)
	d := start(t, t.TempDir())
	if found := Check(d.cfg); Refused(found) != nil {
		t.Errorf("while the gateway runs: %v", found)
	}
	other := *d.cfg
	other.RunDir = t.TempDir()
	expectFindings(t, other, Refusal, "another gateway has the interface lan0")
	must(t, d.stop())
	if found := Check(d.cfg); Refused(found) != nil {
		t.Errorf("when the gateway has ended: %v", found)
	}
	must(t, Detach(d.cfg, false))
	expectFindings(t, *d.cfg, Warning,
		"until gatewayd runs this machine forwards IPv4 for everybody on lan0: enable gatewayd-guard.service")
	for name, c := range map[string]struct {
		change, undo string // scripts that make a fault on the machine, and remove it
		cfg          func(*config.Config)
		messages     []string
		not          string // text that no finding has; "": any may
		mild         bool   // the findings have weight; false: they are refusals
		weight       Weight
	}{
		"interfaces": {cfg: func(c *config.Config) { c.LAN.Interface, c.WAN.Interface = "lan7", "wan7" }, messages: []string{
			`lan.interface: looking for "lan7"`, `wan.interface: looking for "wan7"`}},
		"address": {cfg: func(c *config.Config) { c.LAN.Address = netip.MustParsePrefix("10.9.0.1/24") }, messages: []string{
			"lan.address: lan0 does not have 10.9.0.1/24: ip addr add 10.9.0.1/24 dev lan0"}},
		"bridge": {change: "ip link add br9 type bridge; ip link set lan0 master br9", undo: "ip link del br9",
			cfg:      func(c *config.Config) { c.LAN.Address = netip.MustParsePrefix("10.9.0.1/24") },
			messages: []string{`lan0 is a port of the bridge br9, which takes its packets: set lan.interface = "br9"`},
			not:      "ip addr add"},
		"bridged WAN": {change: "ip link add br9 type bridge; ip link set wan0 master br9", undo: "ip link del br9",
			messages: []string{`wan0 is a port of the bridge br9`, `set wan.interface = "br9"`}, mild: true, weight: Warning},
		"tun, address": {cfg: func(c *config.Config) { c.Datapath.Kind = "tun" }, messages: []string{
			"lan0 has the address 10.1.0.1/24 of the clients' network", "ip addr del"}},
		"tun, device": {cfg: func(c *config.Config) { c.Datapath.Kind, c.Datapath.Device = "tun", "wan0" },
			messages: []string{"choose another datapath.device"}},
		"PPP": {change: "ip tuntap add ppp0 mode tun", undo: "ip link del ppp0", cfg: func(c *config.Config) {
			c.WAN.Interface = "ppp0"
		}, messages: []string{`ppp0 is no Ethernet interface`, `"tun" or "nfqueue"`}},
		"nfqueue": {change: "ip tuntap add ppp0 mode tun", undo: "ip link del ppp0", cfg: func(c *config.Config) {
			c.LAN.Interface, c.Datapath.Kind = "ppp0", "nfqueue"
		}, messages: []string{`ppp0 is no Ethernet interface`}},
		"no bpffs": {cfg: func(c *config.Config) { c.Datapath.PinDir = "/run/pins" }, messages: []string{
			"/run/pins is not on a bpffs", "mount -t bpf"}},
		"state_dir": {change: "mkdir -p /run/ro; mount -t tmpfs -o ro none /run/ro", undo: "umount /run/ro", cfg: func(
			c *config.Config) {
			c.StateDir = "/run/ro/state"
		}, messages: []string{"state_dir: /run/ro cannot be written to"}},
		"flow log": {change: "touch /run/file", undo: "rm /run/file", cfg: func(c *config.Config) {
			c.FlowLog.Enabled,
				c.FlowLog.Folder = true, "/run/file"
		}, messages: []string{"flowlog.folder: /run/file", "a file is in its place"}},
		"settings": {change: "sysctl -qw net.ipv4.conf.lan0.forwarding=0; mount --bind /proc/sys /proc/sys; mount -o " +
			"remount,bind,ro /proc/sys", undo: "umount /proc/sys; sysctl -qw net.ipv4.conf.lan0.forwarding=1",
			messages: []string{"switching forwarding on at lan0: read-only", "echo 1 >/proc/sys/net/ipv4/conf/lan0/forwarding"}},
		"forwarding": {change: "sysctl -qw net.ipv4.ip_forward=0", undo: "sysctl -qw net.ipv4.ip_forward=1",
			messages: []string{"switches forwarding on at lan0 and wan0"}, mild: true, weight: Note},
		"no route": {messages: []string{"no default route"}, mild: true, weight: Note},
		"down": {change: "ip link set wan0 down", undo: "ip link set wan0 up",
			messages: []string{"wan0 is down: ip link set wan0 up"}, mild: true, weight: Warning},
		"WAN's network": {change: "ip addr add 10.1.0.9/16 dev wan0", undo: "ip addr del 10.1.0.9/16 dev wan0",
			messages: []string{"10.1.0.0/24 overlaps 10.1.0.0/16 of wan0"}, mild: true, weight: Warning},
		"leased servers": {cfg: func(c *config.Config) {
			c.DNS.Mode, c.DNS.Upstreams = "server", []netip.AddrPort{netip.MustParseAddrPort("10.1.0.77:53")}
			c.DHCP.Mode, c.DHCP.Pools = "server", nil
			c.RADIUS.Secondary.Address = netip.MustParseAddrPort("10.1.0.78:1812")
		}, messages: []string{"DHCP may lease 10.1.0.77 to a client", "DHCP may lease 10.1.0.78 to a client"}, mild: true,
			weight: Warning},
		"metrics": {cfg: func(c *config.Config) { c.Metrics.Listen = netip.MustParseAddrPort("192.0.2.1:9464") },
			messages: []string{"metrics are there for everybody who reaches 192.0.2.1:9464"}, mild: true, weight: Warning},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := *d.cfg
			if c.cfg != nil {
				c.cfg(&cfg)
			}
			sh(t, c.change+"\n:")
			t.Cleanup(func() { sh(t, c.undo+"\n:") })
			if c.mild {
				expectFindings(t, cfg, c.weight, c.messages...)
				return
			}
			expectFindings(t, cfg, Refusal, c.messages...)
			if c.not != "" && strings.Contains(fmt.Sprint(Check(&cfg)), c.not) {
				t.Errorf("something says %q: %v", c.not, Check(&cfg))
			}
			refuses(t, cfg, c.messages...)
		})
	}
	t.Run("forwards", func(t *testing.T) {
		cfg := *d.cfg
		cfg.NAT = config.NAT{Masquerade: true, Forwards: []config.Forward{{Proto: config.TCP, Ports: config.PortRange{
			First: 8022, Last: 8022}, To: netip.MustParseAddr("10.1.0.9")}}}
		expectFindings(t, cfg, Warning, "whichever client leases 10.1.0.9 gets what is forwarded")
		cfg.DHCP.Pools = []config.Range{{First: netip.MustParseAddr("10.1.0.50"), Last: netip.MustParseAddr("10.1.0.60")}}
		if all := fmt.Sprint(Check(&cfg)); strings.Contains(all, "whichever client") {
			t.Errorf("of an address that nobody leases: %s", all)
		}
	})
	t.Run("pair", func(t *testing.T) { pairTranslations(t, *d.cfg) })
	t.Run("own ports", func(t *testing.T) { ownPortsTaken(t, *d.cfg) })
	t.Run("ports", func(t *testing.T) { portsTaken(t, *d.cfg) })
}

// portsTaken has other programs listen on the gateway's ports.
func portsTaken(t *testing.T, cfg config.Config) {
	named := exec.Command("dnsmasq", "-k", "-C", "/dev/null", "--pid-file", "--no-resolv", "--no-hosts",
		"--listen-address=10.1.0.1", "--bind-interfaces", "--dhcp-leasefile="+filepath.Join(t.TempDir(), "leases"),
		"--dhcp-range=10.1.0.50,10.1.0.60")
	web := exec.Command("busybox", "nc", "-l", "-p", "8080")
	for _, cmd := range []*exec.Cmd{named, web} {
		netnstest.Background(t, cmd)
	}
	eventually(t, "the other programs to listen", func() bool {
		out, _ := try("ss -Hlntu '( sport = :53 or sport = :67 or sport = :8080 )'")
		return strings.Contains(out, ":53 ") && strings.Contains(out, ":67 ") && strings.Contains(out, ":8080 ")
	})
	server := fmt.Sprintf("is taken by dnsmasq (process %d)", named.Process.Pid)
	messages := []string{"port 53 of 10.1.0.1, for DNS, " + server, "port 67 of 0.0.0.0, for DHCP, " + server,
		fmt.Sprintf("port 8080 of 10.1.0.1, for the portal, is taken by busybox (process %d): stop that, or choose another "+
			"portal.port", web.Process.Pid)}
	expectFindings(t, cfg, Refusal, messages...)
	refuses(t, cfg, messages...)
	cfg.DNS.Mode, cfg.DHCP.Mode, cfg.Portal.Enabled = config.External, config.External, false
	if err := Refused(Check(&cfg)); err != nil {
		t.Errorf("ports that the gateway does not need: %v", err)
	}
}

// expectFindings expects findings with these texts.
func expectFindings(t *testing.T, cfg config.Config, w Weight, messages ...string) {
	t.Helper()
	all := Check(&cfg)
	for _, text := range messages {
		if !slices.ContainsFunc(all, func(f Finding) bool { return f.Weight == w && strings.Contains(f.Text, text) }) {
			t.Errorf("nothing of weight %d says %q: %v", w, text, all)
		}
	}
}

// refuses expects Run to end with these texts.
func refuses(t *testing.T, cfg config.Config, messages ...string) {
	t.Helper()
	err := Run(t.Context(), &cfg, Daemon{Log: slog.New(slog.DiscardHandler), Ready: func() { t.Error("it serves") }})
	for _, text := range messages {
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("Run does not say %q but %v", text, err)
		}
	}
}

// otherEndian converts a table of sockets, as little-endian machines have it in /proc/net/tcp, to that of a big-endian
// machine: with the bytes of each word of an address the other way round. It also converts back.
func otherEndian(table string) string {
	return regexp.MustCompile(`[0-9A-F]{8,32}:`).ReplaceAllStringFunc(table, func(addr string) string {
		var other strings.Builder
		for word := range slices.Chunk([]byte(addr[:len(addr)-1]), 8) {
			for i := 6; i >= 0; i -= 2 {
				other.Write(word[i : i+2])
			}
		}
		return other.String() + ":"
	})
}

// TestSockets finds listening sockets in the kernel's tables of sockets (/proc/net/tcp and tcp6).
func TestSockets(t *testing.T) {
	tcp := `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100010A:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 101 1 0000000000000000 100 0 0 10 0
   1: 00000000:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 102 1 0000000000000000 100 0 0 10 0
   2: 0200010A:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 103 1 0000000000000000 100 0 0 10 0
   3: 0100010A:1F90 0500010A:C350 01 00000000:00000000 00:00000000 00000000     0        0 104 1 0000000000000000 100 0 0 10 0
   4: 0100010A:0035 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 105 1 0000000000000000 100 0 0 10 0
`
	tcp6 := `  sl  local_address                         remote_address                        st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000000000000000000000000000:1F90 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 201 1 0000000000000000 100 0 0 10 0
   1: 0000000000000000FFFF00000100010A:1F90 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 202 1 0000000000000000 100 0 0 10 0
   2: 000080FE00000000FFFF00000200010A:1F90 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 203 1 0000000000000000 100 0 0 10 0
   3: short
`
	if hexOf(netip.MustParseAddr("10.1.0.1")) != "0100010A" { // this machine is big-endian
		tcp, tcp6 = otherEndian(tcp), otherEndian(tcp6)
	}
	if line := otherEndian("0: 0100010A:1F90 00000000:0000 0A"); line != "0: 0A010001:1F90 00000000:0000 0A" {
		t.Errorf("turned: %s", line)
	}
	addr := netip.MustParseAddrPort("10.1.0.1:8080")
	for _, c := range []struct {
		table     string
		listening bool
		want      []string
	}{
		{tcp, true, []string{"101", "102"}}, {tcp, false, []string{"101", "102", "104"}},
		{tcp6, true, []string{"201", "202"}},
	} {
		if got := sockets(strings.NewReader(c.table), addr, c.listening); !slices.Equal(got, c.want) {
			t.Errorf("%v, want %v of\n%s", got, c.want, c.table)
		}
	}
}
