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

// exported are flows of each kind.
func exported() []Flow {
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
	DstMAC   string `json:"in_dst_mac"`
	ICMPType uint8  `json:"icmp_type"`
	ICMPCode uint8  `json:"icmp_code"`
}

// noMAC is where the client is not.
const noMAC = "00:00:00:00:00:00"

// asRecord is the record of a flow that a client began and whose source alone is translated, if any.
func asRecord(f Flow) record {
	const layout = "2006-01-02T15:04:05.000"
	r := record{
		First: f.Start.Format(layout), Last: f.End.Format(layout), Proto: f.Protocol,
		Src: f.Client.Addr().String(), Sport: f.Client.Port(), Dst: f.Peer.Addr().String(), Dport: f.Peer.Port(),
		InPackets: f.UpPkts, InBytes: f.UpBytes, OutPackets: f.DownPkts, OutBytes: f.DownBytes, MAC: f.MAC, DstMAC: noMAC,
		ICMPType: f.ICMPType, ICMPCode: f.ICMPCode,
	}
	if r.MAC == "" {
		r.MAC = noMAC
	}
	if f.Outside.IsValid() {
		r.SrcNAT, r.SportNAT = f.Outside.Addr().String(), fmt.Sprint(f.Outside.Port())
		r.DstNAT, r.DportNAT = r.Dst, fmt.Sprint(r.Dport)
	}
	if f.Protocol == 1 || f.Protocol == 47 { // without ports
		r.Sport, r.Dport, r.SportNAT, r.DportNAT = 0, 0, "", ""
	}
	if f.Inbound { // untranslated
		r.Src, r.Sport, r.Dst, r.Dport = r.Dst, r.Dport, r.Src, r.Sport
		r.InPackets, r.InBytes, r.OutPackets, r.OutBytes = r.OutPackets, r.OutBytes, r.InPackets, r.InBytes
		r.MAC, r.DstMAC = r.DstMAC, r.MAC
	}
	if f.Inbound && f.Outside.IsValid() { // by a forwarded port
		r.SrcNAT, r.SportNAT, r.DstNAT, r.DportNAT = r.Src, fmt.Sprint(r.Sport), r.Dst, fmt.Sprint(r.Dport)
		r.Dst, r.Dport = f.Outside.Addr().String(), f.Outside.Port()
	}
	return r
}

// TestCollector: Debian's nfcapd takes what is sent, and nfdump shows the same. Its sums by protocol lack the other
// direction, as the manual says. Long: the steps of one run, each of which needs the state that the one before left.
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
	for i, f := range many {
		want := asRecord(f)
		if got[i] != want {
			t.Errorf("nfdump shows\n%+v\nnot\n%+v", got[i], want)
		}
	}
}
