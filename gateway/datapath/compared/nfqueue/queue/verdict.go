package queue

import "encoding/binary"

// VerdictKind says what becomes of a packet.
type VerdictKind uint32

// The kinds of verdicts, with the kernel's numbers.
const (
	Drop   VerdictKind = 0
	Accept VerdictKind = 1 // on to the next hook
	Repeat VerdictKind = 4 // through this hook once more

	// Held is not a verdict of the kernel: the packet continues to wait, see Queue.Hold.
	Held VerdictKind = 1<<32 - 1
)

// Verdict is the decision about a packet. The zero value drops it.
type Verdict struct {
	Kind VerdictKind
	Mark uint32 // set on the packet, unless 0
}

// appendVerdict appends the message with the verdict on packet id of a queue or, if kind is typeBatch, on all packets
// up to this one.
func appendVerdict(b []byte, queueNumber uint16, kind uint16, id uint32, v Verdict) []byte {
	const plain = messageHeader + familyHeader + attrHeader + 8
	length := uint32(plain)
	if v.Mark != 0 {
		length += attrHeader + 4
	}
	b = binary.NativeEndian.AppendUint32(b, length)
	b = binary.NativeEndian.AppendUint16(b, kind)
	b = binary.NativeEndian.AppendUint16(b, 1) // NLM_F_REQUEST
	b = append(b, 0, 0, 0, 0, 0, 0, 0, 0)      // sequence, port
	b = append(b, 0, 0)                        // family, version
	b = binary.BigEndian.AppendUint16(b, queueNumber)
	b = binary.NativeEndian.AppendUint16(b, attrHeader+8)
	b = binary.NativeEndian.AppendUint16(b, attrVerdictHeader)
	b = binary.BigEndian.AppendUint32(b, uint32(v.Kind))
	b = binary.BigEndian.AppendUint32(b, id)
	if v.Mark != 0 {
		b = binary.NativeEndian.AppendUint16(b, attrHeader+4)
		b = binary.NativeEndian.AppendUint16(b, attrMark)
		b = binary.BigEndian.AppendUint32(b, v.Mark)
	}
	return b
}

// appendVerdicts appends the messages with the verdicts on a queue's packets, in order. Consecutive packets with the
// same verdict share a message, which is for all packets up to the last of them: earlier packets have their verdicts by
// then. held says that earlier packets are still held and must not get this verdict: each packet then has its own
// message.
func appendVerdicts(b []byte, queueNumber uint16, packets []Packet, verdicts []Verdict, held bool) []byte {
	for i := 0; i < len(packets); {
		if verdicts[i].Kind == Held {
			i++
			continue
		}
		last := i
		for !held && last+1 < len(packets) && verdicts[last+1] == verdicts[i] {
			last++
		}
		kind := uint16(typeVerdict)
		if last > i {
			kind = typeBatch
		}
		b = appendVerdict(b, queueNumber, kind, packets[last].ID, verdicts[i])
		i = last + 1
	}
	return b
}
