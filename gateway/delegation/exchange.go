package delegation

import (
	"math/rand/v2"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv6"
)

// limits say how often a message is sent (RFC 8415 15).
type limits struct {
	initial time.Duration // IRT: until it is sent again
	most    time.Duration // MRT: the longest pause; 0: there is none
	count   int           // MRC: how often it is sent; 0: until something else ends the exchange
}

// Constants of RFC 8415 7.6.
var (
	requestLimits = limits{initial: time.Second, most: 30 * time.Second, count: 10}
	renewLimits   = limits{initial: 10 * time.Second, most: 600 * time.Second}
	rebindLimits  = limits{initial: 10 * time.Second, most: 600 * time.Second}
	releaseLimits = limits{initial: time.Second, count: 4}
	// confirmLimits are for a REBIND after a start, or on a link that came up (RFC 8415 18.2.12).
	confirmLimits = limits{initial: time.Second, most: 4 * time.Second}
)

const (
	solicitTimeout  = time.Second        // SOL_TIMEOUT
	defaultSolMaxRT = 3600 * time.Second // SOL_MAX_RT
	maxDelay        = time.Second        // SOL_MAX_DELAY and CNF_MAX_DELAY, before the first message
	confirmFor      = 10 * time.Second   // CNF_MAX_RD; after it the limits of an ordinary REBIND hold
	spread          = 0.1                // RAND: pauses differ by so much, so that clients do not send in step
)

// exchange is a message that is sent until it is answered.
type exchange struct {
	kind        dhcpv6.MessageType
	transaction dhcpv6.TransactionID
	server      []byte // DUID of the server that is to answer; nil: any may
	limits      limits
	begun       time.Time     // when it was first sent
	sent        int           // how often
	pause       time.Duration // RT: the present one
	next        time.Time     // when it is to be sent
}

// newExchange returns an exchange with a new transaction, whose message is first sent at a time.
func newExchange(random *rand.Rand, at time.Time, kind dhcpv6.MessageType, server []byte, l limits) exchange {
	id := random.Uint32()
	return exchange{kind: kind, transaction: dhcpv6.TransactionID{byte(id >> 16), byte(id >> 8), byte(id)},
		server: server, limits: l, next: at}
}

// isOver reports whether the message has been sent as often as it may.
func (x *exchange) isOver() bool { return x.limits.count > 0 && x.sent >= x.limits.count }

// count counts the message that is sent now, and finds when it is to be sent again.
func (x *exchange) count(random *rand.Rand, now time.Time) {
	if x.limits == confirmLimits && x.sent > 0 && now.Sub(x.begun) >= confirmFor {
		x.limits, x.pause = rebindLimits, 0
	}
	vary := func(d time.Duration, least float64) time.Duration {
		return time.Duration(float64(d) * (least + random.Float64()*(spread-least)))
	}
	switch {
	case x.sent == 0 && x.kind == dhcpv6.MessageTypeSolicit:
		// The first pause is longer than SOL_TIMEOUT: every server has that time to answer (RFC 8415 18.2.1).
		x.pause = x.limits.initial + max(vary(x.limits.initial, 0), 1)
	case x.pause == 0:
		x.pause = x.limits.initial + vary(x.limits.initial, -spread)
	default:
		x.pause = 2*x.pause + vary(x.pause, -spread)
	}
	if most := x.limits.most; most > 0 && x.pause > most {
		x.pause = most + vary(most, -spread)
	}
	if x.sent == 0 {
		x.begun = now
	}
	x.sent++
	x.next = now.Add(x.pause)
}
