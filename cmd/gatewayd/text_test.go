package main

import (
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/gateway/units"
)

func TestHumanBytes(t *testing.T) {
	for n, want := range map[uint64]string{
		0: "0 B", 999: "999 B", 1000: "1.0 kB", 1234: "1.2 kB", 9_949: "9.9 kB", 9_951: "10 kB", 999_499: "999 kB",
		999_500:    "1.0 MB",
		45_000_000: "45 MB", 1_500_000_000: "1.5 GB", 1<<64 - 1: "18 EB",
	} {
		if got := units.Bytes(n); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}

func TestHumanRate(t *testing.T) {
	for bps, want := range map[uint64]string{
		0: "-", 999: "999", 8000: "8k", 512_000: "512k", 20_500_000: "20.5M", 999_600_000: "1G", 1e12: "1T"} {
		if got := units.Rate(bps); got != want {
			t.Errorf("%d: %q, want %q", bps, got, want)
		}
	}
}

func TestHumanDuration(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Hour: "0s", 59*time.Second + 999*time.Millisecond: "59s", time.Minute: "1m00s",
		12*time.Minute + 5*time.Second: "12m05s",
		3*time.Hour + 7*time.Minute:    "3h07m", 24 * time.Hour: "1d00h", 100*24*time.Hour + 23*time.Hour: "100d23h",
	} {
		if got := units.Duration(d); got != want {
			t.Errorf("%v: %q, want %q", d, got, want)
		}
	}
}

func TestPlain(t *testing.T) {
	for s, want := range map[string]string{
		"anns-phone": "anns-phone", "Zoë": "Zoë", "a\x1b[2Jb\n": "a?[2Jb?", "\xff\xfe": "??", "abcdefghijk": "abcdefghi…",
		"\u202eabc": "?abc",
	} {
		if got := plain(s, 10); got != want {
			t.Errorf("%q: %q, want %q", s, got, want)
		}
	}
}

// FuzzPlain: plain's result has no control characters, which could steer a terminal, and is no longer than its width.
func FuzzPlain(f *testing.F) {
	f.Add("\x1b[31mred", 5)
	f.Fuzz(func(t *testing.T, s string, width int) {
		if width < 1 || width > 1000 {
			return
		}
		for i, r := range []rune(plain(s, width)) {
			if r < ' ' || r >= 0x7f && r < 0xa0 || i >= width {
				t.Errorf("%q, %d: rune %d is %q", s, width, i, r)
			}
		}
	})
}
