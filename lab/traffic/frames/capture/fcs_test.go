package capture_test

import (
	"bytes"
	"encoding/binary"
	"maps"
	"testing"

	"github.com/gateweigh/gateweigh/lab/traffic/frames/capture"
)

// TestSizesAreWithoutFCS: a capture can say that its lengths include the frame check sequence (FCS) of each frame,
// mostly 4 bytes. Sizes are then without it. A pcap file says so in the upper bits of its link type, a pcapng file in
// an option of the interface (if_fcslen) or in the flags of a packet.
func TestSizesAreWithoutFCS(t *testing.T) {
	without := map[int]int64{60: 1, 590: 1, 1514: 2}
	with := map[int]int64{64: 1, 594: 1, 1518: 2}
	lengths := []uint32{64, 594, 1518, 1518}
	little, big := binary.AppendByteOrder(binary.LittleEndian), binary.AppendByteOrder(binary.BigEndian)
	for _, tt := range []struct {
		name string
		data []byte
		want map[int]int64
	}{
		{"pcap, 32 bits", pcapWithLinkField(little, 0x24000001, lengths), without},
		{"pcap, 32 bits, big-endian", pcapWithLinkField(big, 0x24000001, lengths), without},
		{"pcap, other upper bits too", pcapWithLinkField(little, 0x2fff0001, lengths), without},
		{"pcap, none", pcapWithLinkField(little, 0x04000001, lengths), with},
		{"pcap, a length that is not said to be known", pcapWithLinkField(little, 0x20000001, lengths), with},
		{"pcap, 16 bits", pcapWithLinkField(little, 0x14000001, []uint32{62, 592, 1516, 1516}), without},
		{"pcapng, the interface says 32 bits", pcapngSaying(little, 32, 0, lengths), without},
		{"pcapng, the interface says 4, of bytes", pcapngSaying(big, 4, 0, lengths), without},
		{"pcapng, the interface says none", pcapngSaying(little, 0, 0, lengths), with},
		{"pcapng, the packets say", pcapngSaying(little, -1, 4<<5|1, lengths), without},
		{"pcapng, the packets say, big-endian", pcapngSaying(big, -1, 4<<5, lengths), without},
		{"pcapng, the packets say 4 bytes and the interface 16 bits", pcapngSaying(little, 16, 4<<5, lengths), without},
		{"pcapng, the packets' flags do not say", pcapngSaying(little, 32, 1, lengths), without},
		{"pcapng, nobody says", pcapngSaying(little, -1, 0, lengths), with},
	} {
		if got, err := capture.CountSizes(bytes.NewReader(tt.data)); err != nil || !maps.Equal(got.Sizes, tt.want) {
			t.Errorf("%s: counts %v, %v, want %v", tt.name, got, err, tt.want)
		}
		tr, err := capture.Read(bytes.NewReader(tt.data), tt.name)
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		got := map[int]int64{}
		tr.Each(func(size int, _ int64) { got[size]++ })
		if !maps.Equal(got, tt.want) {
			t.Errorf("%s: reads %v, want %v", tt.name, got, tt.want)
		}
	}
}

// pcapWithLinkField returns a pcap file with the given link type field, and packets of the given lengths.
func pcapWithLinkField(order binary.AppendByteOrder, link uint32, lengths []uint32) []byte {
	b := order.AppendUint32(nil, 0xa1b2c3d4)
	b = order.AppendUint16(order.AppendUint16(b, 2), 4)
	for _, field := range []uint32{0, 0, 65535, link} {
		b = order.AppendUint32(b, field)
	}
	for i, n := range lengths {
		for _, field := range []uint32{1000, uint32(i), 6, n} {
			b = order.AppendUint32(b, field)
		}
		b = append(b, "abcdef"...)
	}
	return b
}

// pcapngSaying returns a pcapng file with packets of the given lengths. Its interface has the option if_fcslen with the
// value fcs, unless that is negative. Its packets have flags, unless these are 0.
func pcapngSaying(order binary.AppendByteOrder, fcs int, flags uint32, lengths []uint32) []byte {
	block := func(kind uint32, body []byte) []byte {
		b := order.AppendUint32(order.AppendUint32(nil, kind), uint32(12+len(body)))
		return order.AppendUint32(append(b, body...), uint32(12+len(body)))
	}
	option := func(code uint16, value ...byte) []byte {
		b := order.AppendUint16(order.AppendUint16(nil, code), uint16(len(value)))
		return append(append(b, value...), make([]byte, -len(value)&3)...)
	}
	section := order.AppendUint16(order.AppendUint16(order.AppendUint32(nil, 0x1a2b3c4d), 1), 0)
	out := block(0x0a0d0d0a, append(section, bytes.Repeat([]byte{0xff}, 8)...))
	i := order.AppendUint32(order.AppendUint16(order.AppendUint16(nil, 1), 0), 0)
	i = append(i, option(2, []byte("eth0")...)...)
	if fcs >= 0 {
		i = append(i, option(13, byte(fcs))...)
	}
	out = append(out, block(1, append(i, 0, 0, 0, 0))...)
	for index, n := range lengths {
		var p []byte
		for _, field := range []uint32{0, 0, uint32(index), 6, n} {
			p = order.AppendUint32(p, field)
		}
		p = append(p, "abcdef\x00\x00"...)
		if flags != 0 {
			p = append(p, option(1, []byte("a comment")...)...)
			p = append(p, option(2, order.AppendUint32(nil, flags)...)...)
			p = append(p, 0, 0, 0, 0)
		}
		out = append(out, block(6, p)...)
	}
	return out
}
