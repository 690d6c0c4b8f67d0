package traffic

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// The header opens every stream, client to server, 72 bytes, big endian:
//
//	 0  magic "GWST"          32  rate, bit/s, IEEE 754 double
//	 4  version               40  segments per burst, uint32
//	 5  direction, 0 up       44  bytes per segment, uint32
//	 6  protocol, 1 UDP       48  longest run, s, uint32
//	 7  zero                  52  congestion control, 16 bytes, zero-padded;
//	 8  run id, 16 bytes          all zero for UDP
//	24  stream's index        68  zero, 4 bytes
//	28  streams of the run
//
// The server answers one byte: accepted, or why not. Payload follows only then.
const (
	headerSize     = 72
	headerVersion  = 1
	congestionSize = 16 // TCP_CA_NAME_MAX, include/net/tcp.h
)

var headerMagic = [4]byte{'G', 'W', 'S', 'T'}

// answer is the server's one byte.
type answer byte

const (
	accepted          answer = 1
	refusedHeader     answer = 2
	refusedRun        answer = 3
	refusedCongestion answer = 4
)

func (a answer) String() string {
	switch a {
	case accepted:
		return "accepted"
	case refusedHeader:
		return "header not understood (another version of gateweigh on the server?)"
	case refusedRun:
		return "stream does not fit the others of its run"
	case refusedCongestion:
		return "congestion control not available on the server"
	}
	return fmt.Sprintf("unknown answer %d (is this a gateweigh server?)", byte(a))
}

var errHeader = errors.New("bad stream header")

// header is what one stream tells the server.
type header struct {
	id    RunID
	index int // below cfg.Streams
	cfg   Config
}

// encode writes the header; cfg has passed check.
func (h header) encode() [headerSize]byte {
	var b [headerSize]byte
	copy(b[:], headerMagic[:])
	b[4] = headerVersion
	if h.cfg.Direction == Down {
		b[5] = 1
	}
	if h.cfg.UDP {
		b[6] = 1
	}
	copy(b[8:24], h.id[:])
	be := binary.BigEndian
	be.PutUint32(b[24:], uint32(h.index))
	be.PutUint32(b[28:], uint32(h.cfg.Streams))
	be.PutUint64(b[32:], math.Float64bits(h.cfg.RateBps))
	be.PutUint32(b[40:], uint32(h.cfg.BurstSegments))
	be.PutUint32(b[44:], uint32(h.cfg.MSS))
	be.PutUint32(b[48:], uint32(h.cfg.MaxSeconds))
	copy(b[52:52+congestionSize], h.cfg.Congestion)
	return b
}

// parseHeader reads a header and checks it as Start checks a Config: what it
// returns is safe to run. Errors wrap errHeader.
func parseHeader(b []byte) (header, error) {
	if len(b) != headerSize {
		return header{}, fmt.Errorf("%d bytes, want %d: %w", len(b), headerSize, errHeader)
	}
	if !bytes.Equal(b[:4], headerMagic[:]) || b[4] != headerVersion {
		return header{}, fmt.Errorf("magic %q version %d, want %q version %d: %w",
			b[:4], b[4], headerMagic[:], headerVersion, errHeader)
	}
	name, pad, _ := bytes.Cut(b[52:52+congestionSize], []byte{0})
	if b[5] > 1 || b[6] > 1 || b[7] != 0 || !allZero(b[68:]) || !allZero(pad) {
		return header{}, fmt.Errorf("unknown direction, protocol or flags: %w", errHeader)
	}
	be := binary.BigEndian
	h := header{id: RunID(b[8:24]), index: int(be.Uint32(b[24:]))}
	h.cfg = Config{
		Streams: int(be.Uint32(b[28:])), RateBps: math.Float64frombits(be.Uint64(b[32:])),
		Direction: Up, BurstSegments: int(be.Uint32(b[40:])), MSS: int(be.Uint32(b[44:])),
		MaxSeconds: int(be.Uint32(b[48:])), Congestion: string(name), UDP: b[6] == 1,
	}
	if b[5] == 1 {
		h.cfg.Direction = Down
	}
	if err := h.cfg.check(); err != nil {
		return header{}, fmt.Errorf("%w: %w", err, errHeader)
	}
	if h.index >= h.cfg.Streams || (h.cfg.Congestion == "") != h.cfg.UDP {
		return header{}, fmt.Errorf("stream %d of %d, congestion control %q: %w",
			h.index, h.cfg.Streams, h.cfg.Congestion, errHeader)
	}
	return h, nil
}

func allZero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}
