package transfer

import (
	"encoding/json"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/runner/runnertest"
)

// TestMain lets the test binary be the agent of its labs' hosts.
func TestMain(m *testing.M) {
	agent.RunAs(os.Args)
	os.Exit(m.Run())
}

// The tests of this file check the measure "transfer", which repeats study 3: clients fetch files from an FTP server,
// while the router's bytes and CPU time are sampled. kByte is 1000 bytes.

// catalogue returns a catalogue of this measure and one topology.
func catalogue() experiment.Catalogue {
	return experiment.Catalogue{Measures: []experiment.Measure{Measure{}.Rules()}, Topologies: []experiment.Topology{{
		Name: "portal", Roles: Measure{}.Rules().Roles}}}
}

func isNear(got, want float64) bool { return math.Abs(got-want) <= 1e-9*math.Abs(want) }

// TestFiguresOfTheStudy: figuresOf computes the figures of five intervals of one second. The rates of three of them are
// above 90 % of the highest rate: these make up the maximum-load interval.
func TestFiguresOfTheStudy(t *testing.T) {
	kb := []float64{5000, 9500, 10000, 9200, 2000} // bytes of each interval, kByte
	cpuMs := []float64{100, 250, 200, 230, 50}     // the router's CPU time of each interval
	samples := []Sample{{Bytes: 7, RouterNs: 3}}
	for i, k := range kb {
		last := samples[i]
		samples = append(samples, Sample{
			LinksMs: last.LinksMs + 1000, CPUMs: last.CPUMs + 1000, Bytes: last.Bytes + int64(1000*k),
			RouterNs: last.RouterNs + int64(1e6*cpuMs[i]),
			Wakeups:  last.Wakeups + 10, BusyTicks: last.BusyTicks + int64(10*i), AllTicks: last.AllTicks + 200,
		})
	}
	f := figuresOf(samples, 12500)
	if f.PeakKBps != 10000 || !isNear(f.MaxKBps, (9500+10000+9200)/3.) || f.Intervals != 3 || f.MaxSeconds != 3 ||
		f.Over != 0 {
		t.Errorf("%+v", f)
	}
	if !isNear(f.MeanKBps, 35700./5) || f.AllSeconds != 5 {
		t.Errorf("over all: %+v", f)
	}
	// Bytes over CPU time are 50, 38, 50, 40 and 40 thousand kByte/s. The first and the third are above 90 % of the
	// highest.
	if !isNear(f.DTRKBps, 50000) {
		t.Errorf("the printed formula makes %v", f.DTRKBps)
	}
	if !isNear(f.MaxCore, 0.68/3) || !isNear(f.MaxStat, (10+20+30)/3./200) || !isNear(f.MaxWakeups, 10) {
		t.Errorf("in the maximum-load interval: %+v", f)
	}
	// Frames that waited for a CPU may come together, faster than the link's rate (9400). The link's rate then counts.
	if f := figuresOf(samples, 9400); f.PeakKBps != 9400 || !isNear(f.MaxKBps, (9400+9400+9200)/3.) || f.Over != 1 {
		t.Errorf("over a slower link: %+v", f)
	}
	// The last interval was cut short.
	short := samples[5]
	short.LinksMs, short.CPUMs, short.Bytes = short.LinksMs+100, short.CPUMs+100, short.Bytes+2_000_000
	if f := figuresOf(append(samples, short), 12500); f.PeakKBps != 10000 {
		t.Errorf("a tenth of an interval counts: %+v", f)
	}
	if f := figuresOf(samples[:1], 12500); f != (Figures{}) {
		t.Errorf("without an interval: %+v", f)
	}
}

// TestReadCurl: curl prints a line for each transfer: bytes, seconds in all, and seconds before the transfer began.
// Only transfers of the whole file (1000 bytes) count in Each.
func TestReadCurl(t *testing.T) {
	var f Fetched
	if err := f.read("1000 0.75 0.25\n1000 0.6 0.1\n400 9.5 0.5\n", 1000); err != nil || f.Bytes != 2400 ||
		f.Attempts != 3 || !slices.Equal(f.Each, []float64{0.5, 0.5}) {
		t.Errorf("%+v, %v", f, err)
	}
	for _, text := range []string{"1000 0.5\n", "curl: (7) Failed\n", "x 1 2\n"} {
		if err := new(Fetched).read(text, 1000); err == nil {
			t.Errorf("%q is read", text)
		}
	}
}

// plainExperiment is the beginning of an experiment; a test adds keys and the definition of the device "gate".
const plainExperiment = "measure = \"transfer\"\nduts = [\"clean\", \"gate\"]\nclients = [1, 3]\nclient = { kind = " +
	"\"persona\" " +
	"}\n"

// TestPlan: a block measures all numbers of clients of one device at one speed of the router.
func TestPlan(t *testing.T) {
	e, err := catalogue().Parse(
		"x.toml", []byte(plainExperiment+"router_speeds = [1, 0.5]\nblocks = 2\n[dut.gate]\nstart = \"true\"\n"))
	if err != nil {
		t.Fatal(err)
	}
	blocks := e.Plan()
	if len(blocks) != 2*2*2 {
		t.Fatalf("%d blocks, want two devices, the clean router among them, at two speeds, twice", len(blocks))
	}
	for _, b := range blocks {
		if b.Clients() != 3 || len(b.Cells) != 2 || b.Cells[0].Int(result.Clients)+b.Cells[1].Int(result.Clients) != 4 {
			t.Errorf("%v: want one and three of three clients, not %v", b.Cell, b.Cells)
		}
	}
	if d := e.EstimatedDuration(); d < time.Minute || d > 10*time.Minute { // 8 blocks of 4 × 4.5 s and their labs
		t.Errorf("the estimated duration is %v", d)
	}
}

// TestClientsOfTheCleanRouter: each block has one lab. With PPPoE clients at the device, the clean router, which has no
// PPPoE server, has clients of kind "persona" instead.
func TestClientsOfTheCleanRouter(t *testing.T) {
	e, err := catalogue().Parse(
		"x.toml", []byte(strings.Replace(plainExperiment, "persona", "pppoe", 1)+"[dut.gate]\nstart = \"true\"\n"))
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range e.Plan() {
		want := map[string]string{"clean": client.KindPersona, "gate": client.KindPPPoE}[b.DUT()]
		if labs := e.Labs(b); len(labs) != 1 || labs[0].Client != want || labs[0].Clients != 3 {
			t.Errorf("%s has %+v, want clients of kind %s", b.DUT(), labs, want)
		}
	}
}

// TestRefusals: bad keys are refused with file, line and key.
func TestRefusals(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"too many clients": {"", `x.toml:3: clients: 251: at most 250`},
		"router.speed": {"router = { speed = 0.5 }\n",
			"x.toml:5: router.speed: does not go with measure = \"transfer\": list it in router_speeds"},
		"too slow a router": {"router_speeds = [0.01]\n", "x.toml:5: router_speeds"},
		"days of transfers": {"file_mb = 9000\n", "x.toml:5: file_mb: 3 clients take"},
	} {
		text := plainExperiment
		if name == "too many clients" {
			text = strings.Replace(text, "[1, 3]", "[251]", 1)
		}
		_, err := catalogue().Parse("x.toml", []byte(text+c.text+"[dut.gate]\nstart = \"true\"\n"))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
}

// checkWholeFiles requires that each client of a transfer got a number of whole files, each of the given bytes, and
// that the rates are those of a link of 1000 kByte/s.
func checkWholeFiles(t *testing.T, r *Transfer, files int, bytes int64) {
	t.Helper()
	payload := int64(r.Clients*files) * bytes
	if len(r.Fetched) != r.Clients {
		t.Fatalf("%d clients fetched, want %d", len(r.Fetched), r.Clients)
	}
	for _, f := range r.Fetched {
		if f.Problem != "" || len(f.Each) != files || f.Bytes != int64(files)*bytes {
			t.Errorf("%d clients: %+v", r.Clients, f)
		}
	}
	first, last := r.Samples[0], r.Samples[len(r.Samples)-1]
	if got := last.Bytes - first.Bytes; got < payload || float64(got) > 1.1*float64(payload) {
		t.Errorf("%d clients: the router sent them %d bytes, the files have %d", r.Clients, got, payload)
	}
	if used := last.RouterNs - first.RouterNs; used <= 0 || r.MaxCore <= 0 || len(r.ThreadNs) == 0 {
		t.Errorf("%d clients: CPU %d ns, %v cores, %v", r.Clients, used, r.MaxCore, r.ThreadNs)
	}
	if r.MeanKBps > 1000*maxLinkShare || r.PeakKBps > 1000 || r.MaxKBps > 1000 || r.MaxKBps < Threshold*r.PeakKBps {
		t.Errorf("%d clients: %+v over a link of 1000 kByte/s", r.Clients, r.Figures)
	}
}

// TestTransfersInALab: first one client and then two at once fetch whole files from the FTP server. The router forwards
// the bytes of the files and of their IP and TCP headers, at most at the rate of the link.
func TestTransfersInALab(t *testing.T) {
	const files, bytes = 2, 200_000
	e, err := catalogue().Parse("x.toml", []byte(`measure = "transfer"
duts = ["clean"]
clients = [1, 2]
client = { kind = "persona" }
link_mbps = 8
file_mb = 0.2
transfers = 2
interval = "100ms"
blocks = 1
redo = 0
`))
	if err != nil {
		t.Fatal(err)
	}
	run, _ := runnertest.Run(t, Measure{}.Run(), e, Measure{}.Records())
	if len(run.MeasureRecords) != 2 {
		t.Fatalf("%d records: want transfers of one and of two clients", len(run.MeasureRecords))
	}
	for _, r := range result.RecordsOf[Transfer](run.MeasureRecords) {
		checkWholeFiles(t, r, files, bytes)
	}
	s := Measure{}.Summarise(run, analysis.Options{Confidence: 0.95})
	if len(s.Cells) != 2 || s.Cells[0].Int(result.Clients) != 1 {
		t.Fatalf("cells %+v", s.Cells)
	}
	for _, c := range s.Cells {
		if c.Pairs > 0 && (!c.Device(MaxRate).Mean.Known() || len(c.Curves[RateCurve]) == 0 || len(
			c.Curves[EndsCurve]) != c.Int(result.Clients)) {
			t.Errorf("%v: %v, curves %v", c.Cell, c.Device(MaxRate), c.Curves)
		}
	}
}

// TestForAnEmulatedCPU: an emulated CPU is slow, so ForEmulatedCPU divides the link's rate and the file's size by the
// same number. A transfer then takes as long as before. Samples are less frequent.
func TestForAnEmulatedCPU(t *testing.T) {
	e, err := catalogue().Parse("x.toml", []byte(plainExperiment+"[dut.gate]\nstart = \"true\"\n"))
	if err != nil {
		t.Fatal(err)
	}
	text, err := e.ForEmulatedCPU(nil)
	if err != nil || linkMbps.Value(e) != 5 || fileMB.Value(e) != 0.5 || interval.Value(e) != time.Second ||
		fullLinkTime(e, 4) != 16*time.Second {
		t.Errorf("%q, %v: %g Mbit/s, %g MB, every %s", text, err, linkMbps.Value(e), fileMB.Value(e), interval.Value(e))
	}
	if e.LoadKey() != "link_mbps" || !strings.Contains(text, "samples of 1s") {
		t.Errorf("%q, first load %q", text, e.LoadKey())
	}
}

// TestRecordsHaveTheirCells: a record that was read has the same cell as in the plan. By it a resumed run knows what is
// measured already.
func TestRecordsHaveTheirCells(t *testing.T) {
	want := Transfer{DUT: "clean", Clients: 3, RouterSpeed: 0.24, LinkMbps: 100, FileBytes: 1e7, Transfers: 5}
	want.Head = result.Head{Version: 1, Kind: KindTransfer, Start: time.Now().UTC(), Seconds: 1, Accepted: true}
	text, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	got, err := result.ReadRecords(strings.NewReader(string(text)+"\n"), "trials.jsonl", Measure{}.Records()...)
	if err != nil || len(got.MeasureRecords) != 1 || got.MeasureRecords[0].Cell != want.Cell() {
		t.Errorf("%+v, %v; want the cell %v", got.MeasureRecords, err, want.Cell())
	}
}
