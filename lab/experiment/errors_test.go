package experiment_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	. "github.com/gateweigh/gateweigh/lab/experiment"
)

// TestProblemsNameFileLineAndKey: each problem of an experiment file is an error with the file, the line, the key and
// what to do. minimal is a file of three lines without a problem, and known has the devices and measures that the test
// knows.
func TestProblemsNameFileLineAndKey(t *testing.T) {
	names := slices.Compact(slices.Sorted(slices.Values(append(ShippedDUTs(), known.DUTs...))))
	tests := []struct {
		name, text string
		want       []string // every line of the error, in order
	}{
		{"unknown key", minimal + "\nwindws = 3\n",
			[]string{`x.toml:5: windws: unknown key; did you mean "windows"?`}},
		{"unknown key without neighbour", minimal + "colour = 3\n",
			[]string{`x.toml:4: colour: unknown key: docs/reference/experiment-keys.md lists all`}},
		{"a campaign's file", minimal + "experiments = [\"a.toml\"]\n",
			[]string{`x.toml:4: experiments: unknown key: a file with it is a campaign's: gateweigh campaign start FILE`}},
		{"keys are case sensitive", minimal + "Blocks = 3\n",
			[]string{`x.toml:4: Blocks: unknown key; did you mean "blocks"?`}},
		{"unknown table once", minimal + "[trafic]\nkind = \"streams\"\nx = 1\n",
			[]string{`x.toml:4: trafic: unknown key; did you mean "traffic"?`}},
		{"unknown key in a table", minimal + "[traffic]\n\nburst_segment = 1\n",
			[]string{`x.toml:6: traffic.burst_segment: unknown key; did you mean "traffic.burst_segments"?`}},
		{"speeds that are none", minimal + "[router]\nspeed = 0.05\n[client]\nspeed = 1\n",
			[]string{`x.toml:5: router.speed: must be the share of its CPU that the router has, from 0.1 to 1, not 0.05`,
				`x.toml:7: client.speed: unknown key: docs/reference/experiment-keys.md lists all`}},
		{"load by the client", "duts = [\"opennds\"]\nclients = [1, 100]\nmbps_per_client = [0.01]\n",
			[]string{`x.toml:3: mbps_per_client: 0.01 with 1 client makes 0.01 Mbit/s together: want 0.1 to 100000`}},
		{"dotted key", minimal + "# note\ntraffic.kind = \"stream\"\n",
			[]string{`x.toml:5: traffic.kind: must be "streams" or "iperf3" or "frames", not "stream"; did you mean "streams"?`}},
		{"list over several lines", "duts = [\n \"opennds\",\n]\noffered_mbps = [1]\nclients = [\n  1, # one\n  0,\n]\n",
			[]string{`x.toml:5: clients: each value must be a whole number from 1 to 65000, not 0`}},
		{"after a text over several lines",
			minimal + "[dut.a]\nstart = '''\nclients = [0]\n'''\nstp = '''\n1\n2\n'''\nblocks = 1\n",
			[]string{`x.toml:8: dut.a.stp: unknown key of a device; did you mean "stop"?`,
				`x.toml:12: dut.a.blocks: unknown key of a device`}},
		{"parameters of gatewayd", minimal + "[dut.a]\nlike = \"gateway\"\npath = \"tunn\"\nlimited = \"fast\"\n",
			[]string{`x.toml:6: dut.a.path: must be "ebpf" or "nfqueue" or "nfqueue-fast" or "tun" or "tun-fast" or "kernel", ` +
				`not "tunn"; did you mean "tun"?`,
				`x.toml:7: dut.a.limited: must be a rate such as "10G" or "50M", bit/s, not "fast"`}},
		{"parameters that exclude each other",
			minimal + "[dut.a]\nlike = \"gateway\"\npath = \"kernel\"\nident = \"masquerade\"\n",
			[]string{`x.toml:6: dut.a.path: "kernel" carries PPPoE clients alone: set pppoe = true`,
				`x.toml:7: dut.a.ident: "masquerade" needs nat = true`}},
		{"parameters of another device",
			minimal + "[dut.a]\nlike = \"opennds\"\nnat = true\n[dut.b]\nstart = \"true\"\npppoe = true\n",
			[]string{`x.toml:6: dut.a.nat: needs like = "gateway", whose parameter it is: "opennds" has its own`,
				`x.toml:9: dut.b.pppoe: needs like = "gateway", whose parameter it is`}},
		{"a gateway without parameters", minimal + "[dut.a]\nlike = \"gateway\"\n",
			[]string{`x.toml:5: dut.a.like: needs a parameter, sessions or start: without them the device is "gateway-ebpf"`}},
		{"inline table", minimal + "client = { knd = \"veth\" }\n",
			[]string{`x.toml:4: client.knd: unknown key; did you mean "client.kind"?`}},
		{"quoted name", minimal + "[dut.\"a b\"]\nstart = \"x\"\n",
			[]string{`x.toml:4: dut."a b": a device must be a name of letters, digits, '-', '_' and '.', not "a b"`}},
		{"negative rate", "duts = [\"clean\"]\nclients = [1]\noffered_mbps = [-1, 0, nan, 1e6]\n",
			[]string{`x.toml:3: offered_mbps: each value must be a number of Mbit/s from 0.1 to 100000, not -1; ` +
				`each value must be a number of Mbit/s from 0.1 to 100000, not 0; ` +
				`each value must be a number of Mbit/s from 0.1 to 100000, not NaN; ` +
				`each value must be a number of Mbit/s from 0.1 to 100000, not 1e+06`}},
		{"empty list", "duts = []\nclients = [1]\noffered_mbps = [1]\n",
			[]string{`x.toml:1: duts: must list 1 to 100 values, not 0`}},
		{"no list", "duts = [\"clean\"]\nclients = 20\noffered_mbps = [1]\n",
			[]string{`x.toml:2: clients: must be a list: [20]`}},
		{"listed twice", "duts = [\"clean\"]\nclients = [5, 1, 5]\noffered_mbps = [1]\n",
			[]string{`x.toml:2: clients: 5 is listed twice`}},
		{"several problems at once, by line",
			"mode = \"duett\"\nduts = [\"opennds\"]\nclients = [1]\noffered_mbps = [1]\nwindow = \"100ms\"\nblocks = " +
				"1001\nclient = 3\n",
			[]string{
				`x.toml:1: mode: must be "duet" or "solo" or "interleaved", not "duett"; did you mean "duet"?`,
				`x.toml:5: window: must be a duration such as "1s", from 200ms to 10m, not "100ms"`,
				`x.toml:6: blocks: must be a whole number from 1 to 1000, not 1001`,
				`x.toml:7: client: must be a table: [client]; did you mean "clients"?`}},
		{"nothing set", "",
			[]string{`x.toml:1: duts: missing: an experiment needs it`, `x.toml:1: clients: missing: an experiment needs it`,
				`x.toml:1: offered_mbps: missing: an experiment needs it`}},
		{"unknown device", "clients = [1]\nduts = [\"clean\", \"openDNS\"]\noffered_mbps = [1]\n",
			[]string{`x.toml:2: duts: unknown device "openDNS"; did you mean "opennds"?; describe it in [dut.openDNS], ` +
				"or name one of " + strings.Join(names, ", ")}},
		{"nothing to measure", "duts = [\"clean\"]\nclients = [1]\noffered_mbps = [1]\naa_blocks = 0\n",
			[]string{`x.toml:1: duts: nothing to measure: "clean" alone means A/A blocks, and aa_blocks is 0`}},
		{"more macvlan clients than a /24 has", "duts = [\"opennds\"]\noffered_mbps = [1]\nclients = [1, 251]\n",
			[]string{`x.toml:3: clients: 251: clients of kind "macvlan" go up to 250; those of kind "persona" to 65000`}},
		{"udp streams", minimal + "[traffic]\nprotocol = \"udp\"\npacing = \"burst\"\nshort_per_second = 5\n",
			[]string{`x.toml:6: traffic.pacing: "burst" needs kind = "iperf3": streams are always paced`,
				`x.toml:7: traffic.short_per_second: needs protocol = "tcp": such connections are TCP's`}},
		{"sizes of no frames", minimal + "frame_sizes = [64]\noffered_kpps = [1]\n",
			[]string{`x.toml:4: frame_sizes: needs traffic.kind = "frames"`,
				`x.toml:5: offered_kpps: needs traffic.kind = "frames"`}},
		{"frames over tcp", minimal + "traffic = { kind = \"frames\", protocol = \"tcp\" }\n",
			[]string{`x.toml:4: traffic.protocol: "tcp" does not go with kind = "frames": such frames carry UDP`}},
		{"a size that no frame has", minimal + "frame_sizes = [59, \"imax\"]\ntraffic = { kind = \"frames\" }\n",
			[]string{`x.toml:4: frame_sizes: each value must be bytes from 60 to 1514, without FCS, one of imix, imix6, study5, caida, or a file of sizes (.csv, .pcap, .pcapng), not 59; each value must be bytes from 60 to 1514, without FCS, one of imix, imix6, study5, caida, or a file of sizes (.csv, .pcap, .pcapng), not "imax"`}},
		{"frames beyond any link",
			minimal + "frame_sizes = [1514]\noffered_kpps = [100000]\ntraffic = { kind = \"frames\" }\n",
			[]string{`x.toml:5: offered_kpps: 100000 with frames of 1514 makes 1.2112e+06 Mbit/s: want 0.1 to 100000`}},
		{"datagrams gathered", minimal + "profiles = [\"bulk\"]\ntraffic = { protocol = \"udp\" }\n",
			[]string{
				`x.toml:4: profiles: "bulk" needs traffic.protocol = "tcp": GRO does not merge datagrams that are forwarded`}},
		{"short connections beyond any link", minimal + "[traffic]\nshort_per_second = 50000\nshort_bytes = 16777216\n",
			[]string{`x.toml:6: traffic.short_bytes: 16777216: 50000 such connections a second are 6710886 Mbit/s: want at most 100000`}},
		{"short connections that do not come", minimal + "[traffic]\nshort_bytes = 5\n",
			[]string{`x.toml:5: traffic.short_bytes: needs traffic.short_per_second: without it there are no such connections`}},
		{"iperf3 and short connections", minimal + "[traffic]\nkind = \"iperf3\"\nshort_per_second = 5\n",
			[]string{`x.toml:6: traffic.short_per_second: needs kind = "streams" or "frames": what iperf3 delivers is counted at the router's link, with all else`}},
		{"plan too large",
			"duts = [\"opennds\"]\nclients = [1,2,3,4,5,6,7,8,9,10,11,12]\noffered_mbps = [1]\nprofiles = [\"bulk\", " +
				"\"per-packet\"]\nblocks = 1000\n",
			[]string{`x.toml:5: blocks: the plan would have 24048 blocks, more than 20000`}},
		{"syntax", minimal + "blocks = \n",
			[]string{`x.toml:4: blocks: expected value but found '\n' instead: values other than numbers, true and ` +
				`false stand in quotes: blocks = "…"`}},
		{"an array that is not closed", "duts = [\"opennds\"\nclients = [1]\noffered_mbps = [1]\n",
			[]string{`x.toml:1: duts: the array that begins here is not closed, or lacks a comma, before line 2: expected a comma (',') or array terminator (']'), but got 'c'`}},
		{"key set twice", minimal + "clients = [2]\n",
			[]string{`x.toml:4: clients: is on line 2 already: delete one of the two`}},
		{"built-in device described", minimal + "[dut.opennds]\nstart = \"x\"\n[dut.clean]\nstart = \"x\"\n",
			[]string{`x.toml:4: dut.opennds: is built in: choose another name`,
				`x.toml:6: dut.clean: is built in: choose another name`}},
		{"device without commands", minimal + "[dut.a]\ndhcp = true\n",
			[]string{`x.toml:4: dut.a: needs start or daemon: a command that installs it on the router`}},
		{"device keys that contradict", minimal +
			"[dut.a]\ndaemon = \"d\"\nlogin = \"l\"\nadmit = \"a\"\n[dut.b]\nstart = \"s\"\nrevoke = \"r\"\nlogout = \"l\"\n",
			[]string{
				`x.toml:5: dut.a.daemon: needs ready: a command that exits 0 once the daemon serves clients`,
				`x.toml:7: dut.a.admit: clients are admitted either on the router (admit) or from the client (login), not both`,
				`x.toml:10: dut.b.revoke: needs admit`, `x.toml:11: dut.b.logout: needs login`}},
		{"device like another", minimal +
			"[dut.a]\nlike = \"opennds\"\n[dut.b]\nlike = \"opennds\"\nsessions = 5\nstop = \"s\"\n[dut.c]\nstart = " +
			"\"s\"\nsessions = 5\n[dut.d]\nlike = \"opennds\"\nsessions = 200001\n[dut.e]\nlike = \"ipip\"\nmtu = 1400\nstart " +
			"= \"s\"\n[dut.f]\nmtu = 575\n",
			[]string{
				`x.toml:5: dut.a.like: needs sessions, start or mtu: without them the device is "opennds" itself`,
				`x.toml:7: dut.b.like: stop, files, requires and kernel go with start: what the router has beside the device`,
				`x.toml:12: dut.c.sessions: needs like: the device that is to have them`,
				`x.toml:15: dut.d.sessions: must be a whole number from 1 to 200000, not 200001`,
				`x.toml:18: dut.e.mtu: goes neither with sessions nor with start: a tunnel has no clients, and two gateways`,
				`x.toml:21: dut.f.mtu: must be a whole number from 576 to 1500, not 575`}},
		{"device like a tunnel with a bad key",
			minimal + "[dut.a]\nlike = \"vxlan\"\nmtu = 90000\n[dut.b]\nlike = \"vxlan\"\nmtuu = 1400\n",
			[]string{
				`x.toml:6: dut.a.mtu: must be a whole number from 576 to 1500, not 90000`,
				`x.toml:9: dut.b.mtuu: unknown key of a device; did you mean "mtu"?`}},
		{"device values", minimal +
			"[dut.a]\nstart = []\nstop = \" \"\nlan = \"10.1.0.1/16\"\nprocesses = [\"/bin/gw\"]\ndhcp = \"yes\"\nrequires = " +
			"[\"nft\"]\nready = [1]\nkernel = [\"nft_queue\"]\n",
			[]string{
				`x.toml:5: dut.a.start: must be a shell command or a list ["program", "argument"], not a list`,
				`x.toml:6: dut.a.stop: must not be empty: leave the key out`,
				`x.toml:7: dut.a.lan: must be an IPv4 network such as "10.1.0.0/16", /8 to /29, not "10.1.0.1/16"`,
				`x.toml:8: dut.a.processes: each value must be a command name as ps -o comm shows it, at most 15 bytes, not "/bin/gw"`,
				`x.toml:9: dut.a.dhcp: must be true or false, not "yes"`,
				`x.toml:10: dut.a.requires: must be a table of strings, not a list`,
				`x.toml:11: dut.a.ready: each argument must be a string, not 1`,
				`x.toml:12: dut.a.kernel: each value must be an option of the kernel's configuration, such as CONFIG_NFT_QUEUE, not "nft_queue"`}},
		{"files", minimal +
			"[dut.a]\nstart = \"x\"\n[dut.a.files]\n\"/usr/bin/ls\" = \"\"\n\"../x\" = \"\"\n\"y\" = \"${GATEWEIGH_LAN_IFF} " +
			"$HOME ${OTHER}\"\n",
			[]string{
				`x.toml:6: dut.a.files: "../x" is no plain file path`,
				`x.toml:6: dut.a.files: "/usr/bin/ls" would change the machine: use a relative path (in $GATEWEIGH_SCRATCH) or one below /etc, /run, /tmp, /var/lib`,
				`x.toml:6: dut.a.files: "y": unknown variable "GATEWEIGH_LAN_IFF"; did you mean "GATEWEIGH_LAN_IF"?`}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := known.Parse("x.toml", []byte(tt.text))
			if err == nil {
				t.Fatal("accepted")
			}
			if got, want := err.Error(), strings.Join(tt.want, "\n"); got != want {
				t.Errorf("got:\n%s\nwant:\n%s", got, want)
			}
		})
	}
}

// TestSet: --set changes a key of an experiment, and the experiment is then encoded with it.
func TestSet(t *testing.T) {
	e, err := known.Builtin("quick")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range [][2]string{
		{"clients", "1, 10"}, {"offered_mbps", "0.5,200"}, {"blocks", "6"}, {"window", "250ms"}, {"traffic.kind", "iperf3"},
		{"traffic.protocol", "udp"}, {"name", "123"}, {"duts", "allowlist"}, {"dut.allowlist.dhcp", "true"},
		{"dut.allowlist.stop", "nft flush ruleset"},
	} {
		if err := e.Set(s[0], s[1]); err != nil {
			t.Fatal(err)
		}
	}
	if err := e.Check(); err != nil {
		t.Fatal(err)
	}
	got := string(e.Encode())
	for _, want := range []string{
		"clients = [1, 10]\n", "offered_mbps = [0.5, 200.0]\n", "blocks = 6\n", "window = \"250ms\"\n", "kind = \"iperf3\"\n",
		"protocol = \"udp\"\n", "name = \"123\"\n", "duts = [\"allowlist\"]\n", "dhcp = true\n",
		"stop = \"nft flush ruleset\"\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in:\n%s", want, got)
		}
	}
}

// TestSetProblems: a wrong key or value of --set is an error that names it, and changes nothing.
func TestSetProblems(t *testing.T) {
	for _, tt := range []struct{ key, value, want string }{
		{"client", "1", `--set: client: must be a table: [client]; did you mean "clients"?`},
		{"clents", "1", `--set: clents: unknown key; did you mean "clients"?`},
		{"clients", "1,x", `--set: clients: each value must be a whole number from 1 to 65000, not "x"`},
		{"clients", "", `--set: clients: each value must be a whole number from 1 to 65000, not ""`},
		{"blocks", "1.5", `--set: blocks: must be a whole number from 1 to 1000, not "1.5"`},
		{"dut.none.stop", "x", `--set: dut.none.stop: no device "none" is described in [dut.none]`},
		{"dut.allowlist.files", "x", `--set: dut.allowlist.files: must be a table of strings, not "x"`},
		{"", "x", `--set: unknown key: docs/reference/experiment-keys.md lists all`},
	} {
		e, err := known.Builtin("quick")
		if err != nil {
			t.Fatal(err)
		}
		before := string(e.Encode())
		err = e.Set(tt.key, tt.value)
		if err == nil || err.Error() != tt.want {
			t.Errorf("Set(%q, %q) = %v, want %s", tt.key, tt.value, err, tt.want)
		}
		if string(e.Encode()) != before {
			t.Errorf("Set(%q, %q) changed the experiment although it failed", tt.key, tt.value)
		}
	}
}

// TestSetTogether: Check refuses two keys that contradict each other, so that the order of overrides does not matter.
// The error names the override.
func TestSetTogether(t *testing.T) {
	e, err := known.Builtin("quick")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(e.Set("traffic.short_per_second", "5"), e.Set("traffic.protocol", "udp")); err != nil {
		t.Fatal(err)
	}
	if err := e.Set("duts", "quick"); err != nil {
		t.Fatal(err)
	}
	err = e.Check()
	if err == nil || !strings.HasPrefix(err.Error(), `--set: traffic.short_per_second: needs`) ||
		!strings.Contains(err.Error(), `--set: duts: unknown device "quick"`) {
		t.Errorf("Check = %v", err)
	}
}
