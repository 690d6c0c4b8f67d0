package rooms

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode"
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
	list, _ := f.List()
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
		if _, has := list.Until(tt.room, tt.name, tt.at); has != tt.has {
			t.Errorf("%q, %q at %v: %t", tt.room, tt.name, tt.at, has)
		}
	}
	if until, _ := list.Until("204", "Smith", day); !until.Equal(time.Date(2026, 12, 5, 11, 0, 0, 0, time.UTC)) {
		t.Errorf("Smith has 204 until %v", until)
	}
}

// TestProblems: each mistake is named with its line.
func TestProblems(t *testing.T) {
	for text, want := range map[string]string{
		"205 Smith\n":                            `:1: "205 Smith" is no room number`,
		"\n204; Garc\xeda\n":                     `:2: is not UTF-8: save the file as UTF-8`,
		"\n; Smith\n":                            `:2: "" is no room number`,
		"1\n204; a; tomorrow\n":                  `:2: room 204: "tomorrow" is no date`,
		"204; a; 2026-02-30\n":                   `:1: room 204: "2026-02-30" is no date`,
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

// TestSameNameTwice: a couple of one name, and a guest with a line for each of two stays, have the room until the later
// end, in whatever order the lines are.
func TestSameNameTwice(t *testing.T) {
	end := time.Date(2026, 12, 5, 11, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Time{
		"204; Smith\n204; Smith\n":                                     {},
		"204; Smith; 2026-12-03\n204; SMITH; 2026-12-05 11:00\n":       end,
		"204; Smith; 2026-12-05 11:00\n204; Smith; 2026-12-03\n":       end,
		"204; Smith; 2026-12-05 11:00\n204; Smith\n":                   {},
		"204; Smith\n204; Smith; 2026-12-05 11:00\n":                   {},
		"204; a; 2026-12-05 11:00\n204; Á; 2026-12-04 11:00\n204; b\n": end,
	} {
		f, err := open(t, text)
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		list, _ := f.List()
		name := "Smith"
		if strings.Contains(text, "Á") {
			name = "a"
		}
		if until, has := list.Until("204", name, end.Add(-time.Minute)); !has || !until.Equal(want) {
			t.Errorf("%q: until %v, %t; want %v", text, until, has, want)
		}
	}
}

// TestBegin: a file that is missing or has a mistake is a list that nobody knows, and says what to do; it is known once
// it was read, and stays so.
func TestBegin(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rooms")
	var log bytes.Buffer
	f := Begin(path, time.UTC, slog.New(slog.NewTextHandler(&log, nil)))
	if _, known := f.List(); known {
		t.Error("a missing file is known")
	}
	if _, problem := f.State(); problem == nil || !strings.Contains(problem.Error(), path) ||
		!strings.Contains(problem.Error(), "write a guest a line") || !strings.Contains(log.String(), path) {
		t.Errorf("a missing file: %v; logged %s", problem, log.String())
	}
	for _, step := range []struct {
		text         string
		guests       int
		known, wrong bool
	}{{"204 Smith\n", 0, false, true}, {"204; Smith\n", 1, true, false}, {"205 Smith\n", 1, true, true}} {
		if err := os.WriteFile(path, []byte(step.text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, known := f.List()
		if n, problem := f.State(); n != step.guests || known != step.known || (problem != nil) != step.wrong {
			t.Errorf("%q: %d guests, known: %t, %v", step.text, n, known, problem)
		}
	}
	if n := strings.Count(log.String(), "level=ERROR"); n != 3 || !strings.Contains(log.String(), "stay as they were") {
		t.Errorf("%d errors are logged:\n%s", n, log.String())
	}
}

// TestFold: names are as people type them.
func TestFold(t *testing.T) {
	for typed, want := range map[string]string{
		"O\u2019Brien": "o'brien", "O\u2018Brien": "o'brien", "O\u02bcBrien": "o'brien", "Bjørn": "bjorn", "ØSTBY": "ostby",
		"Wałęsa": "walesa", "ŁUCZAK": "luczak", "Đorđević": "dordevic", "Großmann": "grossmann", "GROẞMANN": "grossmann",
		"Kærgård": "kaergard", "Yıldız": "yildiz", "İnönü": "inonu", " van  der\tBerg": "van der berg", "Müller": "muller",
		"علی\u200cزاده": "علیزاده", "ශ්\u200dරී": Fold("ශ්රී"), "٢٠٤": "204", "۱۲a": "12a", "𝟚𝟘𝟜": "204",
		"عَلِي": "علی", "على": "علی", "ملك": "ملک", "محـمد": "محمد", "שָׁלוֹם": "שלום", "मीना": "मीना", "नी": "नी",
		"ดำ":    Fold("ดํา"),
		"Ｓｍｉｔｈ": "smith", "Σίσυφος": Fold("ΣΙΣΥΦΟΣ"),
	} {
		if got := Fold(typed); got != want {
			t.Errorf("%q is %q, want %q", typed, got, want)
		}
	}
	for a, b := range map[string]string{"मीना": "मैना", "मन": "मनु", "ดี": "ดู"} {
		if Fold(a) == Fold(b) {
			t.Errorf("%q and %q are one name", a, b)
		}
	}
}

// TestRoomOfEachLetter: whatever letter is typed as a room, alone or in a number, is no room or has a number of its
// own: one without a space, that is a room, and the same when it is typed.
func TestRoomOfEachLetter(t *testing.T) {
	for r := range rune(unicode.MaxRune) {
		if !unicode.IsLetter(r) && !unicode.IsDigit(r) {
			continue
		}
		for _, typed := range []string{string(r), "2" + string(r) + "4", strings.Repeat(string(r), MaxRoom)} {
			checkRoom(t, typed)
		}
	}
	for _, typed := range []string{"\u037a", "\uff9e", "\ufe70", "\ufdfa", "2\ufdfa", "ŉ", "\u02bc"} {
		if ValidRoom(typed) {
			t.Errorf("%q is a room", typed)
		}
	}
}

// checkRoom fails where a text is a valid room and its number is not.
func checkRoom(t *testing.T, typed string) {
	t.Helper()
	if !ValidRoom(typed) {
		return
	}
	number := Fold(typed)
	if number == "" || strings.ContainsFunc(number, unicode.IsSpace) || strings.ContainsRune(number, 0) ||
		!ValidRoom(number) || Fold(number) != number {
		t.Fatalf("room %q has number %q, which is a room: %t, as %q", typed, number, ValidRoom(number), Fold(number))
	}
}

// FuzzLine: whatever a line says, what it lists can be asked for, as typed and as folded, and is then there, and by no
// room alone if it has a name.
func FuzzLine(f *testing.F) {
	for _, line := range []string{"204; García; 2026-12-03", "204;;", "12-a; x; 2026-12-05 11:00", "306", "²; ﬁ; 1",
		"\u037a; x", "2\ufdfa4; x", "204; \u037a"} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		key, g, err := parseLine(line, time.UTC)
		if err != nil {
			return
		}
		parts := strings.Split(line+";", ";")
		room, name, both := strings.TrimSpace(parts[0]), strings.TrimSpace(parts[1]), strings.Split(key, "\x00")
		if len(both) != 2 || both[0] == "" || strings.ContainsFunc(both[0], unicode.IsSpace) || g.until.Year() > 9999 ||
			g.named != (both[1] != "") {
			t.Errorf("%q lists %q", line, key)
		}
		checkRoom(t, room)
		list, before := List{map[string]guest{key: g}}, time.Time{}.Add(1)
		for _, asked := range [][2]string{{room, name}, {Fold(room), Fold(name)}} {
			if _, has := list.Until(asked[0], asked[1], before); !has {
				t.Errorf("%q lists %q, which %q does not find", line, key, asked)
			}
		}
		if _, has := list.Until(strings.TrimSpace(room+" "+name), "", before); has && g.named {
			t.Errorf("%q lists %q, and admits by the room alone", line, key)
		}
	})
}
