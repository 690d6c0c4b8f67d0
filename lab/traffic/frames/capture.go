package frames

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
)

const (
	maxTraceFrames = 1 << 24 // 10 bytes of memory each
	maxTraceTime   = 366 * 24 * time.Hour
)

// pcapng begins with a section header.
var pcapng = []byte{0x0a, 0x0d, 0x0d, 0x0a}

// ReadTrace reads sizes and times of a capture's frames, from pcap or pcapng, also compressed by gzip. Sizes
// are those on the link, whatever the capture kept of them. name is the file's, for messages.
func ReadTrace(r io.Reader, name string) (*Trace, error) {
	next, err := openCapture(r)
	if err != nil {
		return nil, fmt.Errorf("reading the capture %s: %w", name, early(err))
	}
	t := &Trace{Name: name}
	for n := 1; ; n++ {
		info, link, err := next()
		if errors.Is(err, io.EOF) && info.CaptureLength == 0 {
			break
		}
		if err == nil {
			err = t.add(info, link)
		}
		if err != nil {
			return nil, fmt.Errorf("the capture %s, packet %d: %w", name, n, early(err))
		}
	}
	if len(t.sizes) == 0 {
		return nil, fmt.Errorf("the capture %s has no packets", name)
	}
	return t, nil
}

// Count is what a capture holds.
type Count struct {
	Frames int64         `json:"frames"`
	Sizes  map[int]int64 `json:"sizes"` // frames by their bytes on the link, whatever the capture kept of them
	Cut    bool          `json:"cut"`   // the file ends in the middle of a frame, which is not counted
}

// CountSizes counts the frames of a capture by their sizes.
func CountSizes(r io.Reader) (Count, error) {
	c := Count{Sizes: map[int]int64{}}
	next, err := openCapture(r)
	if err != nil {
		return c, fmt.Errorf("reading a capture: %w", early(err))
	}
	for {
		info, _, err := next()
		switch {
		case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF) && info.CaptureLength > 0:
			c.Cut = true
			return c, nil
		case errors.Is(err, io.EOF):
			return c, nil
		case err != nil:
			return c, fmt.Errorf("reading a capture after %d frames: %w", c.Frames, err)
		}
		c.Frames++
		c.Sizes[info.Length]++
	}
}

// early says that a file ends too early.
func early(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("the file ends in the middle: copy it again, or cut it with editcap or tcpdump -r")
	}
	return err
}

// nextFunc reads a packet's header and skips the packet.
type nextFunc func() (gopacket.CaptureInfo, layers.LinkType, error)

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
		return openPcapng(b)
	}
	p, err := pcapgo.NewReader(b)
	if err != nil {
		return nil, fmt.Errorf("it is no pcap or pcapng: %w", err)
	}
	return func() (gopacket.CaptureInfo, layers.LinkType, error) {
		_, info, err := p.ZeroCopyReadPacketData()
		return info, p.LinkType(), err
	}, nil
}

func openPcapng(r io.Reader) (nextFunc, error) {
	p, err := pcapgo.NewNgReader(r, pcapgo.NgReaderOptions{WantMixedLinkType: true})
	if err != nil {
		return nil, err
	}
	return func() (gopacket.CaptureInfo, layers.LinkType, error) {
		_, info, err := p.ZeroCopyReadPacketData()
		if err != nil {
			return info, 0, err
		}
		link, _ := info.AncillaryData[0].(layers.LinkType)
		return info, link, nil
	}, nil
}

// add takes a packet over.
func (t *Trace) add(info gopacket.CaptureInfo, link layers.LinkType) error {
	if link != layers.LinkTypeEthernet {
		return fmt.Errorf("it was captured from a link of type %v: frames need Ethernet", link)
	}
	size := info.Length
	switch {
	case len(t.sizes) == maxTraceFrames:
		return fmt.Errorf("a capture may have %d: cut it with editcap -r", maxTraceFrames)
	case size < EthernetBytes:
		return fmt.Errorf("its %d bytes are no frame", size)
	case size > MaxBytes:
		return fmt.Errorf("its %d bytes are more than a frame's %d: capture where the kernel does not merge packets (ethtool -K LINK gro off tso off gso off)", size, MaxBytes)
	case size < MinBytes:
		size = MinBytes
		t.Padded++
	}
	if len(t.sizes) == 0 {
		t.began = info.Timestamp
	}
	at := info.Timestamp.Sub(t.began)
	if n := len(t.times); n > 0 && int64(at) < t.times[n-1] || at > maxTraceTime {
		if t.astray == 0 {
			t.astray = n + 1
		}
		at = time.Duration(t.times[max(n, 1)-1])
	}
	t.sizes = append(t.sizes, uint16(size))
	t.times = append(t.times, int64(at))
	return nil
}
