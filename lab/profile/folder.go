// The files of profiles in a run's folder.

package profile

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/gateweigh/gateweigh/lab/result"
)

// unnamedDimensions are the dimensions of which a folder's name has the value alone. Older folders have no others.
var unnamedDimensions = []result.Dimension{
	result.DUT, result.Clients, result.OfferedMbps, result.Direction, result.Profile, result.FrameSize}

// Dir returns the folder of a cell's profile in the folder run. Its name has the values of all dimensions of the cell.
func Dir(run string, c result.Cell) string {
	mbps := strconv.FormatFloat(c.Number(result.OfferedMbps), 'f', -1, 64)
	name := fmt.Sprintf("%s-%d-clients-%s-mbps-%s-%s", c.Text(result.DUT), c.Int(result.Clients), mbps, c.Text(
		result.Direction), c.Text(result.Profile))
	if size := c.Text(result.FrameSize); size != "" {
		name += "-" + size
	}
	for _, v := range c.Without(unnamedDimensions...).Values() {
		name += "-" + strings.ReplaceAll(string(v.Dimension)+"-"+v.Text, "/", "-")
	}
	return filepath.Join(run, result.ProfilesFolder, name)
}

// Recorded reports whether the run in the folder run has a finished profile of the cell.
func Recorded(run string, c result.Cell) bool {
	_, err := os.Stat(filepath.Join(Dir(run, c), result.ProfileFile))
	return err == nil
}

// Write writes the files of a profile into the run's folder. It writes profile.json last, so a folder that has this
// file has the others too.
func Write(run string, p Profile) error {
	dir := Dir(run, p.Cell)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("making the folder of a profile: %w", err)
	}
	p.Version = Version
	for _, file := range []struct {
		name  string
		write func(io.Writer) error
	}{
		{result.DUTFoldedFile, func(w io.Writer) error { return WriteFolded(w, p.DUT.Stacks) }},
		{result.CleanFoldedFile, func(w io.Writer) error { return WriteFolded(w, p.Clean.Stacks) }},
		{result.DUTPprofFile, func(w io.Writer) error { return WritePprof(w, p, p.DUT) }},
		{result.CleanPprofFile, func(w io.Writer) error { return WritePprof(w, p, p.Clean) }},
		{result.ProfileFile, func(w io.Writer) error {
			encoder := json.NewEncoder(w)
			encoder.SetIndent("", "  ")
			return encoder.Encode(p)
		}},
	} {
		var b bytes.Buffer
		if err := file.write(&b); err != nil {
			return fmt.Errorf("make %s: %w", file.name, err)
		}
		if err := result.ReplaceFile(filepath.Join(dir, file.name), b.Bytes()); err != nil {
			return err
		}
	}
	return nil
}

// ReadAll reads the finished profiles of a run in the order of their folders' names; a
// run without any has none. Profiles that cannot be read are left out and are the error.
func ReadAll(run string) (list []Profile, err error) {
	folders, err := os.ReadDir(filepath.Join(run, result.ProfilesFolder))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("looking for profiles: %w", err)
	}
	var errs []error
	for _, f := range folders { // by name
		p, err := readProfile(filepath.Join(run, result.ProfilesFolder, f.Name()))
		if err == nil {
			list = append(list, p)
		} else if !errors.Is(err, errUnfinished) {
			errs = append(errs, err)
		}
	}
	return list, errors.Join(errs...)
}

// errUnfinished is readProfile's error for a folder without profile.json, because its recording was cut short.
var errUnfinished = errors.New("no " + result.ProfileFile)

// readProfile reads the profile in a folder that Write has written.
func readProfile(dir string) (Profile, error) {
	var p Profile
	path := filepath.Join(dir, result.ProfileFile)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return p, errUnfinished
	}
	if err != nil {
		return p, fmt.Errorf("read a profile: %w", err)
	}
	if err := json.Unmarshal(data, &p); err != nil {
		return p, fmt.Errorf("read %s: %w", path, err)
	}
	if p.Version > Version {
		return p, fmt.Errorf(
			"read %s: version %d, known up to %d: %w; use a newer gateweigh", path, p.Version, Version, result.ErrNewerVersion)
	}
	for name, side := range map[string]*Side{result.DUTFoldedFile: &p.DUT, result.CleanFoldedFile: &p.Clean} {
		f, err := os.Open(filepath.Join(dir, name))
		if err != nil {
			return p, fmt.Errorf("read a profile: %w", err)
		}
		side.Stacks, err = ReadFolded(f)
		f.Close()
		if err != nil {
			return p, fmt.Errorf("read %s: %w", f.Name(), err)
		}
	}
	return p, nil
}

// WriteFolded writes a line for each stack: the frames from the outermost on, separated by semicolons, a blank, and the
// ns per packet. flamegraph.pl and speedscope read this format.
func WriteFolded(w io.Writer, stacks []Stack) error {
	out := bufio.NewWriter(w)
	for _, s := range stacks {
		for i, f := range s.Frames {
			if i > 0 {
				out.WriteByte(';')
			}
			out.WriteString(f.String())
		}
		fmt.Fprintf(out, " %.5f\n", s.NsPerPacket)
	}
	return out.Flush()
}

// ReadFolded reads the output of WriteFolded. For a line that is no stack it returns an error with the line's number.
func ReadFolded(r io.Reader) ([]Stack, error) {
	var stacks []Stack
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 1<<16), maxLine)
	for number := 1; lines.Scan(); number++ {
		text, value, ok := cutAroundLast(lines.Text(), " ")
		ns, err := strconv.ParseFloat(value, 64)
		if !ok || err != nil || text == "" || ns < 0 || math.IsNaN(ns) || math.IsInf(ns, 0) {
			return nil, fmt.Errorf("line %d: want frames parted by semicolons, a blank and ns per packet", number)
		}
		s := Stack{NsPerPacket: ns}
		for frame := range strings.SplitSeq(text, ";") {
			s.Frames = append(s.Frames, parseFrame(frame))
		}
		stacks = append(stacks, s)
	}
	return stacks, lines.Err()
}
