package capture

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/bits"
	"time"
)

// Blocks of pcapng that are read (draft-ietf-opsawg-pcapng); others are skipped.
const (
	blockSection   = 0x0a0d0d0a
	blockInterface = 1
	blockOldPacket = 2
	blockSimple    = 3
	blockPacket    = 6

	orderMagic      = 0x1a2b3c4d
	optionResol     = 9
	optionFCS       = 13
	optionOffset    = 14
	optionFlags     = 2  // of a packet
	flagsFCS        = 5  // place of the bytes of the frame check sequence, 4 bits
	blockFrame      = 12 // type and length before a block's body, length behind it
	mostInterfaces  = 1 << 16
	mostDescription = 1 << 20 // bytes of an interface's block
)

// ngReader reads the newer format: blocks, each with its type and its length.
type ngReader struct {
	r          *bufio.Reader
	order      binary.ByteOrder // of the section
	interfaces []ngInterface    // of the section
}

// ngInterface has the units for times and sizes of an interface's packets.
type ngInterface struct {
	link      uint32
	snap      uint32
	perSecond uint64
	offset    int64 // s
	fcs       int   // bytes of the frame check sequence in lengths, if a packet's flags do not say
}

func (g *ngReader) next() (packet, error) {
	for {
		var head [8]byte
		if _, err := io.ReadFull(g.r, head[:]); err != nil {
			return packet{}, err
		}
		if binary.LittleEndian.Uint32(head[:]) == blockSection { // the same in either order
			if err := g.section(head[4:]); err != nil {
				return packet{}, err
			}
			continue
		}
		if g.order == nil {
			return packet{}, fmt.Errorf("a block before the first section: the file is damaged")
		}
		kind, length := g.order.Uint32(head[:]), g.order.Uint32(head[4:])
		if length < blockFrame || length > mostKept || length%4 != 0 {
			return packet{}, fmt.Errorf("a block of %d bytes: the file is damaged", length)
		}
		body := int(length) - len(head) // with the length behind it
		switch kind {
		case blockInterface:
			if err := g.describe(body); err != nil {
				return packet{}, err
			}
		case blockPacket, blockOldPacket, blockSimple:
			return g.packet(kind, body)
		default:
			if err := discard(g.r, body); err != nil {
				return packet{}, err
			}
		}
	}
}

// section begins a section. Its length has the section's byte order.
func (g *ngReader) section(length []byte) error {
	var magic [4]byte
	if _, err := io.ReadFull(g.r, magic[:]); err != nil {
		return insideError(err)
	}
	switch uint32(orderMagic) {
	case binary.LittleEndian.Uint32(magic[:]):
		g.order = binary.LittleEndian
	case binary.BigEndian.Uint32(magic[:]):
		g.order = binary.BigEndian
	default:
		return fmt.Errorf("a section's byte order is %x: the file is damaged", magic)
	}
	var version [4]byte
	if _, err := io.ReadFull(g.r, version[:]); err != nil {
		return insideError(err)
	}
	if major := g.order.Uint16(version[:]); major != 1 {
		return fmt.Errorf("pcapng of version %d.%d: version 1 can be read", major, g.order.Uint16(version[2:]))
	}
	g.interfaces = nil
	n := g.order.Uint32(length)
	const least = 28
	if n < least || n > mostKept || n%4 != 0 {
		return fmt.Errorf("a section's header of %d bytes: the file is damaged", n)
	}
	return discard(g.r, int(n)-8-len(magic)-len(version))
}

// describe reads an interface's block.
func (g *ngReader) describe(body int) error {
	const fixed = 8 // before the options
	if body < fixed+4 || body > mostDescription || len(g.interfaces) == mostInterfaces {
		return fmt.Errorf("an interface's block of %d bytes, after %d others: the file is damaged", body, len(g.interfaces))
	}
	b := make([]byte, body)
	if _, err := io.ReadFull(g.r, b); err != nil {
		return insideError(err)
	}
	i := ngInterface{link: uint32(g.order.Uint16(b)), snap: g.order.Uint32(b[4:]), perSecond: 1e6}
	err := g.options(b[fixed:body-4], func(code uint16, value []byte) error {
		switch {
		case code == optionResol && len(value) == 1:
			var ok bool
			if i.perSecond, ok = resolution(value[0]); !ok {
				return fmt.Errorf("an interface whose times are in units of %#x: the file is damaged", value[0])
			}
		case code == optionOffset && len(value) == 8:
			i.offset = int64(g.order.Uint64(value))
		case code == optionFCS && len(value) == 1:
			i.fcs = fcsBytes(value[0])
		}
		return nil
	})
	if err != nil {
		return err
	}
	g.interfaces = append(g.interfaces, i)
	return nil
}

// options calls fn with each option of a block.
func (g *ngReader) options(rest []byte, fn func(code uint16, value []byte) error) error {
	for len(rest) >= 4 {
		code, n := g.order.Uint16(rest), int(g.order.Uint16(rest[2:]))
		padded := 4 + (n+3)/4*4
		if code == 0 || padded > len(rest) {
			break
		}
		if err := fn(code, rest[4:4+n]); err != nil {
			return err
		}
		rest = rest[padded:]
	}
	return nil
}

// fcsBytes returns the length of an interface's frame check sequence in bytes. The format defines the option in bits,
// but its example is the value 4, so some programs write bytes. No sequence is shorter than 8 bits or longer than 7
// bytes, so values below 8 are bytes.
func fcsBytes(length byte) int {
	if length >= 8 {
		return int(length) / 8
	}
	return int(length)
}

// resolution returns the number of time units in a second: a power of ten, or, with the highest bit set, a power of
// two.
func resolution(code byte) (perSecond uint64, ok bool) {
	const two, most = 0x80, 63
	if code&two != 0 {
		return 1 << (code &^ two), code&^two <= most
	}
	perSecond = 1
	for range code {
		hi, lo := bits.Mul64(perSecond, 10)
		if hi != 0 {
			return 0, false
		}
		perSecond = lo
	}
	return perSecond, true
}

// packet reads a packet's block.
func (g *ngReader) packet(kind uint32, body int) (p packet, err error) {
	fixed := 20
	if kind == blockSimple {
		fixed = 4
	}
	if body < fixed+4 {
		return p, fmt.Errorf("a packet's block of %d bytes: the file is damaged", body)
	}
	var b [20]byte
	if _, err := io.ReadFull(g.r, b[:fixed]); err != nil {
		return p, insideError(err)
	}
	from, kept, length := uint32(0), uint32(0), g.order.Uint32(b[:])
	switch kind {
	case blockPacket:
		from = g.order.Uint32(b[:])
	case blockOldPacket:
		from = uint32(g.order.Uint16(b[:])) // then a count of drops
	}
	if kind != blockSimple {
		kept, length = g.order.Uint32(b[12:]), g.order.Uint32(b[16:])
	}
	if err := checkLengths(kept, length); err != nil {
		return p, err
	}
	if int64(from) >= int64(len(g.interfaces)) || int64(kept) > int64(body-fixed-4) {
		return p, fmt.Errorf("a packet of interface %d of %d with %d bytes in a block of %d: the file is damaged", from, len(
			g.interfaces), kept, body)
	}
	i := g.interfaces[from]
	p = packet{link: i.link}
	if kind == blockSimple {
		p.bytes = withoutFCS(length, i.fcs)
		return p, discard(g.r, body-fixed)
	}
	p.at = i.time(uint64(g.order.Uint32(b[4:]))<<32 | uint64(g.order.Uint32(b[8:])))
	fcs, err := g.packetFCS(int(kept), body-fixed)
	p.bytes = withoutFCS(length, cmp.Or(fcs, i.fcs))
	return p, err
}

// packetFCS skips the rest of a packet's block: the kept bytes of the packet and its options. It returns the length of
// the frame check sequence that the packet's flags name; 0 if they name none.
func (g *ngReader) packetFCS(kept, rest int) (fcs int, err error) {
	padded := (kept + 3) / 4 * 4
	options := rest - padded - 4
	if options < 8 || options > mostDescription { // a flag's option takes 8 bytes
		return 0, discard(g.r, rest)
	}
	if err := discard(g.r, padded); err != nil {
		return 0, err
	}
	b := make([]byte, options)
	if _, err := io.ReadFull(g.r, b); err != nil {
		return 0, insideError(err)
	}
	err = g.options(b, func(code uint16, value []byte) error {
		if code == optionFlags && len(value) == 4 {
			fcs = int(g.order.Uint32(value) >> flagsFCS & 0xf)
		}
		return nil
	})
	return fcs, errors.Join(err, discard(g.r, 4))
}

// time converts a packet's time, in the interface's units, to a time.Time.
func (i ngInterface) time(units uint64) time.Time {
	seconds, rest := units/i.perSecond, units%i.perSecond
	hi, lo := bits.Mul64(rest, 1e9)
	ns, _ := bits.Div64(hi, lo, i.perSecond)
	return time.Unix(int64(min(seconds, math.MaxInt32*2))+i.offset, int64(ns))
}
