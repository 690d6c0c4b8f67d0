package flowlog

import (
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/gateway/netnstest"
)

// exported are flows of each kind.
func exported() []Flow {
	at := netip.MustParseAddrPort
	start := time.Date(2026, 3, 1, 12, 0, 0, 250e6, time.UTC)
	return []Flow{
		{Event: Ends, Start: start, End: start.Add(1500 * time.Millisecond), Protocol: 17, Client: at("10.1.0.9:1000"), Peer: at("203.0.113.9:53"), MAC: "02:00:00:00:00:09", User: "ann", UpBytes: 100, UpPkts: 1, DownBytes: 300, DownPkts: 2},
		{Event: Ends, Start: start, End: start.Add(time.Second), Protocol: 6, Client: at("10.1.0.9:1001"), Peer: at("203.0.113.9:443"), Outside: at("203.0.113.5:40321"), UpBytes: 5 << 32, UpPkts: 7, DownBytes: 11, DownPkts: 13},
		{Event: Ends, Start: start, End: start.Add(time.Second), Protocol: 6, Client: at("10.1.0.9:22"), Peer: at("203.0.113.9:4444"), Outside: at("203.0.113.5:2222"), Inbound: true, UpBytes: 400, UpPkts: 4, DownBytes: 200, DownPkts: 3},
	}
}

// TestCollector: Debian's nfcapd takes what is sent, and nfdump shows the same.
func TestCollector(t *testing.T) {
	folder := t.TempDir()
	free, err := net.ListenPacket("udp4", "127.0.0.1:0")
	must(t, err)
	to := free.LocalAddr().(*net.UDPAddr).AddrPort()
	free.Close()
	cmd := exec.Command("nfcapd", "-b", "127.0.0.1", "-p", fmt.Sprint(to.Port()), "-w", folder)
	must(t, netnstest.Start(cmd))
	netnstest.Await(t, "nfcapd", func() error {
		_, err := exec.Command("sh", "-c", fmt.Sprintf("ss -lun | grep -q :%d", to.Port())).CombinedOutput()
		return err
	})
	x, err := dialCollector(to)
	must(t, err)
	defer x.conn.Close()
	many := exported()
	for i := range 500 {
		many = append(many, numbered(i))
	}
	must(t, x.export(many, time.Now()))
	netnstest.Await(t, "nfcapd to read all", func() error {
		out, err := exec.Command("ss", "-Hlun", fmt.Sprintf("sport = :%d", to.Port())).CombinedOutput()
		if f := strings.Fields(string(out)); err == nil && (len(f) < 2 || f[1] != "0") { // its queue
			err = fmt.Errorf("ss says %q", out)
		}
		return err
	})
	must(t, cmd.Process.Signal(syscall.SIGTERM)) // it then writes the file
	must(t, cmd.Wait())
	files, err := filepath.Glob(filepath.Join(folder, "nfcapd.2*"))
	must(t, err)
	var out []byte
	for _, f := range files {
		b, err := exec.Command("nfdump", "-q", "-r", f, "-N", "-o", "fmt:%pr %sa %sp %da %dp %byt %pkt %nsa %nda %nsp %ndp").Output()
		must(t, err)
		out = append(out, b...)
	}
	var got []string
	for l := range strings.Lines(string(out)) {
		got = append(got, strings.Join(strings.Fields(l), " "))
	}
	if len(got) != len(many) {
		t.Fatalf("%d flows arrived of %d", len(got), len(many))
	}
	for _, want := range []string{
		"17 10.1.0.9 1000 203.0.113.9 53 100 1 0.0.0.0 0.0.0.0 0 0",
		"6 10.1.0.9 1001 203.0.113.9 443 21474836480 7 203.0.113.5 203.0.113.9 40321 443",
	} {
		if !slices.Contains(got, want) {
			t.Errorf("nfdump does not show %q:\n%s", want, strings.Join(got[:min(len(got), 5)], "\n"))
		}
	}
}
