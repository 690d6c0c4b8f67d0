package dhcp

import (
	"bytes"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// testBoots are tables as operators have them: iPXE before the PXE that loads it.
var testBoots = []Boot{
	{UserClass: "iPXE", File: "http://203.0.113.5/boot/" + strings.Repeat("menu/", 30) + "menu.ipxe"},
	{VendorClass: "PXEClient:Arch:00007", Server: netip.MustParseAddr("203.0.113.5"), File: "ipxe.efi"},
	{VendorClass: "PXEClient", Server: netip.MustParseAddr("203.0.113.5"), File: "undionly.kpxe"},
	{VendorClass: "HTTPClient:Arch:00016", File: "https://203.0.113.5/grub.efi"},
}

// TestBoot: who boots from the network is told the server and file of the first table that its classes fit, and nobody
// else is told one. They get their machine's identifier back, and others do not.
func TestBoot(t *testing.T) {
	cfg := testConfig("")
	cfg.Boot = testBoots
	const bios, uefi, httpBoot = "PXEClient:Arch:00000:UNDI:002001", "PXEClient:Arch:00007:UNDI:003016",
		"HTTPClient:Arch:00016:UNDI:003001"
	machine := append([]byte{0}, "0123456789abcdef"...) // a UUID, of type 0
	for _, tt := range []struct {
		name          string
		rq            request
		kind          dhcpv4.MessageType
		server        string
		field, option string
		vendor        string
	}{
		{"BIOS", request{vendorClass: bios}, dhcpv4.MessageTypeOffer, "203.0.113.5", "undionly.kpxe", "undionly.kpxe", ""},
		{"UEFI", request{vendorClass: uefi}, dhcpv4.MessageTypeAck, "203.0.113.5", "ipxe.efi", "ipxe.efi", ""},
		{"iPXE, which is a PXEClient too", request{vendorClass: bios, userClasses: userClasses([]byte("iPXE"))},
			dhcpv4.MessageTypeAck, "0.0.0.0", "", testBoots[0].File, ""},
		{"class with its length", request{vendorClass: bios, userClasses: userClasses([]byte("\x05other\x04iPXE"))},
			dhcpv4.MessageTypeAck, "0.0.0.0", "", testBoots[0].File, ""},
		{"HTTP boot", request{vendorClass: httpBoot}, dhcpv4.MessageTypeOffer, "0.0.0.0", testBoots[3].File,
			testBoots[3].File, "HTTPClient"},
		{"refused", request{vendorClass: bios}, dhcpv4.MessageTypeNak, "0.0.0.0", "", "", ""},
		{"phone", request{vendorClass: "android-dhcp-14"}, dhcpv4.MessageTypeOffer, "0.0.0.0", "", "", ""},
		{"no class", request{}, dhcpv4.MessageTypeOffer, "0.0.0.0", "", "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.rq.ciaddr, tt.rq.replyBytes = netip.IPv4Unspecified(), 1472
			tt.rq.optionCodes = []byte{1, 3, 66, 67}
			if tt.option == testBoots[0].File {
				tt.rq.optionCodes = []byte{1, 3} // it does not fit the field, and is sent unasked
			}
			tt.rq.machine = machine
			m := replyTo(t, tt.rq, tt.kind, cfg)
			if got := m.ServerIPAddr.String(); got != tt.server || m.BootFileName != tt.field ||
				string(m.Options.Get(dhcpv4.OptionBootfileName)) != tt.option || m.ClassIdentifier() != tt.vendor {
				t.Errorf("server %s, file %q, option %q, class %q", got, m.BootFileName,
					m.Options.Get(dhcpv4.OptionBootfileName), m.ClassIdentifier())
			}
			if id := m.Options.Get(dhcpv4.OptionClientMachineIdentifier); bytes.Equal(id, machine) != (tt.option != "") {
				t.Errorf("machine identifier %x", id)
			}
		})
	}
}

// replyTo is the reply of a kind to a request, as a client reads it.
func replyTo(t *testing.T, rq request, kind dhcpv4.MessageType, cfg Config) *dhcpv4.DHCPv4 {
	t.Helper()
	d, err := parseFrame(reply{kind: kind}.frame(&rq, cfg, fixedOptions(cfg), MAC{2}))
	if err != nil {
		t.Fatal(err)
	}
	m, err := dhcpv4.FromBytes(d.payload)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestUserClasses(t *testing.T) {
	for sent, want := range map[string][]string{
		"": nil, "iPXE": {"iPXE"}, "\x04iPXE": {"\x04iPXE", "iPXE"}, "\x01a\x02bc": {"\x01a\x02bc", "a", "bc"},
		"\x04iPX": {"\x04iPX"}, "\x00": {"\x00"},
	} {
		if got := userClasses([]byte(sent)); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", sent, got, want)
		}
	}
}

// TestPXEClient boots a machine from the network. Its iPXE, of QEMU, gets an address and the name of a script, loads
// the script from a real TFTP server, and runs it: the script loads another file.
func TestPXEClient(t *testing.T) {
	root, pid := t.TempDir(), filepath.Join(t.TempDir(), "pid")
	for name, text := range map[string]string{
		"boot.ipxe": "#!ipxe\nimgfetch tftp://10.1.0.1/${net0/ip}/next\npoweroff\n", "wrong": "#!ipxe\npoweroff\n"} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	port := newLAN(t)
	run(t, "sh", "-ec", "ip link add br0 type bridge && ip tuntap add guest0 mode tap && ip link set "+port+
		" master br0 && ip link set guest0 master br0 && ip link set br0 up && ip link set guest0 up")
	t.Cleanup(func() {
		exec.Command("ip", "link", "del", "br0").Run()
		exec.Command("ip", "link", "del", "guest0").Run()
	})
	logged := filepath.Join(t.TempDir(), "log")
	tftp := exec.Command("dnsmasq", "-k", "-C", "/dev/null", "--port=0", "--pid-file="+pid, "--user=root",
		"--enable-tftp",
		"--tftp-root="+root, "--listen-address=10.1.0.1", "--log-facility="+logged)
	background(t, tftp)
	await(t, "dnsmasq", func() bool { _, err := os.Stat(pid); return err == nil })
	s, _ := start(t, leasesFile(t), func(cfg *Config) {
		cfg.Boot = []Boot{{VendorClass: "PXEClient:Arch:00007", Server: serverAddr, File: "wrong"},
			{VendorClass: "PXEClient:Arch:00000", UserClass: "iPXE", Server: serverAddr, File: "boot.ipxe"}}
	})
	machine := exec.Command("qemu-system-x86_64", "-M", "pc,accel=tcg", "-m", "64", "-nodefaults", "-display", "none",
		"-boot", "n", "-netdev", "tap,id=lan,ifname=guest0,script=no,downscript=no",
		"-device", "virtio-net-pci,netdev=lan,mac=02:00:00:00:0b:07")
	background(t, machine)
	var leased Lease
	netnstest.Await(t, "the script that the machine runs", func() error {
		for _, l := range s.Leases() {
			if l.MAC.String() == "02:00:00:00:0b:07" {
				leased = l
			}
		}
		said, err := os.ReadFile(logged)
		asked := fmt.Sprintf("/%s/next not found", leased.Addr)
		if leased.Addr.IsValid() && bytes.Contains(said, []byte(asked)) {
			return nil
		}
		return fmt.Errorf("lease %v, %w; %s", leased, err, said)
	})
	if said, _ := os.ReadFile(logged); bytes.Contains(said, []byte("wrong")) {
		t.Errorf("another class's file was loaded: %s", said)
	}
}
