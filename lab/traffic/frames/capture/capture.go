// Package capture reads the sizes and times of captured frames from pcap and pcapng. The general decoders register
// every protocol they know, megabytes of an agent; this one looks at no packet's bytes.
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

// Read reads sizes and times of a capture's frames, from pcap or pcapng, also compressed by gzip. Sizes
// are those on the link without FCS, whatever the capture kept of them, also where it says that its lengths
// count the FCS. name is the file's, for messages.
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
	Sizes  map[int]int64 `json:"sizes"` // frames by their bytes on the link without FCS, whatever the capture kept of them
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

// tooShortError says that a file ends too early.
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

// Kinds of links, as far as messages name them (the registry of tcpdump's link types).
const ethernet = 1

var links = map[uint32]string{
	0: "loopback", 101: "Raw, packets without frames", 113: "Linux cooked", 127: "radiotap", 276: "Linux cooked"}

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

// insideError says of an end of the file that it is in the middle of something.
func insideError(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// mostKept bounds what a capture keeps of a packet: no link's are longer, and damaged files are noticed.
const mostKept = 1 << 26

// withoutFCS is a packet's length less the bytes of the frame check sequence in it.
func withoutFCS(bytes uint32, fcs int) int { return max(0, int(bytes)-fcs) }

func checkLengths(kept, bytes uint32) error {
	if kept > mostKept || bytes > mostKept {
		return fmt.Errorf("it has %d bytes, of which %d were kept: the file is damaged", bytes, kept)
	}
	return nil
}
