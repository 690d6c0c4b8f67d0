package capture_test

import (
	"bytes"
	"compress/gzip"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"github.com/gateweigh/gateweigh/lab/traffic/frames"
	"github.com/gateweigh/gateweigh/lab/traffic/frames/capture"
)

// The tests of this file read captures that gopacket has written, and play them: a plan (planFrames) sends frames with
// the sizes and gaps of a capture. Frames shorter than 60 bytes are padded to 60.

// packet is one packet of a capture.
type packet struct {
	bytes int           // length on the link
	kept  int           // bytes that the capture has kept
	at    time.Duration // time since captureStart
}

var captureStart = time.Unix(1_700_000_000, 0)

// info returns the packet in the form that gopacket writes.
func (p packet) info() (gopacket.CaptureInfo, []byte) {
	return gopacket.CaptureInfo{Timestamp: captureStart.Add(p.at), CaptureLength: p.kept, Length: p.bytes}, make([]byte, p.kept)
}

// pcapOf returns a pcap file with packets of a link type.
func pcapOf(t testing.TB, link layers.LinkType, packets ...packet) []byte {
	t.Helper()
	var b bytes.Buffer
	w := pcapgo.NewWriterNanos(&b)
	err := w.WriteFileHeader(262144, link)
	for _, p := range packets {
		if info, data := p.info(); err == nil {
			err = w.WritePacket(info, data)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// pcapngOf returns a pcapng file with packets of a link type.
func pcapngOf(t testing.TB, link layers.LinkType, packets ...packet) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := pcapgo.NewNgWriter(&b, link)
	for _, p := range packets {
		if info, data := p.info(); err == nil {
			err = w.WritePacket(info, data)
		}
	}
	if err == nil {
		err = w.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func gzipped(t testing.TB, data []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// planFrames returns the frames of a plan, at most 200.
func planFrames(t testing.TB, cfg frames.Config) []frames.Frame {
	t.Helper()
	p, err := frames.NewPlan(cfg)
	if err != nil {
		t.Fatal(err)
	}
	batch := make([]frames.Frame, 200)
	return batch[:p.Fill(batch)]
}

// frameAt returns the frame of a plan with a size and the time at which it is due, ns.
func frameAt(bytes uint16, ns int64) frames.Frame { return frames.Frame{Bytes: bytes, Due: ns} }

var captured = []packet{{54, 54, 0}, {1514, 68, 1000}, {590, 68, 1500}, {60, 60, 4000}}

// TestCountSizes: frames are counted by their size, also in a file that ends in the middle of a frame, which is not
// counted. A file that is no capture is an error.
func TestCountSizes(t *testing.T) {
	ng, old := pcapngOf(t, layers.LinkTypeEthernet, captured...), pcapOf(t, layers.LinkTypeEthernet, append(captured, packet{60, 60, 5000})...)
	first := map[int]int64{54: 1, 1514: 1, 590: 1, 60: 1}
	for name, c := range map[string]struct {
		data []byte
		want capture.Count
	}{
		"pcap":               {old, capture.Count{5, map[int]int64{54: 1, 1514: 1, 590: 1, 60: 2}, false}},
		"pcapng":             {ng, capture.Count{4, first, false}},
		"cut in a frame":     {old[:len(old)-1], capture.Count{4, first, true}},
		"cut before a frame": {old[:len(old)-60], capture.Count{4, first, true}},
		"cut in a header":    {old[:len(old)-61], capture.Count{4, first, true}},
		"no frame":           {pcapOf(t, layers.LinkTypeEthernet), capture.Count{0, map[int]int64{}, false}},
	} {
		if got, err := capture.CountSizes(bytes.NewReader(c.data)); err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, %v; want %+v", name, got, err, c.want)
		}
	}
	for name, data := range map[string][]byte{"empty": nil, "no capture": []byte("a text that is long enough for a header"), "cut in the file's header": old[:20]} {
		if got, err := capture.CountSizes(bytes.NewReader(data)); err == nil {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// TestTraceIsPlayedAsCaptured: a plan has the sizes and gaps of a capture, from its beginning again and again, also at
// another speed or with other sizes. A link that is too slow for it is refused.
func TestTraceIsPlayedAsCaptured(t *testing.T) {
	sixty, err := frames.Named("60")
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{
		"pcap":            pcapOf(t, layers.LinkTypeEthernet, captured...),
		"pcapng":          pcapngOf(t, layers.LinkTypeEthernet, captured...),
		"compressed pcap": gzipped(t, pcapOf(t, layers.LinkTypeEthernet, captured...)),
	} {
		tr, err := capture.Read(bytes.NewReader(data), name)
		if err != nil {
			t.Error(err)
			continue
		}
		// 4000 ns, and the mean gap of 1333 from one pass to the next.
		got := planFrames(t, frames.Config{Sizes: tr.Sizes(), Schedule: frames.Schedule{Gaps: tr}, Count: 6})
		want := []frames.Frame{frameAt(60, 0), frameAt(1514, 1000), frameAt(590, 1500), frameAt(60, 4000), frameAt(60, 5333), frameAt(1514, 6333)}
		if !slices.Equal(got, want) || tr.Padded != 1 || tr.Frames() != 4 {
			t.Errorf("%s: %v, %d padded, want %v", name, got, tr.Padded, want)
		}
		twice := planFrames(t, frames.Config{Sizes: sixty, Schedule: frames.Schedule{Gaps: tr, Speed: 2}, For: 2001})
		if want := []frames.Frame{frameAt(60, 0), frameAt(60, 500), frameAt(60, 750), frameAt(60, 2000)}; !slices.Equal(twice, want) {
			t.Errorf("%s at twice its speed with other sizes: %v, want %v", name, twice, want)
		}
		fast := frames.Config{Sizes: tr.Sizes(), Schedule: frames.Schedule{Gaps: tr, Speed: 2}}
		if p, err := frames.NewPlan(fast); err != nil || math.Abs(p.Rate().PacketsPerSecond*5333/8e9-1) > 1e-9 {
			t.Errorf("%s: plan %+v, %v", name, p, err)
		}
		slow := frames.Config{Sizes: tr.Sizes(), Schedule: frames.Schedule{Gaps: tr}, LinkMbps: 100}
		if _, err := frames.NewPlan(slow); err == nil || !strings.Contains(err.Error(), "100 Mbit/s") {
			t.Errorf("%s on a link of 100 Mbit/s: %v", name, err)
		}
	}
}

// TestTraceOutOfOrderStillHasSizes: a capture with a packet earlier than the one before it has sizes, but no gaps.
func TestTraceOutOfOrderStillHasSizes(t *testing.T) {
	tr, err := capture.Read(bytes.NewReader(pcapOf(t, layers.LinkTypeEthernet, packet{60, 60, 2000}, packet{70, 70, 1000}, packet{80, 80, 3000})), "x")
	if err != nil {
		t.Fatal(err)
	}
	got := planFrames(t, frames.Config{Sizes: tr.Sizes(), Schedule: frames.Schedule{AtOnce: true}, Count: 3})
	if want := []frames.Frame{{Bytes: 60}, {Bytes: 70}, {Bytes: 80}}; !slices.Equal(got, want) {
		t.Errorf("frames %v, want %v", got, want)
	}
	if _, err := frames.NewPlan(frames.Config{Sizes: tr.Sizes(), Schedule: frames.Schedule{Gaps: tr}}); err == nil || !strings.Contains(err.Error(), "packet 2") {
		t.Errorf("its gaps: %v", err)
	}
}

// TestBadCaptures: the error of a capture that cannot be read names the file, the packet and the reason.
func TestBadCaptures(t *testing.T) {
	whole, ng := pcapOf(t, layers.LinkTypeEthernet, captured...), pcapngOf(t, layers.LinkTypeEthernet, captured...)
	short := func(p packet) []byte { return pcapOf(t, layers.LinkTypeEthernet, captured[1], p) }
	for _, tt := range []struct {
		name string
		data []byte
		want []string // parts of the error, besides the file's name
	}{
		{"empty file", nil, []string{"empty"}},
		{"no capture", []byte("bytes,weight\n60,1\n and so on, and so on"), []string{"no pcap"}},
		{"ends in the file's header", whole[:10], []string{"ends"}},
		{"ends in a packet", whole[:len(whole)-1], []string{"packet 4", "ends"}},
		{"ends before a packet's bytes", whole[:len(whole)-60], []string{"packet 4", "ends"}},
		{"ends in a packet's header", whole[:len(whole)-65], []string{"packet 4", "ends"}},
		{"pcapng ends in a packet", ng[:len(ng)-1], []string{"packet 4", "ends"}},
		{"compressed, ends early", gzipped(t, whole)[:60], []string{"ends"}},
		{"no packets", whole[:24], []string{"no packets"}},
		{"pcapng without packets", pcapngOf(t, layers.LinkTypeEthernet), []string{"no packets"}},
		{"another link", pcapOf(t, layers.LinkTypeRaw, captured...), []string{"packet 1", "Raw"}},
		{"another link in pcapng", pcapngOf(t, layers.LinkTypeRaw, captured...), []string{"packet 1", "Raw"}},
		{"aggregated", short(packet{23_000, 68, 0}), []string{"packet 2", "23000", "gro off"}},
		{"no frame", short(packet{13, 13, 0}), []string{"packet 2", "13"}},
	} {
		_, err := capture.Read(bytes.NewReader(tt.data), "x.pcap")
		for _, w := range append(tt.want, "x.pcap") {
			if err == nil || !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %v, want an error that says %q", tt.name, err, w)
			}
		}
	}
}

// FuzzRead: whatever a file has in it, a trace that is read can be played.
func FuzzRead(f *testing.F) {
	whole, ng := pcapOf(f, layers.LinkTypeEthernet, captured...), pcapngOf(f, layers.LinkTypeEthernet, captured...)
	for _, seed := range [][]byte{whole, ng, whole[:len(whole)-5], ng[:100], gzipped(f, whole), nil} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		tr, err := capture.Read(bytes.NewReader(data), "x")
		if err != nil {
			return
		}
		cfg := frames.Config{Sizes: tr.Sizes(), Schedule: frames.Schedule{Gaps: tr}, Count: 100}
		if _, err := frames.NewPlan(cfg); err != nil {
			cfg.Schedule = frames.Schedule{AtOnce: true}
		}
		list, last := planFrames(t, cfg), int64(0)
		if len(list) != 100 {
			t.Fatalf("100 frames were asked for, %d came", len(list))
		}
		for i, f := range list {
			if f.Bytes < frames.MinBytes || f.Bytes > frames.MaxBytes || f.Due < last {
				t.Fatalf("frame %d after %d ns: %+v", i, last, f)
			}
			last = f.Due
		}
	})
}

// TestRareCaptureFormats: old is a big-endian pcap file with times in microseconds. ng is a big-endian pcapng file
// whose times are in units of 2⁻¹⁰ s, with blocks of several kinds. Each has two frames, of 70 and 80 bytes.
func TestRareCaptureFormats(t *testing.T) {
	old := []byte("\xa1\xb2\xc3\xd4\x00\x02\x00\x04\x00\x00\x00\x00\x00\x00\x00\x00\x00\x04\x00\x00\x10\x00\x00\x01" + // FCS flags above the link's type
		"\x00\x00\x00\x01\x00\x00\x00\x05\x00\x00\x00\x02\x00\x00\x00\x46ab" +
		"\x00\x00\x00\x02\x00\x00\x00\x07\x00\x00\x00\x00\x00\x00\x00\x50")
	block := func(kind byte, body string) string {
		length := string([]byte{0, 0, 0, byte(12 + len(body))})
		return "\x00\x00\x00" + string(kind) + length + body + length
	}
	ng := []byte("\x0a\x0d\x0d\x0a\x00\x00\x00\x1c\x1a\x2b\x3c\x4d\x00\x01\x00\x00\xff\xff\xff\xff\xff\xff\xff\xff\x00\x00\x00\x1c" +
		block(1, "\x00\x01\x00\x00\x00\x00\x00\x00"+"\x00\x09\x00\x01\x8a\x00\x00\x00"+"\x00\x00\x00\x00") + // 2⁻¹⁰ s
		block(5, "skipped.") +
		block(6, "\x00\x00\x00\x00"+"\x00\x00\x00\x00\x00\x00\x04\x00"+"\x00\x00\x00\x02\x00\x00\x00\x46"+"ab\x00\x00") +
		block(2, "\x00\x00\x00\x07"+"\x00\x00\x00\x00\x00\x00\x08\x01"+"\x00\x00\x00\x00\x00\x00\x00\x50"))
	for name, tt := range map[string]struct {
		data []byte
		gap  int64
	}{"pcap": {old, 1_000_002_000}, "pcapng": {ng, 1_000_976_562}} {
		tr, err := capture.Read(bytes.NewReader(tt.data), name)
		if err != nil {
			t.Error(err)
			continue
		}
		want := []frames.Frame{frameAt(70, 0), frameAt(80, tt.gap)}
		if got := planFrames(t, frames.Config{Sizes: tr.Sizes(), Schedule: frames.Schedule{Gaps: tr}, Count: 2}); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	simple := append(slices.Clone(ng[:len(ng)-28-4]), block(3, "\x00\x00\x00\x50abcd")...)
	if got, err := capture.CountSizes(bytes.NewReader(simple)); err != nil || got.Frames != 2 || got.Sizes[80] != 1 {
		t.Errorf("a block without a time: %+v, %v", got, err)
	}
	for name, data := range map[string][]byte{
		"another interface": bytes.Replace(bytes.Clone(ng), []byte("\x00\x00\x00\x07\x00\x00"), []byte("\x00\x01\x00\x07\x00\x00"), 1),
		"a short block":     bytes.Replace(bytes.Clone(ng), []byte("\x00\x00\x00\x05\x00\x00\x00\x14"), []byte("\x00\x00\x00\x05\x00\x00\x00\x08"), 1),
		"no section":        ng[28:],
		"units beyond":      bytes.Replace(bytes.Clone(ng), []byte("\x8a"), []byte("\x7f"), 1),
	} {
		if got, err := capture.CountSizes(bytes.NewReader(data)); err == nil {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
