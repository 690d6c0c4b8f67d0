package capture

import (
	"bufio"
	"encoding/binary"
	"io"
	"time"

	"github.com/gateweigh/gateweigh/lab/traffic/frames"
)

// Write writes a trace as pcap, with each frame's size and time and none of its bytes.
func Write(w io.Writer, t *frames.Trace) error {
	b := bufio.NewWriter(w)
	head := binary.LittleEndian.AppendUint32(nil, magicNanos)
	head = append(head, 2, 0, 4, 0) // version 2.4
	head = append(head, make([]byte, 12)...)
	binary.LittleEndian.PutUint32(head[16:], 1<<18) // the usual snap length
	head = binary.LittleEndian.AppendUint32(head, ethernet)
	b.Write(head) // b keeps the first error
	t.Each(func(bytes int, ns int64) {
		var p [16]byte
		binary.LittleEndian.PutUint32(p[0:], uint32(ns/int64(time.Second)))
		binary.LittleEndian.PutUint32(p[4:], uint32(ns%int64(time.Second)))
		binary.LittleEndian.PutUint32(p[12:], uint32(bytes))
		b.Write(p[:])
	})
	return b.Flush()
}
