// Tests of good configuration files. minimal is the shortest good file, and withRADIUS the same with a RADIUS server
// (errors_test.go). parse reads a text that must be good.

package config

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/gateweigh/gateweigh/internal/strict"
)

// parse reads a configuration that must be good.
func parse(t *testing.T, text string) *Config {
	t.Helper()
	c, err := Parse("/etc/gatewayd/x.toml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestDefaults(t *testing.T) {
	c := parse(t, minimal)
	want := defaults()
	want.File = "/etc/gatewayd/x.toml"
	want.LAN = LAN{Interface: "lan0", Address: netip.MustParsePrefix("10.1.0.1/16"), NDProxy: "off"}
	want.WAN = WAN{Interface: "wan0"}
	want.DNS.Upstreams = []netip.AddrPort{netip.MustParseAddrPort("192.0.2.53:53")}
	want.Auth.Methods = []string{MethodClickThrough}
	want.DHCP.DNS = []netip.Addr{netip.MustParseAddr("10.1.0.1")}
	want.DHCP.Pools = []Range{{netip.MustParseAddr("10.1.0.2"), netip.MustParseAddr("10.1.255.254")}}
	want.FlowLog.Folder = "/var/lib/gatewayd/flows"
	if diff := cmp.Diff(want, c, cmpopts.IgnoreUnexported(Config{}), plainAddresses); diff != "" {
		t.Error(diff)
	}
	if got := c.ControlSocket(); got != "/run/gatewayd/control.sock" {
		t.Errorf("control socket %s", got)
	}
}

// plainAddresses lets cmp compare addresses with ==.
var plainAddresses = cmp.Options{
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
	cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b }),
	cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
}

func TestPoolExcludesGateway(t *testing.T) {
	for own, want := range map[string]string{
		"10.1.0.1/16": "10.1.0.2-10.1.255.254", "10.1.0.6/29": "10.1.0.1-10.1.0.5",
		"10.1.0.3/29": "10.1.0.1-10.1.0.2 10.1.0.4-10.1.0.6",
	} {
		var got []string
		for _, r := range around(netip.MustParsePrefix(own)) {
			got = append(got, r.String())
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %v, want %s", own, got, want)
		}
	}
}

func TestValues(t *testing.T) {
	c := parse(t, strings.Replace(withRADIUS, `["radius"]`, `["users", "radius"]`, 1)+`
users.file = "accounts"
log_level = "warn"
dhcp.options = { 42 = ["192.0.2.1", "192.0.2.2"], 43 = "0x0102ff", 66 = "tftp" }
dhcp.static = { "02-00-5E-10-00-01" = "10.1.0.10" }
garden.prefixes = ["198.51.100.7", "198.51.100.0/24"]
garden.domains = ["WWW.example.org", "*.example.org"]
limits.up_rate = "1.5M"
limits.down_rate = "20 Mbit/s"
limits.up_quota = "500MB"
limits.total_quota = "1.5GiB"
limits.idle_timeout = "30m"
radius.secondary.address = "192.0.2.11:1645"
radius.secondary.secret_file = "/etc/secret"
[[dhcp.boot]]
user_class = "iPXE"
file = "http://192.0.2.5/x"
[[dhcp.boot]]
vendor_class = "PXEClient"
server = "192.0.2.5"
file = "a"
`)
	for _, v := range []struct{ got, want any }{
		{c.Users.File, "/etc/gatewayd/accounts"},
		{c.LogLevel.String(), "WARN"},
		{c.DHCP.Options, map[uint8][]byte{42: {192, 0, 2, 1, 192, 0, 2, 2}, 43: {1, 2, 255}, 66: []byte("tftp")}},
		{c.DHCP.Static[0].MAC.String() + " " + c.DHCP.Static[0].Addr.String(), "02:00:5e:10:00:01 10.1.0.10"},
		{fmt.Sprint(c.DHCP.Boot), "[{ iPXE invalid IP http://192.0.2.5/x} {PXEClient  192.0.2.5 a}]"},
		{c.Garden.Prefixes[0].String(), "198.51.100.7/32"},
		{c.Garden.Domains, []string{"www.example.org", "*.example.org"}},
		{c.Limits, Limits{
			IdleTimeout: 30 * time.Minute, UpRate: 1_500_000, DownRate: 20_000_000, UpQuota: 500_000_000, TotalQuota: 3 << 29}},
		{c.RADIUS.Primary.Address.String() + " " + c.RADIUS.Primary.AcctAddress.String(), "192.0.2.10:1812 192.0.2.10:1813"},
		{c.RADIUS.Secondary.Address.String() + " " + c.RADIUS.Secondary.AcctAddress.String(),
			"192.0.2.11:1645 192.0.2.11:1646"},
		{len(c.RADIUS.Servers()), 2},
		{c.RADIUS.Secondary.SecretFile, "/etc/secret"},
	} {
		if diff := cmp.Diff(v.want, v.got); diff != "" {
			t.Error(diff)
		}
	}
}

func TestDatapath(t *testing.T) {
	for text, want := range map[string]Datapath{
		"": {Kind: "ebpf", Device: "tun0", Forward: ForwardAuto, FlowCache: FlowCacheAuto,
			Shaping: ShapingAuto, PinDir: "/sys/fs/bpf/gatewayd"},
		"datapath.kind = \"tun\"": {Kind: "tun", Device: "tun0", Forward: ForwardAuto, FlowCache: FlowCacheAuto,
			Shaping: ShapingAuto, PinDir: "/sys/fs/bpf/gatewayd"},
		"datapath.kind = \"nfqueue\"\ndatapath.fast = true\ndhcp.mode = \"external\"": {
			Kind: "nfqueue", Fast: true, Device: "tun0", Forward: ForwardAuto, FlowCache: FlowCacheAuto, Shaping: ShapingAuto,
			PinDir: "/sys/fs/bpf/gatewayd"},
	} {
		if got := parse(t, minimal+text).Datapath; got != want {
			t.Errorf("%q: %+v, want %+v", text, got, want)
		}
	}
}

// TestClients: all addresses that clients can have, in ascending order.
func TestClients(t *testing.T) {
	const lines = "[dhcp]\npools = [\"10.1.1.0-10.1.1.255\"]\n[pppoe]\nenabled = true\n"
	withRADIUS := strings.Replace(minimal, "click-through", "radius", 1) +
		"[radius.primary]\naddress = \"192.0.2.10\"\nsecret_file = \"/s\"\n[radius]\nnas_identifier = \"x\"\n" + lines
	for text, want := range map[string]string{
		minimal: "10.1.0.2-10.1.255.254",
		withRADIUS + "pools = [\"10.1.4.0-10.1.4.255\"]\n[pppoe.pool]\nb = [\"10.1.3.0-10.1.3.9\", " +
			"\"10.1.0.9-10.1.0.9\"]\na = [\"10.1.5.0-10.1.5.9\"]\n": "10.1.0.9-10.1.0.9 10.1.1.0-10.1.1.255 10.1.3.0-10.1.3.9 " +
			"10.1.4.0-10.1.4.255 10.1.5.0-10.1.5.9",
		// others than the pool's come from RADIUS
		withRADIUS + "[pppoe.pool]\nb = [\"10.1.3.0-10.1.3.9\"]\n": "10.1.0.2-10.1.255.254",
	} {
		var got []string
		for _, r := range parse(t, text).Clients() {
			got = append(got, r.String())
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%v of\n%s", got, text)
		}
	}
}

func TestRatesAndSizes(t *testing.T) {
	for text, want := range map[string]uint64{
		"8000": 8000, "64k": 64_000, "64K": 64_000, "2.5M": 2_500_000, "1Gbps": 1e9, "1000G": 1e12, "1 M": 1e6} {
		if got, err := ParseRate(text); got != want || err != nil {
			t.Errorf("rate %q: %d, %v", text, got, err)
		}
	}
	for _, text := range []string{
		"", "M", "-1M", "1e9", "7k", "1001G", "1MB", "1 0M", "NaN", "Inf", "0x10", "1_000k", ".", "1.2.3M"} {
		if got, err := ParseRate(text); err == nil {
			t.Errorf("rate %q: %d", text, got)
		}
	}
	for text, want := range map[string]uint64{"1B": 1, "1kB": 1000, "1 KiB": 1024, "0.5GB": 5e8, "2TiB": 2 << 40} {
		if got, err := ParseSize(text); got != want || err != nil {
			t.Errorf("size %q: %d, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "0B", "5", "5M", "-5GB", "99999999TB", "5 GB "} {
		if got, err := ParseSize(text); err == nil {
			t.Errorf("size %q: %d", text, got)
		}
	}
}

func TestChanged(t *testing.T) {
	a := parse(t, minimal)
	b := parse(t, strings.Replace(minimal, "wan0", "wan1", 1)+
		"log_level = \"debug\"\nlimits.up_rate = \"1M\"\nportal.port = 8080\n")
	if got := Changed(a, b); !slices.Equal(got, []string{"log_level", "wan.interface", "limits.up_rate"}) {
		t.Errorf("changed: %v", got)
	}
	if got := Changed(a, parse(t, "# another text\n"+minimal)); len(got) > 0 {
		t.Errorf("the same settings: %v", got)
	}
	for _, key := range LiveKeys {
		if !slices.Contains(Keys(), key) {
			t.Errorf("no key %s", key)
		}
	}
}

// write puts a file into dir with a mode, whatever the umask.
func write(t *testing.T, dir, name, text string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestLoadReadsSecrets(t *testing.T) {
	dir := t.TempDir()
	text := strings.Replace(withRADIUS, `radius.primary.secret = "s3cret"`, `radius.primary.secret_file = "sub"`, 1)
	path := write(t, dir, "gatewayd.toml", text, 0o644)
	for _, mark := range []string{"", "\ufeff"} { // a byte order mark
		write(t, dir, "sub", mark+"from a file\r\n", 0o640)
		c, err := Load(path)
		if err != nil {
			t.Fatal(err)
		}
		if got := c.RADIUS.Primary.Secret; got != "from a file" {
			t.Errorf("secret %q", got)
		}
	}
	for _, bad := range []struct {
		text string
		mode os.FileMode
		want string
	}{
		{"x", 0o644, "… chmod o-r " + dir + "/sub"},
		{"", 0o600, dir + "/sub … one line … 253 bytes"},
		{"two\nlines\n", 0o600, dir + "/sub … one line … 253 bytes"},
		{"\xff\xfe", 0o600, "… no text"},
		{strings.Repeat("x", maxFileBytes+1), 0o600, dir + "/sub … larger … 1048576 bytes"},
	} {
		write(t, dir, "sub", bad.text, bad.mode)
		if _, err := Load(path); err == nil || !hasWords(err.Error(), path+":7: radius.primary.secret_file: "+bad.want) {
			t.Errorf("%.20q, mode %o: %v", bad.text, bad.mode, err)
		}
	}
}

// TestSameAddressSameSecret: with requests of servers, servers of one address have one secret.
func TestSameAddressSameSecret(t *testing.T) {
	for _, tt := range []struct {
		address, secret, dynamic string
		refused                  bool
	}{
		{"192.0.2.10:1645", "other", "192.0.2.1:3799", true},
		{"192.0.2.10:1645", "s3cret", "192.0.2.1:3799", false},
		{"192.0.2.11:1645", "other", "192.0.2.1:3799", false},
		{"192.0.2.10:1645", "other", "", false},
	} {
		text := withRADIUS + "[radius.secondary]\naddress = \"" + tt.address + "\"\nsecret = \"" + tt.secret + "\"\n"
		if tt.dynamic != "" {
			text = "radius.dynamic = \"" + tt.dynamic + "\"\n" + text
		}
		path := write(t, t.TempDir(), "gatewayd.toml", text, 0o600)
		_, err := Load(path)
		if refused := err != nil && hasWords(err.Error(), path+":1: radius.dynamic: … 192.0.2.10 …"); refused != tt.refused ||
			err != nil && !refused {
			t.Errorf("%+v: %v", tt, err)
		}
	}
}

// TestLoadChecksFiles: files that the configuration names are checked when it is loaded. Long: most lines are the table
// of cases.
func TestLoadChecksFiles(t *testing.T) {
	dir := t.TempDir()
	path := write(t, dir, "gatewayd.toml", strings.Replace(withRADIUS, `["radius"]`, `["radius", "users"]`, 1)+
		"users.file = \".\"\nportal.templates = \"gatewayd.toml\"\nportal.tls_cert = \"c.pem\"\nportal.tls_key = "+
		"\"k.pem\"\nportal.name = \"l.example\"\n", 0o644)
	_, err := Load(path)
	want := []string{
		path + ":7: radius.primary.secret: … chmod o-r " + path + ", or use secret_file",
		path + ":8: users.file: " + dir + " is a folder, no file",
		path + ":9: portal.templates: " + path + " is no folder",
		path + ":10: portal.tls_cert: " + dir + "/c.pem does not exist",
	}
	if err == nil || !slices.EqualFunc(strings.Split(err.Error(), "\n"), want, hasWords) {
		t.Errorf("got:\n%v\nwant:\n%s", err, strings.Join(want, "\n"))
	}
	pem := write(t, dir, "key.pem", "-----BEGIN PRIVATE KEY-----\nAA==\n-----END PRIVATE KEY-----\n", 0o600)
	for keys, want := range map[string]string{
		"portal.templates = \"none\"": "portal.templates: " + dir +
			"/none does not exist: gatewayd templates writes …",
		"portal.templates = \"key.pem/x\"":   "portal.templates: " + dir + "/key.pem/x is below a file, …",
		"portal.templates = \"/dev/null\"":   "portal.templates: /dev/null is no folder",
		"portal.templates = \"\"":            "portal.templates: must be the path … \"\"",
		"users.file = \"/dev/null\"":         "users.file: /dev/null is no regular file, …",
		"users.file = \"key.pem/x\"":         "users.file: " + dir + "/key.pem/x is below a file, …",
		"state_dir = \"\"":                   "state_dir: must be an absolute path, not \"\"",
		"portal.tls_cert = \".\"":            "portal.tls_cert: " + dir + " is a folder, no file",
		"portal.tls_cert = \"/dev/null\"":    "portal.tls_cert: /dev/null is no regular file, but a device: …",
		"portal.tls_cert = \"key.pem\"":      "portal.tls_cert: " + pem + " has no BEGIN CERTIFICATE in it: … PEM",
		"portal.tls_cert = \"key.pem/x\"":    "portal.tls_cert: " + dir + "/key.pem/x is below a file, …",
		"radius.primary.secret_file = \".\"": "radius.primary.secret_file: … " + dir + " …",
	} {
		text := strings.Replace(minimal, "click-through", "users", 1) + keys + "\n"
		if !strings.Contains(keys, "users.file") {
			text += "users.file = \"key.pem\"\n"
		}
		if strings.Contains(keys, "tls_cert") {
			text += "portal.tls_key = \"key.pem\"\nportal.name = \"l.example\"\n"
		}
		if strings.Contains(keys, "radius") {
			text = strings.Replace(text, `["users"]`, `["users", "radius"]`, 1) + "radius.primary.address = \"192.0.2.10\"\n"
		}
		path := write(t, dir, "paths.toml", text, 0o600)
		if _, err := Load(path); err == nil || !hasWords(err.Error(), path+":6: "+want) {
			t.Errorf("%s: %v\nwant %s", keys, err, want)
		}
	}
	if _, err := Load(dir + "/none"); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), dir+"/none") ||
		!strings.Contains(err.Error(), "example-config") {
		t.Errorf("no file: %v", err)
	}
	path = write(t, dir, "users.toml", strings.Replace(minimal, "click-through", "users", 1)+"users.file = \"none\"\n",
		0o644)
	if _, err := Load(path); err == nil ||
		!hasWords(err.Error(), path+":6: users.file: "+dir+"/none does not exist: … hash-password …") {
		t.Errorf("no file of users: %v", err)
	}
}

// FuzzParse: every text gives a consistent configuration, or problems that name the file and a line of it.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{minimal, withRADIUS, Example, "[dhcp.static]\n\"02:00:00:00:00:01\" = \"10.1.0.5\"\n",
		"a.b=1\n[a]\n", "x = [[", "[[dns]]\n[dns.mode]"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		c, err := Parse("x.toml", []byte(text))
		if err != nil {
			lines := strings.Count(text, "\n") + 1
			for _, p := range err.(strict.Problems) {
				if p.File != "x.toml" || p.Line < 1 || p.Line > lines || p.Problem == "" {
					t.Errorf("problem %+v of %d lines", p, lines)
				}
			}
			return
		}
		lan := c.LAN.Network()
		for _, pool := range c.DHCP.Pools {
			if !lan.Contains(pool.First) || !lan.Contains(pool.Last) || pool.Contains(c.LAN.Address.Addr()) {
				t.Errorf("pool %s of %s", pool, c.LAN.Address)
			}
		}
		if c.LAN.Interface == c.WAN.Interface || c.Portal.Enabled != (len(c.Auth.Methods) > 0) {
			t.Errorf("accepted %+v", c)
		}
	})
}

// TestAddresses checks how many clients can have an address, by DHCP server.
func TestAddresses(t *testing.T) {
	const pools = "dhcp.pools = [\"10.1.0.10-10.1.0.49\", \"10.1.1.250-10.1.2.13\"]\n" // 40 and 20
	for _, tt := range []struct {
		name, keys string
		want       int
	}{
		{"all of the LAN", "", 65533},
		{"pools", pools, 60},
		{"pools, and reserved beside them",
			pools + "[dhcp.static]\n\"02:00:00:00:00:01\" = \"10.1.0.12\"\n\"02:00:00:00:00:02\" = \"10.1.0.9\"\n", 61},
		{"by another program", "dhcp.mode = \"external\"\n", 65533},
	} {
		if got := parse(t, minimal+tt.keys).Addresses(); got != tt.want {
			t.Errorf("%s: %d addresses, want %d", tt.name, got, tt.want)
		}
	}
}

// TestIdleTimeout: there is one unless it is switched off.
func TestIdleTimeout(t *testing.T) {
	for line, want := range map[string]time.Duration{
		"": DefaultIdle, `limits.idle_timeout = "none"`: 0, `limits.idle_timeout = "5m"`: 5 * time.Minute} {
		c, err := Parse("x.toml", []byte(`
lan = { interface = "lan0", address = "10.1.0.1/24" }
wan.interface = "wan0"
dns.upstreams = ["192.0.2.2"]
auth.methods = ["click-through"]
`+line))
		if err != nil || c.Limits.IdleTimeout != want {
			t.Errorf("%s: %v, want %v", line, err, want)
		}
	}
	if _, err := Parse("x.toml", []byte(`limits.idle_timeout = "never"`)); err == nil ||
		!strings.Contains(err.Error(), `or "none"`) {
		t.Errorf("%v does not name none", err)
	}
}
