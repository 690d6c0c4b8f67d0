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

// Symbols names addresses in program files in which perf finds no symbol: Go
// programs by the table their runtime needs, which stripping leaves; others by
// where the function begins, which their unwinding table says.
type Symbols struct {
	programs map[string]program // by path
}

// NewSymbols returns an empty cache of program files.
func NewSymbols() *Symbols { return &Symbols{programs: map[string]program{}} }

// program is what is known of one file.
type program struct {
	segments []elf.ProgHeader // loadable
	goTable  *gosym.Table     // nil when it is no Go program
	starts   []uint64         // addresses at which functions begin, ascending
}

// Name is the function at an offset of a file: its name, "func@0x8a40" when only
// its beginning is known, and Unknown when the file cannot be read.
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
	address := offset - p.segments[i].Off + p.segments[i].Vaddr // for which it is linked
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

// openProgram reads what names a program's functions. Of a file that is deleted or no
// ELF file nothing is known.
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

// IsGo reports whether a file is a Go program. Go keeps frame pointers in all
// code; C programs of distributions often do not.
func IsGo(path string) bool {
	_, err := buildinfo.ReadFile(path)
	return err == nil
}

// Pointer encodings of the binary search table, DWARF exception header
// encodings of the Linux Standard Base, 10.5.1. Every linker in use writes these.
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
