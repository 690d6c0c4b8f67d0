// Tests of the export of flows to a collector by IPFIX (RFC 7011). start runs a log (log_test.go), and numbered(i) is
// the i-th of many different flows (many_test.go).

package flowlog

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// sampleFlows returns flows of each shape.
func sampleFlows() []Flow {
	address := netip.MustParseAddrPort
	start := time.Date(2026, 3, 1, 12, 0, 0, 250e6, time.UTC)
	return []Flow{
		{Event: Ends, Start: start, End: start.Add(1500 * time.Millisecond), Protocol: 17, Client: address("10.1.0.9:1000"),
			Peer: address("203.0.113.9:53"), MAC: "02:00:00:00:00:09", User: "ann", UpBytes: 100, UpPkts: 1, DownBytes: 300,
			DownPkts: 2},
		{Event: Ends, Start: start, End: start.Add(time.Second), Protocol: 6, Client: address("10.1.0.9:1001"),
			Peer: address("203.0.113.9:443"), Outside: address("203.0.113.5:40321"), UpBytes: 5 << 32, UpPkts: 7, DownBytes: 11,
			DownPkts: 13},
		{Event: Ends, Start: start, End: start.Add(time.Second), Protocol: 6, Client: address("10.1.0.9:22"),
			Peer: address("203.0.113.9:4444"), Outside: address("203.0.113.5:2222"), Inbound: true, MAC: "02:00:00:00:00:09",
			UpBytes: 400,
			UpPkts:  4, DownBytes: 200, DownPkts: 3},
		{Event: Ends, Start: start, End: start.Add(time.Second), Protocol: 17, Client: address("10.1.0.9:5060"),
			Peer: address("203.0.113.9:4444"), Inbound: true, MAC: "02:00:00:00:00:09", UpBytes: 400, UpPkts: 4, DownBytes: 200,
			DownPkts: 3},
		{Event: Ends, Start: start, End: start.Add(time.Second), Protocol: 1, ICMPType: 8, Client: address("10.1.0.9:77"),
			Peer: address("203.0.113.9:77"), MAC: "02:00:00:00:00:09", UpBytes: 84, UpPkts: 1, DownBytes: 84, DownPkts: 1},
		{Event: Ends, Start: start, End: start.Add(time.Second), Protocol: 1, ICMPType: 13, ICMPCode: 1,
			Client: address("10.1.0.9:78"), Peer: address("203.0.113.9:78"), Outside: address("203.0.113.5:79"),
			MAC:     "02:00:00:00:00:09",
			UpBytes: 40, UpPkts: 1},
		{Event: Ends, Start: start, End: start.Add(time.Second), Protocol: 1, ICMPType: 8, Client: address("10.1.0.9:80"),
			Peer: address("203.0.113.9:80"), Inbound: true, MAC: "02:00:00:00:00:09", UpBytes: 168, UpPkts: 2, DownBytes: 168,
			DownPkts: 2},
		{Event: Ends, Start: start, End: start.Add(time.Second), Protocol: 47, Client: address("10.1.0.9:4242"),
			Peer: address("203.0.113.9:17"), MAC: "02:00:00:00:00:09", UpBytes: 500, UpPkts: 5},
		{Event: Ends, Start: start, End: start.Add(time.Second), Protocol: 6, Client: address("[2001:db8:1::9]:1001"),
			Peer: address("[2001:db8:9::9]:443"), MAC: "02:00:00:00:00:09", User: "ann", UpBytes: 5 << 32, UpPkts: 7,
			DownBytes: 11, DownPkts: 13},
		{Event: Ends, Start: start, End: start.Add(time.Second), Protocol: 17, Client: address("[2001:db8:1::9]:5060"),
			Peer: address("[2001:db8:9::9]:4444"), Inbound: true, MAC: "02:00:00:00:00:09", UpBytes: 400, UpPkts: 4,
			DownBytes: 200, DownPkts: 3},
		{Event: Ends, Start: start, End: start.Add(time.Second), Protocol: 58, ICMPType: 128,
			Client: address("[2001:db8:1::9]:77"), Peer: address("[2001:db8:9::9]:77"), MAC: "02:00:00:00:00:09",
			UpBytes: 104, UpPkts: 1},
		{Event: Ends, Start: start, End: start.Add(time.Second), Protocol: 6, Client: address("[fd00::9]:1001"),
			Peer: address("[2001:db8:9::9]:443"), Outside: address("[2001:db8:9::1]:40321"), MAC: "02:00:00:00:00:09",
			UpBytes: 80, UpPkts: 1},
	}
}

// record is nfdump's JSON of a flow, which has no user.
type record struct {
	First string `json:"first"`
	Last  string `json:"last"`
	Proto uint8  `json:"proto"`
	Src   string `json:"src4_addr"`
	Dst   string `json:"dst4_addr"`
	Src6  string `json:"src6_addr"`
	Dst6  string `json:"dst6_addr"`
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
	DstMAC   string `json:"in_dst_mac"`
	ICMPType uint8  `json:"icmp_type"`
	ICMPCode uint8  `json:"icmp_code"`
}

// noMAC is nfdump's MAC address of the end that is not the client.
const noMAC = "00:00:00:00:00:00"

// asRecord returns the record that nfdump must show of a flow.
func asRecord(flow Flow) record {
	const layout = "2006-01-02T15:04:05.000"
	want := record{
		First: flow.Start.Format(layout), Last: flow.End.Format(layout), Proto: flow.Protocol,
		Src: flow.Client.Addr().String(), Sport: flow.Client.Port(), Dst: flow.Peer.Addr().String(), Dport: flow.Peer.Port(),
		InPackets: flow.UpPkts, InBytes: flow.UpBytes, OutPackets: flow.DownPkts, OutBytes: flow.DownBytes, MAC: flow.MAC,
		DstMAC:   noMAC,
		ICMPType: flow.ICMPType, ICMPCode: flow.ICMPCode,
	}
	if want.MAC == "" {
		want.MAC = noMAC
	}
	if flow.Outside.IsValid() {
		want.SrcNAT, want.SportNAT = flow.Outside.Addr().String(), fmt.Sprint(flow.Outside.Port())
		want.DstNAT, want.DportNAT = want.Dst, fmt.Sprint(want.Dport)
	}
	if flow.Protocol == 1 || flow.Protocol == 58 || flow.Protocol == 47 { // without ports
		want.Sport, want.Dport, want.SportNAT, want.DportNAT = 0, 0, "", ""
	}
	if flow.Inbound { // untranslated
		want.Src, want.Sport, want.Dst, want.Dport = want.Dst, want.Dport, want.Src, want.Sport
		want.InPackets, want.InBytes, want.OutPackets, want.OutBytes = want.OutPackets, want.OutBytes, want.InPackets,
			want.InBytes
		want.MAC, want.DstMAC = want.DstMAC, want.MAC
	}
	if flow.Inbound && flow.Outside.IsValid() { // by a forwarded port
		want.SrcNAT, want.SportNAT, want.DstNAT, want.DportNAT = want.Src, fmt.Sprint(want.Sport), want.Dst,
			fmt.Sprint(want.Dport)
		want.Dst, want.Dport = flow.Outside.Addr().String(), flow.Outside.Port()
	}
	if flow.Client.Addr().Is6() {
		want.Src, want.Dst, want.Src6, want.Dst6 = "", "", want.Src, want.Dst
		want.SrcNAT, want.DstNAT = "", "" // nfdump 1.7 reads no translated addresses of IPv6
	}
	return want
}

// TestCollector: Debian's nfcapd takes the exported flows, and nfdump shows all of them. Long: the steps of one run,
// each of which needs the state that the one before left.
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
	exporter, err := dialCollector(to)
	must(t, err)
	defer exporter.conn.Close()
	many := sampleFlows()
	for i := range 500 {
		many = append(many, numbered(i))
	}
	must(t, exporter.export(many, time.Now()))
	netnstest.Await(t, "nfcapd to read all", func() error { // it leaves what has not been read
		if queue := strings.TrimSpace(
			run(t, fmt.Sprintf("ss -lunH sport = :%d | awk '{print $2}'", to.Port()))); queue != "0" {
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
	if sums := run(t, "nfdump -q -R "+folder+" -s proto"); !regexp.MustCompile(
		`(?m) ICMP +1 +3\(.* 4\(.* 292\(`).MatchString(sums) {
		t.Errorf("sums of ICMP, 292 bytes there and 252 back:\n%s", sums)
	}
	if len(got) != len(many) {
		t.Fatalf("%d flows arrived of %d", len(got), len(many))
	}
	for i, flow := range many {
		want := asRecord(flow)
		if got[i] != want {
			t.Errorf("nfdump shows\n%+v\nnot\n%+v", got[i], want)
		}
	}
}
