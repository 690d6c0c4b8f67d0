package capture_test

import (
	"bytes"
	"encoding/binary"
	"os/exec"
	"reflect"
	"strings"
	"testing"

	"github.com/gopacket/gopacket/layers"

	"github.com/gateweigh/gateweigh/lab/traffic/frames/capture"
)

// versioned returns a pcap file of a version, with the given pairs of lengths in its packets' headers.
func versioned(order binary.AppendByteOrder, major, minor uint16, lengths ...[2]uint32) []byte {
	b := order.AppendUint32(nil, 0xa1b2c3d4)
	b = order.AppendUint16(order.AppendUint16(b, major), minor)
	for _, field := range []uint32{0, 0, 65535, 1} {
		b = order.AppendUint32(b, field)
	}
	for i, pair := range lengths {
		for _, field := range []uint32{uint32(i), 0, pair[0], pair[1]} {
			b = order.AppendUint32(b, field)
		}
		frame := make([]byte, min(pair[0], pair[1]))
		frame[12] = 0x08 // EtherType IPv4: tcpdump shows the length of such frames
		b = append(b, frame...)
	}
	return b
}

// TestOlderVersions: a packet's header has two lengths, the kept bytes and the bytes on the link. Old versions of pcap
// have them in the other order (then) than new ones (now). tcpdump reads the same lengths.
func TestOlderVersions(t *testing.T) {
	cut := capture.Count{Frames: 2, Sizes: map[int]int64{1514: 1, 60: 1}}
	now, then := [2]uint32{68, 1514}, [2]uint32{1514, 68}
	for name, c := range map[string]struct {
		major, minor uint16
		lengths      [2]uint32
	}{
		"2.4": {2, 4, now}, "2.3 as 2.4": {2, 3, now}, "2.3 as 2.2": {2, 3, then}, "2.2": {2, 2, then}, "2.1": {2, 1, then},
		"2.0": {2, 0, then}, "543.0": {543, 0, then},
	} {
		for _, order := range []binary.AppendByteOrder{binary.LittleEndian, binary.BigEndian} {
			data := versioned(order, c.major, c.minor, c.lengths, [2]uint32{60, 60})
			if got, err := capture.CountSizes(bytes.NewReader(data)); err != nil || !reflect.DeepEqual(got, cut) {
				t.Errorf("%s, %v: %+v, %v; want %+v", name, order, got, err, cut)
			}
			if tr, err := capture.Read(bytes.NewReader(data), name); err != nil || tr.Frames() != 2 {
				t.Errorf("%s, %v: %v", name, order, err)
			}
			tcpdump := exec.Command("tcpdump", "-nn", "-e", "-r", "-")
			tcpdump.Stdin = bytes.NewReader(data)
			if out, err := tcpdump.Output(); err != nil || !strings.Contains(string(out), "length 1514:") ||
				!strings.Contains(string(out), "length 60:") {
				t.Errorf("%s, %v: tcpdump reads something else: %v\n%s", name, order, err, out)
			}
		}
	}
	for name, version := range map[string][2]uint16{"1.2": {1, 2}, "2.5": {2, 5}, "3.0": {3, 0}, "543.1": {543, 1}} {
		_, err := capture.CountSizes(bytes.NewReader(versioned(binary.LittleEndian, version[0], version[1], now)))
		if err == nil || !strings.Contains(err.Error(), "version "+name+":") {
			t.Errorf("%s: %v", name, err)
		}
	}
	patched := append([]byte{0x34, 0xcd, 0xb2, 0xa1}, versioned(binary.LittleEndian, 2, 4, now)[4:]...)
	if _, err := capture.CountSizes(bytes.NewReader(patched)); err == nil || !strings.Contains(err.Error(), "tcpdump -r") {
		t.Errorf("of a patched libpcap: %v", err)
	}
	newer := pcapngOf(t, layers.LinkTypeEthernet, captured...)
	newer[12] = 2
	if _, err := capture.CountSizes(bytes.NewReader(newer)); err == nil || !strings.Contains(err.Error(), "version 2.0") {
		t.Errorf("a newer pcapng: %v", err)
	}
}
