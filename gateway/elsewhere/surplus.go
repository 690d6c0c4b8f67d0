package elsewhere

import (
	"cmp"
	"slices"
	"time"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/session"
)

// Claim is a session of a user, at any gateway.
type Claim struct {
	MAC         datapath.MAC
	Began       time.Time // by the store's clock
	Gateway, ID string
	Own         *session.UserSession // nil: it is another gateway's
}

// compare orders sessions by their beginnings. No two are equal.
func (c Claim) compare(o Claim) int {
	return cmp.Or(c.Began.Compare(o.Began), cmp.Compare(c.Gateway, o.Gateway), cmp.Compare(c.ID, o.ID))
}

// Ending is a session that must end, and why, as accounting is told.
type Ending struct {
	session.UserSession
	Cause session.Cause
}

// Surplus returns which of this gateway's sessions must end, among all of a user, because the user may not have as
// many. Gateways that know the same sessions end no more than are too many.
func Surplus(all []Claim) (ends []Ending) {
	list, followed := firstToEnd(all)
	for i, c := range list {
		if c.Own == nil || c.Own.Most <= 0 || i >= len(all)-c.Own.Most {
			continue
		}
		end := Ending{*c.Own, session.NASRequest}
		if i < followed {
			end.Cause = session.UserRequest // as on one gateway, where the device has a new session
		}
		ends = append(ends, end)
	}
	return ends
}

// firstToEnd orders a user's sessions by which ends first if they are too many: those that a later one of the same
// device follows, the oldest first, and then the others, the latest first. followed is how many of the former there
// are. Gateways that know the same sessions have the same order.
func firstToEnd(all []Claim) (list []Claim, followed int) {
	latest := map[datapath.MAC]Claim{}
	for _, c := range all {
		if l, found := latest[c.MAC]; !found || c.compare(l) > 0 {
			latest[c.MAC] = c
		}
	}
	var last []Claim
	for _, c := range all {
		if c.compare(latest[c.MAC]) == 0 {
			last = append(last, c)
		} else {
			list = append(list, c)
		}
	}
	slices.SortFunc(list, Claim.compare)
	slices.SortFunc(last, func(a, b Claim) int { return b.compare(a) })
	return append(list, last...), len(list)
}
