// Tests of the DHCP requests that the programs hand to the daemon (requests.go). newNetwork makes a LAN with alice and
// bob and a WAN with a server, and open starts a data path between them (main_test.go). tcp and udp make a frame from
// alice to the server, changed by edits; try runs one program over a frame, and packets and change tell which counts
// grew (programs_test.go).

package ebpf

import (
	"bytes"
	"errors"
	"io"
	"net/netip"
	"os"
	"testing"

	"github.com/gopacket/gopacket/layers"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/datapath/datapathtest"
)

// TestRequests: the data path hands over each complete DHCP request to this machine or to all once and unchanged, and
// no other packet. Long: most lines are the table of cases.
func TestRequests(t *testing.T) {
	n := newNetwork(t)
	d := n.open(t, func(c *Config) { c.DHCP = true })
	must(t, d.Set(datapath.Client{Addrs: []netip.Addr{alice}, MAC: aliceMAC, Admitted: true}))
	must(t, d.Set(datapath.Client{Addrs: []netip.Addr{bob}, MAC: bobMAC}))
	heard := hear(t, d)
	all, broadcast := netip.MustParseAddr("255.255.255.255"), netip.MustParseAddr("10.1.0.255")
	toAll := datapathtest.Via(datapath.MAC{255, 255, 255, 255, 255, 255})
	ask := func(edits ...func(*datapathtest.Frame)) []byte {
		return udp(67, append([]func(*datapathtest.Frame){source(68), payload(300)}, edits...)...)
	}
	blank, isBob := from(netip.IPv4Unspecified(), bobMAC), from(bob, bobMAC)
	for name, c := range map[string]struct {
		frame  []byte
		handed bool
		counts string
	}{
		"no address yet":          {ask(blank, to(all), toAll), true, "local"},
		"no address yet, unicast": {ask(blank, to(gateway)), true, "local"},
		"wants its lease back":    {ask(from(nobody, bobMAC), to(gateway)), true, "local"},
		"renews before login":     {ask(isBob, to(gateway)), true, "local"},
		"rebinds before login":    {ask(isBob, to(all), toAll), true, "local"},
		"renews, admitted":        {ask(to(gateway)), true, "local"},
		"rebinds, admitted":       {ask(to(all), toAll), true, "local"},
		"to the LAN's broadcast":  {ask(to(broadcast), toAll), true, "local"},
		"from another port":       {ask(to(gateway), source(1067)), true, "local"},
		"the shortest":            {ask(to(gateway), payload(0)), true, "local"},
		"the longest of most":     {ask(to(gateway), payload(640-42)), true, "local"},
		"longer than most":        {ask(to(gateway), payload(640-41)), true, "local"},
		"the longest":             {ask(to(gateway), payload(1472)), true, "local"},
		"longer than a frame":     {ask(to(gateway), payload(1473)), false, "malformed"},
		"IP options":              {ask(to(gateway), options), true, "local"},
		"the first part": {
			ask(to(gateway), func(f *datapathtest.Frame) { f.IP.Flags = layers.IPv4MoreFragments }), false, "local"},
		"a later part": {ask(to(gateway), func(f *datapathtest.Frame) { f.IP.FragOffset = 9 }), false, "local"},
		"to a group": {
			ask(to(netip.MustParseAddr("224.0.0.1")), datapathtest.Via(datapath.MAC{1, 0, 0x5e, 0, 0, 1})), false, "local"},
		"to another host":       {ask(to(gateway), datapathtest.Via(serverMAC)), false, ""},
		"to a server elsewhere": {ask(isBob), false, "blocked"},
		"another's address":     {ask(from(alice, bobMAC), to(gateway)), true, "local"},
		"another's, to all":     {ask(from(alice, bobMAC), to(all), toAll), true, "local"},
		"another network's":     {ask(from(server, bobMAC), to(all), toAll), true, "local"},
		"the gateway's address": {ask(from(gateway, bobMAC), to(all), toAll), true, "local"},
		"a part from elsewhere": {ask(from(server, bobMAC), to(gateway), func(f *datapathtest.Frame) {
			f.IP.Flags = layers.IPv4MoreFragments
		}), false, "foreign-source"},
		"DNS from elsewhere": {udp(53, from(server, bobMAC), to(gateway)), false, "foreign-source"},
		"TCP":                {tcp(67, to(gateway)), false, "local"},
		"DNS":                {udp(53, to(gateway)), false, "local"},
		"a server's answer":  {udp(68, source(67), to(gateway)), false, "rogue-dhcp"},
	} {
		t.Run(name, func(t *testing.T) {
			before := d.packets(t)
			verdict, _, _ := d.try(t, d.objs.LanIn, index(t, n.lan), c.frame)
			if got := change(before, d.packets(t)); c.counts != "" && got[c.counts] != 1 || len(got) > 1 {
				t.Errorf("counted as %v", got)
			}
			if c.handed && verdict != shot {
				t.Errorf("handed over, and verdict %d", verdict)
			}
			// The next frame that is handed over is this one, or the one that is sent after it.
			next := ask(from(netip.IPv4Unspecified(), device()), to(all), toAll, payload(40))
			d.try(t, d.objs.LanIn, index(t, n.lan), next)
			for _, want := range [][]byte{c.frame, next} {
				if !c.handed && !bytes.Equal(want, next) {
					continue
				}
				if got := heard(); !bytes.Equal(got, want) {
					t.Errorf("handed over were % x, want % x", got, want)
				}
			}
		})
	}
}

// device returns another MAC address each time, because one may send only a few requests.
func device() datapath.MAC {
	devices++
	return datapath.MAC{2, 0, 1, 0, byte(devices >> 8), byte(devices)}
}

var devices int

func options(f *datapathtest.Frame) {
	f.IP.Options = []layers.IPv4Option{
		{OptionType: 7, OptionLength: 7, OptionData: []byte{4, 0, 0, 0, 0}}, {OptionType: 1}}
}

// hear opens Requests until the test ends, and returns a function for the next frame.
func hear(t *testing.T, d *Datapath) func() []byte {
	t.Helper()
	requests, err := d.Requests()
	must(t, err)
	t.Cleanup(func() { requests.Close() })
	b := make([]byte, 4096)
	return func() []byte {
		n, err := requests.Read(b)
		must(t, err)
		return b[:n]
	}
}

// TestRequestsOverflow: requests that do not fit into the buffer are counted. Those in the buffer can be read later,
// but not by the next daemon. Half of the buffer is kept for clients with a lease. Long: the steps of one run, each of
// which needs the state that the one before left.
func TestRequestsOverflow(t *testing.T) {
	n := newNetwork(t)
	cfg := n.config(t)
	cfg.DHCP = true
	d, err := Open(cfg)
	must(t, err)
	t.Cleanup(func() { must(t, detach(cfg)) })
	lan := index(t, n.lan)
	send := func(d *Datapath, id byte, a netip.Addr, m datapath.MAC) {
		t.Helper()
		d.try(t, d.objs.LanIn, lan,
			udp(67, source(68), from(a, m), to(gateway), datapathtest.Carrying(bytes.Repeat([]byte{id}, 300))))
	}
	ask := func(d *Datapath, id byte) { t.Helper(); send(d, id, nobody, device()) }
	fill := func(ask func()) (kept int) {
		t.Helper()
		before := d.packets(t)
		for ; d.packets(t)["overflow"] == before["overflow"]; kept++ {
			ask()
		}
		kept-- // the last request did not fit
		if got := change(before, d.packets(t)); got["local"] != uint64(kept) {
			t.Errorf("%d requests kept, counted as %v", kept, got)
		}
		return kept
	}
	kept := fill(func() { ask(d, 1) })
	renewed := fill(func() {
		m := device()
		must(t, d.Set(datapath.Client{Addrs: []netip.Addr{bob}, MAC: m}))
		send(d, 1, bob, m)
	})
	if kept < 2500 || renewed < 2500 {
		t.Errorf("%d requests kept, and %d of clients with a lease", kept, renewed)
	}
	kept += renewed
	requests, err := d.Requests()
	must(t, err)
	b := make([]byte, 2000)
	for range 2 * kept / 3 {
		if _, err := requests.Read(b); err != nil {
			t.Fatal(err)
		}
	}
	must(t, requests.Close())
	must(t, requests.Close())
	if _, err := requests.Read(b); !errors.Is(err, os.ErrClosed) {
		t.Errorf("reading what is closed: %v", err)
	}
	before := d.packets(t)
	ask(d, 2) // there is space again
	if got := change(before, d.packets(t)); got["local"] != 1 {
		t.Errorf("with room, counted as %v", got)
	}
	must(t, d.Close())

	successor, err := Open(cfg)
	must(t, err)
	defer successor.Close()
	ask(successor, 3)
	if got := hear(t, successor)(); got[len(got)-1] != 3 {
		t.Errorf("a successor reads a predecessor's requests: % x", got)
	}
}

func TestRequested(t *testing.T) {
	for in, want := range map[string]string{"": "", "\x01\x00": "", "\x02\x00\x00\x00abc": "ab", "\x04\x00\x00\x00abc": "",
		"\x00\x00\x00\x00abc": "", "\xff\xff\xff\xffabc": ""} {
		got, err := requested([]byte(in))
		if string(got) != want || (err == nil) != (len(in) >= 4 && in[0] < 4) {
			t.Errorf("% x: %q, %v", in, got, err)
		}
	}
}

var _ io.ReadCloser = (*requests)(nil)
