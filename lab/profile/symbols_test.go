package profile

import (
	"debug/elf"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// spinningProgram is a Go program that uses all of a CPU, in the function main.spin.
const spinningProgram = `package main

var sink int

//go:noinline
func spin(n int) {
	for i := range n {
		sink += i * i
	}
}

func main() {
	for {
		spin(1000)
	}
}
`

// buildSpinner builds spinningProgram statically, as gateweigh and gatewayd are built, with these flags of the linker.
// It returns the path of the program.
func buildSpinner(t *testing.T, flags string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(spinningProgram), 0o644); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "spinner")
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags", flags, "-o", program, "main.go")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GO111MODULE=off", "GOFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building the spinner: %v: %s", err, out)
	}
	return program
}

func TestStrippedGoProgramHasNames(t *testing.T) {
	// Without -s the symbol table says where main.spin is, in a program that has
	// the same code at another offset; its size tells how far inside we may ask.
	stripped, whole := buildSpinner(t, "-s -w"), buildSpinner(t, "-w")
	f, err := elf.Open(stripped)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if symbols, err := f.Symbols(); err == nil {
		t.Fatalf("%d symbols in a stripped program", len(symbols))
	}
	g, err := elf.Open(whole)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	symbols, err := g.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range symbols {
		if s.Name == "main.spin" {
			// Text is laid out alike and linked for the same address.
			text := f.Section(".text")
			offset := s.Value - text.Addr + text.Offset
			for _, at := range []uint64{offset, offset + s.Size/2} {
				if name := NewSymbols().Name(stripped, at); name != "main.spin" {
					t.Errorf("offset %#x is in %q, want main.spin", at, name)
				}
			}
			if !IsGo(stripped) {
				t.Error("a Go program is not taken for one")
			}
			return
		}
	}
	t.Fatal("main.spin is not among the symbols")
}

func TestStrippedCProgramHasFunctionStarts(t *testing.T) {
	const program = "/usr/bin/opennds"
	f, err := elf.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	text := f.Section(".text")
	s := NewSymbols()
	names := map[string]bool{}
	for at := text.Offset; at < text.Offset+text.Size; at += 16 {
		names[s.Name(program, at)] = true
	}
	if len(names) < 50 || len(names) > int(text.Size/32) {
		t.Errorf("%d functions in %d bytes of code", len(names), text.Size)
	}
	for name := range names {
		if !strings.HasPrefix(name, "func@0x") {
			t.Errorf("function %q", name)
		}
	}
	if IsGo(program) {
		t.Error("taken for a Go program")
	}
	for path, offset := range map[string]uint64{program: 1 << 40, "/no/such/file": 0, "/etc/passwd": 0} {
		if name := s.Name(path, offset); name != Unknown {
			t.Errorf("%s at %#x: %q", path, offset, name)
		}
	}
}

func TestFunctionStarts(t *testing.T) {
	entry := func(start int32) []byte {
		b := binary.LittleEndian.AppendUint32(nil, uint32(start))
		return binary.LittleEndian.AppendUint32(b, 0)
	}
	table := []byte{1, 0x1b, 0x03, 0x3b, 0, 0, 0, 0, 2, 0, 0, 0}
	table = append(append(table, entry(-0x500)...), entry(0x20)...)
	got, err := functionStarts(table, 0x1000, binary.LittleEndian)
	if err != nil || !cmp.Equal(got, []uint64{0xb00, 0x1020}) {
		t.Errorf("got %#x, %v", got, err)
	}
	for name, bad := range map[string][]byte{
		"short": table[:11], "other encoding": append([]byte{1, 0x1b, 0x03, 0x3a}, table[4:]...), "cut": table[:len(table)-1],
	} {
		if _, err := functionStarts(bad, 0, binary.LittleEndian); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func FuzzFunctionStarts(f *testing.F) {
	f.Add([]byte{1, 0x1b, 0x03, 0x3b, 0, 0, 0, 0, 1, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8})
	f.Fuzz(func(t *testing.T, data []byte) {
		if starts, err := functionStarts(data, 1<<20, binary.LittleEndian); err == nil && 8*len(starts) > len(data) {
			t.Errorf("%d functions in %d bytes", len(starts), len(data))
		}
	})
}
