// Tests of the header by which a stream names itself. newPair makes two namespaces with a link; a Generator at one end
// sends a run to a Server at the other; bothCounts returns the counts of both (netns_test.go).

package traffic

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/traffic/socket"
)

// A header is the first message of each stream to the server: run, stream, and the run's configuration. The tests of
// this file change single fields of a good header, and require that it is refused.

// goodHeader returns the header of stream 2 of 3 in a run that the server sends.
func goodHeader(t testing.TB) header {
	t.Helper()
	cfg, err := Config{Streams: 3, RateBps: 1e9, Direction: result.Down}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	return header{id: 1<<63 | 16, index: 2, cfg: cfg}
}

// TestHeaderRoundTrip: a header of TCP or UDP is read as it was written.
func TestHeaderRoundTrip(t *testing.T) {
	datagrams := goodHeader(t)
	datagrams.cfg.UDP = true
	for _, want := range []header{goodHeader(t), datagrams} {
		if got, err := parseHeader(want.encode()); err != nil || got != want {
			t.Errorf("got %+v, %v; want %+v", got, err, want)
		}
	}
}

// badHeaders returns encoded headers with one wrong field each, by the name of the fault.
func badHeaders(t testing.TB) map[string][]byte {
	put32 := func(index int, v uint32) func(b []byte) {
		return func(b []byte) { binary.BigEndian.PutUint32(b[index:], v) }
	}
	rate := func(v float64) func(b []byte) {
		return func(b []byte) { binary.BigEndian.PutUint64(b[24:], math.Float64bits(v)) }
	}
	bad := map[string][]byte{}
	for what, change := range map[string]func(b []byte){
		"magic": put32(0, 0x47455420), "version": func(b []byte) { b[4] = 1 }, "direction": func(b []byte) { b[5] = 2 },
		"flags": func(b []byte) { b[7] = 1 }, "index": put32(16, 3), "no streams": put32(20, 0),
		"streams": put32(20, MaxStreams+1), "NaN": rate(math.NaN()), "infinite": rate(math.Inf(1)), "negative": rate(-1),
		"no burst": put32(32, 0), "burst": put32(32, 1<<31), "no mss": put32(36, 0),
		"burst bytes": put32(36, 1<<20), "overflow": put32(36, math.MaxUint32), "for ever": put32(40, MaxSecondsLimit+1),
		"no end": put32(40, 0), "protocol": func(b []byte) { b[6] = 2 },
		"datagrams without room for a head": func(b []byte) { b[6] = 1; put32(36, headSize-1)(b) },
	} {
		b := goodHeader(t).encode()
		change(b)
		bad[what] = b
	}
	return bad
}

// TestHeaderRefused: parseHeader refuses headers with a wrong field, and one that is cut short.
func TestHeaderRefused(t *testing.T) {
	for what, b := range badHeaders(t) {
		if h, err := parseHeader(b); !errors.Is(err, errHeader) {
			t.Errorf("%s: got %+v, %v", what, h, err)
		}
	}
	b := goodHeader(t).encode()
	if _, err := parseHeader(b[:headerSize-1]); !errors.Is(err, errHeader) {
		t.Errorf("short: %v", err)
	}
}

// FuzzHeader: any header that is accepted has a valid configuration, and is written as the same bytes.
func FuzzHeader(f *testing.F) {
	f.Add(goodHeader(f).encode())
	for _, b := range badHeaders(f) {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := parseHeader(b)
		if err != nil {
			return
		}
		if err := h.cfg.check(); err != nil {
			t.Errorf("accepted %+v: %v", h, err)
		}
		if again := h.encode(); string(again) != string(b) {
			t.Errorf("two forms of one header:\n%x\n%x", b, again)
		}
	})
}

// TestServerRefuses sends headers to a real server and reads its answers.
func TestServerRefuses(t *testing.T) {
	p := newPair(t)
	srv, addr := p.serve(t)
	dial := p.client.dial(addr)
	ask := func(b []byte) (serverAnswer, error) {
		fd, err := dial(context.Background(), 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Close(fd) })
		// In two pieces: TCP promises no more.
		socket.SendSome(fd, b[:10])
		time.Sleep(time.Millisecond)
		socket.SendSome(fd, b[10:])
		return readAnswer(context.Background(), fd)
	}
	for what, b := range badHeaders(t) {
		if a, err := ask(b); a != refusedHeader {
			t.Errorf("%s: answered %v, %v", what, a, err)
		}
	}
	h := goodHeader(t)
	if a, err := ask(h.encode()); a != accepted {
		t.Fatalf("good header: %v, %v", a, err)
	}
	if a, _ := ask(h.encode()); a != refusedRun {
		t.Errorf("the same stream twice: %v", a)
	}
	h.index, h.cfg.RateBps = 1, 5
	if a, _ := ask(h.encode()); a != refusedRun {
		t.Errorf("another rate in the same run: %v", a)
	}
	if st := srv.counts(1)[0]; st.Streams != 1 {
		t.Errorf("server holds %d streams, want the good one", st.Streams)
	}
}
