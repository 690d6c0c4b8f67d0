// Tests of the parsers of files below /proc.

package meter

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// fixture reads a file of testdata: the text of a file below /proc of a real machine.
func fixture(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestParseProcStat(t *testing.T) {
	all, cpus, err := ParseProcStat(string(fixture(t, "stat")))
	if err != nil {
		t.Fatal(err)
	}
	want := Stat{User: 79912, Nice: 65, System: 45350, Idle: 330015, IOWait: 1406, SoftIRQ: 1645, Steal: 119}
	if diff := cmp.Diff(want, all); diff != "" {
		t.Errorf("all CPUs (-want +got):\n%s", diff)
	}
	if len(cpus) != 2 || cpus[1].User != 41451 {
		t.Errorf("CPUs = %+v, want 2 with 41451 user ticks on the second", cpus)
	}
	if got := all.Sub(Stat{User: 12, Idle: 15}).Total(); got != all.Total()-27 {
		t.Errorf("Sub then Total = %d, want %d", got, all.Total()-27)
	}
}

func TestParseNetDev(t *testing.T) {
	links, err := parseNetDev(string(fixture(t, "net_dev")))
	if err != nil {
		t.Fatal(err)
	}
	want := Link{RxBytes: 612920387, RxPackets: 17830, TxBytes: 1132509, TxPackets: 12005}
	if diff := cmp.Diff(want, links["eth0"]); diff != "" {
		t.Errorf("eth0 (-want +got):\n%s", diff)
	}
	if len(links) != 4 {
		t.Errorf("%d links, want 4", len(links))
	}
}

func TestParseNetDevCountsEveryKindOfDrop(t *testing.T) {
	links, err := parseNetDev("x: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n")
	if err != nil {
		t.Fatal(err)
	}
	want := Link{RxBytes: 1, RxPackets: 2, RxDropped: 3 + 4 + 5, TxBytes: 9, TxPackets: 10, TxDropped: 11 + 12 + 13}
	if diff := cmp.Diff(want, links["x"]); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestParseSNMP(t *testing.T) {
	got, err := parseSNMP(string(fixture(t, "net_snmp")))
	if err != nil {
		t.Fatal(err)
	}
	want := SNMP{IPInReceives: 17897, IPOutRequests: 12063, TCPOutSegs: 11758, UDPOut: 369}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestListeningLeavesOutConnections(t *testing.T) {
	got, err := Listening(string(fixture(t, "net_tcp")))
	if diff := cmp.Diff([]uint16{2024, 5201}, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if _, err := Listening("0: 00000000:10000 00000000:0000 0A"); err == nil {
		t.Error("no error on a port of 65536")
	}
}

func TestParsePSS(t *testing.T) {
	kib, err := ParseSizes("smaps_rollup", string(fixture(t, "smaps_rollup")), "Pss")
	if err != nil || kib["Pss"] != 216 {
		t.Errorf("PSS = %d KiB, %v; want 216", kib["Pss"], err)
	}
	for _, bad := range []string{"", "Rss: 3 kB\n", "Pss: many kB\n"} {
		if _, err := ParseSizes("smaps_rollup", bad, "Pss"); err == nil {
			t.Errorf("%q: no error", bad)
		}
	}
}

func TestParseStatTakesAnyCommandName(t *testing.T) {
	line := "4711 (a) b (c)) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21\n"
	got, err := parseStat([]byte(line))
	if err != nil {
		t.Fatal(err)
	}
	want := Process{PID: 4711, Parent: 1, Name: "a) b (c)", Start: 19, Ticks: 11 + 12}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, bad := range []string{"", "1 (x", "x (y) S 1", "1 (y) S 1 2"} {
		if _, err := parseStat([]byte(bad)); err == nil {
			t.Errorf("parseStat(%q): no error", bad)
		}
	}
}

func TestParseSchedstat(t *testing.T) {
	got, err := ParseSchedstat([]byte("24317390 11240982 346\n"))
	if want := (Thread{RunNs: 24317390, WaitNs: 11240982, Slices: 346}); err != nil || got != want {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
	for _, bad := range []string{"", "1 2", "1 2 x", "1 2 3 4"} {
		if _, err := ParseSchedstat([]byte(bad)); err == nil {
			t.Errorf("ParseSchedstat(%q): no error", bad)
		}
	}
}

// FuzzParsers feeds all parsers of /proc: none may panic, whatever a kernel prints.
func FuzzParsers(f *testing.F) {
	for _, name := range []string{"stat", "net_dev", "net_snmp", "net_tcp", "smaps_rollup"} {
		f.Add(fixture(f, name))
	}
	f.Add([]byte("4711 (a) b (c)) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21\n"))
	f.Add([]byte("1 2 3\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		ParseProcStat(string(b))
		parseNetDev(string(b))
		parseSNMP(string(b))
		Listening(string(b))
		parseStat(b)
		ParseSizes("", string(b), "Pss")
		if th, err := ParseSchedstat(b); err == nil && len(bytes.Fields(b)) != 3 {
			t.Errorf("schedstat %q accepted as %+v", b, th)
		}
	})
}

func TestParsePacket(t *testing.T) {
	const heading = "sk               RefCnt Type Proto  Iface R Rmem   User   Inode\n"
	for text, want := range map[string]int64{
		heading: 0,
		heading + "0000000012f9d5a1 3      3    0003   2     1 0      0      1532\n": 0,
		heading + "0000000012f9d5a1 3      3    0003   2     1 213504 0      1532\n00000000aa42e5c7 3      3    0003   2   " +
			"  1 768    0      1533\n": 214272,
		heading + "0000000012f9d5a1 3      3    0003\n":                              -1,
		heading + "0000000012f9d5a1 3      3    0003   2     1 many   0      1532\n": -1,
	} {
		if got, err := parsePacket(text); (err != nil) != (want < 0) || err == nil && got != want {
			t.Errorf("%q: %d, %v; want %d", text, got, err, want)
		}
	}
}

func TestAwake(t *testing.T) {
	for stat, want := range map[string]bool{
		"12 (tcpdump) R 1 12 12 0": true, "12 (tcpdump) S 1 12": false, "12 (a) R) S 1 12": false, "12 (sh) D 1": true,
		"12 (sh) T 1":        true,
		"12 (napi/w0-9) I 2": false, "12 (sh) Z 1": false, "": false, "12 (sh)": false,
	} {
		if got := awake([]byte(stat)); got != want {
			t.Errorf("%q: %v, want %v", stat, got, want)
		}
	}
}
