package capture

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// magicPatched begins a pcap of a patched libpcap, whose packets have longer headers.
const magicPatched = 0xa1b2cd34

// unknownForm returns the error of a file whose first 4 bytes are of no known format.
func unknownForm(magic []byte) error {
	if binary.LittleEndian.Uint32(magic) == magicPatched || binary.BigEndian.Uint32(magic) == magicPatched {
		return errors.New("it is a pcap of a patched libpcap, with other headers: tcpdump -r OLD -w NEW writes it anew")
	}
	return errors.New("it is no pcap or pcapng")
}

// lengthOrder says in which order a version of pcap has a packet's two lengths, as libpcap reads them (sf-pcap.c).
type lengthOrder int

const (
	keptFirst  lengthOrder = iota // since 2.4: the bytes that were kept, then those on the link
	keptLast                      // up to 2.2, and 543.0 of DG/UX
	keptEither                    // 2.3: files of both kinds exist; the smaller length is that of the kept bytes
)

// lengthsOf returns the order of lengths in a file of a version. It refuses unknown versions.
func lengthsOf(major, minor uint16) (lengthOrder, error) {
	switch {
	case major == 2 && minor == 4:
		return keptFirst, nil
	case major == 2 && minor == 3:
		return keptEither, nil
	case major == 2 && minor < 3, major == 543 && minor == 0:
		return keptLast, nil
	}
	return 0, fmt.Errorf("pcap of version %d.%d: versions 2.0 to 2.4 can be read", major, minor)
}

// read returns a packet's kept bytes and its bytes on the link, from the two lengths in its header.
func (o lengthOrder) read(first, second uint32) (kept, bytes uint32) {
	if o == keptLast || o == keptEither && first > second {
		return second, first
	}
	return first, second
}
