// The DHCP requests that the programs take from clients' frames, for the DHCP server.

package ebpf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/cilium/ebpf/ringbuf"
)

// Requests returns a source of clients' DHCP requests, if Config.DHCP is set: each Read returns one Ethernet frame, of
// up to 1514 bytes, until Close. Requests that arrived without a reader come first, at most some 6,000 since these
// programs were loaded. Only one reader may be open at a time.
func (d *Datapath) Requests() (io.ReadCloser, error) {
	r, err := ringbuf.NewReader(d.objs.Requests)
	if err != nil {
		return nil, fmt.Errorf("listening for DHCP requests: %w", err)
	}
	return &requests{ring: r}, nil
}

// requests reads the DHCP requests that the programs put into a ring buffer (struct request of maps.h).
type requests struct {
	ring   *ringbuf.Reader
	record ringbuf.Record
}

// Read copies the next frame, or its beginning where b is shorter.
func (r *requests) Read(b []byte) (int, error) {
	if err := r.ring.ReadInto(&r.record); err != nil {
		return 0, err
	}
	frame, err := requested(r.record.RawSample)
	return copy(b, frame), err
}

// Close ends a Read that waits. It may be called more than once.
func (r *requests) Close() error { return r.ring.Close() }

// requested returns the frame of a record.
func requested(b []byte) ([]byte, error) {
	if len(b) < 4 {
		return nil, errors.New("a DHCP request without its length")
	}
	bytes := binary.NativeEndian.Uint32(b)
	if uint64(bytes) > uint64(len(b)-4) {
		return nil, fmt.Errorf("a DHCP request of %d bytes in a record of %d", bytes, len(b))
	}
	return b[4:][:bytes], nil
}
