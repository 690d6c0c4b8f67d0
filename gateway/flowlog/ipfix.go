package flowlog

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"time"
)

// A message of IPFIX (RFC 7011, 3) is at most messageBytes long, so that it fits into an unfragmented packet.
const (
	messageBytes     = 1400
	ipfixVersion     = 10
	headerBytes      = 16
	templateSetID    = 2
	firstTemplateID  = 256
	templateInterval = time.Minute // between templates, which UDP may lose (RFC 7011, 8.1)
	reversePEN       = 29305       // elements of the other direction (RFC 5103, 6.1)
	variableLength   = 65535       // length (RFC 7011, 7)
)

// exporter sends ended flows to a collector over UDP. The collector notices lost packets by the sequence numbers (RFC
// 7011, 10.3).
type exporter struct {
	conn          net.Conn
	sequence      uint32 // number of records sent
	templatesSent time.Time
	message       []byte
	set           int    // offset of the present data set in message; 0: none
	shape         shape  // of the present data set
	records       uint32 // number of records in message
}

func dialCollector(to netip.AddrPort) (*exporter, error) {
	conn, err := net.Dial("udp", to.String())
	if err != nil {
		return nil, fmt.Errorf("reaching the IPFIX collector: %w", err)
	}
	return &exporter{conn: conn}, nil
}

// export sends flows. It goes on after an error, and returns the last one.
func (x *exporter) export(flows []Flow, now time.Time) (err error) {
	for i := range flows {
		flow := &flows[i]
		if x.message == nil {
			x.begin(now)
		}
		record := flow.record()
		shape := flow.shape()
		if len(x.message)+4+len(record) > messageBytes {
			if e := x.send(now); e != nil {
				err = e
			}
			x.begin(now)
		}
		if x.set == 0 || x.shape != shape {
			x.endSet()
			x.set, x.shape = len(x.message), shape
			x.message = binary.BigEndian.AppendUint16(x.message, shape.template())
			x.message = binary.BigEndian.AppendUint16(x.message, 0)
		}
		x.message = append(x.message, record...)
		x.records++
	}
	if x.records > 0 {
		if e := x.send(now); e != nil {
			err = e
		}
	}
	return err
}

// begin begins a message, with the templates when they are due.
func (x *exporter) begin(now time.Time) {
	x.message, x.set, x.records = make([]byte, headerBytes, messageBytes), 0, 0
	if now.Sub(x.templatesSent) < templateInterval {
		return
	}
	x.templatesSent = now
	set := len(x.message)
	x.message = binary.BigEndian.AppendUint16(x.message, templateSetID)
	x.message = binary.BigEndian.AppendUint16(x.message, 0)
	for s := range shapes {
		x.message = appendTemplate(x.message, s.template(), s.fields())
	}
	binary.BigEndian.PutUint16(x.message[set+2:], uint16(len(x.message)-set))
}

func appendTemplate(b []byte, number uint16, fields []field) []byte {
	b = binary.BigEndian.AppendUint16(b, number)
	b = binary.BigEndian.AppendUint16(b, uint16(len(fields)))
	for _, f := range fields {
		element := f.element
		if f.reverse {
			element |= 1 << 15
		}
		b = binary.BigEndian.AppendUint16(b, element)
		b = binary.BigEndian.AppendUint16(b, f.bytes)
		if f.reverse {
			b = binary.BigEndian.AppendUint32(b, reversePEN)
		}
	}
	return b
}

func (x *exporter) endSet() {
	if x.set > 0 {
		binary.BigEndian.PutUint16(x.message[x.set+2:], uint16(len(x.message)-x.set))
	}
}

// send sends the message. Its sequence number is that of its first record (RFC 7011, 3.1).
func (x *exporter) send(now time.Time) error {
	x.endSet()
	message := x.message
	binary.BigEndian.PutUint16(message, ipfixVersion)
	binary.BigEndian.PutUint16(message[2:], uint16(len(message)))
	binary.BigEndian.PutUint32(message[4:], uint32(now.Unix()))
	binary.BigEndian.PutUint32(message[8:], x.sequence)
	x.sequence += x.records
	x.message, x.records = nil, 0
	if _, err := x.conn.Write(message); err != nil {
		return fmt.Errorf("sending flows to the IPFIX collector: %w", err)
	}
	return nil
}
