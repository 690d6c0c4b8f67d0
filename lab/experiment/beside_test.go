package experiment_test

import (
	"strings"
	"testing"

	. "github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/result"
)

// pair is two kinds of client, of which the clean router's have a table of their own.
const pair = `duts = ["opennds"]
clients = [1, 100]
offered_mbps = [100]
[client]
kind = "persona"
`

func TestSides(t *testing.T) {
	for _, tt := range []struct {
		beside, device, clean string
		has                   Side // the clean router's, of a block with 100 clients
	}{
		{"", "", "", Side{Client: "persona", Clients: 100, Traffic: Traffic{Kind: "streams"}}},
		{"client = \"persona\"\n", "", "", Side{Client: "persona", Clients: 100, Traffic: Traffic{Kind: "streams"}}},
		{"client = \"macvlan\"\n", "clients of kind persona", "clients of kind macvlan",
			Side{Client: "macvlan", Clients: 100, Traffic: Traffic{Kind: "streams"}}},
		{"client = \"macvlan\"\ntraffic = \"iperf3\"\n", "clients of kind persona, traffic of kind streams",
			"clients of kind macvlan, traffic of kind iperf3",
			Side{Client: "macvlan", Clients: 100, Traffic: Traffic{Kind: "iperf3"}}},
		{"clients = 10\n", "the cell's number of clients", "10 clients",
			Side{Client: "persona", Clients: 10, Traffic: Traffic{Kind: "streams"}}},
	} {
		e, err := known.Parse("x.toml", []byte(pair+"[beside]\n"+tt.beside))
		if err != nil {
			t.Fatal(err)
		}
		if device, clean := e.SidesText(); device != tt.device || clean != tt.clean {
			t.Errorf("%q: %q and %q, want %q and %q", tt.beside, device, clean, tt.device, tt.clean)
		}
		device, clean := e.Sides(100)
		if clean.Client != tt.has.Client || clean.Clients != tt.has.Clients || clean.Traffic.Kind != tt.has.Traffic.Kind {
			t.Errorf("%q: the clean router has %+v", tt.beside, clean)
		}
		if device.Client != "persona" || device.Clients != 100 || device.Traffic.Kind != "streams" {
			t.Errorf("%q: the device has %+v", tt.beside, device)
		}
		if labs := e.Labs(Block{Cell: result.NewCell(result.Clients, 100), AA: true}); labs[0] != device ||
			labs[1] != device {
			t.Errorf("%q: in an A/A block %+v and %+v, want both as at the device: %+v", tt.beside, labs[0], labs[1], device)
		}
	}
}

// TestSidesOfLines: beside PPPoE clients the clean router has clients without sessions, and A/A pairs are of clean
// routers.
func TestSidesOfLines(t *testing.T) {
	e, err := known.Parse("x.toml", []byte(strings.Replace(pair, "persona", "pppoe", 1)))
	if err != nil {
		t.Fatal(err)
	}
	device, clean := e.Sides(100)
	if device.Client != "pppoe" || clean.Client != "persona" {
		t.Errorf("clients of kind %s and %s", device.Client, clean.Client)
	}
	if labs := e.Labs(Block{Cell: result.NewCell(result.Clients, 100), AA: true}); labs[0] != clean || labs[1] != clean {
		t.Errorf("an A/A block has %+v", labs)
	}
	if of, beside := e.SidesText(); of != "clients of kind pppoe" || beside != "clients of kind persona" {
		t.Errorf("%q beside %q", of, beside)
	}
}

func TestImpossibleSidesNameFileLineAndKey(t *testing.T) {
	const apart = `"iperf3" needs clients with a namespace each: not those of kind "persona"`
	for name, tt := range map[string]struct {
		text string
		want string // the only line of the error, empty for none
	}{
		"iperf3 for personas": {
			pair + "[beside]\ntraffic = \"iperf3\"\n", "x.toml:7: beside.traffic: " + apart},
		"personas for iperf3": {
			minimal + "traffic.kind = \"iperf3\"\nbeside.client = \"persona\"\n", "x.toml:5: beside.client: " + apart},
		"iperf3 for the device's personas": {
			pair + "[traffic]\nkind = \"iperf3\"\n[beside]\nclient = \"macvlan\"\n", "x.toml:7: traffic.kind: " + apart},
		"its own macvlan clients": {"warmup = \"30s\"\n" + strings.Replace(pair, "100", "5000", 1) +
			"[beside]\nclient = \"macvlan\"\nclients = 100\n", ""},
		"more than macvlan takes": {pair + "[beside]\nclient = \"macvlan\"\nclients = 251\n",
			`x.toml:8: beside.clients: 251: clients of kind "macvlan" go up to 250; those of kind "persona" to 65000`},
		"as many macvlan as personas": {strings.Replace(pair, "100", "5000", 1) + "[beside]\nclient = \"macvlan\"\n",
			`x.toml:2: clients: 5000: clients of kind "macvlan" go up to 250; those of kind "persona" to 65000`},
		"more than there can be": {
			pair + "[beside]\nclients = 65001\n", `x.toml:7: beside.clients: must be a whole number from 1 to 65000, not 65001`},
		"no clients": {
			pair + "[beside]\nclients = 0\n", `x.toml:7: beside.clients: must be a whole number from 1 to 65000, not 0`},
		"guests": {pair + "churn = 5\n[beside]\nclients = 10\n",
			"x.toml:8: beside.clients: does not go with client.churn: what guests cost is compared between labs that are alike"},
		"one side at a time": {"mode = \"solo\"\n" + pair + "[beside]\nclients = 10\n",
			`x.toml:8: beside.clients: does not go with mode = "solo": labs of two sizes are compared under load at the same time`},
		"beside nothing": {strings.Replace(pair, "opennds", "clean", 1) + "[beside]\nclients = 10\n",
			"x.toml:7: beside.clients: stands beside nothing: list a device in duts"},
		"both ways": {minimal + "directions = [\"both\"]\n[beside]\ntraffic = \"iperf3\"\n",
			`x.toml:6: beside.traffic: "both" needs kind = "streams" or "frames"`},
		"iperf3's pacing at the other side": {minimal + "traffic.pacing = \"burst\"\n[beside]\ntraffic = \"iperf3\"\n", ""},
		"a pacing that neither side has": {minimal + "traffic.pacing = \"burst\"\n[beside]\nclients = 3\n",
			`x.toml:4: traffic.pacing: "burst" needs kind = "iperf3": streams are always paced`},
		"the key of old": {pair + "beside = \"macvlan\"\n",
			"x.toml:6: client.beside: unknown key: docs/reference/experiment-keys.md lists all"},
		"an unknown kind": {pair + "[beside]\ntraffic = \"iperf\"\n",
			`x.toml:7: beside.traffic: must be "streams" or "iperf3" or "frames", not "iperf"; did you mean "iperf3"?`},
		"an unknown key": {pair + "[beside]\nclient_kind = \"iperf\"\n",
			`x.toml:7: beside.client_kind: unknown key; did you mean "beside.client"?`},
	} {
		_, err := known.Parse("x.toml", []byte(tt.text))
		if got := errorText(err); got != tt.want {
			t.Errorf("%s: %s\nwant %s", name, got, tt.want)
		}
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
