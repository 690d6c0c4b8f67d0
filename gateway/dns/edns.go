package dns

import (
	"sync/atomic"
	"time"

	miekg "github.com/miekg/dns"
)

// plainTime is how long an upstream that refused EDNS is asked without it.
const plainTime = 10 * time.Minute

// edns remembers whether an upstream answers queries with EDNS. The zero value knows nothing.
type edns struct {
	plainUntil atomic.Int64 // Unix nanoseconds until when it is asked without
	// how often a query was answered without EDNS after it was not answered with EDNS; an answer to a query with EDNS sets
	// it to 0
	unansweredWithEDNS atomic.Int64
}

// refused reports whether the upstream is to be asked without EDNS.
func (e *edns) refused(now time.Time) bool { return e.plainUntil.Load() > now.UnixNano() }

// askWithout has the upstream asked without EDNS for a while.
func (e *edns) askWithout(u *upstream, reason string) {
	if e.plainUntil.Swap(time.Now().Add(plainTime).UnixNano()) == 0 {
		u.log.Info("an upstream resolver refuses EDNS, and is asked without: answers of more than 512 bytes take TCP",
			"upstream", u.addr, "reason", reason)
	}
}

// rcodeText is a response code's name. The library names BADVERS by a code of TSIG that
// has the same number.
func rcodeText(rcode int) string {
	if rcode == miekg.RcodeBadVers {
		return "BADVERS"
	}
	return miekg.RcodeToString[rcode]
}

// refusesEDNS reports whether an answer to a query with EDNS may be due to that alone. Servers that know
// EDNS have an OPT record in every answer.
func refusesEDNS(m *miekg.Msg) bool {
	switch m.Rcode {
	case miekg.RcodeFormatError, miekg.RcodeNotImplemented, miekg.RcodeBadVers:
		return true
	case miekg.RcodeServerFailure:
		return m.IsEdns0() == nil
	}
	return false
}
