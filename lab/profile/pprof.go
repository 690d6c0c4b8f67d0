package profile

import (
	"fmt"
	"io"
	"math"

	pprof "github.com/google/pprof/profile"

	"github.com/gateweigh/gateweigh/lab/result"
)

// WritePprof writes the stacks of one router (s) in the format of go tool pprof. The file has two sample types: the
// router's CPU time in the window (ns), and ns per thousand packets. The latter is the default, so that -diff_base can
// compare routers that forwarded different numbers of packets.
func WritePprof(w io.Writer, p Profile, s Side) error {
	out := &pprof.Profile{
		SampleType: []*pprof.ValueType{
			{Type: "cpu", Unit: "nanoseconds"}, {Type: "per_1000_packets", Unit: "nanoseconds"}},
		DefaultSampleType: "per_1000_packets",
		PeriodType:        &pprof.ValueType{Type: "cpu", Unit: "nanoseconds"},
		Period:            int64(1e9 / max(p.FrequencyHz, 1)),
		TimeNanos:         p.Start.UnixNano(),
		DurationNanos:     int64(s.Seconds * 1e9),
		Comments: []string{fmt.Sprintf("%d packets in %.3f s; %s, %d clients, %g Mbit/s %s, %s",
			s.Packets, s.Seconds, p.Cell.Text(result.DUT), p.Cell.Int(result.Clients), p.Cell.Number(result.OfferedMbps),
			p.Cell.Text(result.Direction), p.Cell.Text(result.Profile))},
	}
	locations, modules := map[Frame]*pprof.Location{}, map[string]*pprof.Mapping{}
	for _, st := range s.Stacks {
		sample := &pprof.Sample{Value: []int64{
			int64(math.Round(st.NsPerPacket * float64(s.Packets))), int64(math.Round(st.NsPerPacket * 1000)),
		}}
		for i := range st.Frames {
			f := st.Frames[len(st.Frames)-1-i] // pprof has the innermost first
			l, ok := locations[f]
			if !ok {
				l = addLocation(out, modules, f)
				locations[f] = l
			}
			sample.Location = append(sample.Location, l)
		}
		out.Sample = append(out.Sample, sample)
	}
	if err := out.CheckValid(); err != nil {
		return fmt.Errorf("making a pprof profile: %w", err)
	}
	return out.Write(w)
}

// addLocation adds a frame to a pprof profile: a function, a location in it, and a mapping for its module if modules
// does not have one yet.
func addLocation(out *pprof.Profile, modules map[string]*pprof.Mapping, f Frame) *pprof.Location {
	m, ok := modules[f.Module]
	if !ok && f.Module != "" {
		m = &pprof.Mapping{ID: uint64(len(out.Mapping) + 1), File: f.Module, HasFunctions: true}
		modules[f.Module] = m
		out.Mapping = append(out.Mapping, m)
	}
	fn := &pprof.Function{ID: uint64(len(out.Function) + 1), Name: f.Func, SystemName: f.Func, Filename: f.Module}
	out.Function = append(out.Function, fn)
	l := &pprof.Location{ID: uint64(len(out.Location) + 1), Mapping: m, Line: []pprof.Line{{Function: fn}}}
	out.Location = append(out.Location, l)
	return l
}
