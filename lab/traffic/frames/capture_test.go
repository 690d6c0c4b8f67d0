package frames

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
)

// packet is one of a capture: its bytes on the link, of which the capture has kept some.
type packet struct {
	bytes, kept int
	at          time.Duration
}

var began = time.Unix(1_700_000_000, 0)

func (p packet) info() (gopacket.CaptureInfo, []byte) {
	return gopacket.CaptureInfo{Timestamp: began.Add(p.at), CaptureLength: p.kept, Length: p.bytes}, make([]byte, p.kept)
}

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

var captured = []packet{{54, 54, 0}, {1514, 68, 1000}, {590, 68, 1500}, {60, 60, 4000}}

func TestCountSizes(t *testing.T) {
	ng, old := pcapngOf(t, layers.LinkTypeEthernet, captured...), pcapOf(t, layers.LinkTypeEthernet, append(captured, packet{60, 60, 5000})...)
	first := map[int]int64{54: 1, 1514: 1, 590: 1, 60: 1}
	for name, c := range map[string]struct {
		data []byte
		want Count
	}{
		"pcap":               {old, Count{5, map[int]int64{54: 1, 1514: 1, 590: 1, 60: 2}, false}},
		"pcapng":             {ng, Count{4, first, false}},
		"cut in a frame":     {old[:len(old)-1], Count{4, first, true}},
		"cut before a frame": {old[:len(old)-60], Count{4, first, true}},
		"cut in a header":    {old[:len(old)-61], Count{4, first, true}},
		"no frame":           {pcapOf(t, layers.LinkTypeEthernet), Count{0, map[int]int64{}, false}},
	} {
		if got, err := CountSizes(bytes.NewReader(c.data)); err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, %v; want %+v", name, got, err, c.want)
		}
	}
	for name, data := range map[string][]byte{"empty": nil, "no capture": []byte("a text that is long enough for a header"), "cut in the file's header": old[:20]} {
		if got, err := CountSizes(bytes.NewReader(data)); err == nil {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestTraceIsPlayedAsCaptured(t *testing.T) {
	for name, data := range map[string][]byte{
		"pcap":            pcapOf(t, layers.LinkTypeEthernet, captured...),
		"pcapng":          pcapngOf(t, layers.LinkTypeEthernet, captured...),
		"compressed pcap": gzipped(t, pcapOf(t, layers.LinkTypeEthernet, captured...)),
	} {
		tr, err := ReadTrace(bytes.NewReader(data), name)
		if err != nil {
			t.Error(err)
			continue
		}
		// 4000 ns, and the mean gap of 1333 from one pass to the next.
		frames := all(t, Config{Sizes: tr.Sizes(), Schedule: Schedule{Gaps: tr}, Count: 6})
		want := []Frame{{60, 0, 0}, {1514, 0, 1000}, {590, 0, 1500}, {60, 0, 4000}, {60, 0, 5333}, {1514, 0, 6333}}
		if !slices.Equal(frames, want) || tr.Padded != 1 || tr.Frames() != 4 {
			t.Errorf("%s: %v, %d padded, want %v", name, frames, tr.Padded, want)
		}
		twice := all(t, Config{Sizes: named(t, "60"), Schedule: Schedule{Gaps: tr, Speed: 2}, For: 2001})
		if want := []Frame{{60, 0, 0}, {60, 0, 500}, {60, 0, 750}, {60, 0, 2000}}; !slices.Equal(twice, want) {
			t.Errorf("%s at twice its speed with other sizes: %v, want %v", name, twice, want)
		}
		if r := (Config{Sizes: tr.Sizes(), Schedule: Schedule{Gaps: tr, Speed: 2}}).rate(); math.Abs(r.PacketsPerSecond*5333/8e9-1) > 1e-9 {
			t.Errorf("%s: rate %+v", name, r)
		}
		slow := Config{Sizes: tr.Sizes(), Schedule: Schedule{Gaps: tr}, LinkMbps: 100}
		if _, err := NewPlan(slow); err == nil || !strings.Contains(err.Error(), "100 Mbit/s") {
			t.Errorf("%s on a link of 100 Mbit/s: %v", name, err)
		}
	}
}

func TestTraceOutOfOrderStillHasSizes(t *testing.T) {
	tr, err := ReadTrace(bytes.NewReader(pcapOf(t, layers.LinkTypeEthernet, packet{60, 60, 2000}, packet{70, 70, 1000}, packet{80, 80, 3000})), "x")
	if err != nil {
		t.Fatal(err)
	}
	if got := counts(all(t, Config{Sizes: tr.Sizes(), Schedule: Schedule{AtOnce: true}, Count: 3})); len(got) != 3 {
		t.Errorf("sizes %v", got)
	}
	if _, err := NewPlan(Config{Sizes: tr.Sizes(), Schedule: Schedule{Gaps: tr}}); err == nil || !strings.Contains(err.Error(), "packet 2") {
		t.Errorf("its gaps: %v", err)
	}
}

func TestBadCaptures(t *testing.T) {
	whole, ng := pcapOf(t, layers.LinkTypeEthernet, captured...), pcapngOf(t, layers.LinkTypeEthernet, captured...)
	short := func(p packet) []byte { return pcapOf(t, layers.LinkTypeEthernet, captured[1], p) }
	for _, tt := range []struct {
		name string
		data []byte
		want []string
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
		_, err := ReadTrace(bytes.NewReader(tt.data), "x.pcap")
		for _, w := range append(tt.want, "x.pcap") {
			if err == nil || !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %v, want an error that says %q", tt.name, err, w)
			}
		}
	}
}

func TestHistogramFromCSV(t *testing.T) {
	for _, text := range []string{
		"bytes,weight\n60,7\n590,4\n1514,1\n",
		"# 7:4:1\r\n 590, 0.04\r\n\r\n60,0.05\r\n1514,0.01\r\n60,2e-2\r\n70,0\r\n",
	} {
		s, err := ReadHistogram(strings.NewReader(text), "mix.csv")
		if err != nil || !slices.Equal(s.Shares(), named(t, "imix").Shares()) {
			t.Errorf("%q: %v, %v", text, s.Shares(), err)
		}
	}
	for _, tt := range []struct {
		text string
		want []string
	}{
		{"", []string{"weight"}},
		{"bytes,weight\n", []string{"weight"}},
		{"60,1\n61\n", []string{":2:", "bytes,weight"}},
		{"60,1,2\n", []string{":1:", "bytes,weight"}},
		{"bytes,weight\n60,1\nlong,1\n", []string{":3:", "long"}},
		{"60,many\n", []string{":1:", "many"}},
		{"60,-0.5\n", []string{":1:", "-0.5"}},
		{"60,NaN\n", []string{":1:", "NaN"}},
		{"60,Inf\n", []string{":1:", "Inf"}},
		{"# shorter than Ethernet's least\n40,1\n", []string{":2:", "40 bytes", "60"}},
		{"60,1\n9015,1\n", []string{":2:", "9015", "9014"}},
		{"60,\"1\n", []string{":1:"}},
	} {
		_, err := ReadHistogram(strings.NewReader(tt.text), "mix.csv")
		for _, w := range append(tt.want, "mix.csv") {
			if err == nil || !strings.Contains(err.Error(), w) {
				t.Errorf("%q: %v, want an error that says %q", tt.text, err, w)
			}
		}
	}
}

// FuzzReadTrace: whatever a file has in it, a trace that is read can be played.
func FuzzReadTrace(f *testing.F) {
	whole, ng := pcapOf(f, layers.LinkTypeEthernet, captured...), pcapngOf(f, layers.LinkTypeEthernet, captured...)
	for _, seed := range [][]byte{whole, ng, whole[:len(whole)-5], ng[:100], gzipped(f, whole), nil} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		tr, err := ReadTrace(bytes.NewReader(data), "x")
		if err != nil {
			return
		}
		cfg := Config{Sizes: tr.Sizes(), Schedule: Schedule{Gaps: tr}, Count: 100}
		p, err := NewPlan(cfg)
		if err != nil {
			cfg.Schedule = Schedule{AtOnce: true}
			if p, err = NewPlan(cfg); err != nil {
				t.Fatal(err)
			}
		}
		play(t, p)
	})
}

// FuzzReadHistogram: a mix that is read can be played.
func FuzzReadHistogram(f *testing.F) {
	for _, seed := range []string{"bytes,weight\n60,1\n", "60,1e300\n61,1e-300\n", "\"60\",0x1p4", "60,1\n60", ",\n"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := ReadHistogram(strings.NewReader(text), "x")
		if err != nil {
			return
		}
		p, err := NewPlan(Config{Sizes: s, Schedule: Schedule{Mbps: 1000}, Count: 100})
		if err != nil {
			t.Fatal(err)
		}
		play(t, p)
	})
}

// play checks what holds for all frames of all plans.
func play(t *testing.T, p *Plan) {
	t.Helper()
	batch := make([]Frame, 101)
	if n := p.Fill(batch); n != 100 {
		t.Fatalf("100 frames were asked for, %d came", n)
	}
	last := int64(0)
	for i, f := range batch[:100] {
		if f.Bytes < MinBytes || int(f.Bytes) > p.MaxBytes() || p.MaxBytes() > MaxBytes || f.Due < last {
			t.Fatalf("frame %d after %d ns: %+v; the longest has %d bytes", i, last, f, p.MaxBytes())
		}
		last = f.Due
	}
}
