package transfer

import (
	"math"

	"github.com/gateweigh/gateweigh/lab/result"
)

// Name is the measure's in experiments and records.
const Name = "transfer"

// KindTransfer is the kind of the records of transfers.
const KindTransfer = "transfer"

// Transfer is what became of some clients that all begin at once to fetch a file from an FTP server, several times each
// (study 3, 3.1).
type Transfer struct {
	result.Head
	DUT         string  `json:"dut"`          // name of the device
	Clients     int     `json:"clients"`      // that begin at once
	RouterSpeed float64 `json:"router_speed"` // share of its CPU that the router was to have

	Dimensions result.Cell `json:"cell,omitzero"` // where the keys before do not say all

	LinkMbps  float64 `json:"rate_mbps"`  // of the links
	FileBytes int64   `json:"file_bytes"` // size of the file
	Transfers int     `json:"transfers"`  // of each client

	SetupSeconds float64 `json:"setup_seconds"` // lab, device and clients
	// Samples are in their order; the first is of before the transfers.
	Samples []Sample `json:"samples"`
	// Fetched are the clients' own figures, by client.
	Fetched []Fetched `json:"fetched"`
	Figures
	ThreadNs map[string]int64 `json:"thread_ns"`       // CPU of the router's threads and programs, by name
	Share    float64          `json:"share,omitempty"` // of its CPU that a slowed router had
}

// SetCell writes the transfer's dimensions down, as one cell too where its own keys do not say all.
func (t *Transfer) SetCell(c result.Cell) {
	t.DUT, t.Clients, t.RouterSpeed = c.Text(result.DUT), c.Int(result.Clients), c.Number(RouterSpeed)
	if t.Cell() != c {
		t.Dimensions = c
	}
}

// Cell has the transfer's dimensions.
func (t Transfer) Cell() result.Cell {
	if t.Dimensions != (result.Cell{}) {
		return t.Dimensions
	}
	return result.NewCell(result.DUT, t.DUT, result.Clients, t.Clients, RouterSpeed, t.RouterSpeed)
}

// Fetched is one client's transfers.
type Fetched struct {
	Seconds  float64   `json:"seconds"`           // until the last was over, with the login
	Each     []float64 `json:"each"`              // seconds of each transfer
	Bytes    int64     `json:"bytes"`             // of all
	Problem  string    `json:"problem,omitempty"` // in the client program's words
	Attempts int       `json:"attempts"`          // transfers that were begun
}

// Sample is the router at one moment. All but the moments are sums since some time before the first sample.
type Sample struct {
	LinksMs float64 `json:"links_ms"` // when Bytes was read, since the first sample
	CPUMs   float64 `json:"cpu_ms"`   // when RouterNs was read
	// Bytes are of IP packets that the router sent to the clients, without headers of Ethernet and PPPoE.
	Bytes    int64 `json:"bytes"`
	RouterNs int64 `json:"router_ns"` // exact CPU of its threads and of the device
	Wakeups  int64 `json:"wakeups"`   // times its polling threads were given a CPU
	// BusyTicks and AllTicks are the machine's by /proc/stat: user and system, with interrupts, and all.
	BusyTicks int64 `json:"busy_ticks"`
	AllTicks  int64 `json:"all_ticks"` // the machine's, of all kinds
}

// Figures are what study 3 makes of samples. The maximum-load interval are the intervals between samples in which the
// rate lies above the threshold. No link sends faster than its rate: where frames waited for a router without a CPU and
// came together then, the link's rate counts.
type Figures struct {
	PeakKBps float64 `json:"peak_kb_s"` // the highest rate of an interval, thousand bytes a second
	MaxKBps  float64 `json:"max_kb_s"`  // the mean of rates above 90 % of it
	MeanKBps float64 `json:"mean_kb_s"` // over all of the transfers
	// DTR is the same mean of the study's printed formula, bytes over the router's CPU time: thousand bytes a second of
	// CPU.
	DTRKBps float64 `json:"dtr_kb_s"`

	MaxSeconds float64 `json:"max_seconds"`    // length of the maximum-load interval
	Intervals  int     `json:"intervals"`      // that it consists of
	Over       int     `json:"over,omitempty"` // of these, those with clearly more than the link's rate
	AllSeconds float64 `json:"all_seconds"`    // of the transfers
	MaxCore    float64 `json:"max_core"`       // router's exact CPU in it, cores
	MaxStat    float64 `json:"max_stat"`       // the machine's busy share in it by /proc/stat, mean of its intervals
	MaxWakeups float64 `json:"max_wakeups"`    // of polling threads in it, a second
}

// Threshold is the share of the highest rate above which a rate counts for the maximum.
const Threshold = 0.9

// sampleStep is what lies between two samples.
type sampleStep struct{ seconds, cpuSeconds, bytes, routerSeconds, wakeups, stat float64 }

func (s sampleStep) kbps() float64 { return s.bytes / 1e3 / s.seconds }

func (s sampleStep) dtr() float64 { return s.bytes / 1e3 / s.routerSeconds }

// stepsOf are the intervals between samples. One without time, or CPU time, has no rate and is left out; so is the last
// where it was cut short by the end of the transfers.
func stepsOf(samples []Sample) (list []sampleStep) {
	for i := 1; i < len(samples); i++ {
		a, b := samples[i-1], samples[i]
		s := sampleStep{
			seconds: (b.LinksMs - a.LinksMs) / 1e3, cpuSeconds: (b.CPUMs - a.CPUMs) / 1e3, bytes: float64(b.Bytes - a.Bytes),
			routerSeconds: float64(b.RouterNs-a.RouterNs) / 1e9, wakeups: float64(b.Wakeups - a.Wakeups),
			stat: math.NaN(),
		}
		if all := b.AllTicks - a.AllTicks; all > 0 {
			s.stat = float64(b.BusyTicks-a.BusyTicks) / float64(all)
		}
		short := len(list) > 0 && i == len(samples)-1 && s.seconds < list[len(list)-1].seconds/2
		if s.seconds > 0 && s.cpuSeconds > 0 && !short {
			list = append(list, s)
		}
	}
	return list
}

// maxLinkShare is the share of the link's rate beyond which frames must have waited.
const maxLinkShare = 1.05

// figuresOf is the study's arithmetic, over a link of a rate in thousand bytes a second. It is zero without two
// samples.
func figuresOf(samples []Sample, link float64) (f Figures) {
	steps := stepsOf(samples)
	if len(steps) == 0 {
		return f
	}
	var dtrs []float64
	for _, s := range steps {
		f.PeakKBps = max(f.PeakKBps, min(link, s.kbps()))
		if s.routerSeconds > 0 {
			dtrs = append(dtrs, s.dtr())
		}
	}
	f.DTRKBps = meanAbove(dtrs)
	var rates, stats []float64
	var cpu, routed float64
	for _, s := range steps {
		rates = append(rates, min(link, s.kbps()))
		if s.kbps() <= Threshold*f.PeakKBps {
			continue
		}
		f.Intervals++
		if s.kbps() > maxLinkShare*link {
			f.Over++
		}
		f.MaxSeconds += s.seconds
		cpu, routed = cpu+s.cpuSeconds, routed+s.routerSeconds
		f.MaxWakeups += s.wakeups
		if !math.IsNaN(s.stat) {
			stats = append(stats, s.stat)
		}
	}
	f.MaxKBps = meanAbove(rates)
	first, last := samples[0], samples[len(samples)-1]
	f.AllSeconds = (last.LinksMs - first.LinksMs) / 1e3
	if f.AllSeconds > 0 {
		f.MeanKBps = float64(last.Bytes-first.Bytes) / 1e3 / f.AllSeconds
	}
	if f.Intervals > 0 {
		f.MaxCore, f.MaxWakeups = routed/cpu, f.MaxWakeups/f.MaxSeconds
		f.MaxStat = mean(stats)
	}
	return f
}

// meanAbove is the mean of the values above Threshold of the highest.
func meanAbove(list []float64) float64 {
	var most float64
	for _, v := range list {
		most = max(most, v)
	}
	var above []float64
	for _, v := range list {
		if v > Threshold*most {
			above = append(above, v)
		}
	}
	return mean(above)
}

// mean is 0 of nothing.
func mean(list []float64) (sum float64) {
	for _, v := range list {
		sum += v
	}
	return sum / float64(max(len(list), 1))
}
