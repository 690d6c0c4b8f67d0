package rooms

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func open(t *testing.T, text string) (*File, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "rooms")
	if err := os.WriteFile(path, []byte(text), 0o640); err != nil {
		t.Fatal(err)
	}
	return Open(path, time.UTC, slog.New(slog.DiscardHandler))
}

// TestUntil: names are compared without case, accents and space around, and dates are until the day's end.
func TestUntil(t *testing.T) {
	f, err := open(t, "# rooms\n"+
		"204; García ; 2026-12-03\n204;SMITH;2026-12-05 11:00\n305; van  der Berg\n12a; Straße\n306\n")
	if err != nil {
		t.Fatal(err)
	}
	if n, problem := f.State(); n != 5 || problem != nil || f.Named() != 4 {
		t.Errorf("%d guests, %d with names, %v", n, f.Named(), problem)
	}
	day := time.Date(2026, 12, 3, 23, 59, 0, 0, time.UTC)
	for _, tt := range []struct {
		room, name string
		at         time.Time
		has        bool
	}{
		{"204", "García", day, true}, {"204", " garcia\t", day, true}, {"204", "GARCI\u0301A", day, true},
		{"204", "Garcí", day, false}, {"204", "", day, false}, {"204", "García", day.Add(time.Minute), false},
		{"204", "smith", day.Add(35 * time.Hour), true}, {"204", "smith", day.Add(35*time.Hour + time.Minute), false},
		{"305", "Van Der Berg", day, true}, {"305", "Berg", day, false}, {"305", "vanderberg", day, false},
		{"12A", "STRASSE", day, true}, {"306", "anybody", day, true}, {"306", "", day, true},
		{"", "", day, false}, {"204 garcia", "", day, false}, {"307", "García", day, false},
	} {
		if _, has := f.Until(tt.room, tt.name, tt.at); has != tt.has {
			t.Errorf("%q, %q at %v: %t", tt.room, tt.name, tt.at, has)
		}
	}
	if until, _ := f.Until("204", "Smith", day); !until.Equal(time.Date(2026, 12, 5, 11, 0, 0, 0, time.UTC)) {
		t.Errorf("Smith has 204 until %v", until)
	}
}

// TestProblems: each mistake is named with its line.
func TestProblems(t *testing.T) {
	for text, want := range map[string]string{
		"205 Smith\n":                            `:1: "205 Smith" is no room number`,
		"\n; Smith\n":                            `:2: "" is no room number`,
		"1\n204; a; tomorrow\n":                  `:2: room 204: "tomorrow" is no date`,
		"204; a; 2026-02-30\n":                   `:1: room 204: "2026-02-30" is no date`,
		"204; a\n204; Á\n":                       `:2: room and guest "204 a" is there twice`,
		"204; a\x1b[31m\n":                       ":1: room 204: the last name must be",
		"204; a; 2026-12-03; b":                  ":1: a line has at most three parts",
		"12345678901234567; a\n":                 "is no room number",
		"204; " + strings.Repeat("x", 65) + "\n": ":1: room 204: the last name must be at most 64",
	} {
		if _, err := open(t, text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// FuzzLine: whatever a line says, what it lists can be asked for, and is then there.
func FuzzLine(f *testing.F) {
	for _, line := range []string{"204; García; 2026-12-03", "204;;", "12-a; x; 2026-12-05 11:00", "306", "²; ﬁ; 1"} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		key, g, err := parseLine(line, time.UTC)
		if err != nil {
			return
		}
		parts := strings.Split(fmt.Sprint(line, ";"), ";")
		if again := keyOf(strings.TrimSpace(parts[0]), strings.TrimSpace(parts[1])); again != key || key == "" ||
			strings.ContainsRune(key, ';') || g.until.Year() > 9999 {
			t.Errorf("%q lists %q, and is asked for as %q", line, key, again)
		}
	})
}
