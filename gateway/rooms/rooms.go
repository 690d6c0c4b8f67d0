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
	"golang.org/x/text/runes"
	"golang.org/x/text/transform"
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
// A room without a name admits whoever knows its number. A room may have several guests.
type File struct{ lines *listfile.File[guest] }

// guest is who has a room.
type guest struct {
	until time.Time // zero: no end
	named bool
}

// Bounds of a line's parts.
const (
	MaxRoom = 16 // characters
	MaxName = 64 // characters
)

var kind = listfile.Kind{
	Stays: "the rooms stay as they were read before", Read: "rooms read", Unit: "guests", One: "room and guest",
	Matter: "who comes in", Refused: 0o027, Remedy: "others may read it or the group may write it: chmod 640",
}

// Open reads a file of rooms. Errors name the file and the line.
func Open(path string, zone *time.Location, log *slog.Logger) (*File, error) {
	lines, err := listfile.Open(path, kind, log, func(line string) (string, guest, error) { return parseLine(line, zone) })
	if err != nil {
		return nil, err
	}
	return &File{lines}, nil
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

// Until returns until when a guest with a last name has a room, as typed, and whether they have it at a time; a zero
// time: without an end. Case, accents and space around do not matter. Without a name only a room that the file has
// without one is had.
func (f *File) Until(room, lastName string, now time.Time) (until time.Time, has bool) {
	if room = strings.TrimSpace(room); !ValidRoom(room) { // a space would end the number in a key
		return time.Time{}, false
	}
	all := f.lines.Entries()
	for _, key := range []string{keyOf(room, lastName), keyOf(room, "")} {
		g, found := all[key]
		if !found || !g.until.IsZero() && !now.Before(g.until) {
			continue
		}
		if !has || g.until.IsZero() || !until.IsZero() && g.until.After(until) {
			until, has = g.until, true
		}
	}
	return until, has
}

// keyOf is the key of a line: "204" or "204 garcia". A room has no space.
func keyOf(room, lastName string) string {
	return strings.TrimSpace(Fold(room) + " " + Fold(lastName))
}

// Fold returns a name without what does not matter in it: case, accents, and space around and between words.
func Fold(name string) string {
	marks := transform.Chain(norm.NFKD, runes.Remove(runes.In(unicode.Mn)), norm.NFC) // has a state: one for each call
	plain, _, err := transform.String(marks, name)
	if err != nil {
		plain = name
	}
	return strings.Join(strings.Fields(cases.Fold().String(plain)), " ")
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
	return keyOf(room, name), g, nil
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

// ValidRoom reports whether a text can be a room's number.
func ValidRoom(s string) bool {
	return s != "" && utf8.ValidString(s) && utf8.RuneCountInString(s) <= MaxRoom &&
		!strings.ContainsFunc(s, func(r rune) bool { return r != '-' && !unicode.IsLetter(r) && !unicode.IsDigit(r) })
}

// ValidName reports whether a text of at most so many characters can be a name.
func ValidName(s string, most int) bool {
	return Fold(s) != "" && utf8.ValidString(s) && utf8.RuneCountInString(s) <= most &&
		!strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
}
