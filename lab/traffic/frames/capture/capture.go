// Package capture reads the sizes and times of captured frames. It is apart from package frames because
// the decoders take megabytes of a program, and agents need none: they are sent what was read.
package capture

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"github.com/gateweigh/gateweigh/lab/traffic/frames"
)

// pcapng begins with a section header.
var pcapng = []byte{0x0a, 0x0d, 0x0d, 0x0a}

// Read reads sizes and times of a capture's frames, from pcap or pcapng, also compressed by gzip. Sizes
// are those on the link, whatever the capture kept of them. name is the file's, for messages.
func Read(r io.Reader, name string) (*frames.Trace, error) {
	next, err := openCapture(r)
	if err != nil {
		return nil, fmt.Errorf("reading the capture %s: %w", name, early(err))
	}
	t := &frames.Trace{Name: name}
	for n := 1; ; n++ {
		info, link, err := next()
		if errors.Is(err, io.EOF) && info.CaptureLength == 0 {
			break
		}
		if err == nil {
			err = add(t, info, link)
		}
		if err != nil {
			return nil, fmt.Errorf("the capture %s, packet %d: %w", name, n, early(err))
		}
	}
	if t.Frames() == 0 {
		return nil, fmt.Errorf("the capture %s has no packets", name)
	}
	return t, nil
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

func add(t *frames.Trace, info gopacket.CaptureInfo, link layers.LinkType) error {
	if link != layers.LinkTypeEthernet {
		return fmt.Errorf("it was captured from a link of type %v: frames need Ethernet", link)
	}
	return t.Add(info.Length, info.Timestamp)
}
