package queue

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"
)

// attr returns a netlink attribute, padded as by the kernel.
func attr(kind uint16, value ...byte) []byte {
	b := binary.NativeEndian.AppendUint16(nil, uint16(attrHeader+len(value)))
	b = append(binary.NativeEndian.AppendUint16(b, kind), value...)
	return append(b, make([]byte, (4-len(b)%4)%4)...)
}

// message returns a netlink message of the kernel with attributes.
func message(kind uint16, attrs ...[]byte) []byte {
	body := append([]byte{unix.AF_INET, 0, 0, 7}, bytes.Join(attrs, nil)...)
	b := binary.NativeEndian.AppendUint32(nil, uint32(messageHeader+len(body)))
	b = binary.NativeEndian.AppendUint16(b, kind)
	return append(append(b, make([]byte, 10)...), body...)
}

// header is the attribute of packet 258 at the hook "forward".
var header = attr(attrPacketHeader, 0, 0, 1, 2, 8, 0, 2)

// TestDecode: decode reads the packet in a message, or returns an error.
func TestDecode(t *testing.T) {
	for name, c := range map[string]struct {
		in   []byte
		want Packet
		err  error
	}{
		"all": {message(
			typePacket, header, attr(attrMark, 0, 0, 0, 9), attr(attrInDevice, 0, 0, 0, 3), attr(attrOutDevice, 0, 0, 0, 4),
			attr(attrHardware, 0, 6, 0, 0, 1, 2, 3, 4, 5, 6, 0, 0), attr(attrBufferInfo, 0, 0, 0, 3),
			attr(attrLength, 0, 0, 5, 220), attr(attrPayload, 'h', 'e', 'y')),
			Packet{ID: 258, Hook: Forward, In: 3, Out: 4, MAC: [6]byte{1, 2, 3, 4, 5, 6}, Mark: 9, Length: 1500,
				Data: []byte("hey"), GSO: true, Unsummed: true, hasHeader: true}, nil},
		"whole packet": {message(typePacket, header, attr(attrPayload, 'h', 'e', 'y')),
			Packet{ID: 258, Hook: Forward, Length: 3, Data: []byte("hey"), hasHeader: true}, nil},
		"nothing copied": {message(typePacket, header), Packet{ID: 258, Hook: Forward, hasHeader: true}, nil},
		"an attribute of the future": {
			message(typePacket, attr(99, 1), header), Packet{ID: 258, Hook: Forward, hasHeader: true}, nil},
		"a MAC of another length": {message(typePacket, header, attr(attrHardware, 0, 8, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8)),
			Packet{ID: 258, Hook: Forward, hasHeader: true}, nil},
		"no header":              {message(typePacket, attr(attrMark, 0, 0, 0, 9)), Packet{}, errShort},
		"no attributes":          {message(typePacket), Packet{}, errShort},
		"an answer to a verdict": {message(unix.NLMSG_ERROR, header), Packet{}, errOther},
		"cut": {
			message(typePacket, header, attr(attrPayload, 'h', 'e', 'y'))[:36], Packet{}, errShort},
		"an attribute beyond the end": {message(typePacket, header, []byte{255, 0, attrPayload, 0}), Packet{}, errShort},
		"an attribute of no length":   {message(typePacket, header, []byte{0, 0, attrPayload, 0}), Packet{}, errShort},
		"nothing":                     {nil, Packet{}, errShort},
	} {
		t.Run(name, func(t *testing.T) {
			var got Packet
			err := got.decode(c.in)
			if !errors.Is(err, c.err) {
				t.Fatalf("error %v, want %v", err, c.err)
			}
			if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(Packet{}), cmpopts.EquateEmpty()); err == nil && diff != "" {
				t.Error(diff)
			}
		})
	}
}

// FuzzDecode: no message of the kernel crashes the daemon, and a packet that is read from it is within it.
func FuzzDecode(f *testing.F) {
	f.Add(message(typePacket, header, attr(attrPayload, 'h', 'e', 'y')))
	f.Add(message(typePacket, header, attr(attrHardware, 0, 6, 0, 0, 1, 2, 3, 4, 5, 6, 0, 0),
		attr(attrLength, 0, 0, 5, 220)))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		var p Packet
		if p.decode(b) == nil && (len(p.Data) > len(b) || p.Length < 0 || !p.hasHeader) {
			t.Errorf("%x decodes to %+v", b, p)
		}
		answer(b)
	})
}

// TestVerdicts: consecutive packets with the same verdict share a message, in order, unless a packet is held.
func TestVerdicts(t *testing.T) {
	packets := make([]Packet, 6)
	for i := range packets {
		packets[i].ID = uint32(10 + i)
	}
	accept, drop, portal := Verdict{Kind: Accept}, Verdict{}, Verdict{Kind: Repeat, Mark: 7}
	type said struct {
		kind uint16
		id   uint32
		v    Verdict
	}
	for _, c := range []struct {
		verdicts []Verdict
		held     bool
		want     []said
	}{
		{[]Verdict{accept, accept, drop, portal, portal, accept}, false,
			[]said{{typeBatch, 11, accept}, {typeVerdict, 12, drop}, {typeBatch, 14, portal}, {typeVerdict, 15, accept}}},
		{[]Verdict{accept, accept, {Kind: Held}, drop, drop, {Kind: Held}}, true,
			[]said{{typeVerdict, 10, accept}, {typeVerdict, 11, accept}, {typeVerdict, 13, drop}, {typeVerdict, 14, drop}}},
		{[]Verdict{{Kind: Held}, {Kind: Held}, {Kind: Held}, {Kind: Held}, {Kind: Held}, {Kind: Held}}, true, nil},
	} {
		b := appendVerdicts(nil, 258, packets, c.verdicts, c.held)
		var got []said
		for len(b) > 0 {
			n := binary.NativeEndian.Uint32(b)
			m := b[:n]
			b = b[n:]
			if q := binary.BigEndian.Uint16(m[18:]); q != 258 {
				t.Errorf("verdict for queue %d", q)
			}
			s := said{binary.NativeEndian.Uint16(m[4:]), binary.BigEndian.Uint32(m[28:]),
				Verdict{Kind: VerdictKind(binary.BigEndian.Uint32(m[24:]))}}
			if len(m) > 32 {
				s.v.Mark = binary.BigEndian.Uint32(m[36:])
			}
			got = append(got, s)
		}
		if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(said{})); diff != "" {
			t.Error(diff)
		}
	}
}

// TestConfigMessages compares messages with those of libnetfilter_queue's programs, as strace shows them, except
// lengths and sequence numbers.
func TestConfigMessages(t *testing.T) {
	for name, c := range map[string]struct {
		got  []byte
		want string // from the family on
	}{
		"bind":   {bindMessage(7), "00000007" + "08000100" + "01000002"},
		"unbind": {unbindMessage(7), "00000007" + "08000100" + "02000002"},
		"copy":   {copyMessage(7, 128), "00000007" + "09000200" + "00000080" + "02000000"},
		"length": {lengthMessage(7, 1024), "00000007" + "08000300" + "00000400"},
		"GSO":    {flagsMessage(7, true), "00000007" + "08000400" + "00000005" + "08000500" + "00000004"},
		"no GSO": {flagsMessage(7, false), "00000007" + "08000400" + "00000005" + "08000500" + "00000000"},
	} {
		if got := hex.EncodeToString(c.got[messageHeader:]); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
		if n := binary.NativeEndian.Uint32(c.got); int(n) != len(c.got) {
			t.Errorf("%s says it is %d bytes long, and is %d", name, n, len(c.got))
		}
	}
}

// TestReadDrops: readDrops finds a queue's counters in /proc/net/netfilter/nfnetlink_queue.
func TestReadDrops(t *testing.T) {
	const kernels = "20128 4062532532     3 2 65531    12     34       56  1\n20129 2596139019     0 2   128     0     " +
		"0        0  1\n"
	for number, want := range map[uint16]Drops{20128: {Full: 12, Unread: 34}, 20129: {}} {
		if got, err := readDrops(strings.NewReader(kernels), number); err != nil || got != want {
			t.Errorf("queue %d: %+v, %v; want %+v", number, got, err, want)
		}
	}
	for _, text := range []string{kernels, "", "20130 1 2\n", "a queue\n"} {
		if got, err := readDrops(strings.NewReader(text), 20130); err == nil {
			t.Errorf("%q: %+v", text, got)
		}
	}
}
