package experiment_test

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	. "github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/measure"
)

// known is a catalogue of the measures that ship with the lab. Some names stand for the devices written in Go.
var known = Catalogue{Measures: measure.Catalogue().Measures, DUTs: []string{
	"clean", "coovachilli", "gateway-ebpf", "gateway-nfqueue", "gateway-nfqueue-fast",
	"gateway-pppoe-ebpf", "gateway-pppoe-ident-masquerade", "gateway-pppoe-ident-nat", "gateway-pppoe-kernel",
	"gateway-pppoe-masquerade", "floor", "floor-nat", "gateway-pppoe-user", "rp-pppoe-user", "rp-pppoe-kernel",
	"gateway-tun", "gateway-tun-fast", "masquerade", "no-capture", "opennds",
	"sink-ebpf", "sink-mmap", "sink-recv", "sink-xdp", "softflowd", "tcpdump", "tcpdump-1500", "tcpdump-68",
	"tcpdump-disk",
	"gre", "ipip", "ipsec-aes-cbc-sha1", "ipsec-aes-gcm", "ipsec-blowfish", "ipsec-chacha20", "ipsec-null",
	"ipsec-user-aes-gcm", "ipsec-user-chacha20",
	"openconnect-dtls", "openconnect-tls", "openvpn-aes-gcm", "openvpn-blowfish", "openvpn-chacha20", "openvpn-dco",
	"openvpn-none", "ssh-w", "vxlan", "wireguard", "wireguard-go",
	"coovachilli-two", "gateway-pair", "gateway-roaming", "gateway-two", "opennds-two",
}}

// sameExperiment compares all but where keys were set.
var sameExperiment = cmp.Options{
	cmpopts.IgnoreUnexported(Experiment{}),
	cmpopts.EquateComparable(netip.Prefix{}),
	cmpopts.EquateEmpty(),
}

const minimal = "duts = [\"opennds\"]\nclients = [1]\noffered_mbps = [100]\n"

func TestLoadFillsDefaults(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mine.toml")
	if err := os.WriteFile(path, []byte(minimal), 0o644); err != nil {
		t.Fatal(err)
	}
	got, err := known.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	want := &Experiment{
		Name: "mine", Measure: "cost", Topology: "portal", Mode: "duet", DUTs: []string{"opennds"}, Clients: []int{1},
		OfferedMbps: []float64{100},
		Directions:  []string{"up"}, Profiles: []string{"per-packet"},
		Blocks: 6, AABlocks: 2, Windows: 3, Window: time.Second, Warmup: 500 * time.Millisecond, Redo: 2,
		Client:  Client{Kind: "macvlan", Hosts: 1},
		Traffic: Traffic{Kind: "streams", Protocol: "tcp", BurstSegments: 44, Pacing: "paced"},
	}
	if diff := cmp.Diff(want, got, sameExperiment); diff != "" {
		t.Errorf("defaults (-want +got):\n%s", diff)
	}
}

func TestLoadReadsEveryKey(t *testing.T) {
	got, err := known.Parse("full.toml", []byte(full))
	if err != nil {
		t.Fatal(err)
	}
	want := &Experiment{
		Name: "everything", Description: "all keys", Measure: "cost", Topology: "row", Mode: "duet",
		DUTs:    []string{"mine", "clean"},
		Clients: []int{1, 250}, OfferedMbps: []float64{0.5, 100}, MbpsPerClient: []float64{0.2},
		Directions: []string{"up", "down"},
		Profiles:   []string{"per-packet"}, Blocks: 1, AABlocks: 0, Windows: 2,
		Window: 200 * time.Millisecond, Warmup: 0, Redo: 0,
		Client:  Client{Kind: "veth", Hosts: 2},
		Beside:  Beside{Client: "macvlan", Traffic: "iperf3", Clients: 100},
		Traffic: Traffic{Kind: "iperf3", Protocol: "udp", BurstSegments: 8, Pacing: "burst"},
		Custom: map[string]CustomDUT{"mine": {
			Description: "a gateway",
			Requires:    map[string]string{"nft": "nftables"},
			Kernel:      []string{"CONFIG_NFT_QUEUE"},
			Files:       map[string]string{"gw.conf": "lan = ${GATEWEIGH_LAN_IF}\n", "/etc/gw/x": "1"},
			Start:       Command{"nft", "-f", "x"},
			Daemon:      Command{"sh", "-c", "exec sleep 1000"},
			Ready:       Command{"true"},
			Stop:        Command{"sh", "-c", "one\ntwo 'quoted'\n"},
			Login:       Command{"curl", "http://a"}, Status: Command{"a"}, Logout: Command{"b"},
			ReadyTimeout: 5 * time.Second, Timeout: time.Minute, Processes: []string{"gwd"},
			DHCP: true, LAN: got.Custom["mine"].LAN, NoAggregation: true, NoTxChecksum: true,
		}},
	}
	if diff := cmp.Diff(want, got, sameExperiment); diff != "" {
		t.Errorf("keys (-want +got):\n%s", diff)
	}
	if lan := got.Custom["mine"].LAN.String(); lan != "10.1.0.0/16" {
		t.Errorf("lan = %s", lan)
	}
}

const full = `
name = "everything"
description = "all keys"
topology = "row"
mode = "duet"
duts = ["mine", "clean"]
clients = [1, 250]
offered_mbps = [0.5, 100]
mbps_per_client = [0.2]
directions = ["up", "down"]
profiles = ["per-packet"]
blocks = 1
aa_blocks = 0
windows = 2
window = "200ms"
warmup = "0s"
redo = 0
client = { kind = "veth", hosts = 2 }
beside = { client = "macvlan", traffic = "iperf3", clients = 100 }
traffic = { kind = "iperf3", protocol = "udp", burst_segments = 8, pacing = "burst" }
[dut.mine.files]
"gw.conf" = "lan = ${GATEWEIGH_LAN_IF}\n"
"/etc/gw/x" = "1"
[dut.mine]
description = "a gateway"
requires = { nft = "nftables" }
kernel = ["CONFIG_NFT_QUEUE"]
start = ["nft", "-f", "x"]
daemon = "exec sleep 1000"
ready = ["true"]
stop = '''
one
two 'quoted'
'''
login = ["curl", "http://a"]
status = ["a"]
logout = ["b"]
ready_timeout = "5s"
timeout = "1m"
processes = ["gwd"]
dhcp = true
lan = "10.1.0.0/16"
no_aggregation = true
no_tx_checksum = true
`

func TestEncodeRoundTrips(t *testing.T) {
	for name, text := range map[string]string{"minimal": minimal, "full": full} {
		e, err := known.Parse("x.toml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		again, err := known.Parse("other.toml", e.Encode())
		if err != nil {
			t.Fatalf("%s: %v\n%s", name, err, e.Encode())
		}
		if diff := cmp.Diff(e, again, sameExperiment); diff != "" {
			t.Errorf("%s (-first +second):\n%s\n%s", name, diff, e.Encode())
		}
	}
}

func TestBuiltins(t *testing.T) {
	all := known.Builtins()
	if len(all) < 4 || all[0].Name != "quick" {
		t.Fatalf("builtins: %d, first %q", len(all), all[0].Name)
	}
	for _, e := range all {
		if e.Description == "" {
			t.Errorf("%s has no description", e.Name)
		}
		if err := e.Check(); err != nil {
			t.Errorf("%s: %v", e.Name, err)
		}
		again, err := known.Parse("again.toml", e.Encode())
		if err != nil {
			t.Errorf("%s encoded: %v", e.Name, err)
			continue
		}
		if diff := cmp.Diff(e, again, sameExperiment); diff != "" {
			t.Errorf("%s (-first +second):\n%s", e.Name, diff)
		}
	}
	if _, err := known.Builtin("quik"); err == nil || !strings.Contains(err.Error(), `did you mean "quick"?`) {
		t.Errorf("known.Builtin(quik) = %v", err)
	}
	if _, err := known.Builtin("../quick"); err == nil {
		t.Error("known.Builtin(../quick) succeeded")
	}
}

func TestBuiltinsFollowStudy1(t *testing.T) {
	bandwidth, err := known.Builtin("portal-bandwidth")
	if err != nil {
		t.Fatal(err)
	}
	clients, err := known.Builtin("portal-clients")
	if err != nil {
		t.Fatal(err)
	}
	// Study 1, tables 5.1 and 5.5.
	if !slices.Equal(bandwidth.OfferedMbps, []float64{100, 200, 400, 800, 1000}) ||
		!slices.Equal(bandwidth.Clients, []int{100}) {
		t.Errorf("portal-bandwidth: %v Mbit/s, %v clients", bandwidth.OfferedMbps, bandwidth.Clients)
	}
	if !slices.Equal(clients.OfferedMbps, []float64{1000}) || !slices.Equal(clients.Clients, []int{1, 10, 50, 100}) {
		t.Errorf("portal-clients: %v Mbit/s, %v clients", clients.OfferedMbps, clients.Clients)
	}
}

func TestShippedDeviceNeedsNoTable(t *testing.T) {
	e, err := known.Parse("x.toml", []byte("duts = [\"allowlist\"]\nclients = [1]\noffered_mbps = [1]\n"))
	if err != nil {
		t.Fatal(err)
	}
	shipped, ok := ShippedDUT("allowlist")
	if !ok || len(shipped.Admit) == 0 {
		t.Fatalf("allowlist does not ship: %+v", shipped)
	}
	if diff := cmp.Diff(shipped, e.Custom["allowlist"], sameExperiment); diff != "" {
		t.Error(diff)
	}
	if !slices.Equal(ShippedDUTs(), []string{"allowlist"}) {
		t.Errorf("ShippedDUTs = %v", ShippedDUTs())
	}
}

// TestExamples keeps the files in examples/ loadable, and their device tables
// short enough to be examples.
func TestExamples(t *testing.T) {
	paths, err := filepath.Glob("../../examples/*.toml")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no examples: %v", err)
	}
	for _, path := range paths {
		e, err := known.Load(path)
		if err != nil {
			t.Errorf("%v", err)
			continue
		}
		if len(e.Custom) == 0 && !e.Backend.Remote() {
			t.Errorf("%s describes neither devices nor machines", path)
		}
		again, err := known.Parse(path, e.Encode())
		if err != nil {
			t.Errorf("own output refused: %v", err)
		} else if diff := cmp.Diff(e, again, sameExperiment); diff != "" {
			t.Errorf("%s, written and read again:\n%s", path, diff)
		}
	}
}

func TestLoadMissingFile(t *testing.T) {
	_, err := known.Load(filepath.Join(t.TempDir(), "none.toml"))
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("err = %v", err)
	}
}

func TestLoadRefusesHugeFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "huge.toml")
	if err := os.WriteFile(path, []byte(minimal+strings.Repeat("#\n", MaxFileBytes)), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := known.Load(path); err == nil || !strings.Contains(err.Error(), "larger than") {
		t.Errorf("err = %v", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(minimal))
	f.Add([]byte(full))
	for _, name := range BuiltinNames() {
		data, err := BuiltinFiles.ReadFile("builtin/" + name + ".toml")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		e, err := known.Parse("fuzz.toml", data)
		if err != nil {
			return
		}
		again, err := known.Parse("fuzz.toml", e.Encode())
		if err != nil {
			t.Fatalf("own output refused: %v\n%s", err, e.Encode())
		}
		if diff := cmp.Diff(e, again, sameExperiment); diff != "" {
			t.Fatalf("(-first +second):\n%s", diff)
		}
		if len(e.Plan()) > MaxPlanBlocks {
			t.Fatalf("plan of %d blocks", len(e.Plan()))
		}
	})
}
