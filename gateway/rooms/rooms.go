// Package rooms reads who has which room: a file that the operator of a house writes, or a program of theirs.
package rooms

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"

	"github.com/gateweigh/gateweigh/gateway/listfile"
)

// File is the file of rooms, a guest a line: the room's number, and optionally the guest's last name and until when the
// room is theirs. A date is until the end of that day, in the machine's zone.
//
//	# room; last name; until
//	204; García; 2026-12-03
//	204; Smith; 2026-12-05 11:00
//	305; van der Berg
//	306
//
// A room without a name admits whoever knows its number. A room may have several guests. Two of one name, such as a
// couple, or a guest that stays on with a line of the new stay, have it until the later of both ends.
type File struct{ lines *listfile.File[guest] }

// guest is who has a room.
type guest struct {
	until time.Time // zero: no end
	named bool
}

// Merge implements listfile.Merger: a guest that is listed twice has the room until the later end.
func (g guest) Merge(other guest) guest {
	if g.until.IsZero() || !other.until.IsZero() && other.until.Before(g.until) {
		return g
	}
	return other
}

var _ listfile.Merger[guest] = guest{}

// Bounds of a line's parts.
const (
	MaxRoom = 16 // characters
	MaxName = 64 // characters
)

var kind = listfile.Kind{
	Stays:  "the rooms stay as they were read before",
	Unread: "who has which room is not known: no guest comes in by a room, and those that are inside stay",
	Read:   "rooms read", Unit: "guests", One: "room and guest",
	Missing: "write a guest a line, such as 204; García; 2026-12-03",
	Matter:  "who comes in", Refused: 0o027, Remedy: "others may read it or the group may write it: chmod 640",
}

// Open reads a file of rooms. Errors name the file and the line.
func Open(path string, zone *time.Location, log *slog.Logger) (*File, error) {
	lines, err := listfile.Open(path, kind, log, lineReader(zone))
	if err != nil {
		return nil, err
	}
	return &File{lines}, nil
}

// Begin is Open for a daemon: a file that cannot be read has no guests until it is mended. State says why.
func Begin(path string, zone *time.Location, log *slog.Logger) *File {
	return &File{listfile.Begin(path, kind, log, lineReader(zone))}
}

// lineReader returns parseLine in a zone.
func lineReader(zone *time.Location) func(string) (string, guest, error) {
	return func(line string) (string, guest, error) { return parseLine(line, zone) }
}

// Follow reads the file whenever it has changed, until ctx ends.
func (f *File) Follow(ctx context.Context) error { return f.lines.Follow(ctx) }

// State returns the number of guests, and why the present file could not be read, so that they are those of the file
// before.
func (f *File) State() (guests int, problem error) { return len(f.lines.Entries()), f.lines.Problem() }

// Named returns how many guests have a last name.
func (f *File) Named() (n int) {
	for _, g := range f.lines.Entries() {
		if g.named {
			n++
		}
	}
	return n
}

// Current returns how many guests have a room at a time.
func (f *File) Current(now time.Time) (n int) {
	for _, g := range f.lines.Entries() {
		if g.until.IsZero() || now.Before(g.until) {
			n++
		}
	}
	return n
}

// List is who has which room, as a version of the file says. It does not change.
type List struct{ byKey map[string]guest }

// List returns the present one. known says that it was read: a list of a file that never could be read says nothing of
// anybody.
func (f *File) List() (l List, known bool) {
	l.byKey = f.lines.Entries()
	return l, f.lines.Read()
}

// Until returns until when a guest with a last name has a room, as typed, and whether they have it at a time; a zero
// time: without an end. What Fold takes out does not matter. Without a name only a room that the list has without one
// is had.
func (l List) Until(room, lastName string, now time.Time) (until time.Time, has bool) {
	if !ValidRoom(room) {
		return time.Time{}, false
	}
	room = Fold(room)
	for _, key := range []string{keyOf(room, Fold(lastName)), keyOf(room, "")} {
		g, found := l.byKey[key]
		if !found || !g.until.IsZero() && !now.Before(g.until) {
			continue
		}
		if !has || g.until.IsZero() || !until.IsZero() && g.until.After(until) {
			until, has = g.until, true
		}
	}
	return until, has
}

// keyOf is the key of a line by a folded room and name: "204\x00garcia". A room has letters, digits and hyphens alone,
// so that nothing typed as one can be that of a room and a name.
func keyOf(room, lastName string) string { return room + "\x00" + lastName }

// letters are what people type for characters that have no accent by Unicode's tables, and for typographic apostrophes.
var letters = strings.NewReplacer("\u2018", "'", "\u2019", "'", "\u02bc", "'",
	"ø", "o", "ł", "l", "đ", "d", "ð", "d", "ß", "ss", "æ", "ae", "œ", "oe", "ı", "i", "ħ", "h", "ŧ", "t",
	"ي", "ی", "ى", "ی", "ك", "ک", "ـ", "") // Arabic and Persian keyboards have one of each; the last one is no letter

// joiners are the characters by which some scripts shape letters, as in Persian and Sinhala names: the zero width
// non-joiner and joiner. Keyboards put them in, and nobody sees them.
const joiners = "\u200c\u200d"

// InName reports whether a name can have a character: what is printed, and joiners.
func InName(r rune) bool { return unicode.IsPrint(r) || strings.ContainsRune(joiners, r) }

// Fold returns a name or a number without what does not matter in it: case, accents, joiners, the script of digits, the
// form of apostrophes, and space around and between words. Fold of a folded name is the same.
func Fold(name string) string {
	if isASCII(name) {
		return strings.Join(strings.Fields(strings.ToLower(name)), " ")
	}
	plain := strings.Map(func(r rune) rune {
		if isAccent(r) || strings.ContainsRune(joiners, r) {
			return -1
		}
		return westernDigit(r)
	}, norm.NFKD.String(name))
	plain = strings.ToLower(cases.Fold().String(norm.NFC.String(plain))) // Fold alone swaps the cases of Cherokee
	return strings.Join(strings.Fields(letters.Replace(plain)), " ")
}

// isAccent reports whether a mark is one that people leave out: accents, and vowels of Arabic, Hebrew and Syriac. The
// vowel signs of other scripts, such as Hindi and Thai, are as much of a name as letters.
func isAccent(r rune) bool {
	return unicode.Is(unicode.Mn, r) &&
		unicode.In(r, unicode.Inherited, unicode.Arabic, unicode.Hebrew, unicode.Syriac)
}

// westernDigit returns the digit 0 to 9 for one of another script, such as those of Arabic keyboards, and other
// characters as they are. In Unicode the ten digits of a script are in a row, from zero on (4.6).
func westernDigit(r rune) rune {
	if r < utf8.RuneSelf || !unicode.IsDigit(r) {
		return r
	}
	value := rune(0)
	for unicode.IsDigit(r - value - 1) {
		value++
	}
	return '0' + value%10
}

func isASCII(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r >= utf8.RuneSelf })
}

// parseLine reads a line of the file.
func parseLine(line string, zone *time.Location) (key string, g guest, err error) {
	parts := strings.Split(line, ";")
	for i := range parts {
		parts[i] = strings.TrimSpace(parts[i])
	}
	room, name, until := parts[0], "", ""
	if len(parts) > 1 {
		name = parts[1]
	}
	if len(parts) > 2 {
		until = parts[2]
	}
	switch {
	case len(parts) > 3:
		return "", g, errors.New(`a line has at most three parts: "204; García; 2026-12-03"`)
	case !ValidRoom(room):
		return "", g, fmt.Errorf(`%q is no room number: give 1 to %d letters, digits and hyphens, and ";" behind it`, room,
			MaxRoom)
	case name != "" && !ValidName(name, MaxName):
		return "", g, fmt.Errorf("room %s: the last name must be at most %d printable characters", room, MaxName)
	}
	if until != "" {
		if g.until, err = parseUntil(until, zone); err != nil {
			return "", g, fmt.Errorf("room %s: %w", room, err)
		}
	}
	g.named = name != ""
	return keyOf(Fold(room), Fold(name)), g, nil
}

// parseUntil reads "2026-12-03", the end of that day, or "2026-12-03 11:00".
func parseUntil(text string, zone *time.Location) (time.Time, error) {
	if t, err := time.ParseInLocation("2006-01-02 15:04", text, zone); err == nil {
		return t, nil
	}
	t, err := time.ParseInLocation(time.DateOnly, text, zone)
	if err != nil {
		return t, fmt.Errorf(`%q is no date: give "2026-12-03", or "2026-12-03 11:00"`, text)
	}
	return t.AddDate(0, 0, 1), nil
}

// ValidRoom reports whether a text can be a room's number: as typed and as folded it has 1 to MaxRoom letters, digits
// and hyphens. Some letters fold to nothing, to several or to ones with a space: U+037A, U+FB03, U+FDFA.
func ValidRoom(s string) bool {
	s = strings.TrimSpace(s)
	return utf8.ValidString(s) && isNumber(s) && isNumber(Fold(s))
}

// isNumber reports whether a text has the characters of a room's number, and not too many.
func isNumber(s string) bool {
	return s != "" && utf8.RuneCountInString(s) <= MaxRoom &&
		!strings.ContainsFunc(s, func(r rune) bool { return r != '-' && !unicode.IsLetter(r) && !unicode.IsDigit(r) })
}

// ValidName reports whether a text of at most so many characters can be a name.
func ValidName(s string, most int) bool {
	return Fold(s) != "" && utf8.ValidString(s) && utf8.RuneCountInString(s) <= most &&
		!strings.ContainsFunc(s, func(r rune) bool { return !InName(r) })
}
