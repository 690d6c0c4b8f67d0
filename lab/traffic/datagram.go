package traffic

import "encoding/binary"

// A datagram of a run begins with 24 bytes, big endian:
//
//	0  magic "GWU"         8  run id, its first 8 bytes
//	3  kind               16  number
//	4  stream's index
//
// What follows is constant payload, or in a hello the header of a stream.
//
//	hello   to the server: header of a TCP stream, and again until it is answered
//	answer  to the client: number is the server's answer, as for TCP
//	data    either way: number is its place in the stream, from 0
//	alive   to the server every aliveEvery, from one stream after the other, and back
//	end     to the server: the run is over; to the client: it is, or is not known
const (
	headSize  = 24
	helloSize = headSize + headerSize
)

// Kinds of datagram.
const (
	kindHello  = 'H'
	kindAnswer = 'A'
	kindData   = 'D'
	kindAlive  = 'L'
	kindEnd    = 'E'
)

// head is how a datagram begins.
type head struct {
	kind   byte
	index  int    // of the stream
	run    uint64 // see RunID.short
	number int64
}

// short is the part of a run's id that its datagrams carry.
func (id RunID) short() uint64 { return binary.BigEndian.Uint64(id[:]) }

// put writes the head to the front of b, which has room for it.
func (h head) put(b []byte) {
	b[0], b[1], b[2], b[3] = 'G', 'W', 'U', h.kind
	binary.BigEndian.PutUint32(b[4:], uint32(h.index))
	binary.BigEndian.PutUint64(b[8:], h.run)
	binary.BigEndian.PutUint64(b[16:], uint64(h.number))
}

// parseHead reads the head of a datagram; ok is false when it has none.
func parseHead(b []byte) (h head, ok bool) {
	if len(b) < headSize || b[0] != 'G' || b[1] != 'W' || b[2] != 'U' {
		return head{}, false
	}
	h = head{
		kind: b[3], index: int(binary.BigEndian.Uint32(b[4:])), run: binary.BigEndian.Uint64(b[8:]),
		number: int64(binary.BigEndian.Uint64(b[16:])),
	}
	switch h.kind {
	case kindHello, kindAnswer, kindData, kindAlive, kindEnd:
		return h, h.number >= 0
	}
	return head{}, false
}

// hello is what a stream says first.
func (h header) hello() []byte {
	b := make([]byte, helloSize)
	head{kind: kindHello, index: h.index, run: h.id.short()}.put(b)
	encoded := h.encode()
	copy(b[headSize:], encoded[:])
	return b
}

// arrived counts a datagram of data of n bytes. Only one thread calls it.
func (st *stream) arrived(number int64, n int) {
	st.bytes.Add(int64(n))
	st.datagrams.Add(1)
	if number >= st.next.Load() {
		st.next.Store(number + 1)
	} else {
		st.reordered.Add(1)
	}
}

// Datagrams are counts of UDP's datagrams. An end that sends knows those sent, one that
// receives all others.
type Datagrams struct {
	Sent     int64 `json:"sent"`
	Received int64 `json:"received"`
	// Lost are missing below the highest number of their stream that came: one that is
	// still on its way is lost as soon as it is overtaken, and until it comes.
	Lost int64 `json:"lost"`
	// Reordered came after a higher number of their stream, or twice.
	Reordered int64 `json:"reordered"`
}

// Add is the sum of both.
func (d Datagrams) Add(o Datagrams) Datagrams {
	return Datagrams{d.Sent + o.Sent, d.Received + o.Received, d.Lost + o.Lost, d.Reordered + o.Reordered}
}

// Sub is what was counted since o.
func (d Datagrams) Sub(o Datagrams) Datagrams {
	return Datagrams{d.Sent - o.Sent, d.Received - o.Received, d.Lost - o.Lost, d.Reordered - o.Reordered}
}

// counted are the datagrams of the stream on this side.
func (st *stream) counted(sends bool) Datagrams {
	if sends {
		return Datagrams{Sent: st.next.Load()}
	}
	// The number first: what comes meanwhile is then received at worst, never lost.
	next := st.next.Load()
	came := st.datagrams.Load()
	return Datagrams{Received: came, Lost: max(0, next-came), Reordered: st.reordered.Load()}
}
