package transfer

import (
	"math"

	"github.com/gateweigh/gateweigh/lab/result"
)

// Name is the measure's name in experiments and records.
const Name = "transfer"

// KindTransfer is the kind of the records of transfers.
const KindTransfer = "transfer"

// Transfer is the record of one cell: clients that all begin at the same time to fetch a file from an FTP server,
// several times each (study 3, 3.1).
type Transfer struct {
	result.Head
	DUT         string  `json:"dut"`          // name of the device
	Clients     int     `json:"clients"`      // clients that fetch at the same time
	RouterSpeed float64 `json:"router_speed"` // planned share of its CPU that the router has

	Dimensions result.Cell `json:"cell,omitzero"` // the whole cell, if it has more dimensions than the keys before

	LinkMbps  float64 `json:"rate_mbps"`  // rate of the links
	FileBytes int64   `json:"file_bytes"` // size of the file
	Transfers int     `json:"transfers"`  // planned transfers of each client

	SetupSeconds float64 `json:"setup_seconds"` // time to build the lab, start the device and create the clients
	// Samples are in the order of time; the first was taken before the transfers.
	Samples []Sample `json:"samples"`
	// Fetched has the figures of each client, in the order of their numbers.
	Fetched []Fetched `json:"fetched"`
	Figures
	ThreadNs map[string]int64 `json:"thread_ns"`       // CPU of the router's threads and programs, by name
	Share    float64          `json:"share,omitempty"` // share of its CPU that a slowed router had
}

// SetCell sets the transfer's dimensions. It sets Dimensions only if the other fields cannot hold the whole cell.
func (t *Transfer) SetCell(c result.Cell) {
	t.DUT, t.Clients, t.RouterSpeed = c.Text(result.DUT), c.Int(result.Clients), c.Number(RouterSpeed)
	if t.Cell() != c {
		t.Dimensions = c
	}
}

// Cell returns the transfer's dimensions.
func (t Transfer) Cell() result.Cell {
	if t.Dimensions != (result.Cell{}) {
		return t.Dimensions
	}
	return result.NewCell(result.DUT, t.DUT, result.Clients, t.Clients, RouterSpeed, t.RouterSpeed)
}

// Fetched has the figures of one client's transfers.
type Fetched struct {
	Seconds  float64   `json:"seconds"`           // from the login until the last transfer ended
	Each     []float64 `json:"each"`              // seconds of each transfer of a whole file
	Bytes    int64     `json:"bytes"`             // bytes of all transfers
	Problem  string    `json:"problem,omitempty"` // error text of the client's program, if it failed
	Attempts int       `json:"attempts"`          // transfers that curl reported
}

// Sample has the router's counters at one moment. Counters begin at some time before the first sample.
type Sample struct {
	LinksMs float64 `json:"links_ms"` // when Bytes was read, since the first sample
	CPUMs   float64 `json:"cpu_ms"`   // when RouterNs was read, since the first sample
	// Bytes are of IP packets that the router sent to the clients, without headers of Ethernet and PPPoE.
	Bytes    int64 `json:"bytes"`
	RouterNs int64 `json:"router_ns"` // exact CPU time of the router's polling threads and of the device's processes
	Wakeups  int64 `json:"wakeups"`   // times the router's polling threads were given a CPU
	// BusyTicks are the machine's ticks of user, system and interrupt time, from /proc/stat.
	BusyTicks int64 `json:"busy_ticks"`
	AllTicks  int64 `json:"all_ticks"` // the machine's ticks of all kinds, from /proc/stat
}

// Figures are computed from samples as in study 3. The maximum-load interval consists of the intervals between samples
// whose rate is above Threshold. If frames waited for the router's CPU and then came together, the rate of an interval
// exceeds the link's; the link's rate then counts.
type Figures struct {
	PeakKBps float64 `json:"peak_kb_s"` // the highest rate of an interval, thousand bytes a second
	MaxKBps  float64 `json:"max_kb_s"`  // the mean of the rates above 90 % of the highest
	MeanKBps float64 `json:"mean_kb_s"` // the mean rate from the first transfer's begin to the last one's end
	// DTRKBps is the study's printed formula, bytes over the router's CPU time: thousand bytes a second of CPU. It is the
	// mean of the intervals' values above 90 % of the highest.
	DTRKBps float64 `json:"dtr_kb_s"`

	MaxSeconds float64 `json:"max_seconds"`    // length of the maximum-load interval
	Intervals  int     `json:"intervals"`      // number of intervals of the maximum-load interval
	Over       int     `json:"over,omitempty"` // of these, intervals with clearly more than the link's rate
	AllSeconds float64 `json:"all_seconds"`    // until the last transfer ended
	MaxCore    float64 `json:"max_core"`       // the router's exact CPU in the maximum-load interval, cores
	MaxStat    float64 `json:"max_stat"`       // the machine's busy share there by /proc/stat, mean of the intervals
	MaxWakeups float64 `json:"max_wakeups"`    // wakeups of polling threads there, a second
}

// Threshold is the share of the highest rate above which a rate counts for the maximum.
const Threshold = 0.9

// sampleStep has the differences between two samples: seconds, bytes, wakeups, and the machine's busy share (stat).
type sampleStep struct{ seconds, cpuSeconds, bytes, routerSeconds, wakeups, stat float64 }

func (s sampleStep) kbps() float64 { return s.bytes / 1e3 / s.seconds }

func (s sampleStep) dtr() float64 { return s.bytes / 1e3 / s.routerSeconds }

// stepsOf returns the intervals between samples. It leaves out intervals without time or CPU time, which have no rate,
// and the last interval if the end of the transfers cut it short.
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

// maxLinkShare is the multiple of the link's rate above which an interval counts in Figures.Over.
const maxLinkShare = 1.05

// figuresOf computes the study's figures from samples. link is the link's rate, thousand bytes a second. With fewer
// than two samples all figures are 0.
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

// meanAbove returns the mean of the values above Threshold times the highest value.
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

// mean returns the mean of the values; 0 for an empty list.
func mean(list []float64) (sum float64) {
	for _, v := range list {
		sum += v
	}
	return sum / float64(max(len(list), 1))
}
