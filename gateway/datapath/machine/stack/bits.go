// What is known about the bytes in nftables' registers while constant.go evaluates rules for all packets of a flow at
// once.

package stack

import "encoding/binary"

// octet is what is known about one byte of a register. The bits in known are those of value. The bits in fixed are the
// same for all packets of one direction of a flow, but not known. All other bits vary from packet to packet.
type octet struct {
	known, value, fixed byte
	source              string // names what the byte was loaded from
}

// registers are the registers of nftables while a rule is evaluated, byte by byte.
type registers [64]octet

// registerAt returns where a register begins: 1 to 4 have 16 bytes, 8 and further 4 (linux/netfilter/nf_tables.h).
func registerAt(n uint32) int {
	switch {
	case n >= 1 && n <= 4:
		return int(n-1) * 16
	case n >= 8 && n < 24:
		return int(n-8) * 4
	}
	return -1
}

// bytes returns the first bytes of register n; nil if there is no such register, or it is shorter.
func (r *registers) bytes(n, bytes uint32) []octet {
	from := registerAt(n)
	if from < 0 || bytes > 64 || from+int(bytes) > len(r) {
		return nil
	}
	return r[from : from+int(bytes)]
}

// whatVaries names the value that varies among some bytes; "": none does.
func whatVaries(o []octet) string {
	for _, b := range o {
		if b.known|b.fixed != 0xff {
			return b.name()
		}
	}
	return ""
}

// name is the name of the value that was loaded into the byte.
func (b octet) name() string {
	if b.source == "" {
		return "properties"
	}
	return b.source
}

// knownValue returns the bytes' value if all is known.
func knownValue(o []octet) ([]byte, bool) {
	out := make([]byte, len(o))
	for i, b := range o {
		if b.known != 0xff {
			return nil, false
		}
		out[i] = b.value
	}
	return out, true
}

// The following functions make the octets of a value that a rule loads into a register. varying names the value. The
// bits of value and knownOctets are known, those of fixed are the same for all packets of a direction, and those of
// unknownOctets vary from packet to packet.

func value(varying string, bytes ...byte) []octet {
	out := make([]octet, len(bytes))
	for i, b := range bytes {
		out[i] = octet{known: 0xff, value: b, source: varying}
	}
	return out
}

func knownOctets(varying string, n uint32) []octet {
	return value(varying, binary.NativeEndian.AppendUint32(nil, n)...)
}

func fixed(varying string, bytes int) []octet {
	out := make([]octet, bytes)
	for i := range out {
		out[i] = octet{fixed: 0xff, source: varying}
	}
	return out
}

func unknownOctets(varying string, bytes int) []octet {
	out := make([]octet, bytes)
	for i := range out {
		out[i] = octet{source: varying}
	}
	return out
}

// mask computes (b & mask) ^ xor.
func (b octet) mask(mask, xor byte) octet {
	b.known |= ^mask
	b.value = b.value & mask & b.known
	b.fixed &= mask
	b.value ^= xor & b.known
	return b
}

// truth is the result of a comparison for the packets of a flow: always true, never, or unknown.
type truth int

const (
	unknown truth = iota // not known; the same for all packets of a direction
	always
	never
)

func (t truth) not() truth { return [...]truth{unknown: unknown, always: never, never: always}[t] }

// equals compares bytes with a value. varying names the value on which an unknown result depends.
func equals(o []octet, want []byte) (t truth, varying string) {
	t = always
	for i, w := range want {
		if i >= len(o) {
			return unknown, ""
		}
		b := o[i]
		if (b.value^w)&b.known != 0 {
			return never, ""
		}
		if b.known != 0xff {
			t = unknown
		}
		if b.known|b.fixed != 0xff && varying == "" {
			varying = b.name()
		}
	}
	return t, varying
}
