package traffic

import "encoding/binary"

// A datagram of a run begins with 24 bytes, big endian:
//
//	0  magic "GWU"         8  run id
//	3  kind               16  number
//	4  stream's index
//
// What follows is constant payload, or in a hello the header of a stream.
const (
	headSize  = 24
	helloSize = headSize + headerSize
)

// Kinds of datagram.
const (
	kindHello  = 'H' // to the server: header of a TCP stream, sent again until it is answered
	kindAnswer = 'A' // to the client: number is the server's answer, as for TCP
	kindData   = 'D' // in either direction: number is the datagram's place in the stream, from 0
	kindAlive  = 'L' // to the server every aliveEvery, from one stream after the other; the server sends it back
	kindEnd    = 'E' // to the server: the run is over; to the client: the run is over, or unknown to the server
)

// head is the beginning of a datagram.
type head struct {
	kind   byte
	index  int // of the stream
	run    RunID
	number int64
}

// put writes the head to the front of b, which must be long enough.
func (h head) put(b []byte) {
	b[0], b[1], b[2], b[3] = 'G', 'W', 'U', h.kind
	binary.BigEndian.PutUint32(b[4:], uint32(h.index))
	binary.BigEndian.PutUint64(b[8:], uint64(h.run))
	binary.BigEndian.PutUint64(b[16:], uint64(h.number))
}

// parseHead reads the head of a datagram; ok is false when it has none.
func parseHead(b []byte) (h head, ok bool) {
	if len(b) < headSize || b[0] != 'G' || b[1] != 'W' || b[2] != 'U' {
		return head{}, false
	}
	h = head{
		kind: b[3], index: int(binary.BigEndian.Uint32(b[4:])), run: RunID(binary.BigEndian.Uint64(b[8:])),
		number: int64(binary.BigEndian.Uint64(b[16:])),
	}
	switch h.kind {
	case kindHello, kindAnswer, kindData, kindAlive, kindEnd:
		return h, h.number >= 0
	}
	return head{}, false
}

// hello is the first datagram of a stream.
func (h header) hello() []byte {
	b := make([]byte, headSize, helloSize)
	head{kind: kindHello, index: h.index, run: h.id}.put(b)
	return append(b, h.encode()...)
}

// arrived counts a datagram of kindData with n bytes. Only one thread calls it.
func (st *stream) arrived(number int64, n int) {
	st.bytes.Add(int64(n))
	st.datagrams.Add(1)
	if number >= st.next.Load() {
		st.next.Store(number + 1)
	} else {
		st.reordered.Add(1)
	}
}

// Datagrams are counts of UDP datagrams. The sending end counts Sent, and the receiving end the others.
type Datagrams struct {
	Sent     int64 `json:"sent"`
	Received int64 `json:"received"`
	// Lost is how many numbers are missing below the highest received number of their stream. A datagram that another one
	// has overtaken counts as lost until it arrives. A datagram that arrives twice hides a lost one.
	Lost int64 `json:"lost"`
	// Reordered is the number of datagrams that arrived after one with a higher number of their stream, or twice.
	Reordered int64 `json:"reordered"`
}

// Add returns the sum of two counts.
func (d Datagrams) Add(o Datagrams) Datagrams {
	return Datagrams{d.Sent + o.Sent, d.Received + o.Received, d.Lost + o.Lost, d.Reordered + o.Reordered}
}

// Sub returns the counts since o.
func (d Datagrams) Sub(o Datagrams) Datagrams {
	return d.Add(Datagrams{-o.Sent, -o.Received, -o.Lost, -o.Reordered})
}

// datagramCounts returns the stream's counts at this end, which sends or receives its datagrams.
func (st *stream) datagramCounts(sends bool) Datagrams {
	if sends {
		return Datagrams{Sent: st.next.Load()}
	}
	// The next number is read before the count. A datagram that arrives between the two reads is then in the count only,
	// and never looks lost.
	next := st.next.Load()
	came := st.datagrams.Load()
	return Datagrams{Received: came, Lost: max(0, next-came), Reordered: st.reordered.Load()}
}
