// Fuzz tests of what reads the log's files. numbered(i) is the i-th of many different flows (many_test.go).

package flowlog

import (
	"bytes"
	"net/netip"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/gateway/netfilter/conntrack"
)

// FuzzScan reads any bytes as lines, plain and compressed. A flow that was read and written is the same flow.
func FuzzScan(f *testing.F) {
	for i := range 3 {
		one := numbered(i)
		f.Add(one.line())
		f.Add(append(one.line(), one.line()[:20]...))
	}
	f.Add([]byte("{}\n{\"event\":\"end\"}\n\x00\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		visit := func(flow Flow) {
			again, ok := parseLine(bytes.TrimSuffix(flow.line(), []byte("\n")))
			if !ok || !again.Start.Equal(flow.Start) || again.Client != flow.Client {
				t.Fatalf("%+v became %+v", flow, again)
			}
			for _, k := range flow.keys() {
				if k.Addr().Is4() {
					hash(k)
				}
			}
		}
		if _, err := scan(bytes.NewReader(b), visit); err != nil {
			t.Fatal(err)
		}
		if _, err := unpack(bytes.NewReader(b), visit, nil); err != nil {
			t.Fatal(err)
		}
		var index indexer
		var packed bytes.Buffer
		if err := index.compress(&packed, bytes.NewReader(b)); err != nil {
			t.Fatal(err)
		}
		plain, compressed := 0, 0
		if _, err := scan(bytes.NewReader(b), func(Flow) { plain++ }); err != nil {
			t.Fatal(err)
		}
		if packed.Len() > 0 {
			if _, err := unpack(&packed, func(Flow) { compressed++ }, []byte{}); err != nil {
				t.Fatal(err)
			}
		}
		if plain != compressed {
			t.Fatalf("%d flows plain, %d compressed", plain, compressed)
		}
	})
}

// FuzzIndex: with any bytes as index, a search ends and visits valid offsets only.
func FuzzIndex(f *testing.F) {
	var x indexer
	var packed, index bytes.Buffer
	one := numbered(1)
	if err := x.compress(&packed, bytes.NewReader(one.line())); err != nil {
		f.Fatal(err)
	}
	if err := x.write(&index); err != nil {
		f.Fatal(err)
	}
	f.Add(index.Bytes(), uint32(packed.Len()))
	f.Add(index.Bytes()[:headBytes], uint32(0))
	f.Fuzz(func(t *testing.T, b []byte, size uint32) {
		x, err := openIndex(bytes.NewReader(b), int64(len(b)), int64(size))
		if err != nil {
			return
		}
		visits := 0
		_ = x.search(one.Client, func(from, to int64) error {
			if from > to || to-from > 64<<20 {
				t.Fatalf("from %d to %d", from, to)
			}
			visits++
			return nil
		})
		if visits > x.entries {
			t.Fatalf("%d blocks of %d entries", visits, x.entries)
		}
	})
}

// FuzzConnection: any message is refused or read as a flow of one client.
func FuzzConnection(f *testing.F) {
	f.Add([]byte{2, 0, 0, 0, 52, 0, 1, 128, 20, 0, 1, 128, 8, 0, 1, 0, 10, 1, 0, 9, 8, 0, 2, 0, 203, 0, 113, 9, 28, 0, 2,
		128, 5, 0, 1, 0, 17, 0, 0, 0, 6, 0, 2, 0, 4, 0, 0, 0, 6, 0, 3, 0, 3, 232, 0, 0})
	lan, gateway := netip.MustParsePrefix("10.1.0.0/24"), netip.MustParseAddr("10.1.0.1")
	f.Fuzz(func(t *testing.T, b []byte) {
		conn, err := conntrack.Read(b)
		if err != nil {
			return
		}
		flow, ok := flowOf(conn, func(a netip.Addr) bool { return lan.Contains(a) && a != gateway }, gateway)
		if !ok {
			return
		}
		if !lan.Contains(flow.Client.Addr()) {
			t.Fatalf("%+v", flow)
		}
		if flow.Event, flow.Start = Begins, time.Unix(1, 0).UTC(); len(flow.line()) > maxLine {
			t.Fatal("a line is too long")
		}
	})
}
