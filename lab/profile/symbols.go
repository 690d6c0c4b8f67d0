// Names functions of stripped programs.

package profile

import (
	"debug/buildinfo"
	"debug/elf"
	"debug/gosym"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
)

// Symbols finds functions in program files in which perf finds none, because the files were stripped. A Go program
// keeps the table of functions that its runtime needs. For other programs the unwinding table tells where a function
// begins, and that address stands for its name.
type Symbols struct {
	programs map[string]program // files read so far, by path
}

// NewSymbols returns an empty cache of program files.
func NewSymbols() *Symbols { return &Symbols{programs: map[string]program{}} }

// program is what is known of one program file.
type program struct {
	segments []elf.ProgHeader // the parts that are loaded into memory
	goTable  *gosym.Table     // nil for a program that is not written in Go
	starts   []uint64         // addresses at which functions begin, ascending
}

// Name returns the name of the function at an offset of a file. It is "func@0x8a40" if only the beginning of the
// function is known, and Unknown if nothing is known, for example because the file cannot be read.
func (s *Symbols) Name(path string, offset uint64) string {
	p, ok := s.programs[path]
	if !ok {
		p = openProgram(path)
		s.programs[path] = p
	}
	i := slices.IndexFunc(p.segments, func(s elf.ProgHeader) bool { return offset >= s.Off && offset-s.Off < s.Filesz })
	if i < 0 {
		return Unknown
	}
	address := offset - p.segments[i].Off + p.segments[i].Vaddr // the address for which this place is linked
	if p.goTable != nil {
		if fn := p.goTable.PCToFunc(address); fn != nil {
			return fn.Name
		}
	}
	after, _ := slices.BinarySearch(p.starts, address+1)
	if after == 0 {
		return Unknown
	}
	return fmt.Sprintf("func@%#x", p.starts[after-1])
}

// openProgram reads the tables of functions of a program file. The result is empty for a file that was deleted or is no
// ELF file.
func openProgram(path string) (p program) {
	f, err := elf.Open(path)
	if err != nil {
		return p
	}
	defer f.Close()
	for _, s := range f.Progs {
		if s.Type == elf.PT_LOAD {
			p.segments = append(p.segments, s.ProgHeader)
		}
	}
	text := f.Section(".text")
	for _, name := range []string{".gopclntab", ".data.rel.ro.gopclntab"} {
		if s := f.Section(name); s != nil && text != nil {
			if data, err := s.Data(); err == nil {
				p.goTable, _ = gosym.NewTable(nil, gosym.NewLineTable(data, text.Addr))
			}
		}
	}
	if s := f.Section(".eh_frame_hdr"); s != nil {
		if data, err := s.Data(); err == nil {
			p.starts, _ = functionStarts(data, s.Addr, f.ByteOrder) // without them names are unknown
		}
	}
	return p
}

// IsGo reports whether a file is a Go program. Go keeps frame pointers in all code, so that its stacks can be unwound
// by them (UnwindFP). C programs of distributions often have none.
func IsGo(path string) bool {
	_, err := buildinfo.ReadFile(path)
	return err == nil
}

// Encodings of pointers in an .eh_frame_hdr section (Linux Standard Base, 10.5.1: DWARF exception header encoding). All
// linkers in use write these.
const (
	encPCRelSData4   = 0x1b
	encUData4        = 0x03
	encDataRelSData4 = 0x3b
)

// functionStarts reads the binary search table of an .eh_frame_hdr section that
// is linked for the given address (Linux Standard Base, 10.6.2): where each
// function begins, ascending.
func functionStarts(data []byte, address uint64, order binary.ByteOrder) ([]uint64, error) {
	const head = 12 // version and three encodings, pointer, count
	if len(data) < head {
		return nil, errors.New(".eh_frame_hdr: too short")
	}
	if data[0] != 1 || data[1] != encPCRelSData4 || data[2] != encUData4 || data[3] != encDataRelSData4 {
		return nil, fmt.Errorf(".eh_frame_hdr: version %d with encodings % x is not known", data[0], data[1:4])
	}
	n := uint64(order.Uint32(data[8:]))
	table := data[head:]
	if n > uint64(len(table)/8) {
		return nil, fmt.Errorf(".eh_frame_hdr: %d entries in %d bytes", n, len(table))
	}
	starts := make([]uint64, n)
	for i := range starts {
		starts[i] = address + uint64(int64(int32(order.Uint32(table[8*i:]))))
	}
	slices.Sort(starts)
	return starts, nil
}
