// Package voucher keeps vouchers: codes that admit devices, with limits over all of their sessions.
//
//	create ──▶ New ──first login──▶ InUse ──▶ Expired    (its time from the first login, or its date, is over)
//	            │                     ├─────▶ UsedUp     (its time online, or its bytes)
//	            └──────revoke─────────┴─────▶ Revoked
//
// A voucher's sessions are those of gateways' session tables, by their IDs. A session is in the voucher's record before
// it begins. When it ends, what it used is added to the record and the session is taken out of it, in one write: after
// a crash at any moment each session is counted once (see Book.Serve).
//
// # Clock
//
// "Valid for 24 hours from the first use" and "5 hours online" are lengths: they pass by the monotonic clock and by the
// state folder's time line (package timeline), whatever the wall clock is set to. "Valid until a date" is a time of the
// wall clock: as long as that is wrong by an hour, the voucher ends an hour early or late. Once the clock is set right,
// sessions that run get the right end within a second, and an expired voucher whose date is still to come admits again.
package voucher

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/gateweigh/gateweigh/gateway/session"
)

// ID numbers vouchers from 1 on. Those of a batch follow each other.
type ID uint64

// Terms are what the vouchers of a batch allow. Zero values do not limit, except Devices.
type Terms struct {
	ForSeconds    int64     `json:"for_seconds,omitempty"`    // valid for so long from the first use
	Until         time.Time `json:"until,omitzero"`           // valid until then, by the wall clock
	OnlineSeconds int64     `json:"online_seconds,omitempty"` // of all sessions together
	Bytes         uint64    `json:"bytes,omitempty"`          // of both directions and all sessions together
	Devices       int       `json:"devices"`                  // at once, at least 1
	UpBps         uint64    `json:"up_bps,omitempty"`         // of each session, bits a second
	DownBps       uint64    `json:"down_bps,omitempty"`       //
	Connections   uint32    `json:"connections,omitempty"`    // of each device at once
	Note          string    `json:"note,omitempty"`           // for people; it is printed
}

// Bounds of terms and batches.
const (
	MaxCount    = 100_000 // vouchers of a batch
	MaxDevices  = 1000
	maxSeconds  = 10 * 365 * 24 * 3600 // a longer time is a typing mistake
	maxBytes    = 1 << 60
	maxNote     = 100 // characters
	maxVouchers = 10_000_000
)

// Check refuses terms that no voucher can have.
func (t Terms) Check() error {
	switch {
	case t.ForSeconds < 0 || t.ForSeconds > maxSeconds || t.OnlineSeconds < 0 || t.OnlineSeconds > maxSeconds:
		return errors.New("a voucher's time must be from 1s to ten years")
	case t.Bytes > maxBytes:
		return errors.New("a voucher's data must be below 1 EiB")
	case t.Devices < 1 || t.Devices > MaxDevices:
		return fmt.Errorf("devices at once must be from 1 to %d, not %d", MaxDevices, t.Devices)
	case !t.Until.IsZero() && (t.Until.Year() < 1970 || t.Until.Year() > 2200):
		return errors.New("a voucher's date must be from 1970 to 2200")
	case utf8.RuneCountInString(t.Note) > maxNote || !utf8.ValidString(t.Note) ||
		strings.ContainsFunc(t.Note, func(r rune) bool { return !unicode.IsPrint(r) }):
		return fmt.Errorf("a note must be one line of at most %d printable characters", maxNote)
	}
	return nil
}

// Check refuses a batch that Book.Create would refuse. An empty name is allowed.
func Check(name string, count int, terms Terms) error {
	if name != "" {
		if err := CheckBatch(name); err != nil {
			return err
		}
	}
	if count < 1 || count > MaxCount {
		return fmt.Errorf("a batch has 1 to %d vouchers, not %d", MaxCount, count)
	}
	return terms.Check()
}

// batchName is what a batch can be called. Voucher 17 of batch "lobby" is "lobby-17".
var batchName = regexp.MustCompile(`^[a-z0-9]([a-z0-9._-]{0,30}[a-z0-9])?$`)

// CheckBatch refuses names that no batch can have.
func CheckBatch(name string) error {
	if !batchName.MatchString(name) {
		return fmt.Errorf("%q is no name of a batch: give 1 to 32 of a to z, 0 to 9, \".\", \"_\" and \"-\", "+
			"with a letter or digit at both ends", name)
	}
	if _, number := SplitName(name); number > 0 {
		return fmt.Errorf("%q is the name of a voucher: give a batch none with a number after its last hyphen", name)
	}
	return nil
}

// SplitName splits "lobby-17" into "lobby" and 17; the number is 0 where there is none.
func SplitName(name string) (batch string, number int) {
	i := strings.LastIndexByte(name, '-')
	if i < 0 {
		return name, 0
	}
	n, err := strconv.Atoi(name[i+1:])
	if err != nil || n < 1 || n > MaxCount || strconv.Itoa(n) != name[i+1:] {
		return name, 0
	}
	return name[:i], n
}

// userPrefix begins the names of vouchers as users. A name in a users' file has no colon.
const userPrefix = session.VoucherUsers

// UserOf is the user of a voucher's sessions: "voucher:lobby-17".
func UserOf(name string) string { return userPrefix + name }

// State is the state of a voucher.
type State string

const (
	New     State = "new"     // never used
	InUse   State = "in-use"  // used before, and valid
	Expired State = "expired" // no longer valid, by its time or its date
	UsedUp  State = "used-up" // its time online or its data
	Revoked State = "revoked" // by the operator
)

// States lists all states.
var States = []State{New, InUse, Expired, UsedUp, Revoked}

// Voucher is a voucher as the operator sees it.
type Voucher struct {
	Name     string    `json:"name"` // "lobby-17"
	Batch    string    `json:"batch"`
	Code     Code      `json:"code"`
	Created  time.Time `json:"created"`
	Terms    Terms     `json:"terms"`
	State    State     `json:"state"`
	FirstUse time.Time `json:"first_use,omitzero"`
	End      time.Time `json:"end,omitzero"` // when it expires; zero: never, or so long after its first use
	// used by all sessions, open ones up to now
	UsedSeconds int64  `json:"used_seconds"`
	UsedBytes   uint64 `json:"used_bytes"`
	Sessions    int    `json:"sessions"` // open
}

// Revocation is what a revocation did.
type Revocation struct {
	Vouchers int `json:"vouchers"`        // revoked that were not before
	Sessions int `json:"sessions"`        // ended
	Later    int `json:"later,omitempty"` // sessions that end when their network is served again
}

// Errors of a book.
var (
	ErrTaken   = errors.New("there is a batch of this name already: choose another")
	ErrUnknown = errors.New("there is no such voucher or batch: `gatewayd voucher list` shows all")
	ErrFull    = fmt.Errorf("no more than %d vouchers fit", maxVouchers)
)

// rejection is the reason for which a voucher in a state admits nobody; nil: it admits.
func (s State) rejection() error {
	switch s {
	case Expired:
		return &session.Rejection{Reason: session.Expired}
	case UsedUp:
		return &session.Rejection{Reason: session.UsedUp}
	case Revoked:
		return &session.Rejection{Reason: session.Revoked}
	}
	return nil
}
