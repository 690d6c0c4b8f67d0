package flowlog

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"path/filepath"
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

// record is what nfdump shows of a flow. It does not show users.
type record struct {
	First string `json:"first"`
	Last  string `json:"last"`
	Proto uint8  `json:"proto"`
	Src   string `json:"src4_addr"`
	Dst   string `json:"dst4_addr"`
	Sport uint16 `json:"src_port"`
	Dport uint16 `json:"dst_port"`

	InPackets  uint64 `json:"in_packets"`
	InBytes    uint64 `json:"in_bytes"`
	OutPackets uint64 `json:"out_packets"`
	OutBytes   uint64 `json:"out_bytes"`

	SrcNAT   string `json:"src4_xlt_ip"`
	DstNAT   string `json:"dst4_xlt_ip"`
	SportNAT string `json:"src_xlt_port"`
	DportNAT string `json:"dst_xlt_port"`
	MAC      string `json:"in_src_mac"`
}

// shown is the record of a flow that a client began and whose source alone is translated.
func shown(f Flow) record {
	const layout = "2006-01-02T15:04:05.000"
	r := record{
		First: f.Start.Format(layout), Last: f.End.Format(layout), Proto: f.Protocol,
		Src: f.Client.Addr().String(), Sport: f.Client.Port(), Dst: f.Peer.Addr().String(), Dport: f.Peer.Port(),
		InPackets: f.UpPkts, InBytes: f.UpBytes, OutPackets: f.DownPkts, OutBytes: f.DownBytes, MAC: f.MAC,
	}
	if r.MAC == "" {
		r.MAC = "00:00:00:00:00:00"
	}
	if f.Outside.IsValid() {
		r.SrcNAT, r.SportNAT = f.Outside.Addr().String(), fmt.Sprint(f.Outside.Port())
		r.DstNAT, r.DportNAT = r.Dst, fmt.Sprint(r.Dport)
	}
	return r
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
	netnstest.Await(t, "nfcapd to read all", func() error { // it leaves what has not been read
		if queue := strings.TrimSpace(run(t, fmt.Sprintf("ss -lunH sport = :%d | awk '{print $2}'", to.Port()))); queue != "0" {
			return fmt.Errorf("%s bytes wait", queue)
		}
		return nil
	})
	must(t, cmd.Process.Signal(syscall.SIGTERM)) // it writes the file
	must(t, cmd.Wait())
	files, err := filepath.Glob(filepath.Join(folder, "nfcapd.2*"))
	must(t, err)
	var got []record
	for _, f := range files {
		out := run(t, "TZ=UTC nfdump -q -r "+f+" -o json")
		var some []record // the array's first bracket is missing
		must(t, json.Unmarshal([]byte("["+strings.TrimSpace(strings.Trim(strings.TrimSpace(out), "[]"))+"]"), &some))
		got = append(got, some...)
	}
	if len(got) != len(many) {
		t.Fatalf("%d flows arrived of %d", len(got), len(many))
	}
	for i, f := range many {
		want := shown(f)
		if f.Inbound {
			want = record{
				First: want.First, Last: want.Last, Proto: 6, Src: "203.0.113.9", Sport: 4444, Dst: "203.0.113.5", Dport: 2222, InPackets: 3, InBytes: 200, OutPackets: 4, OutBytes: 400,
				SrcNAT: "203.0.113.9", SportNAT: "4444", DstNAT: "10.1.0.9", DportNAT: "22", MAC: want.MAC,
			}
		}
		if got[i] != want {
			t.Errorf("nfdump shows\n%+v\nnot\n%+v", got[i], want)
		}
	}
}
