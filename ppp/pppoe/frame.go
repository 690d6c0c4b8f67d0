// Package pppoe reads and writes the frames of PPP over Ethernet (RFC 2516): those of discovery
// with their tags, and the header of a session's frames.
//
//	client                        concentrator
//	   │── PADI (service?) ─────────▶│  to all
//	   │◀───────────── PADO (name, cookie)
//	   │── PADR (service, cookie) ──▶│
//	   │◀───────── PADS (session's ID)
//	   │◀═════ session: PPP ════════▶│
//	   │── PADT ── either way ──────▶│  the session has ended
package pppoe

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Ethernet's types of the two stages.
const (
	Discovery = 0x8863
	Session   = 0x8864
)

// Overhead is how many bytes of an Ethernet frame's payload PPPoE and PPP take. MTU is what a
// frame of 1500 bytes leaves.
const (
	Overhead = headerLen + 2
	MTU      = 1500 - Overhead
)

// Code says what a discovery frame is.
type Code uint8

// Codes (RFC 2516, 5).
const (
	PADI Code = 0x09
	PADO Code = 0x07
	PADR Code = 0x19
	PADS Code = 0x65
	PADT Code = 0xa7
	data Code = 0x00 // of the session stage
)

// String is the code's name.
func (c Code) String() string {
	switch c {
	case PADI:
		return "PADI"
	case PADO:
		return "PADO"
	case PADR:
		return "PADR"
	case PADS:
		return "PADS"
	case PADT:
		return "PADT"
	}
	return fmt.Sprintf("code %#02x", uint8(c))
}

// TagType is the type of a tag.
type TagType uint16

// Types of tags (RFC 2516, appendix A; RFC 4638, 3).
const (
	EndOfList        TagType = 0x0000
	ServiceName      TagType = 0x0101
	ACName           TagType = 0x0102
	HostUniq         TagType = 0x0103
	ACCookie         TagType = 0x0104
	VendorSpecific   TagType = 0x0105
	RelaySessionID   TagType = 0x0110
	PPPMaxPayload    TagType = 0x0120
	ServiceNameError TagType = 0x0201
	ACSystemError    TagType = 0x0202
	GenericError     TagType = 0x0203
)

// Tag is one tag of a discovery frame.
type Tag struct {
	Type  TagType
	Value []byte
}

const (
	etherLen   = 14
	headerLen  = 6
	tagLen     = 4
	maxPayload = 1484 // of a discovery frame, bytes (RFC 2516, 5.1): less 16 for a tag that a relay adds
	versions   = 0x11 // version 1, type 1
)

// MAC is an Ethernet address.
type MAC = [6]byte

// Broadcast is the address that a PADI is for.
var Broadcast = MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// Errors of Parse.
var (
	ErrShort   = errors.New("ends before its length")
	ErrVersion = errors.New("not of PPPoE's version 1 and type 1, or a code of the other stage")
	ErrTags    = errors.New("a tag is longer than the frame")
)

// Frame is a frame of either stage.
type Frame struct {
	To, From MAC
	Code     Code
	Session  uint16
	Tags     []Tag  // of discovery
	PPP      []byte // of a session: protocol and information
}

// Parse reads an Ethernet frame of PPPoE. Tags and PPP share memory with it. What follows the
// length is padding.
func Parse(b []byte) (Frame, error) {
	if len(b) < etherLen+headerLen {
		return Frame{}, fmt.Errorf("a PPPoE frame of %d bytes: %w", len(b), ErrShort)
	}
	h := b[etherLen:]
	f := Frame{To: MAC(b[:6]), From: MAC(b[6:12]), Code: Code(h[1]), Session: binary.BigEndian.Uint16(h[2:])}
	n := int(binary.BigEndian.Uint16(h[4:]))
	switch {
	case h[0] != versions:
		return f, fmt.Errorf("a PPPoE frame with %#02x: %w", h[0], ErrVersion)
	case n > len(h)-headerLen:
		return f, fmt.Errorf("%s of %d bytes with the length %d: %w", f.Code, len(h)-headerLen, n, ErrShort)
	}
	payload := h[headerLen : headerLen+n]
	if binary.BigEndian.Uint16(b[12:]) == Session {
		if f.Code != data {
			return f, fmt.Errorf("a frame of a session with %s: %w", f.Code, ErrVersion)
		}
		f.PPP = payload
		return f, nil
	}
	for len(payload) >= tagLen {
		t, size := TagType(binary.BigEndian.Uint16(payload)), int(binary.BigEndian.Uint16(payload[2:]))
		if t == EndOfList {
			return f, nil
		}
		if size > len(payload)-tagLen {
			return f, fmt.Errorf("%s: %w", f.Code, ErrTags)
		}
		f.Tags = append(f.Tags, Tag{t, payload[tagLen : tagLen+size]})
		payload = payload[tagLen+size:]
	}
	if len(payload) > 0 {
		return f, fmt.Errorf("%s: %w", f.Code, ErrTags)
	}
	return f, nil
}

// Tag returns the first tag of a type.
func (f *Frame) Tag(t TagType) (value []byte, found bool) {
	for _, tag := range f.Tags {
		if tag.Type == t {
			return tag.Value, true
		}
	}
	return nil, false
}

// Append appends the Ethernet frame's bytes, without padding. A frame of discovery whose tags do
// not fit is nil.
func (f *Frame) Append(b []byte) []byte {
	kind, index := uint16(Session), len(b)
	if f.Code != data {
		kind = Discovery
	}
	b = append(append(b, f.To[:]...), f.From[:]...)
	b = binary.BigEndian.AppendUint16(b, kind)
	b = append(b, versions, byte(f.Code))
	b = binary.BigEndian.AppendUint16(b, f.Session)
	b = append(b, 0, 0)
	for _, t := range f.Tags {
		b = binary.BigEndian.AppendUint16(b, uint16(t.Type))
		b = binary.BigEndian.AppendUint16(b, uint16(len(t.Value)))
		b = append(b, t.Value...)
	}
	b = append(b, f.PPP...)
	n := len(b) - index - etherLen - headerLen
	if f.Code != data && n > maxPayload {
		return nil
	}
	binary.BigEndian.PutUint16(b[index+etherLen+4:], uint16(n))
	return b
}
