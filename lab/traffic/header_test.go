package traffic

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/lab/traffic/socket"
)

func goodHeader(t testing.TB) header {
	t.Helper()
	cfg, err := Config{Streams: 3, RateBps: 1e9, Direction: Down, Congestion: "reno"}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	return header{id: RunID{1, 2, 15: 16}, index: 2, cfg: cfg}
}

func TestHeaderRoundTrip(t *testing.T) {
	datagrams := goodHeader(t)
	datagrams.cfg.UDP, datagrams.cfg.Congestion = true, ""
	for _, want := range []header{goodHeader(t), datagrams} {
		b := want.encode()
		if got, err := parseHeader(b[:]); err != nil || got != want {
			t.Errorf("got %+v, %v; want %+v", got, err, want)
		}
	}
}

// badHeaders are headers with one thing wrong, by what it is.
func badHeaders(t testing.TB) map[string][]byte {
	put32 := func(at int, v uint32) func(b []byte) {
		return func(b []byte) { binary.BigEndian.PutUint32(b[at:], v) }
	}
	rate := func(v float64) func(b []byte) {
		return func(b []byte) { binary.BigEndian.PutUint64(b[32:], math.Float64bits(v)) }
	}
	bad := map[string][]byte{}
	for what, change := range map[string]func(b []byte){
		"magic": put32(0, 0x47455420), "version": func(b []byte) { b[4] = 2 }, "direction": func(b []byte) { b[5] = 2 },
		"flags": func(b []byte) { b[7] = 1 }, "index": put32(24, 3), "no streams": put32(28, 0),
		"streams": put32(28, MaxStreams+1), "NaN": rate(math.NaN()), "infinite": rate(math.Inf(1)), "negative": rate(-1),
		"no rate": rate(0), "no burst": put32(40, 0), "burst": put32(40, 1<<31), "no mss": put32(44, 0),
		"burst bytes": put32(44, 1<<20), "overflow": put32(44, math.MaxUint32), "for ever": put32(48, MaxSecondsLimit+1),
		"no end": put32(48, 0), "no congestion": func(b []byte) { clear(b[52:68]) },
		"hidden": func(b []byte) { b[67] = 'x' }, "tail": func(b []byte) { b[71] = 1 },
		"protocol": func(b []byte) { b[6] = 2 }, "congestion of UDP": func(b []byte) { b[6] = 1 },
		"datagrams without room for a head": func(b []byte) { b[6] = 1; clear(b[52:68]); put32(44, headSize-1)(b) },
	} {
		b := goodHeader(t).encode()
		change(b[:])
		bad[what] = b[:]
	}
	return bad
}

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

func FuzzHeader(f *testing.F) {
	good := goodHeader(f).encode()
	f.Add(good[:])
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
		if again := h.encode(); string(again[:]) != string(b) {
			t.Errorf("two forms of one header:\n%x\n%x", b, again)
		}
	})
}

// TestServerRefuses sends headers to a real server and reads its answers.
func TestServerRefuses(t *testing.T) {
	p := newPair(t)
	srv, addr := p.serve(t)
	dial := p.client.dial(addr)
	ask := func(b []byte) (answer, error) {
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
	encoded := h.encode()
	if a, err := ask(encoded[:]); a != accepted {
		t.Fatalf("good header: %v, %v", a, err)
	}
	if a, _ := ask(encoded[:]); a != refusedRun {
		t.Errorf("the same stream twice: %v", a)
	}
	h.index, h.cfg.RateBps = 1, 5
	encoded = h.encode()
	if a, _ := ask(encoded[:]); a != refusedRun {
		t.Errorf("another rate in the same run: %v", a)
	}
	h.id, h.cfg.Congestion = RunID{9}, "nosuch"
	encoded = h.encode()
	if a, _ := ask(encoded[:]); a != refusedCongestion {
		t.Errorf("unknown congestion control: %v", a)
	}
	if st := srv.Stats(1)[0]; st.Streams != 1 {
		t.Errorf("server holds %d streams, want the good one", st.Streams)
	}
}
