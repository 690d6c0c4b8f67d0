package queue

import (
	"encoding/binary"
	"errors"
)

// Hook is the netfilter hook at which a packet was queued.
type Hook uint8

// The hooks.
const (
	Prerouting Hook = iota
	Input
	Forward
	Output
	Postrouting
)

// Packet is a packet that waits for its verdict.
type Packet struct {
	ID        uint32
	Hook      Hook
	In, Out   uint32  // indices of interfaces; 0: none
	MAC       [6]byte // of the sender on In; zeros: not known
	Mark      uint32
	Length    int    // of the whole packet, bytes from the IP header on
	Data      []byte // its beginning, from the IP header on; valid until the next packets come
	GSO       bool   // aggregated; the number of segments is not reported
	Unsummed  bool   // its checksums are not computed yet
	hasHeader bool
}

var (
	errShort = errors.New("a message of the queue is cut short")
	errOther = errors.New("a message is no packet")
)

// Bits of attrBufferInfo.
const (
	infoUnsummed = 1 << 0
	infoGSO      = 1 << 1
)

// decode reads a message of the kernel. Data is part of b.
func (p *Packet) decode(b []byte) error {
	if len(b) < messageHeader+familyHeader {
		return errShort
	}
	if binary.NativeEndian.Uint16(b[4:]) != typePacket {
		return errOther
	}
	length := int(binary.NativeEndian.Uint32(b))
	if length < messageHeader+familyHeader || length > len(b) {
		return errShort
	}
	*p = Packet{}
	for b = b[messageHeader+familyHeader : length]; len(b) >= attrHeader; {
		n := int(binary.NativeEndian.Uint16(b))
		if n < attrHeader || n > len(b) {
			return errShort
		}
		p.attribute(binary.NativeEndian.Uint16(b[2:])&0x3fff, b[attrHeader:n])
		b = b[min((n+3)&^3, len(b)):]
	}
	if !p.hasHeader {
		return errShort
	}
	if p.Length == 0 {
		p.Length = len(p.Data)
	}
	return nil
}

// attribute reads one attribute; one that is too short is ignored.
func (p *Packet) attribute(kind uint16, b []byte) {
	if kind == attrPayload {
		p.Data = b
		return
	}
	if len(b) < 4 {
		return
	}
	n := binary.BigEndian.Uint32(b)
	switch kind {
	case attrPacketHeader:
		if len(b) >= 7 {
			p.ID, p.Hook = n, Hook(b[6])
			p.hasHeader = true
		}
	case attrMark:
		p.Mark = n
	case attrInDevice:
		p.In = n
	case attrOutDevice:
		p.Out = n
	case attrLength:
		p.Length = int(n)
	case attrBufferInfo:
		p.Unsummed, p.GSO = n&infoUnsummed != 0, n&infoGSO != 0
	case attrHardware:
		if n>>16 == 6 && len(b) >= 10 {
			p.MAC = [6]byte(b[4:])
		}
	}
}
