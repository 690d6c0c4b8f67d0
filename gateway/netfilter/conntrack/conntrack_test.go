package conntrack

import (
	"encoding/hex"
	"net/netip"
	"reflect"
	"testing"
	"time"
)

// ended is what Linux 6.18 said of a TCP connection that had ended.
var ended, _ = hex.DecodeString(
	"020000003400018014000180080001007f000001080002007f0000011c0002800500010006000000060002009a6000000600" +
		"0300138800003400028014000180080001007f000001080002007f0000091c00028005000100060000000600020013880000" +
		"060003009a60000008000c00958c1c2b080003000000039e08000700000000091c0009800c00010000000000000000040c00" +
		"020000000000000000d81c000a800c00010000000000000000020c00020000000000000004581c0014800c00010018ec1a0c" +
		"5ef8ca470c00020018ec1a0c5fcbda28100004800c00018005000100080000000c001b0018ec1a0c5fcbdafa")

func TestRead(t *testing.T) {
	c, err := Read(ended)
	must(t, err)
	address := func(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }
	want := Connection{
		Orig:  Tuple{From: address("127.0.0.1:39520"), To: address("127.0.0.1:5000"), Protocol: 6},
		Reply: Tuple{From: address("127.0.0.1:5000"), To: address("127.0.0.9:39520"), Protocol: 6},
		Sent:  Counted{4, 216}, Got: Counted{2, 1112},
		Start: time.Unix(0, 1795838991849278023).UTC(), Stop: time.Unix(0, 1795838991863110184).UTC(),
		Reported: time.Unix(0, 1795838991863110394).UTC(), dying: true, Closed: true,
	}
	if c.message = nil; !reflect.DeepEqual(c, want) {
		t.Errorf("read %+v, want %+v", c, want)
	}
	for n := range ended {
		if _, err := Read(ended[:n]); err == nil && n%4 != 0 {
			t.Errorf("of %d bytes: no error", n)
		}
	}
}

// BenchmarkRead is what the flow log spends on decoding each end of a connection.
func BenchmarkRead(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Read(ended); err != nil {
			b.Fatal(err)
		}
	}
}
