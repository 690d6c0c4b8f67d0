package experiment_test

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/measure"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/traffic/frames"
	"github.com/gateweigh/gateweigh/lab/traffic/frames/capture"
)

// captureOf is a pcap of frames of these sizes, a millisecond apart.
func captureOf(t *testing.T, sizes ...int) []byte {
	t.Helper()
	var tr frames.Trace
	for i, size := range sizes {
		if err := tr.Add(size, time.Unix(0, int64(i)*int64(time.Millisecond))); err != nil {
			t.Fatal(err)
		}
	}
	var b bytes.Buffer
	if err := capture.Write(&b, &tr); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// folderOf is a new folder with files.
func folderOf(t *testing.T, files map[string][]byte) string {
	t.Helper()
	dir := t.TempDir()
	for name, data := range files {
		at := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

const withSizes = `duts = ["clean"]
clients = [1]
offered_kpps = [10]
frame_sizes = [%s]
traffic = { kind = "frames"%s }
`

func fill(sizes, more string) []byte {
	return []byte(strings.Replace(strings.Replace(withSizes, "%s", sizes, 1), "%s", more, 1))
}

// TestSizesFromFiles: files beside the experiment are read with it, are known by their names, and what an experiment
// is encoded to needs no other files.
func TestSizesFromFiles(t *testing.T) {
	dir := folderOf(t, map[string][]byte{
		"sizes.csv": []byte("bytes,weight\n60,0.7\n590,0.2\n1514,0.1\n"), "data/trace.pcap": captureOf(t, 60, 1514, 590, 60),
		"x.toml": fill(`"data/trace.pcap", 60, "sizes.csv"`, ""),
	})
	e, err := measure.Catalogue().Load(filepath.Join(dir, "x.toml"))
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"trace.pcap", "60", "sizes.csv"}; !slices.Equal(e.FrameSizes, want) {
		t.Errorf("frame sizes %v, want %v", e.FrameSizes, want)
	}
	var loads [][]float64
	e.EachLoad(1, func(_ string, list []float64) { loads = append(loads, list) })
	if want := [][]float64{{44.48}, {4.8}, {24.912}}; !reflect.DeepEqual(loads, want) {
		t.Errorf("10,000 frames a second are %v Mbit/s, want %v", loads, want)
	}
	files, err := e.Files()
	if err != nil {
		t.Fatal(err)
	}
	files[result.ExperimentFile] = e.Encode()
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	again, err := measure.Catalogue().Load(filepath.Join(folderOf(t, files), result.ExperimentFile))
	if err != nil {
		t.Fatalf("%v\n%s", err, files[result.ExperimentFile])
	}
	for _, size := range e.FrameSizes {
		before, is := framesOf(t, e, size), framesOf(t, again, size)
		if !slices.Equal(before, is) || len(before) == 0 {
			t.Errorf("%s: frames %v, and from the run's folder %v", size, before, is)
		}
	}
	if more, err := again.Files(); err != nil || len(more) != 2 || !bytes.Equal(again.Encode(), e.Encode()) {
		t.Errorf("encoded again: %d files, %v\n%s", len(more), err, again.Encode())
	}
}

// framesOf are the first frames that agents send of a size.
func framesOf(t *testing.T, e *experiment.Experiment, size string) []frames.Frame {
	t.Helper()
	block := experiment.Block{Cell: result.NewCell(result.Clients, 1, result.FrameSize, size)}
	sizes, trace, err := e.Labs(block)[0].Traffic.Frames.Open()
	if err != nil {
		t.Fatal(err)
	}
	schedule := frames.Schedule{PacketsPerSecond: 1000}
	if trace != nil {
		schedule = frames.Schedule{Gaps: trace}
	}
	p, err := frames.NewPlan(frames.Config{Sizes: sizes, Schedule: schedule, Count: 20})
	if err != nil {
		t.Fatal(err)
	}
	batch := make([]frames.Frame, 20)
	return batch[:p.Fill(batch)]
}

func TestBadSizesFromFiles(t *testing.T) {
	whole := captureOf(t, 60, 1514)
	long := slices.Concat(whole[:24], bytes.Repeat(whole[24:40], 1<<20+1))
	jumbo := bytes.Clone(whole)
	binary.LittleEndian.PutUint32(jumbo[24+12:], 9000)
	dir := folderOf(t, map[string][]byte{
		"empty.csv": nil, "none.csv": []byte("bytes,weight\n60,0\n"), "bad.csv": []byte("60,1\nx,1\n"),
		"huge.csv":   bytes.Repeat([]byte("60,1\n"), 300_000),
		"empty.pcap": nil, "cut.pcap": whole[:len(whole)-1], "text.pcap": []byte("no capture at all, but a text"),
		"jumbo.pcap": jumbo, "long.pcap": long,
		"two words.csv": []byte("60,1\n"), "good.csv": []byte("60,1\n"), "folder.csv/x": nil,
		"one.pcap": captureOf(t, 60),
	})
	for _, tt := range []struct {
		sizes, more string
		key         string
		want        string
	}{
		{`"missing.csv"`, "", "frame_sizes", "missing.csv"},
		{`"empty.csv"`, "", "frame_sizes", "no size has a weight"},
		{`"none.csv"`, "", "frame_sizes", "no size has a weight"},
		{`"bad.csv"`, "", "frame_sizes", "bad.csv:2"},
		{`"huge.csv"`, "", "frame_sizes", "1 MiB"},
		{`"folder.csv"`, "", "frame_sizes", "folder.csv is a folder, no file"},
		{`"empty.pcap"`, "", "frame_sizes", "empty"},
		{`"cut.pcap"`, "", "frame_sizes", "packet 2"},
		{`"text.pcap"`, "", "frame_sizes", "no pcap"},
		{`"jumbo.pcap"`, "", "frame_sizes", "9000"},
		{`"long.pcap"`, "", "frame_sizes", "1048576"},
		{`"two words.csv"`, "", "frame_sizes", "rename"},
		{`"sizes.txt"`, "", "frame_sizes", ".csv"},
		{`"good.csv"`, `, gaps = "captured"`, "traffic.gaps", "good.csv"},
		{`"one.pcap"`, `, gaps = "captured"`, "traffic.gaps", "no time between"},
	} {
		file := filepath.Join(dir, "x.toml")
		_, err := measure.Catalogue().Parse(file, fill(tt.sizes, tt.more))
		line := map[string]string{"frame_sizes": ":4:", "traffic.gaps": ":5:"}[tt.key]
		for _, want := range []string{file + line, tt.key, tt.want} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s %s: %v, want an error with %q", tt.sizes, tt.more, err, want)
			}
		}
	}
}

func TestSizesFromFilesBySet(t *testing.T) {
	dir := folderOf(t, map[string][]byte{"good.csv": []byte("60,1\n"), "x.toml": fill("60", "")})
	e, err := measure.Catalogue().Load(filepath.Join(dir, "x.toml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{filepath.Join(dir, "good.csv"), "good.csv", "./good.csv"} {
		if err := e.Set("frame_sizes", name); err != nil || e.Check() != nil ||
			!slices.Equal(e.FrameSizes, []string{"good.csv"}) {
			t.Errorf("%s: %v, %v, %v", name, err, e.Check(), e.FrameSizes)
		}
	}
	if err := e.Set("frame_sizes", "worse.csv"); err != nil || e.Check() == nil {
		t.Errorf("a file that is not there: %v, %v", err, e.Check())
	}
}
