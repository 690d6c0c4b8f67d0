package allowance

import (
	"errors"
	"math"
	"net/netip"
	"slices"
	"time"

	"github.com/gateweigh/gateweigh/gateway/session"
)

// Used is the part of a holder's record that has its sessions.
type Used struct {
	Online int64  `json:"t,omitempty"` // nanoseconds of sessions that have ended
	Bytes  uint64 `json:"b,omitempty"` // of sessions that have ended
	Uses   []Use  `json:"u,omitempty"` // open sessions, the oldest first
}

// Use is an open session of a holder.
type Use struct {
	Session string     `json:"i"`           // its ID
	Network string     `json:"n,omitempty"` // where it is; empty: there is one network
	Gateway string     `json:"g,omitempty"` // that has it; empty: the only one
	Left    bool       `json:"l,omitempty"` // its device has begun another one elsewhere: it ends, and has no place
	MAC     string     `json:"m"`
	Addr    netip.Addr `json:"a"`
	// What the session had used before the time that is counted: nanoseconds, and bytes.
	OnlineBefore int64  `json:"o,omitempty"`
	BytesBefore  uint64 `json:"y,omitempty"`
	// The session's own limits, which no allowance prolongs: nanoseconds, and bytes; 0: it has none.
	OwnTime  int64  `json:"e,omitempty"`
	OwnBytes uint64 `json:"z,omitempty"`
}

// Check refuses what nobody writes.
func (r *Used) Check(mostUses int) error {
	if r.Online < 0 || len(r.Uses) > mostUses {
		return errors.New("a number of it is none that gatewayd writes")
	}
	ids := make(map[string]bool, len(r.Uses))
	for _, u := range r.Uses {
		if u.Session == "" || u.OnlineBefore < 0 || ids[u.Session] {
			return errors.New("a session of it has no ID of its own")
		}
		ids[u.Session] = true
	}
	return nil
}

// Places is how many sessions of a record have a place.
func (r *Used) Places() (n int) {
	for _, u := range r.Uses {
		if !u.Left {
			n++
		}
	}
	return n
}

// Close takes a session out of a record and adds what it used, if it is there, and reports that.
func (r *Used) Close(e End) bool {
	i := slices.IndexFunc(r.Uses, func(u Use) bool { return u.Session == e.Session })
	if i < 0 {
		return false
	}
	u := r.Uses[i]
	r.Uses = slices.Delete(r.Uses, i, i+1)
	r.Online += int64(min(max(e.Online-time.Duration(u.OnlineBefore), 0), time.Duration(math.MaxInt64-r.Online)))
	r.Bytes += min(e.Bytes-min(u.BytesBefore, e.Bytes), math.MaxUint64-r.Bytes)
	return true
}

// Usage is what the open sessions of a holder have used so far.
type Usage struct {
	Online   time.Duration
	Bytes    uint64
	Sessions []session.Session // by use; zero: it is not known
}

// Usage reads the open sessions of a record. Sessions that have ended, and those of networks that are not served now,
// count as nothing; those of other gateways as Elsewhere says.
func (a *Sessions[Holder]) Usage(r *Used) (all Usage) {
	now := time.Now()
	for _, u := range r.Uses {
		s, _ := a.Find(u)
		counted := s
		if s.ID == "" && u.Gateway != "" && a.Elsewhere != nil {
			counted, _ = a.Elsewhere(u)
		}
		if counted.ID != "" {
			all.Online += max(now.Sub(counted.Began)-time.Duration(u.OnlineBefore), 0)
			bytes := counted.UpBytes + counted.DownBytes
			all.Bytes += bytes - min(u.BytesBefore, bytes)
		}
		all.Sessions = append(all.Sessions, s)
	}
	return all
}

// Share is how long each of a holder's open sessions may go on, of a time of which they have used a part together; 0:
// the time is not limited.
func (r *Used) Share(most, online time.Duration) time.Duration {
	if most <= 0 {
		return 0
	}
	return max((most-online)/time.Duration(max(r.Places(), 1)), time.Nanosecond)
}

// Rest is how many bytes a holder's open sessions have together, of a number of which a part is used; 0: the number is
// not limited.
func Rest(most, used uint64) uint64 {
	if most == 0 {
		return 0
	}
	return max(most-min(used, most), 1)
}
