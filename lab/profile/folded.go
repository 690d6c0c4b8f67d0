package profile

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
)

// WriteFolded writes stacks one a line, frames from the outermost parted by
// semicolons, then a blank and ns per packet: what flamegraph.pl and
// speedscope read.
func WriteFolded(w io.Writer, stacks []Stack) error {
	out := bufio.NewWriter(w)
	for _, s := range stacks {
		for i, f := range s.Frames {
			if i > 0 {
				out.WriteByte(';')
			}
			out.WriteString(f.String())
		}
		fmt.Fprintf(out, " %s\n", strconv.FormatFloat(s.NsPerPacket, 'f', 5, 64))
	}
	return out.Flush()
}

// ReadFolded reads what WriteFolded wrote. A line that is no stack is an error
// with its number.
func ReadFolded(r io.Reader) ([]Stack, error) {
	var stacks []Stack
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 1<<16), maxLine)
	for number := 1; lines.Scan(); number++ {
		text, value, ok := cutLast(lines.Text(), " ")
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
