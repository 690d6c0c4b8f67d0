// The file of devices.

package device

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/listfile"
	"github.com/gateweigh/gateweigh/gateway/session"
	"github.com/gateweigh/gateweigh/gateway/users"
)

// File is the file of devices, one a line: its MAC address, and optionally limits and a name.
//
//	# televisions
//	00:00:5e:00:53:01
//	00:00:5e:00:53:02 down_rate=20M,session_timeout=8h
//	00:00:5e:00:53:03 down_rate=20M tv in the lobby
//	00:00:5e:00:53:04 - printer
//
// "-" is no limits. The limits are those of the users' file. The name is shown as the session's user; without one it is
// the MAC address.
type File struct{ lines *listfile.File[listed] }

// listed is a device of the file.
type listed struct {
	name     string
	limits   session.Limits
	sessions int
}

// colons is the form of addresses in the index of a file.
const colons = "aa:bb:cc:dd:ee:ff"

// maxName bounds names as RADIUS does, because accounting sends them: bytes.
const maxName = 253

var kind = listfile.Kind{
	Stays:  "the devices stay as they were read before",
	Unread: "which devices come in is not known: no other one comes in by its file, and those that are inside stay",
	Read:   "devices read", Unit: "devices", One: "device",
	Missing: "write a device a line, such as 00:00:5e:00:53:01 - printer",
	Matter:  "who comes in", Refused: 0o022, Remedy: "others may write it: chmod go-w",
}

// OpenFile reads a file of devices. Errors name the file and the line.
func OpenFile(path string, log *slog.Logger) (*File, error) {
	lines, err := listfile.Open(path, kind, log, parseLine)
	if err != nil {
		return nil, err
	}
	return &File{lines}, nil
}

// BeginFile is OpenFile for a daemon: a file that cannot be read has no devices until it is mended. State says why.
func BeginFile(path string, log *slog.Logger) *File {
	return &File{listfile.Begin(path, kind, log, parseLine)}
}

// Known reports whether some version of the file could be read. Without one it says nothing of any device.
func (f *File) Known() bool { return f.lines.Read() }

// Follow reads the file whenever it has changed, until ctx ends.
func (f *File) Follow(ctx context.Context) error { return f.lines.Follow(ctx) }

// OnChange has changed called with which devices each later version of the file lists. changed must not call the File.
// OnChange must be called before the file is used.
func (f *File) OnChange(changed func(lists func(datapath.MAC) bool)) {
	f.lines.OnChange(func(byMAC map[string]listed) {
		changed(func(mac datapath.MAC) bool { _, found := byMAC[Format(mac, colons)]; return found })
	})
}

// State returns the number of devices, and why the present file could not be read, so that they are those of the file
// before.
func (f *File) State() (devices int, problem error) { return len(f.lines.Entries()), f.lines.Problem() }

// Ask implements Source.
func (f *File) Ask(_ context.Context, c session.Credentials) (session.Login, error) {
	d, found := f.lines.Entries()[Format(c.Key.MAC, colons)]
	if !found {
		return session.Login{}, session.ErrRejected
	}
	return session.Login{User: d.name, Limits: d.limits, Sessions: d.sessions, Shared: d.sessions == 0,
		Way: session.ByList}, nil
}

// parseLine reads a line of the file: its key is the address with colons.
func parseLine(line string) (key string, d listed, err error) {
	address, rest, _ := strings.Cut(strings.Join(strings.Fields(line), " "), " ")
	mac, err := ParseMAC(address)
	if err != nil {
		return "", d, err
	}
	key = Format(mac, colons)
	limits, name, _ := strings.Cut(rest, " ")
	if limits != "" && limits != "-" {
		if d.limits, d.sessions, err = users.ParseLimits(limits); err != nil {
			return "", d, fmt.Errorf("%s: %w; \"-\" is no limits, and a name comes behind them", key, err)
		}
	}
	if d.name = name; name == "" {
		d.name = key
	}
	if len(d.name) > maxName || !utf8.ValidString(d.name) || strings.ContainsFunc(d.name, unicode.IsControl) {
		return "", d, fmt.Errorf("%s: %w", key, errName)
	}
	return key, d, nil
}

var errName = errors.New("the name must be at most 253 bytes of UTF-8 without control characters")
