package frames

import "encoding/binary"

// Sizes of frames, bytes from the destination's MAC address to the end of the payload, without
// FCS: as tcpdump and the kernel count. RFC 2544's 64, 1518 and 9018 with FCS are 60, 1514 and 9014.
const (
	MinBytes = 60
	MaxBytes = 9014 // an MTU of 9000
	// MinBytes6 is the shortest frame of IPv6: its header and the stamp take more than Ethernet's least length.
	MinBytes6 = PayloadAt6 + StampBytes

	fcs         = 4
	preambleGap = 8 + 12 // what Ethernet keeps free before and after a frame
	// WireOverhead is the number of bytes that a link carries for each frame besides the frame's own bytes: FCS, preamble,
	// gap.
	WireOverhead = fcs + preambleGap
)

// Places in a frame of Ethernet, IPv4 without options or IPv6 without extension headers, and UDP.
const (
	EthernetBytes = 14
	IPv4Bytes     = 20
	UDPBytes      = 8
	PayloadAt     = EthernetBytes + IPv4Bytes + UDPBytes // 42: a stamp fills the shortest frame

	IPv6Bytes  = 40
	PayloadAt6 = EthernetBytes + IPv6Bytes + UDPBytes // 62
)

// Port is the UDP port that frames go to where nothing else is asked for: discard (RFC 863), so
// that a frame which reaches a host does no harm.
const Port = 9

// Magic begins each payload.
const Magic = 0x4757

// StampBytes is the length of a Stamp on the wire.
const StampBytes = 18

// Stamp begins a frame's payload. All fields are big endian:
//
//	0       2        4                   10                       18
//	│ Magic │ Stream │ Number, 48 bits   │ SentNs, CLOCK_MONOTONIC │
type Stamp struct {
	Stream uint16
	Number uint64 // among the stream's frames, from 0
	SentNs int64
}

// Put writes s to the first StampBytes of payload.
func (s Stamp) Put(payload []byte) {
	_ = payload[StampBytes-1]
	binary.BigEndian.PutUint16(payload, Magic)
	binary.BigEndian.PutUint64(payload[2:], uint64(s.Stream)<<48|s.Number&(1<<48-1))
	binary.BigEndian.PutUint64(payload[10:], uint64(s.SentNs))
}

// ReadStamp reads what Put wrote. It reports false where payload has no stamp.
func ReadStamp(payload []byte) (Stamp, bool) {
	if len(payload) < StampBytes || binary.BigEndian.Uint16(payload) != Magic {
		return Stamp{}, false
	}
	which := binary.BigEndian.Uint64(payload[2:])
	return Stamp{
		Stream: uint16(which >> 48), Number: which & (1<<48 - 1),
		SentNs: int64(binary.BigEndian.Uint64(payload[10:])),
	}, true
}
