package sink

import (
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// maxInstructions is the kernel's limit for a filter (BPF_MAXINSNS).
const maxInstructions = 4096

// parseFilter reads a program as tcpdump -ddd prints it, its lines joined by commas or not: the number of instructions,
// then code, jump if true, jump if false and operand of each.
func parseFilter(text string) ([]unix.SockFilter, error) {
	wrong := func(format string, args ...any) ([]unix.SockFilter, error) {
		return nil, &configError{"the filter program " + fmt.Sprintf(format, args...) +
			`: want what tcpdump -ddd prints, lines joined by commas, such as "1,6 0 0 262144"`}
	}
	lines := strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == '\n' })
	if len(lines) == 0 {
		return wrong("is empty")
	}
	count, err := strconv.Atoi(strings.TrimSpace(lines[0]))
	if err != nil {
		return wrong("begins with %.20q instead of its length", lines[0])
	}
	if lines = lines[1:]; count != len(lines) {
		return wrong("has %d instructions and says %d", len(lines), count)
	}
	if count < 1 || count > maxInstructions {
		return wrong("has %d instructions, of which there are 1 to %d", count, maxInstructions)
	}
	program := make([]unix.SockFilter, count)
	for i, line := range lines {
		fields := strings.Fields(line)
		if len(fields) != 4 {
			return wrong("has %d numbers in instruction %d instead of 4", len(fields), i+1)
		}
		var n [4]uint64
		for j, bits := range [4]int{16, 8, 8, 32} {
			if n[j], err = strconv.ParseUint(fields[j], 10, bits); err != nil {
				return wrong("has %.20q in instruction %d, which is no number of %d bits", fields[j], i+1, bits)
			}
		}
		program[i] = unix.SockFilter{Code: uint16(n[0]), Jt: uint8(n[1]), Jf: uint8(n[2]), K: uint32(n[3])}
	}
	return program, nil
}

// keepBytes sets the number of bytes that a program keeps of each frame that it accepts.
func keepBytes(program []unix.SockFilter, bytes int) []unix.SockFilter {
	for i, instruction := range program {
		if instruction.Code == unix.BPF_RET|unix.BPF_K && instruction.K != 0 {
			program[i].K = uint32(bytes)
		}
	}
	return program
}

// acceptAll returns a program that keeps this number of bytes of each frame. With 0 it accepts no frame.
func acceptAll(bytes int) []unix.SockFilter {
	return []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K, K: uint32(bytes)}}
}
