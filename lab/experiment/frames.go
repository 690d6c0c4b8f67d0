package experiment

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/gateweigh/gateweigh/internal/strict"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/traffic"
	"github.com/gateweigh/gateweigh/lab/traffic/frames"
)

const (
	minKpps = 0.01
	maxKpps = 100_000
	maxSeed = math.MaxInt32
	// maxFrame is the length of the longest frame on the lab's links, bytes without FCS.
	maxFrame = frames.EthernetBytes + traffic.EthernetMTU
	// defaultFrames is the default of frame_sizes: the mix that most test reports use.
	defaultFrames = "imix"
	// defaultFrames6 is the default where clients have IPv6.
	defaultFrames6 = "imix6"
)

// frameSize accepts bytes, names of mixes and names of files.
func frameSize(v any) (string, error) {
	text, ok := strict.Text(v)
	if n, isNumber := v.(int64); isNumber {
		text, ok = fmt.Sprint(n), true
	}
	if !ok {
		return "", fmt.Errorf(
			"must be bytes such as 64, or the name of a mix such as %q, not %s", defaultFrames, strict.Show(v))
	}
	if isSizesFile(text) { // readSizes reads it later, when the experiment file's folder is known
		return text, nil
	}
	sizes, err := frames.Named(text)
	if err != nil || sizes.Longest() > maxFrame {
		return "", fmt.Errorf(
			"must be bytes from %d to %d, without FCS, one of %s, or a file of sizes (.csv, .pcap, .pcapng), not %s",
			frames.MinBytes, maxFrame, strings.Join(frames.MixNames(), ", "), strict.Show(v))
	}
	return text, nil
}

// applyFrameDefaults sets the defaults of keys of traffic.kind = "frames", and reads the files of frame_sizes.
func (e *Experiment) applyFrameDefaults() {
	if !traffic.KindOf(e.Traffic.Kind).Frames {
		return
	}
	if !e.IsSet("traffic.protocol") {
		e.Traffic.Protocol = ProtocolUDP
	}
	if !e.IsSet("frame_sizes") {
		e.FrameSizes = []string{defaultFrames}
		if e.HasIPv6() {
			e.FrameSizes = []string{defaultFrames6}
		}
	}
	if !e.IsSet("traffic.gaps") {
		e.Traffic.Gaps = traffic.GapsScattered
	}
	e.readSizes()
}

// checkFrames refuses keys of frames with other traffic, and keys that frames cannot have.
func (e *Experiment) checkFrames(report Report) {
	kinds := strict.Choice(traffic.Kinds(func(k traffic.Kind) bool { return k.Frames }))
	if !traffic.KindOf(e.Traffic.Kind).Frames {
		for _, key := range []string{"frame_sizes", "offered_kpps", "traffic.gaps", "traffic.seed"} {
			if e.IsSet(key) {
				report(key, "needs traffic.kind = %s", kinds)
			}
		}
		return
	}
	if e.Client.Hosts > 1 {
		report("client.hosts", "%d does not go with traffic.kind = %s: one generator sends the frames of all clients",
			e.Client.Hosts, kinds)
	}
	if e.Traffic.Protocol != ProtocolUDP {
		report("traffic.protocol", "%q does not go with kind = %s: such frames carry UDP", e.Traffic.Protocol, kinds)
	}
	if e.Beside.Traffic != "" && !traffic.KindOf(e.Beside.Traffic).Frames {
		report("beside.traffic", "does not go with kind = %s: the two count different loads", kinds)
	}
	if e.checkSizes(report); len(e.badSizes) > 0 {
		return
	}
	for _, size := range e.FrameSizes {
		for _, kpps := range e.OfferedKpps {
			if mbps := e.mbpsOfFrames(kpps, size); mbps < MinOfferedMbps || mbps > MaxOfferedMbps {
				report("offered_kpps", "%g with frames of %s makes %g Mbit/s: want %g to %d", kpps, size, mbps, MinOfferedMbps,
					MaxOfferedMbps)
				return
			}
		}
	}
}

// mbpsOfFrames returns the load of kpps thousand frames a second of a size, Mbit/s, rounded to a tenth of a kbit/s.
func (e *Experiment) mbpsOfFrames(kpps float64, size string) float64 {
	sizes, err := e.SizesOf(size)
	if err != nil {
		return 0 // the key's parser has refused it
	}
	return math.Round(kpps*sizes.MeanBytes()*8/1e3*1e4) / 1e4
}

// sweptSizes returns the sizes of frames to measure, or one empty name for other traffic.
func (e *Experiment) sweptSizes() []string {
	if traffic.KindOf(e.Traffic.Kind).Frames {
		return e.FrameSizes
	}
	return []string{""}
}

// EachLoad calls fn with each size of frames ("" for other traffic) and the loads that this number of clients offer
// together in frames of that size, Mbit/s.
func (e *Experiment) EachLoad(clients int, fn func(size string, loads []float64)) {
	for _, size := range e.sweptSizes() {
		list := e.Loads(clients)
		for _, kpps := range e.OfferedKpps {
			if mbps := e.mbpsOfFrames(kpps, size); !slices.Contains(list, mbps) {
				list = append(list, mbps)
			}
		}
		fn(size, list)
	}
}

// withFrames returns a side with the frames that a cell names, if it names any.
func (e *Experiment) withFrames(s Side, cell result.Cell) Side {
	if size := cell.Text(result.FrameSize); size != "" {
		s.Traffic.Frames = e.source(size)
	}
	return s
}
