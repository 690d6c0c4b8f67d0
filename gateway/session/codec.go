package session

import (
	"encoding/binary"
	"net/netip"
	"time"
)

// The store's file format, version 1. Numbers are unsigned varints. Texts are a length and their bytes. Times are a 0
// for the zero time, or a 1, seconds since 1970 as a signed varint, and nanoseconds.
//
//	client  = session reading
//	event   = kind cause at session
//	session = mac[6] address state hostname leasedAt leaseEnd [granted [line]] [extra]
//	granted = user classes class… limits[7] id began seen counts[5]
//	line    = pppoeSession mtu state [routes (bits address)…]
//	extra   = number (tag text)…
//	reading = epoch upBytes upPackets downBytes downPackets dropped
//
// granted is present when the state is authenticated, line when it is "on a line", routes when it is "on a line
// with routes", extra when the state has the bit hasExtra. kind, cause, state and tag are one byte each.

// The bytes that stand for a name; 0 stands for none. New names are only added at the end.
var (
	stateNames = []string{"", string(Leased), string(PreAuth), string(Authenticated), onPPPoE, withRoutes}
	kindNames  = []string{"", string(Started), string(Updated), string(Ended)}
	causeNames = []string{"", string(UserRequest), string(LostCarrier), string(IdleTimeout), string(SessionTimeout),
		string(Quota), string(AdminReset), string(NASReboot), string(NASRequest), string(NASError), string(LeaseEnded),
		string(LeaseReleased)}
)

// hasExtra is a bit of a state's byte. Where it is set, fields follow that former versions did not have (extra). A
// field with an unknown tag is ignored.
const hasExtra = 0x80

// Tags of extra.
const (
	tagOwner       = 1
	tagAddress     = 2 // a further one
	tagGrant6      = 3 // kind, length and address: one prefix of what a server gives by IPv6
	tagNetwork     = 4 // that was delegated: its length, and its address
	tagWay         = 5 // how the device came in
	tagGuest       = 6 // what a guest said and accepted: five texts
	tagConnections = 7 // limit of connections at once, a number
	tagAttachment  = 8 // circuit, remote, mac[6] and two VLANs: where the client is attached
)

// Names, in the file, of the state Authenticated for a client with a PPPoE session (line): without and with networks
// behind it.
const (
	onPPPoE    = "on a line"
	withRoutes = "on a line with routes"
)

func encodeClient(s *Session, read reading) []byte {
	b := appendSession(make([]byte, 0, 256), s)
	return appendNumbers(
		b, read.Epoch, read.UpBytes, read.UpPackets, read.DownBytes, read.DownPackets, read.DroppedPackets)
}

// Decode decodes a client's record (Record), which another gateway may have written.
func Decode(record []byte) (Session, error) {
	s, _, err := decodeClient(record)
	return s, err
}

// DecodeVersioned decodes a client's record behind the number of its format.
func DecodeVersioned(content []byte) (Session, error) {
	if len(content) == 0 || !KnowsFormat(content[0]) {
		return Session{}, ErrDamaged
	}
	return Decode(content[1:])
}

func decodeClient(b []byte) (s Session, read reading, err error) {
	d := decoder{rest: b}
	s = d.session()
	d.numbers(&read.Epoch, &read.UpBytes, &read.UpPackets, &read.DownBytes, &read.DownPackets, &read.DroppedPackets)
	return s, read, d.end()
}

func encodeEvent(e *Event) []byte {
	b := appendName(make([]byte, 0, 256), kindNames, string(e.Kind))
	b = appendName(b, causeNames, string(e.Cause))
	return appendSession(appendTime(b, e.At), &e.Session)
}

func decodeEvent(b []byte) (Event, error) {
	d := decoder{rest: b}
	e := Event{Kind: Kind(d.name(kindNames)), Cause: Cause(d.name(causeNames)), At: d.time(), Session: d.session()}
	if e.Kind == "" {
		d.damaged = true
	}
	return e, d.end()
}

func appendSession(b []byte, s *Session) []byte {
	b = append(b, s.MAC[:]...)
	b = appendText(b, s.Addr.AsSlice())
	state := string(s.State)
	if s.PPPoE.Session != 0 {
		state = onPPPoE
	}
	if s.PPPoE.Session != 0 && len(s.PPPoE.Routes) > 0 {
		state = withRoutes
	}
	b = appendName(b, stateNames, state)
	extra := appendExtra(nil, s)
	if extra != nil {
		b[len(b)-1] |= hasExtra
	}
	b = appendText(b, s.Hostname)
	b = appendTime(appendTime(b, s.LeasedAt), s.LeaseEnd)
	if s.State == Authenticated {
		b = appendGranted(b, s, state)
	}
	return append(b, extra...)
}

// appendExtra appends the fields that former versions did not have; nil: there are none.
func appendExtra(b []byte, s *Session) []byte {
	n := len(s.FurtherAddrs) + len(s.Delegated)
	for _, text := range []string{s.Owner, string(s.Way)} {
		if text != "" {
			n++
		}
	}
	if s.Guest != nil {
		n++
	}
	if s.Limits.Connections != 0 {
		n++
	}
	if s.Attachment != (Attachment{}) {
		n++
	}
	granted, more := appendGrant6(nil, s.IPv6)
	if n += more; n == 0 {
		return b
	}
	b = appendNumbers(b, uint64(n))
	if s.Owner != "" {
		b = appendText(append(b, tagOwner), s.Owner)
	}
	if s.Way != "" {
		b = appendText(append(b, tagWay), string(s.Way))
	}
	if g := s.Guest; g != nil {
		var texts []byte
		for _, text := range []string{g.Terms, g.Room, g.LastName, g.Name, g.Email} {
			texts = appendText(texts, text)
		}
		b = appendText(append(b, tagGuest), texts)
	}
	if n := s.Limits.Connections; n != 0 {
		b = appendText(append(b, tagConnections), appendNumbers(nil, uint64(n)))
	}
	if s.Attachment != (Attachment{}) {
		b = appendText(append(b, tagAttachment), appendAttachment(nil, s.Attachment))
	}
	for _, addr := range s.FurtherAddrs {
		b = appendText(append(b, tagAddress), addr.AsSlice())
	}
	for _, network := range s.Delegated {
		b = appendText(append(b, tagNetwork), append([]byte{byte(network.Bits())}, network.Addr().AsSlice()...))
	}
	return append(b, granted...)
}

// extra decodes what appendExtra appended.
func (d *decoder) extra(s *Session) {
	for n := d.number(); n > 0 && !d.damaged; n-- {
		tag, text := d.byte(), d.text()
		switch tag {
		case tagOwner:
			s.Owner = string(text)
		case tagWay:
			s.Way = Way(text)
		case tagGuest:
			g := decoder{rest: text}
			s.Guest = &Guest{Terms: string(g.text()), Room: string(g.text()), LastName: string(g.text()),
				Name: string(g.text()), Email: string(g.text())}
			d.damaged = d.damaged || g.end() != nil
		case tagConnections:
			number := decoder{rest: text}
			s.Limits.Connections = uint32(number.number())
			d.damaged = d.damaged || number.end() != nil
		case tagAttachment:
			a := decoder{rest: text}
			s.Attachment = a.attachment()
			d.damaged = d.damaged || a.end() != nil
		case tagAddress:
			addr, known := netip.AddrFromSlice(text)
			d.damaged = d.damaged || !known
			s.FurtherAddrs = append(s.FurtherAddrs, addr)
		case tagGrant6:
			d.granted6(s, text)
		case tagNetwork:
			if len(text) != 1+16 || text[0] > 128 {
				d.damaged = true
				break
			}
			s.Delegated = append(s.Delegated, netip.PrefixFrom(netip.AddrFrom16([16]byte(text[1:])), int(text[0])))
		}
	}
}

func appendGranted(b []byte, s *Session, state string) []byte {
	b = appendText(b, s.User)
	b = binary.AppendUvarint(b, uint64(len(s.Class)))
	for _, class := range s.Class {
		b = appendText(b, class)
	}
	l := &s.Limits
	b = appendNumbers(b, uint64(l.SessionTimeout), uint64(l.IdleTimeout), uint64(l.Interim),
		l.UpBytes, l.DownBytes, l.TotalBytes, l.UpBps, l.DownBps)
	b = appendText(b, s.ID)
	b = appendTime(appendTime(b, s.Began), s.Seen)
	b = appendNumbers(b, s.UpBytes, s.UpPackets, s.DownBytes, s.DownPackets, s.DroppedPackets)
	if s.PPPoE.Session != 0 {
		b = appendText(appendNumbers(b, uint64(s.PPPoE.Session), uint64(s.PPPoE.MTU)), s.PPPoE.State)
	}
	if state == withRoutes {
		b = binary.AppendUvarint(b, uint64(len(s.PPPoE.Routes)))
		for _, r := range s.PPPoE.Routes {
			b = append(append(b, byte(r.Bits())), r.Addr().AsSlice()...)
		}
	}
	return b
}

func (d *decoder) session() (s Session) {
	copy(s.MAC[:], d.bytes(uint64(len(s.MAC))))
	addr, known := netip.AddrFromSlice(d.text())
	d.damaged = d.damaged || !known
	s.Addr = addr
	state, extra := d.state()
	s.State = State(state)
	routed := s.State == withRoutes
	linked := s.State == onPPPoE || routed
	if linked {
		s.State = Authenticated
	}
	d.damaged = d.damaged || s.State == ""
	s.Hostname = string(d.text())
	s.LeasedAt, s.LeaseEnd = d.time(), d.time()
	if s.State == Authenticated {
		d.granted(&s, linked, routed)
	}
	if extra {
		d.extra(&s)
	}
	return s
}

func (d *decoder) granted(s *Session, linked, routed bool) {
	s.User = string(d.text())
	for n := d.number(); n > 0 && !d.damaged; n-- {
		s.Class = append(s.Class, append([]byte{}, d.text()...))
	}
	l := &s.Limits
	l.SessionTimeout, l.IdleTimeout, l.Interim = d.duration(), d.duration(), d.duration()
	d.numbers(&l.UpBytes, &l.DownBytes, &l.TotalBytes, &l.UpBps, &l.DownBps)
	s.ID = string(d.text())
	s.Began, s.Seen = d.time(), d.time()
	d.numbers(&s.UpBytes, &s.UpPackets, &s.DownBytes, &s.DownPackets, &s.DroppedPackets)
	if linked {
		id, mtu := d.number(), d.number()
		s.PPPoE = PPPoESession{uint16(id), uint16(mtu), append([]byte(nil), d.text()...), nil}
		d.damaged = d.damaged || s.PPPoE.Session == 0 || max(id, mtu) > 1<<16-1
	}
	if routed {
		s.PPPoE.Routes = d.routes()
	}
}

// routes decodes networks of IPv4, of which there is one at least.
func (d *decoder) routes() (all []netip.Prefix) {
	n := d.number()
	d.damaged = d.damaged || n == 0
	for ; n > 0 && !d.damaged; n-- {
		if b := d.bytes(1 + 4); !d.damaged {
			r := netip.PrefixFrom(netip.AddrFrom4([4]byte(b[1:])), int(b[0]))
			d.damaged = !r.IsValid()
			all = append(all, r)
		}
	}
	return all
}

func appendNumbers(b []byte, numbers ...uint64) []byte {
	for _, n := range numbers {
		b = binary.AppendUvarint(b, n)
	}
	return b
}

func appendText[T string | []byte](b []byte, text T) []byte {
	return append(binary.AppendUvarint(b, uint64(len(text))), text...)
}

func appendTime(b []byte, t time.Time) []byte {
	if t.IsZero() {
		return append(b, 0)
	}
	b = binary.AppendVarint(append(b, 1), t.Unix())
	return binary.AppendUvarint(b, uint64(t.Nanosecond()))
}

func appendName(b []byte, names []string, name string) []byte {
	for i, known := range names {
		if name == known {
			return append(b, byte(i))
		}
	}
	return append(b, 0)
}

// decoder decodes a record. After the first error every method returns zeros, and end returns the error.
type decoder struct {
	rest    []byte
	damaged bool
}

func (d *decoder) end() error {
	if d.damaged || len(d.rest) > 0 {
		return ErrDamaged
	}
	return nil
}

// bytes returns the next n bytes, without copying.
func (d *decoder) bytes(n uint64) []byte {
	if d.damaged || n > uint64(len(d.rest)) {
		d.damaged, d.rest = true, nil
		return nil
	}
	taken := d.rest[:n]
	d.rest = d.rest[n:]
	return taken
}

func (d *decoder) text() []byte { return d.bytes(d.number()) }

func (d *decoder) number() uint64 {
	n, size := binary.Uvarint(d.rest)
	if size <= 0 {
		d.damaged = true
		return 0
	}
	d.bytes(uint64(size))
	return n
}

func (d *decoder) numbers(target ...*uint64) {
	for _, n := range target {
		*n = d.number()
	}
}

func (d *decoder) duration() time.Duration {
	n := time.Duration(d.number())
	d.damaged = d.damaged || n < 0
	return n
}

func (d *decoder) time() time.Time {
	set := d.bytes(1)
	if d.damaged || set[0] == 0 {
		return time.Time{}
	}
	seconds, size := binary.Varint(d.rest)
	d.damaged = d.damaged || size <= 0 || set[0] != 1
	d.bytes(uint64(max(size, 0)))
	nanoseconds := d.number()
	d.damaged = d.damaged || nanoseconds >= uint64(time.Second)
	return time.Unix(seconds, int64(nanoseconds))
}

// state decodes a state's name, and whether it has an extra.
func (d *decoder) state() (name string, extra bool) {
	b := d.byte()
	return d.nameOf(b&^hasExtra, stateNames), b&hasExtra != 0
}

func (d *decoder) name(names []string) string { return d.nameOf(d.byte(), names) }

func (d *decoder) nameOf(b byte, names []string) string {
	if int(b) >= len(names) {
		d.damaged = true
		return ""
	}
	return names[b]
}

func (d *decoder) byte() byte {
	if b := d.bytes(1); !d.damaged {
		return b[0]
	}
	return 0
}
