package voucher

import (
	"errors"
	"strings"
	"testing"
)

func TestParseCode(t *testing.T) {
	const want = Code("K7HM2XPD9RTW")
	for _, typed := range []string{"K7HM2XPD9RTW", "k7hm2xpd9rtw", "K7HM-2XPD-9RTW", " k7hm 2xpd 9rtw ", "k7hm‐2xpd–9rtw",
		"K 7 H M 2 X P D 9 R T W", "k7hmzxpd9rtw", "K7HM\u00a02XPD\t9RTW"} {
		if got, err := ParseCode(typed); got != want || err != nil {
			t.Errorf("%q is read as %#v, %v", typed, got, err)
		}
	}
	if got, err := ParseCode("bgszu-bgszu-bg"); got != "8652V8652V86" || err != nil {
		t.Errorf("symbols that look alike are read as %v, %v", got, err)
	}
	for _, typed := range []string{"", "K7HM-2XPD-9RT", "K7HM-2XPD-9RTWW", "K7HM-2XPD-9RT0", "K7HM-2XPD-9RTÄ",
		"K7HM-2XPD-9RTA",
		strings.Repeat(" ", 80) + "K7HM2XPD9RTW", "K7HM2XPD9RT\xff"} {
		if got, err := ParseCode(typed); !errors.Is(err, ErrNoCode) {
			t.Errorf("%q is read as %v, %v", typed, got, err)
		}
	}
	if got := want.String(); got != "K7HM-2XPD-9RTW" {
		t.Errorf("the code is printed as %s", got)
	}
}

// TestNewCodes: new codes differ, are read as they are printed, and have each symbol about as often: 5 standard
// deviations at most from a 23rd.
func TestNewCodes(t *testing.T) {
	const n = 23_000
	seen, count := map[Code]bool{}, map[rune]int{}
	for _, code := range newCodes(n) {
		if parsed, err := ParseCode(code.String()); parsed != code || err != nil {
			t.Fatalf("%s is read as %v, %v", code, parsed, err)
		}
		seen[code] = true
		for _, r := range code {
			count[r]++
		}
	}
	if len(seen) != n || len(count) != len(Alphabet) {
		t.Errorf("%d codes of %d symbols, want %d of %d", len(seen), len(count), n, len(Alphabet))
	}
	for r, found := range count { // 12,000 ± 107
		if found < 12_000-643 || found > 12_000+643 {
			t.Errorf("%c is there %d times, want about 12,000", r, found)
		}
	}
}

func FuzzParseCode(f *testing.F) {
	for _, s := range []string{"", "K7HM-2XPD-9RTW", "bgszu-bgszu-bg", "K7HM2XPD9RT\xff"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, typed string) {
		code, err := ParseCode(typed)
		if err != nil {
			if code != "" {
				t.Errorf("%q: a code with an error", typed)
			}
			return
		}
		if again, err := ParseCode(code.String()); again != code || err != nil || len(code) != CodeLength {
			t.Errorf("%q is read as %s, and that as %s, %v", typed, code, again, err)
		}
	})
}
