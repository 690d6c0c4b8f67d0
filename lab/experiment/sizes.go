package experiment

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/traffic"
	"github.com/gateweigh/gateweigh/lab/traffic/frames"
	"github.com/gateweigh/gateweigh/lab/traffic/frames/capture"
	"github.com/gateweigh/gateweigh/textfile"
)

// sizesFile is the content of a file that frame_sizes names: a histogram of sizes, or a capture of packets.
type sizesFile struct {
	sizes  frames.Sizes
	trace  *frames.Trace  // of a capture; nil: the file is a histogram
	source *frames.Source // the same in the form that agents take
}

// maxHistogramBytes is the largest histogram, which has a line for each size of frames.
const maxHistogramBytes = 1 << 20

// The endings of files that frame_sizes takes: of a histogram, and of captures, which may also be compressed (.gz).
const histogramEnding = ".csv"

var captureEndings = []string{".pcap", ".pcapng", ".cap"}

// isSizesFile reports whether a frame size is the name of a file.
func isSizesFile(name string) bool {
	ending := filepath.Ext(strings.TrimSuffix(name, ".gz"))
	return ending == histogramEnding && !strings.HasSuffix(name, ".gz") || slices.Contains(captureEndings, ending)
}

// readSizes reads the files that frame_sizes names. It replaces their paths in FrameSizes by short names
// (distinctNames) and collects what is wrong with them. Called again it does nothing until the key is set anew.
func (e *Experiment) readSizes() {
	if e.sizesRead {
		return
	}
	e.sizesRead, e.badSizes, e.files = true, nil, map[string]sizesFile{}
	e.FrameSizes = slices.Clone(e.FrameSizes)
	names := distinctNames(e.FrameSizes)
	from := map[string]string{}
	for i, name := range e.FrameSizes {
		if !isSizesFile(name) {
			continue
		}
		file := name
		if !filepath.IsAbs(file) {
			file = filepath.Join(filepath.Dir(e.file), file)
		}
		if other, taken := from[filepath.Clean(file)]; taken {
			e.badSizes = append(e.badSizes, fmt.Sprintf("%s and %s are the same file: name it once", other, name))
			continue
		}
		from[filepath.Clean(file)] = name
		f, err := readSizesFile(file, names[i])
		if err != nil {
			e.badSizes = append(e.badSizes, err.Error())
			continue
		}
		e.files[names[i]], e.FrameSizes[i] = f, names[i]
	}
}

// distinctNames returns different names for files, which name their cells. A name is that of the file without its
// folders; where two files have the same, it includes the folders, and a number where even that is the same.
func distinctNames(paths []string) []string {
	names := make([]string, len(paths))
	count := map[string]int{}
	for i, file := range paths {
		names[i] = strings.TrimSuffix(filepath.Base(file), ".gz")
		if isSizesFile(file) {
			count[names[i]]++
		}
	}
	taken := map[string]bool{}
	for i, file := range paths {
		if count[names[i]] > 1 {
			names[i] = withFolders(file)
		}
		plain := names[i]
		for n := 2; isSizesFile(file) && taken[names[i]]; n++ {
			ending := filepath.Ext(plain)
			names[i] = fmt.Sprintf("%s-%d%s", strings.TrimSuffix(plain, ending), n, ending)
		}
		taken[names[i]] = true
	}
	return names
}

// withFolders makes one name of a path: its folders and file, joined by hyphens.
func withFolders(file string) string {
	parts := slices.DeleteFunc(
		strings.Split(filepath.ToSlash(strings.TrimSuffix(file, ".gz")), "/"), func(part string) bool {
			return strings.Trim(part, ".") == ""
		})
	name := notInNames.ReplaceAllString(strings.Join(parts, "-"), "-")
	const most = 64                                               // characters that nameForm allows
	return strings.TrimLeft(name[max(0, len(name)-most+3):], ".") // with room for a number
}

// readSizesFile reads a file; base is the name that its cells have.
func readSizesFile(at, base string) (f sizesFile, err error) {
	if !nameForm.MatchString(base) {
		return f, fmt.Errorf("%s: the name goes into those of folders: rename it to letters, digits, '-', '_' and '.'", at)
	}
	file, err := textfile.Open(at)
	if err != nil {
		return f, fmt.Errorf("reading frame sizes (relative names begin in the experiment file's folder): %w", err)
	}
	defer file.Close()
	if filepath.Ext(base) == histogramEnding {
		data, err := io.ReadAll(io.LimitReader(file, maxHistogramBytes+1))
		if err != nil {
			return f, fmt.Errorf("reading frame sizes: %w", err)
		}
		if len(data) > maxHistogramBytes {
			return f, fmt.Errorf("%s has more than 1 MiB: a histogram is a line for each size", at)
		}
		f.sizes, err = frames.ReadHistogram(bytes.NewReader(data), at)
		if err != nil {
			return f, err
		}
	} else {
		if f.trace, err = capture.Read(file, at); err != nil {
			return f, err
		}
		f.sizes = f.trace.Sizes()
	}
	f.sizes.Name = base
	if f.source = (&frames.Source{Name: base}); f.trace != nil {
		f.source.Trace = f.trace.Encode()
	} else {
		f.source.Mix = f.sizes.Shares()
	}
	if longest := f.sizes.Longest(); longest > maxFrame {
		return f, fmt.Errorf("%s has frames of %d bytes: the lab's links carry up to %d, without FCS", at, longest, maxFrame)
	}
	return f, nil
}

// SizesOf returns the frame sizes of the name that a cell has. An unknown name is an error; the key's parser refuses
// it.
func (e *Experiment) SizesOf(name string) (frames.Sizes, error) {
	if f, found := e.files[name]; found {
		return f.sizes, nil
	}
	return frames.Named(name)
}

// source returns the frame sizes of the name that a cell has, in the form that agents take.
func (e *Experiment) source(name string) *frames.Source {
	if f, found := e.files[name]; found {
		return f.source
	}
	return &frames.Source{Name: name}
}

// Files returns the content of the files that the encoded experiment names, by their paths relative to it. A run keeps
// them in its folder, so that it does not need the original files any more.
func (e *Experiment) Files() (map[string][]byte, error) {
	all := map[string][]byte{}
	for _, name := range slices.Sorted(maps.Keys(e.files)) {
		if !slices.Contains(e.FrameSizes, name) {
			continue
		}
		var b bytes.Buffer
		if f := e.files[name]; f.trace == nil {
			b.WriteString("bytes,weight\n")
			for _, w := range f.sizes.Shares() {
				fmt.Fprintf(&b, "%d,%s\n", w.Bytes, strconv.FormatFloat(w.Weight, 'f', -1, 64))
			}
		} else if err := capture.Write(&b, f.trace); err != nil {
			return nil, fmt.Errorf("keeping the frame sizes of %s: %w", name, err)
		}
		all[path.Join(result.FramesFolder, name)] = b.Bytes()
	}
	return all, nil
}

// encodedSizes returns frame_sizes as Encode writes them, with the paths of Files.
func (e *Experiment) encodedSizes() []string {
	list := slices.Clone(e.FrameSizes)
	for i, name := range list {
		if _, found := e.files[name]; found {
			list[i] = path.Join(result.FramesFolder, name)
		}
	}
	return list
}

// checkSizes reports files that could not be read, and gaps = "captured" without captures.
func (e *Experiment) checkSizes(report Report) {
	for _, problem := range e.badSizes {
		report("frame_sizes", "%s", problem)
	}
	if e.Traffic.Gaps != traffic.GapsCaptured || len(e.badSizes) > 0 {
		return
	}
	for _, name := range e.FrameSizes {
		f := e.files[name]
		if f.trace == nil {
			report("traffic.gaps",
				"%q needs captures, and frame_sizes has %s: name .pcap or .pcapng files alone, or choose other gaps",
				traffic.GapsCaptured, cmp.Or(name, "none"))
			continue
		}
		if _, err := f.trace.Speed(1); err != nil {
			report("traffic.gaps", "%v", err)
		}
	}
}
