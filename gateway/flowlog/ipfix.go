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
	messageBytes  = 1400
	ipfixVersion  = 10
	messageHead   = 16
	setTemplates  = 2
	templatePlain = 256
	templateNAT   = 257
	resend        = time.Minute // between templates, which UDP may lose (RFC 7011, 8.1)
	reversePEN    = 29305       // elements of the other direction (RFC 5103, 6.1)
	variable      = 65535       // length (RFC 7011, 7)
)

// field is an element of a template: IANA's number, bytes, and whether it is of the direction
// towards who began.
type field struct {
	element, bytes uint16
	reverse        bool
}

// plainFields are the elements of a flow; natFields follow where an address is translated: RFC 8158's,
// without natEvent, because a record is of a whole flow and not of a translation's beginning or end.
var (
	plainFields = []field{
		{element: 152, bytes: 8}, {element: 153, bytes: 8}, // flowStartMilliseconds, flowEndMilliseconds
		{element: 8, bytes: 4}, {element: 12, bytes: 4}, // sourceIPv4Address, destinationIPv4Address: of who began
		{element: 7, bytes: 2}, {element: 11, bytes: 2}, // sourceTransportPort, destinationTransportPort
		{element: 4, bytes: 1},                         // protocolIdentifier
		{element: 1, bytes: 8}, {element: 2, bytes: 8}, // octetDeltaCount, packetDeltaCount
		{element: 1, bytes: 8, reverse: true}, {element: 2, bytes: 8, reverse: true},
		{element: 56, bytes: 6},         // sourceMacAddress: the client's
		{element: 371, bytes: variable}, // userName
	}
	natFields = []field{
		{element: 225, bytes: 4}, {element: 226, bytes: 4}, // postNATSourceIPv4Address, postNATDestinationIPv4Address
		{element: 227, bytes: 2}, {element: 228, bytes: 2}, // postNAPTSourceTransportPort, postNAPTDestinationTransportPort
	}
)

// exporter sends flows that have ended to a collector. Packets that the collector does not get are
// lost, as RFC 7011 has it for UDP; it sees that by the sequence numbers.
type exporter struct {
	conn     net.Conn
	sequence uint32 // of records, sent so far
	taught   time.Time
	message  []byte
	set      int // where the present data set begins in message; 0: none
	template uint16
	records  uint32 // in message
}

func dialCollector(to netip.AddrPort) (*exporter, error) {
	c, err := net.Dial("udp", to.String())
	if err != nil {
		return nil, fmt.Errorf("reaching the IPFIX collector: %w", err)
	}
	return &exporter{conn: c}, nil
}

// export sends flows. All are tried; the last error is returned.
func (x *exporter) export(flows []Flow, now time.Time) (err error) {
	for i := range flows {
		f := &flows[i]
		if x.message == nil {
			x.begin(now)
		}
		record := f.record()
		template := uint16(templatePlain)
		if f.translated() {
			template = templateNAT
		}
		if len(x.message)+4+len(record) > messageBytes {
			if e := x.send(now); e != nil {
				err = e
			}
			x.begin(now)
		}
		if x.set == 0 || x.template != template {
			x.endSet()
			x.set, x.template = len(x.message), template
			x.message = binary.BigEndian.AppendUint16(x.message, template)
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

// begin begins a message, with templates where they are due.
func (x *exporter) begin(now time.Time) {
	x.message, x.set, x.records = make([]byte, messageHead, messageBytes), 0, 0
	if now.Sub(x.taught) < resend {
		return
	}
	x.taught = now
	set := len(x.message)
	x.message = binary.BigEndian.AppendUint16(x.message, setTemplates)
	x.message = binary.BigEndian.AppendUint16(x.message, 0)
	x.message = appendTemplate(x.message, templatePlain, plainFields)
	x.message = appendTemplate(x.message, templateNAT, append(plainFields[:len(plainFields):len(plainFields)], natFields...))
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
	m := x.message
	binary.BigEndian.PutUint16(m, ipfixVersion)
	binary.BigEndian.PutUint16(m[2:], uint16(len(m)))
	binary.BigEndian.PutUint32(m[4:], uint32(now.Unix()))
	binary.BigEndian.PutUint32(m[8:], x.sequence)
	x.sequence += x.records
	x.message, x.records = nil, 0
	if _, err := x.conn.Write(m); err != nil {
		return fmt.Errorf("sending flows to the IPFIX collector: %w", err)
	}
	return nil
}

func (f *Flow) translated() bool { return f.Outside.IsValid() || f.Asked.IsValid() }

// record encodes a flow as its template has it: source is who began.
func (f *Flow) record() []byte {
	// Before and after translation, of who began and of who was asked.
	from, to := f.Client, f.Asked
	if !to.IsValid() {
		to = f.Peer
	}
	fromAfter, toAfter := f.Outside, f.Peer
	if !fromAfter.IsValid() {
		fromAfter = f.Client
	}
	there, back := [2]uint64{f.UpBytes, f.UpPkts}, [2]uint64{f.DownBytes, f.DownPkts}
	if f.Inbound {
		fromAfter, from = f.Asked, f.Peer
		if !fromAfter.IsValid() {
			fromAfter = f.Peer
		}
		toAfter, to = f.Client, f.Outside
		if !to.IsValid() {
			to = f.Client
		}
		there, back = back, there
	}
	b := make([]byte, 0, 128)
	b = binary.BigEndian.AppendUint64(b, uint64(f.Start.UnixMilli()))
	b = binary.BigEndian.AppendUint64(b, uint64(f.End.UnixMilli()))
	b = appendPair(b, from, to)
	b = append(b, f.Protocol)
	for _, n := range [][2]uint64{there, back} {
		b = binary.BigEndian.AppendUint64(b, n[0])
		b = binary.BigEndian.AppendUint64(b, n[1])
	}
	mac, err := net.ParseMAC(f.MAC)
	if err != nil || len(mac) != 6 {
		mac = make([]byte, 6)
	}
	b = append(b, mac...)
	user := f.User[:min(len(f.User), 254)] // of 255 the length has another form
	b = append(append(b, byte(len(user))), user...)
	if f.translated() {
		b = appendPair(b, fromAfter, toAfter)
	}
	return b
}

// appendPair appends two addresses and their ports.
func appendPair(b []byte, from, to netip.AddrPort) []byte {
	b = append(append(b, from.Addr().AsSlice()...), to.Addr().AsSlice()...)
	return binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(b, from.Port()), to.Port())
}
