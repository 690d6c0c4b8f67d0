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
	// maxFrame is an Ethernet frame at the links' MTU.
	maxFrame = frames.EthernetBytes + traffic.EthernetMTU
	// defaultFrames is what is sent where frame_sizes says nothing: the mix that most test reports use.
	defaultFrames = "imix"
)

// frameSize accepts bytes, names of mixes and names of files.
func frameSize(v any) (string, error) {
	text, ok := strict.Text(v)
	if n, is := v.(int64); is {
		text, ok = fmt.Sprint(n), true
	}
	if !ok {
		return "", fmt.Errorf(
			"must be bytes such as 64, or the name of a mix such as %q, not %s", defaultFrames, strict.Show(v))
	}
	if isSizesFile(text) { // it is read later: its place follows from the experiment file's
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

// applyFrameDefaults fills in defaults that depend on the kind of traffic.
func (e *Experiment) applyFrameDefaults() {
	if !traffic.KindOf(e.Traffic.Kind).Frames {
		return
	}
	if !e.IsSet("traffic.protocol") {
		e.Traffic.Protocol = ProtocolUDP
	}
	if !e.IsSet("frame_sizes") {
		e.FrameSizes = []string{defaultFrames}
	}
	if !e.IsSet("traffic.gaps") {
		e.Traffic.Gaps = traffic.GapsScattered
	}
	e.readSizes()
}

// checkFrames refuses keys of frames beside other traffic, and what frames cannot be.
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
			if mbps := e.mbpsOf(kpps, size); mbps < MinOfferedMbps || mbps > MaxOfferedMbps {
				report("offered_kpps", "%g with frames of %s makes %g Mbit/s: want %g to %d", kpps, size, mbps, MinOfferedMbps,
					MaxOfferedMbps)
				return
			}
		}
	}
}

// mbpsOf is the rate of frames of a size, Mbit/s, to a tenth of a kbit/s.
func (e *Experiment) mbpsOf(kpps float64, size string) float64 {
	sizes, err := e.SizesOf(size)
	if err != nil {
		return 0 // the key's parser has refused it
	}
	return math.Round(kpps*sizes.MeanBytes()*8/1e3*1e4) / 1e4
}

// sent lists the sizes of frames that are swept; one without a name where none are sent.
func (e *Experiment) sent() []string {
	if traffic.KindOf(e.Traffic.Kind).Frames {
		return e.FrameSizes
	}
	return []string{""}
}

// EachLoad calls fn with each size of frames, "" of other traffic, and the loads of that size that so many
// clients offer together, Mbit/s.
func (e *Experiment) EachLoad(clients int, fn func(size string, loads []float64)) {
	for _, size := range e.sent() {
		list := e.Loads(clients)
		for _, kpps := range e.OfferedKpps {
			if mbps := e.mbpsOf(kpps, size); !slices.Contains(list, mbps) {
				list = append(list, mbps)
			}
		}
		fn(size, list)
	}
}

// sized is a side as it is in a block with a size of frames.
func (e *Experiment) sized(s Side, cell result.Cell) Side {
	if size := cell.Text(result.FrameSize); size != "" {
		s.Traffic.Frames = e.source(size)
	}
	return s
}
