package profile

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	pprof "github.com/google/pprof/profile"

	"github.com/gateweigh/gateweigh/lab/result"
)

func TestWriteAndReadAll(t *testing.T) {
	dir := t.TempDir()
	p := example
	p.Version, p.Start, p.FrequencyHz, p.UserStacks = Version, time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC), FrequencyHz,
		UnwindFP
	p.Cell = result.NewCell(result.DUT, "daemon", result.Clients, 20, result.OfferedMbps, 0.5, result.Direction, "up",
		result.Profile, "per-packet")
	other := p
	other.Cell = other.Cell.With(result.Clients, 100)
	if list, err := ReadAll(dir); len(list) != 0 || err != nil {
		t.Errorf("a run without profiles: %v, %v", list, err)
	}
	for _, w := range []Profile{p, other} {
		if Recorded(dir, w.Cell) {
			t.Errorf("%v is there before it was written", w.Cell)
		}
		if err := Write(dir, w); err != nil {
			t.Fatal(err)
		}
		if !Recorded(dir, w.Cell) {
			t.Errorf("%v is not found", w.Cell)
		}
	}
	// A recording that was cut short leaves a folder without profile.json.
	if err := os.MkdirAll(filepath.Join(dir, result.ProfilesFolder, "unfinished"), 0o755); err != nil {
		t.Fatal(err)
	}
	got, err := ReadAll(dir)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]Profile{other, p}, got, approxEqual); diff != "" {
		t.Errorf("read back (-want +got):\n%s", diff)
	}
	if want := filepath.Join(dir, "profiles", "daemon-20-clients-0.5-mbps-up-per-packet"); Dir(dir, p.Cell) != want {
		t.Errorf("folder %s, want %s", Dir(dir, p.Cell), want)
	}
}

func TestReadAllNamesWhatIsBroken(t *testing.T) {
	dir := t.TempDir()
	p := example
	for _, name := range []string{"good", "newer", "torn", "gone"} {
		p.Cell = p.Cell.With(result.DUT, name)
		if err := Write(dir, p); err != nil {
			t.Fatal(err)
		}
	}
	in := func(dut, file string) string { return filepath.Join(Dir(dir, result.NewCell(result.DUT, dut)), file) }
	for file, text := range map[string]string{
		in("newer", result.ProfileFile): `{"version":2}`, in("torn", result.CleanFoldedFile): "a;b 1\na;b"} {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Remove(in("gone", result.DUTFoldedFile)); err != nil {
		t.Fatal(err)
	}
	list, err := ReadAll(dir)
	if len(list) != 1 || list[0].Cell.Text(result.DUT) != "good" {
		t.Errorf("%d profiles, want the good one", len(list))
	}
	if !errors.Is(err, result.ErrNewerVersion) || !strings.Contains(err.Error(), "line 2") ||
		!strings.Contains(err.Error(), result.DUTFoldedFile) {
		t.Errorf("error %v", err)
	}
}

// TestPprofHoldsTheSameTime: the file of WritePprof, read as go tool pprof reads it, has the times of the stacks.
func TestPprofHoldsTheSameTime(t *testing.T) {
	var b bytes.Buffer
	if err := WritePprof(&b, example, example.DUT); err != nil {
		t.Fatal(err)
	}
	p, err := pprof.Parse(&b)
	if err != nil {
		t.Fatal(err)
	}
	var cpu, perThousand int64
	for _, s := range p.Sample {
		cpu += s.Value[0]
		perThousand += s.Value[1]
		if s.Location[0].Line[0].Function.Name == "hook" && s.Location[0].Mapping.File != Kernel {
			t.Errorf("module of hook: %+v", s.Location[0].Mapping)
		}
	}
	if cpu != 200_000 || perThousand != 200_000 || len(p.Sample) != 3 {
		t.Errorf("%d ns, %d ns per 1000 packets in %d stacks; want 200000 of each in 3", cpu, perThousand, len(p.Sample))
	}
}

// FuzzReadFolded: stacks that ReadFolded reads, written by WriteFolded, are read as the same stacks again.
func FuzzReadFolded(f *testing.F) {
	f.Add([]byte("napi/lan;poll [kernel];forward [kernel] 100.5\n"))
	f.Add([]byte("a b;c [d e];[] [] 1e3\n"))
	f.Fuzz(func(t *testing.T, in []byte) {
		first, err := ReadFolded(bytes.NewReader(in))
		if err != nil {
			return
		}
		var b bytes.Buffer
		if err := WriteFolded(&b, first); err != nil {
			t.Fatal(err)
		}
		written := b.String()
		second, err := ReadFolded(&b)
		if err != nil || len(second) != len(first) {
			t.Fatalf("read again: %v\n%s", err, written)
		}
		for i := range first {
			if !cmp.Equal(first[i].Frames, second[i].Frames) {
				t.Errorf("%q became %q", first[i].Frames, second[i].Frames)
			}
		}
	})
}
