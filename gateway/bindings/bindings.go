// Package bindings knows which IPv6 address belongs to which client of a LAN: first come, first served source address
// validation (FCFS SAVI, RFC 6620), as the clients' only router can do it. It also speaks neighbour discovery (RFC
// 4861) with clients: it asks whether they are there, answers in their name on a LAN that isolates them, and refuses
// what others say of their addresses.
//
// A Table is the rules: events and times go in, actions come out. A Server drives one by the frames of an Ethernet
// link.
//
// The states of an address are RFC 6620's (section 3.2), as far as a gateway needs them:
//
//	              probed, used               answers
//	(NO_BIND) ───────────────► TENTATIVE ─────────────────► VALID
//	    ▲                       │     │                     │ │ ▲ ▲
//	    │ no answer             │     │ claimed by another  │ │ │ │
//	    ├───────────────────────┘     ▼                     │ │ │ │
//	    │                         CONTESTED ◄───────────────┘ │ │ │
//	    │ no answer, and then       │   │  answers, is heard  │ │ │
//	    ├── TENTATIVE of the ◄──────┘   └─────────────────────┼─┘ │
//	    │   one that claimed it                      idle, or │   │ answers, is heard
//	    │                                       one too many  ▼   │
//	    │ no answer                                         TESTING
//	    └─────────────────────────────────────────────────────┘
//
// CONTESTED is RFC 6620's TESTING_VP, TESTING its TESTING_TP-LT. It differs from RFC 6620 in these points:
//
//   - An address works from TENTATIVE on, so that a new temporary address (RFC 8981) and an optimistic one (RFC 4429)
//     do at once.
//   - A TENTATIVE address becomes VALID when its owner answers, not when time has passed. So what devices make up ends
//     by itself, and takes no room from others.
//   - There are no trusted ports: nobody but the gateway routes.
//   - An address that is assigned, by DHCPv6 or RADIUS, is its client's until the lease or session ends. So is each
//     address of a PPPoE session, which the session itself shows to be there.
//
// A switch that looks into MLD may keep solicitations for multicast groups from the gateway. Then an address is bound
// by the first packet from it.
package bindings

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/gateweigh/gateweigh/gateway/framelink"
)

// MAC is an Ethernet address.
type MAC = [6]byte

// Anchor is what an address is bound to (RFC 6620, section 3.1: binding anchor).
type Anchor = framelink.Host

// State is the state of a bound address.
type State uint8

// The states. An address that is not bound has none.
const (
	Tentative State = iota + 1 // new: its owner has not answered yet
	Valid
	Testing   // its owner is asked, because it is idle or has too many addresses
	Contested // its owner is asked, because another anchor claims the address
)

// String is the state's name in lower case.
func (s State) String() string {
	switch s {
	case Tentative:
		return "tentative"
	case Valid:
		return "valid"
	case Testing:
		return "testing"
	case Contested:
		return "contested"
	}
	return fmt.Sprintf("state %d", uint8(s))
}

// Binding is an address with its owner, for listings.
type Binding struct {
	Addr     netip.Addr
	Anchor   Anchor
	State    State
	Assigned bool      // by DHCPv6 or RADIUS
	Since    time.Time // when the anchor got the address
	Heard    time.Time // when neighbour discovery heard of it last; the data path may have heard it later
	Until    time.Time // when the state's next question is due; zero: none is, because the address does not age
}

// Saved is a binding that a restarted daemon takes over.
type Saved struct {
	Addr   netip.Addr
	Anchor Anchor
}

// Bounds on what clients make the gateway keep and send.
const (
	// MaxGlobal is how many global addresses a client has. A phone has two for each prefix and one more each day that
	// its flows last; 16 are four prefixes with four each. RFC 8981 keeps temporary addresses for a week, of which all
	// but the last two are seldom in use.
	MaxGlobal = 16
	// MaxLinkLocal is how many link-local addresses a client has: one of its MAC address, one that is stable and
	// private (RFC 7217), and those of a virtual machine or router behind the same MAC address.
	MaxLinkLocal = 4
	// DefaultMost bounds all bindings where Rules do not: 65,000 clients with four addresses each. One takes some 250
	// bytes.
	DefaultMost = 262_144
	// MaxTentative bounds new addresses of anchors that have no other: 3,000 clients a second for the 5 s that a client
	// has to answer, which is twice a storm of 10,000 dual-stack clients in 10 s.
	MaxTentative = 16_384
	// MaxContests bounds the addresses whose owner is asked because another anchor claims them. An owner that is there
	// answers in milliseconds; a claim that finds no room is heard again with the claimant's next packet.
	MaxContests = 1024
	// MaxContestsOfOne bounds the contests of one claimant: a client that changed its MAC address claims its stable
	// addresses, of which it has few.
	MaxContestsOfOne = 4
	// MaxTests bounds the idle addresses that are asked after at once. A question to one that is gone takes 71 s, so
	// 8,192 of them are 115 a second.
	MaxTests = 8192
	// maxRoomTries is how many of a client's addresses are asked to find one that a newer one can replace.
	maxRoomTries = 3
	// maxDue is how many due bindings one call of Advance handles: its questions fit into an interface's queue, which
	// holds 1,000 frames.
	maxDue = 256
)

// Times of questions. RFC 6620 (section 3.1) has TENT_LIFETIME 500 ms and DEFAULT_LT 5 minutes.
const (
	// DefaultIdle is how long nothing is heard of an address before its owner is asked.
	DefaultIdle = 5 * time.Minute
	// probing is how long a host does not answer for an address that it probes: RetransTimer, 1 s, and up to 1 s before
	// the first probe is followed by the second (RFC 4862, section 5.4).
	probing = 2 * time.Second
	// fresh is how long an owner that was heard counts as one that has answered.
	fresh = time.Second
	// putOff is when an idle address is looked at again while MaxTests are asked.
	putOff = 30 * time.Second
	// restoreEach is the time between the questions after addresses that were restored: 50 a second.
	restoreEach = 20 * time.Millisecond
	// restoreAfter is when the first of them is asked after: clients have been heard again by then if they are there.
	restoreAfter = time.Minute
)

// The pauses after questions to an owner, after the last of which it has not answered.
var (
	// A probe lasts 1 s: who claims another one's address learns within it that the owner is there.
	quickPauses = [...]time.Duration{300 * time.Millisecond, 700 * time.Millisecond, time.Second}
	// A phone that sleeps has more than a minute to answer.
	slowPauses = [...]time.Duration{time.Second, 10 * time.Second, time.Minute}
)
