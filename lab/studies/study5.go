package studies

import (
	"math"

	"github.com/gateweigh/gateweigh/lab/measure/capture"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/words"
)

// study5 is Schneider and Wallerich, "Performance Evaluation of Packet Capturing Systems for High-Speed Networks": the
// share of packets that four systems capture and their CPU, against the rate, with one and two CPUs and with the
// systems' default and larger buffers. The study compares machines and kernels. The lab compares ways to capture
// instead.
var study5 = Study{
	Number: 5,
	Scenarios: []Scenario{
		{DUT: "no-capture", Name: "no-capture"},
		{Published: "capture", DUT: "tcpdump", Name: "tcpdump",
			Obtain: "`gateweigh run capture-systems --set duts=tcpdump` measures a program that uses libpcap, as the study's " +
				"did."},
	},
	Sweeps: []*Sweep{oneCPU, twoCPUs, oneCPUOwn, twoCPUsOwn},
	Claims: claims5,
	Limits: []LimitForm{{
		ID: "limits-5", Title: "Text of section 3", RowHeading: "System",
		Caption: "Highest rate at which everything is captured",
		Reading: "Of the rates that were measured; at-least marks the highest of them. Everything: all but 0.1 % of the " +
			"frames, in the mean over blocks; published are the rates from which the study's systems lose packets, " +
			"and 920 for the system that lost less than 0.5 % at any. " + sharedCPU,
		Columns: []LimitColumn{
			{"One CPU, 10 MB", oneCPU, captured}, {"Two CPUs, 10 MB", twoCPUs, nearly},
			{"One CPU, own buffers", oneCPUOwn, captured}, {"Two CPUs, own buffers", twoCPUsOwn, captured},
		},
	}},
	Figures: []FigureForm{
		systemsFigure(oneCPU, "2a", "one CPU"), systemsFigure(twoCPUs, "2b", "two CPUs"),
	},
	Units: func(int) string { return "" },
}

// sharedCPU says that the second CPU may be shared.
const sharedCPU = "Where labs may use only two CPUs, the second is also the generator's, and the results mark it."

// nearly allows for the loss of the study's best system.
var nearly = Metric{Name: captured.Name, Noun: captured.Noun, Unit: "%", Least: 99.5, Most: math.Inf(1)}

// The study's text gives figures for what figure 2 shows, which has the larger buffers.
var (
	oneCPU = systemsSweep(
		"published/capture-one-cpu.csv", "one CPU and buffers of 10 MB", 1, tenMB, "Figures 2a and 2b")
	twoCPUs    = systemsSweep("published/capture-two-cpus.csv", "two CPUs and buffers of 10 MB", 2, tenMB, "")
	oneCPUOwn  = systemsSweep("", "one CPU and buffers as they are", 1, 0, "")
	twoCPUsOwn = systemsSweep("", "two CPUs and buffers as they are", 2, 0, "")
)

// tenMB is the study's larger buffer, KiB.
const tenMB = 10240

func systemsSweep(file, place string, cpus, bufferKiB int, forms string) *Sweep {
	s := &Sweep{Along: result.OfferedMbps, Fixed: result.NewCell(result.FrameSize, "study5", capture.BufferKiB, bufferKiB,
		capture.CPUs, cpus), Metrics: ofCapture, Free: true, Needs: result.FrameSize,
		File: file, Run: "capture-systems", Place: place, Forms: forms}
	if cpus > 1 {
		s.On = "on a machine with three CPUs or more"
	}
	if file != "" {
		s.Systems = []string{"Linux on AMD", "Linux on Intel", "FreeBSD on AMD", "FreeBSD on Intel"}
	}
	return s
}

// systemsFigure declares figure 2 (a) or (b).
func systemsFigure(s *Sweep, number, cpus string) FigureForm {
	cpu := PanelForm{Metric: busy, Title: "CPU", YLabel: "CPU in use"}
	if s == twoCPUs { // a host without a program has one CPU
		cpu.Needs = capture.CPUs
	}
	return FigureForm{
		Sweep: s, Number: number, XLabel: "Offered load",
		Caption: "Capture rate and CPU against the rate, " + cpus + ", buffers of 10 MB",
		Note: "Published are the figures of the study's text: it prints the curves as pictures. CPU is of all CPUs that " +
			"capture: one busy CPU of two is 50 %." + words.When(s == twoCPUs, " "+sharedCPU),
		Stack: []PanelForm{{Metric: captured, Title: "Capture rate", YLabel: "Frames captured of those offered"}, cpu},
	}
}

var claims5 = []Claim{
	{ID: "loses-with-full-cpu", Holds: "one CPU, 10 MB: 90 % of the CPU or more in use wherever frames are lost for sure",
		Not: "less at any", Subjects: devices, Sweeps: []*Sweep{oneCPU}, Metric: busy,
		Judge: losesWith(full, math.Inf(1), false, captured),
		Text:  "With one CPU and large buffers a system begins to lose packets where its CPU is fully used (3).",
		Why:   Why{Fails: pauses}},
	{ID: "own-buffers-lose-before",
		Holds: "one CPU, buffers as they are: less than 90 % in use at a rate at which frames are lost for sure",
		Not:   "more at all of them", Subjects: devices, Sweeps: []*Sweep{oneCPUOwn}, Metric: busy,
		Judge: losesWith(math.Inf(-1), full, true, captured),
		Text:  "With buffers as they are a system loses packets although its CPU is not fully used (3).",
		Why: Why{Fails: "libpcap and sink-mmap ask for 2 MiB today, whatever the kernel's default: that holds what comes " +
			"in while the program waits."}},
	{ID: "larger-buffers-capture-more",
		Holds: "one CPU: 10 MB capture more at a rate at which buffers as they are lose for sure, and less at none",
		Not:   "less at one, more at none", Subjects: devices, Sweeps: []*Sweep{oneCPUOwn, oneCPU}, Metric: captured,
		Judge: losesLess(),
		Text:  "Larger buffers capture packets that are lost otherwise (2, 3)."},
	{ID: "second-cpu-captures-more", Holds: "the same of two CPUs beside one, 10 MB",
		Not: "the same", Subjects: devices, Sweeps: []*Sweep{oneCPU, twoCPUs}, Metric: captured, Judge: losesLess(),
		Text: "A second CPU improves the capture rate of all systems (3).", Why: Why{Fails: besideGenerator}},
	{ID: "captures-all-to-650-mbps", Holds: "one CPU, 10 MB: 99.9 % captured at every rate up to 650 Mbit/s",
		Not: "lost for sure at any", Subjects: devices, Sweeps: []*Sweep{oneCPU}, Metric: captured, Judge: losesNothing(650),
		Text: "With one CPU and large buffers Linux captures everything up to about 650 Mbit/s (3); beyond that it soon " +
			"loses much."},
	{ID: "captures-nearly-all-with-two-cpus", Holds: "two CPUs, 10 MB: 99.5 % captured at every rate up to 920 Mbit/s",
		Not: "lost for sure at any", Subjects: devices, Sweeps: []*Sweep{twoCPUs}, Metric: nearly, Judge: losesNothing(920),
		Text: "With two CPUs the best system loses less than 0.5 % at any rate up to 920 Mbit/s (4).",
		Why:  Why{Fails: besideGenerator}},
}

// besideGenerator is the reason why a second CPU may not help.
const besideGenerator = "Where labs may use only two CPUs, the second is also the generator's: the program waits " +
	"while frames are made."
