package experiment

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/traffic"
	"github.com/gateweigh/gateweigh/lab/traffic/frames"
	"github.com/gateweigh/gateweigh/lab/traffic/frames/capture"
)

// sizesFile is a file that frame_sizes names: a histogram, or a capture.
type sizesFile struct {
	sizes  frames.Sizes
	trace  *frames.Trace  // nil: a histogram
	source *frames.Source // as agents take it
}

// maxHistogramBytes bounds a file of weights: each size a frame can have takes a line.
const maxHistogramBytes = 1 << 20

// Endings of files that frame_sizes takes.
const histogramEnding = ".csv"

var captureEndings = []string{".pcap", ".pcapng", ".cap"}

// isSizesFile reports whether a frame size is the name of a file.
func isSizesFile(name string) bool {
	ending := filepath.Ext(strings.TrimSuffix(name, ".gz"))
	return ending == histogramEnding && !strings.HasSuffix(name, ".gz") || slices.Contains(captureEndings, ending)
}

// readSizes reads the files of frame_sizes, whose names are then those without their folders, or with them where two
// would have the same, and collects what is wrong with them. What was read stays as it is until the key is set anew.
func (e *Experiment) readSizes() {
	if e.sizesRead {
		return
	}
	e.sizesRead, e.badSizes, e.files = true, nil, map[string]sizesFile{}
	e.FrameSizes = slices.Clone(e.FrameSizes)
	names := apart(e.FrameSizes)
	from := map[string]string{}
	for i, name := range e.FrameSizes {
		if !isSizesFile(name) {
			continue
		}
		at := name
		if !filepath.IsAbs(at) {
			at = filepath.Join(filepath.Dir(e.file), at)
		}
		if other, taken := from[filepath.Clean(at)]; taken {
			e.badSizes = append(e.badSizes, fmt.Sprintf("%s and %s are the same file: name it once", other, name))
			continue
		}
		from[filepath.Clean(at)] = name
		f, err := readSizesFile(at, names[i])
		if err != nil {
			e.badSizes = append(e.badSizes, err.Error())
			continue
		}
		e.files[names[i]], e.FrameSizes[i] = f, names[i]
	}
}

// apart are names for files, by which their cells are known: without folders, where that tells them apart, else with as
// many as are given, and with a number where that does not either.
func apart(paths []string) []string {
	names := make([]string, len(paths))
	count := map[string]int{}
	for i, at := range paths {
		names[i] = strings.TrimSuffix(filepath.Base(at), ".gz")
		if isSizesFile(at) {
			count[names[i]]++
		}
	}
	taken := map[string]bool{}
	for i, at := range paths {
		if count[names[i]] > 1 {
			names[i] = withFolders(at)
		}
		plain := names[i]
		for n := 2; isSizesFile(at) && taken[names[i]]; n++ {
			ending := filepath.Ext(plain)
			names[i] = fmt.Sprintf("%s-%d%s", strings.TrimSuffix(plain, ending), n, ending)
		}
		taken[names[i]] = true
	}
	return names
}

// withFolders is a path as one name.
func withFolders(at string) string {
	parts := slices.DeleteFunc(
		strings.Split(filepath.ToSlash(strings.TrimSuffix(at, ".gz")), "/"), func(part string) bool {
			return strings.Trim(part, ".") == ""
		})
	name := notInNames.ReplaceAllString(strings.Join(parts, "-"), "-")
	const most = 64                                               // of nameForm
	return strings.TrimLeft(name[max(0, len(name)-most+3):], ".") // with room for a number
}

// readSizesFile reads a file; base is the name that its cells have.
func readSizesFile(at, base string) (f sizesFile, err error) {
	if !nameForm.MatchString(base) {
		return f, fmt.Errorf("%s: the name goes into those of folders: rename it to letters, digits, '-', '_' and '.'", at)
	}
	info, err := os.Stat(at)
	if err == nil && !info.Mode().IsRegular() { // to open a pipe could wait for ever
		err = fmt.Errorf("%s is no regular file", at)
	}
	if err != nil {
		return f, fmt.Errorf("reading frame sizes (relative names begin in the experiment file's folder): %w", err)
	}
	file, err := os.Open(at)
	if err != nil {
		return f, fmt.Errorf("reading frame sizes: %w", err)
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

// SizesOf are the frame sizes that a cell names. An unknown name, which the key's parser refuses, is an error.
func (e *Experiment) SizesOf(name string) (frames.Sizes, error) {
	if f, is := e.files[name]; is {
		return f.sizes, nil
	}
	return frames.Named(name)
}

// source is where the frame sizes that a cell names come from, as agents take it.
func (e *Experiment) source(name string) *frames.Source {
	if f, is := e.files[name]; is {
		return f.source
	}
	return &frames.Source{Name: name}
}

// Files are the files that the encoded experiment names, by their paths from it: what was read of
// them, so that a run's folder stands alone.
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

// encodedSizes are frame_sizes as Encode writes them: with the places of Files.
func (e *Experiment) encodedSizes() []string {
	list := slices.Clone(e.FrameSizes)
	for i, name := range list {
		if _, is := e.files[name]; is {
			list[i] = path.Join(result.FramesFolder, name)
		}
	}
	return list
}

// checkSizes reports files that could not be read, and captured gaps without a capture.
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
