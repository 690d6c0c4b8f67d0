package traffic

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/gateweigh/gateweigh/lab/result"
)

// wireHeader is the first thing that a client sends on every stream, in big-endian order. The server answers with one
// byte (serverAnswer): accepted, or the reason for refusing. Payload follows after that.
type wireHeader struct {
	Magic          [4]byte
	Version        uint8
	Down, UDP, Pad uint8 // 0 or 1; Pad is 0
	ID             RunID
	Index, Streams uint32 // index of the stream, and number of streams of the run
	RateBps        float64
	BurstSegments  uint32
	MSS            uint32 // bytes
	MaxSeconds     uint32
}

const (
	headerSize    = 44 // of a wireHeader
	headerVersion = 2
)

var headerMagic = [4]byte{'G', 'W', 'S', 'T'}

// serverAnswer is the server's one byte.
type serverAnswer byte

const (
	accepted      serverAnswer = 1
	refusedHeader serverAnswer = 2
	refusedRun    serverAnswer = 3
	refusedSocket serverAnswer = 4
)

func (a serverAnswer) String() string {
	known := map[serverAnswer]string{
		accepted:      "accepted",
		refusedHeader: "header not understood (another version of gateweigh on the server?)",
		refusedRun:    "stream does not fit the others of its run",
		refusedSocket: "socket options not available on the server",
	}
	return cmp.Or(known[a], fmt.Sprintf("unknown answer %d (is this a gateweigh server?)", byte(a)))
}

var errHeader = errors.New("bad stream header")

// header has the parameters that one stream sends to the server.
type header struct {
	id    RunID
	index int // below cfg.Streams
	cfg   Config
}

// encode writes the header; cfg has passed check.
func (h header) encode() []byte {
	bit := map[bool]uint8{true: 1}
	b, err := binary.Append(nil, binary.BigEndian, wireHeader{
		Magic: headerMagic, Version: headerVersion, Down: bit[h.cfg.Direction == result.Down], UDP: bit[h.cfg.UDP],
		ID: h.id, Index: uint32(h.index), Streams: uint32(h.cfg.Streams), RateBps: h.cfg.RateBps,
		BurstSegments: uint32(h.cfg.BurstSegments), MSS: uint32(h.cfg.MSS), MaxSeconds: uint32(h.cfg.MaxSeconds),
	})
	if err != nil {
		panic(err) // a wireHeader always has the same size
	}
	return b
}

// parseHeader reads a header and checks it as Start checks a Config, so that a server can run it safely. Errors wrap
// errHeader.
func parseHeader(b []byte) (header, error) {
	var w wireHeader
	if n, err := binary.Decode(b, binary.BigEndian, &w); err != nil || n != len(b) {
		return header{}, fmt.Errorf("%d bytes, want %d: %w", len(b), headerSize, errHeader)
	}
	if w.Magic != headerMagic || w.Version != headerVersion {
		return header{}, fmt.Errorf("magic %q version %d, want %q version %d: %w",
			w.Magic, w.Version, headerMagic, headerVersion, errHeader)
	}
	if w.Down > 1 || w.UDP > 1 || w.Pad != 0 {
		return header{}, fmt.Errorf("unknown direction, protocol or flags: %w", errHeader)
	}
	h := header{id: w.ID, index: int(w.Index), cfg: Config{
		Streams: int(w.Streams), UDP: w.UDP == 1, RateBps: w.RateBps, Direction: []string{result.Up, result.Down}[w.Down],
		BurstSegments: int(w.BurstSegments), MSS: int(w.MSS), MaxSeconds: int(w.MaxSeconds),
	}}
	if err := h.cfg.check(); err != nil {
		return header{}, fmt.Errorf("%w: %w", err, errHeader)
	}
	if h.index >= h.cfg.Streams {
		return header{}, fmt.Errorf("stream %d of %d: %w", h.index, h.cfg.Streams, errHeader)
	}
	return h, nil
}
