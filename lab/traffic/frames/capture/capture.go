// Package capture reads the sizes and times of captured frames from pcap and pcapng files. It does not read the
// packets' bytes. General decoders such as gopacket register every protocol that they know, which would add megabytes
// to an agent.
package capture

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/gateweigh/gateweigh/lab/traffic/frames"
)

// pcapng begins with a section header.
var pcapng = []byte{0x0a, 0x0d, 0x0d, 0x0a}

// Read reads sizes and times of a capture's frames, from pcap or pcapng, also compressed by gzip. Sizes are those on
// the link without FCS, however many bytes of a frame the capture kept. If the file says that its lengths include the
// FCS, Read subtracts it. name is the file's name in messages.
func Read(r io.Reader, name string) (*frames.Trace, error) {
	next, err := openCapture(r)
	if err != nil {
		return nil, fmt.Errorf("reading the capture %s: %w", name, tooShortError(err))
	}
	t := &frames.Trace{Name: name}
	for n := 1; ; n++ {
		p, err := next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = p.addTo(t)
		}
		if err != nil {
			return nil, fmt.Errorf("the capture %s, packet %d: %w", name, n, tooShortError(err))
		}
	}
	if t.Frames() == 0 {
		return nil, fmt.Errorf("the capture %s has no packets", name)
	}
	return t, nil
}

// Count describes the contents of a capture.
type Count struct {
	Frames int64         `json:"frames"`
	Sizes  map[int]int64 `json:"sizes"` // number of frames by their bytes on the link without FCS
	Cut    bool          `json:"cut"`   // the file ends in the middle of a frame, which is not counted
}

// CountSizes counts the frames of a capture by their sizes.
func CountSizes(r io.Reader) (Count, error) {
	c := Count{Sizes: map[int]int64{}}
	next, err := openCapture(r)
	if err != nil {
		return c, fmt.Errorf("reading a capture: %w", tooShortError(err))
	}
	for {
		p, err := next()
		switch {
		case errors.Is(err, io.ErrUnexpectedEOF):
			c.Cut = true
			return c, nil
		case errors.Is(err, io.EOF):
			return c, nil
		case err != nil:
			return c, fmt.Errorf("reading a capture after %d frames: %w", c.Frames, err)
		}
		c.Frames++
		c.Sizes[p.bytes]++
	}
}

// tooShortError returns an error that says that the file ends too early, if err is an end of the file.
func tooShortError(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("the file ends in the middle: copy it again, or cut it with editcap or tcpdump -r")
	}
	return err
}

// packet is one packet of a capture.
type packet struct {
	bytes int // on the link, without FCS
	at    time.Time
	link  uint32 // kind of link that it was captured from
}

// ethernet is the link type of Ethernet (tcpdump's registry of link types).
const ethernet = 1

// links are names of other link types for messages.
var links = map[uint32]string{
	0: "loopback", 101: "Raw, packets without frames", 113: "Linux cooked", 127: "radiotap", 276: "Linux cooked"}

// addTo adds the packet to a trace; it is an error if its link is not Ethernet.
func (p packet) addTo(t *frames.Trace) error {
	if p.link != ethernet {
		return fmt.Errorf(
			"it was captured from a link of type %d (%s): frames need Ethernet", p.link, cmp.Or(links[p.link], "not Ethernet"))
	}
	return t.Add(p.bytes, p.at)
}

// nextFunc reads a packet's header and skips the packet. io.EOF is the end of the file, io.ErrUnexpectedEOF an end in
// the middle of a packet.
type nextFunc func() (packet, error)

// openCapture recognises the file's format and returns a function that reads its packets.
func openCapture(r io.Reader) (nextFunc, error) {
	b := bufio.NewReader(r)
	if magic, err := b.Peek(2); err == nil && magic[0] == 0x1f && magic[1] == 0x8b {
		z, err := gzip.NewReader(b)
		if err != nil {
			return nil, err
		}
		b = bufio.NewReader(z)
	}
	magic, err := b.Peek(4)
	switch {
	case len(magic) == 0 && errors.Is(err, io.EOF):
		return nil, errors.New("the file is empty")
	case err != nil:
		return nil, err
	case bytes.Equal(magic, pcapng):
		return (&ngReader{r: b}).next, nil
	}
	p, err := openPcap(b)
	if err != nil {
		return nil, err
	}
	return p.next, nil
}

// discard passes over n bytes of a packet.
func discard(r *bufio.Reader, n int) error {
	_, err := r.Discard(n)
	return insideError(err)
}

// insideError turns an end of the file into io.ErrUnexpectedEOF, because it is in the middle of a block.
func insideError(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// mostKept is the largest length of a packet or block, bytes. Larger ones are a sign of a damaged file.
const mostKept = 1 << 26

// withoutFCS returns a packet's length without the fcs bytes of its frame check sequence.
func withoutFCS(bytes uint32, fcs int) int { return max(0, int(bytes)-fcs) }

// checkLengths refuses a packet if its length (bytes), or the number of its bytes in the file (kept), exceeds mostKept.
func checkLengths(kept, bytes uint32) error {
	if kept > mostKept || bytes > mostKept {
		return fmt.Errorf("it has %d bytes, of which %d were kept: the file is damaged", bytes, kept)
	}
	return nil
}
