package transition

import (
	"encoding/binary"
	"testing"

	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// frame returns an Ethernet frame with a probe of run 7 over IPv4 and TCP, without options: a number, and bytes of
// payload.
func frame(number uint32, bytes int) []byte {
	b := make([]byte, 14+20+20+bytes)
	b[12], b[13] = 8, 0
	b[14], b[14+9], b[14+20+12] = 0x45, 6, 5<<4
	at := b[14+20+20:]
	binary.BigEndian.PutUint32(at, magic)
	binary.BigEndian.PutUint32(at[4:], 7)
	binary.BigEndian.PutUint32(at[8:], number)
	return b
}

// openLoose opens a tap at no interface, for frames of the given lengths. The test runs its program by hand.
func openLoose(t testing.TB, lengths ...int) *Tap {
	t.Helper()
	netnstest.NewSpace(t) // skips without root
	tap, err := OpenTap(nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tap.Close() })
	if err := tap.Want(lengths); err != nil {
		t.Fatal(err)
	}
	return tap
}

// TestTapProgram: the tap notes frames of the wanted lengths, with number and run if they carry a probe in the clear.
// It passes all frames on.
func TestTapProgram(t *testing.T) {
	tap := openLoose(t, 254, 300)
	other := frame(3, 200)
	other[14+9] = 17 // not TCP: what is inside is not looked at
	short := frame(0, 246)
	for _, data := range [][]byte{frame(1, 200), frame(2, 199), other, short} {
		if code, _, err := tap.objs.Tap.Test(data); err != nil || code != 0xffffffff {
			t.Errorf("a frame of %d bytes: %#x, %v, want it passed on to the next program", len(data), code, err)
		}
	}
	list, err := tap.Read()
	if err != nil {
		t.Fatal(err)
	}
	want := []Event{{Number: 1, Run: 7, Bytes: 254}, {Bytes: 254}, {Run: 7, Bytes: 300}}
	if len(list) != len(want) {
		t.Fatalf("%+v, want %+v", list, want)
	}
	for i, e := range list {
		if e.AtNs == 0 {
			t.Errorf("frame %d has no time", i)
		}
		if e.AtNs = 0; e != want[i] {
			t.Errorf("frame %d: %+v, want %+v", i, e, want[i])
		}
	}
	if list, err := tap.Read(); len(list) != 0 || err != nil {
		t.Errorf("%v, %v after all was read", list, err)
	}
}

// TestTapRefuses: a length beyond MaxFrame, and an interface that does not exist, are errors.
func TestTapRefuses(t *testing.T) {
	tap := openLoose(t)
	if tap.Want([]int{MaxFrame + 1}) == nil {
		t.Error("a length that no tap can tell is wanted")
	}
	if _, err := OpenTap([]Point{{Name: "in", Interface: "nothing0"}}); err == nil {
		t.Error("a tap at an interface that is not there")
	}
	if err := CheckObject(); err != nil {
		t.Error(err)
	}
}

// BenchmarkTap measures the program's time for a frame that is noted, and for one that is not.
func BenchmarkTap(b *testing.B) {
	tap := openLoose(b, 254)
	for name, data := range map[string][]byte{"probe": frame(1, 200), "other": frame(1, 1400)} {
		b.Run(name, func(b *testing.B) {
			const most = 20_000 // events that have room
			n := min(b.N, most)
			_, each, err := tap.objs.Tap.Benchmark(data, n, nil)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(each.Nanoseconds()), "ns/frame")
			if _, err := tap.Read(); err != nil {
				b.Fatal(err)
			}
		})
	}
}
