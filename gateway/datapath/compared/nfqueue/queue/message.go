package queue

import (
	"encoding/binary"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Types of the subsystem's messages.
const (
	subsystem   = unix.NFNL_SUBSYS_QUEUE << 8
	typePacket  = subsystem
	typeVerdict = subsystem | 1
	typeConfig  = subsystem | 2
	typeBatch   = subsystem | 3
)

// Attributes of packets and verdicts (NFQA_...).
const (
	attrPacketHeader  = 1
	attrVerdictHeader = 2
	attrMark          = 3
	attrInDevice      = 5
	attrOutDevice     = 6
	attrHardware      = 9
	attrPayload       = 10
	attrLength        = 13
	attrBufferInfo    = 14
)

// Attributes of configuration (NFQA_CFG_...), commands and flags.
const (
	attrCommand = 1
	attrParams  = 2
	attrMaxLen  = 3
	attrMask    = 4
	attrFlags   = 5

	commandBind   = 1
	commandUnbind = 2

	copyPacket = 2
	maxCopy    = 0xffff // larger values mean this one too

	flagFailOpen = 1 << 0
	flagGSO      = 1 << 2
)

// Lengths of headers in a message.
const (
	messageHeader = unix.SizeofNlMsghdr
	familyHeader  = 4 // nfgenmsg: family, version, queue number
	attrHeader    = unix.SizeofRtAttr
)

func bindMessage(number uint16) []byte   { return commandMessage(number, commandBind) }
func unbindMessage(number uint16) []byte { return commandMessage(number, commandUnbind) }

func commandMessage(number uint16, command uint8) []byte {
	return config(number, func(e *netlink.AttributeEncoder) {
		e.Bytes(attrCommand, []byte{command, 0, 0, unix.AF_INET})
	})
}

func copyMessage(number uint16, bytes uint32) []byte {
	return config(number, func(e *netlink.AttributeEncoder) {
		e.Bytes(attrParams, append(binary.BigEndian.AppendUint32(nil, bytes), copyPacket))
	})
}

func lengthMessage(number uint16, packets uint32) []byte {
	return config(number, func(e *netlink.AttributeEncoder) { e.Uint32(attrMaxLen, packets) })
}

// flagsMessage sets both flags explicitly, so that a full queue drops whatever the kernel's default is.
func flagsMessage(number uint16, gso bool) []byte {
	var flags uint32
	if gso {
		flags = flagGSO
	}
	return config(number, func(e *netlink.AttributeEncoder) {
		e.Uint32(attrMask, flagFailOpen|flagGSO)
		e.Uint32(attrFlags, flags)
	})
}

// config returns a message that configures a queue, with a request to confirm it.
func config(number uint16, fill func(*netlink.AttributeEncoder)) []byte {
	e := netlink.NewAttributeEncoder()
	e.ByteOrder = binary.BigEndian
	fill(e)
	attrs, err := e.Encode()
	if err == nil {
		m := netlink.Message{
			Header: netlink.Header{Type: typeConfig, Flags: netlink.Request | netlink.Acknowledge},
			Data:   append(binary.BigEndian.AppendUint16([]byte{unix.AF_UNSPEC, unix.NFNETLINK_V0}, number), attrs...),
		}
		m.Header.Length = uint32(messageHeader + len(m.Data))
		var b []byte
		if b, err = m.MarshalBinary(); err == nil {
			return b
		}
	}
	panic("queue: encoding constants: " + err.Error())
}

// answer decodes the kernel's answer to a message: nil or the error. is reports whether b is an answer.
func answer(b []byte) (err error, found bool) {
	if len(b) < messageHeader+4 || binary.NativeEndian.Uint16(b[4:]) != unix.NLMSG_ERROR {
		return nil, false
	}
	if errno := -int32(binary.NativeEndian.Uint32(b[messageHeader:])); errno != 0 {
		return unix.Errno(errno), true
	}
	return nil, true
}
