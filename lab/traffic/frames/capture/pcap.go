package capture

import (
	"bufio"
	"encoding/binary"
	"io"
	"time"
)

// Magic numbers of pcap files: times in microseconds or nanoseconds.
const (
	magicMicros = 0xa1b2c3d4
	magicNanos  = 0xa1b23c4d
)

// pcapReader reads the classic format: a header of 24 bytes, and one of 16 before each packet
// (draft-ietf-opsawg-pcap).
type pcapReader struct {
	r     *bufio.Reader
	order binary.ByteOrder
	unit  time.Duration // of the part of times below a second: microseconds or nanoseconds
	link  uint32
	fcs   int // bytes of the frame check sequence that each packet's lengths count
	sizes lengthOrder
}

// Bits of the link type field. If fcsKnown is set, the upper bits say how long the frame check sequence is
// (draft-ietf-opsawg-pcap, "Additional information").
const (
	linkKind = 0xffff
	fcsKnown = 1 << 26
	fcsShift = 28 // units of 16 bits
	fcsUnit  = 2
)

// openPcap reads the file's header.
func openPcap(r *bufio.Reader) (*pcapReader, error) {
	p := &pcapReader{r: r}
	magic, err := r.Peek(4)
	if err != nil {
		return nil, err
	}
	for _, order := range []binary.ByteOrder{binary.LittleEndian, binary.BigEndian} {
		switch order.Uint32(magic) {
		case magicMicros:
			p.order, p.unit = order, time.Microsecond
		case magicNanos:
			p.order, p.unit = order, time.Nanosecond
		}
	}
	if p.order == nil {
		return nil, unknownForm(magic)
	}
	var head [24]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	if p.sizes, err = lengthsOf(p.order.Uint16(head[4:]), p.order.Uint16(head[6:])); err != nil {
		return nil, err
	}
	field := p.order.Uint32(head[20:])
	if p.link = field & linkKind; field&fcsKnown != 0 {
		p.fcs = int(field>>fcsShift) * fcsUnit
	}
	return p, nil
}

func (p *pcapReader) next() (packet, error) {
	var head [16]byte
	if _, err := io.ReadFull(p.r, head[:]); err != nil {
		return packet{}, err
	}
	kept, bytes := p.sizes.read(p.order.Uint32(head[8:]), p.order.Uint32(head[12:]))
	if err := checkLengths(kept, bytes); err != nil {
		return packet{}, err
	}
	instant := time.Unix(int64(p.order.Uint32(head[0:])), int64(p.order.Uint32(head[4:]))*int64(p.unit))
	return packet{withoutFCS(bytes, p.fcs), instant, p.link}, discard(p.r, int(kept))
}
