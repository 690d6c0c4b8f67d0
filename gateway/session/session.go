// Package session is the gateway's table of clients: their addresses, users, limits and traffic.
//
//	          lease            redirected             Admit
//	(none) ──────────▶ Leased ────────────▶ PreAuth ─────────▶ Authenticated
//	   ▲                  │                    │ ▲                   │
//	   └──── Forget ──────┴────────────────────┘ └─────── End ───────┘
//
// A client whose session has ended still has its lease: it is PreAuth again, and the ended session is reported once
// with its cause. A client on PPPoE has no lease: it comes with Connect, and is gone with its session. So is a client
// whose lease has no end: an operator logged it in without one.
package session

import (
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/gateweigh/gateweigh/gateway/datapath"
)

// Key names a client: its MAC address, and its first address. A MAC address may have several clients; an address has
// one client at a time. The table's keys are identities: that of the first address, or a number of a client that has
// IPv6 addresses only.
type Key struct {
	MAC  datapath.MAC
	Addr netip.Addr
}

// fits reports whether a client with an identity can have the key.
func (k Key) fits(id datapath.ID) bool {
	if _, numbered := id.Number(); numbered {
		return k.Addr.Is6() && !k.Addr.Is4In6()
	}
	return k.Addr.Is4() && id == datapath.IDOf(k.Addr)
}

// String is "02:00:00:00:00:01/10.1.0.5".
func (k Key) String() string {
	return fmt.Sprintf("%s/%s", net.HardwareAddr(k.MAC[:]), k.Addr)
}

// State is the state of a client.
type State string

const (
	Leased        State = "leased"        // has an address
	PreAuth       State = "preauth"       // was redirected to the portal
	Authenticated State = "authenticated" // its traffic is forwarded
)

// Cause is why a session ended, as RADIUS names it (RFC 2866, 5.10).
type Cause string

const (
	UserRequest    Cause = "user-request"    // logout
	LostCarrier    Cause = "lost-carrier"    // a PPPoE session is gone. In events of former versions: the lease, too
	LeaseEnded     Cause = "lease-ended"     // the lease ended and was not renewed; RADIUS: lost-carrier
	LeaseReleased  Cause = "lease-released"  // the lease was released, or its address declined; RADIUS: lost-carrier
	IdleTimeout    Cause = "idle-timeout"    //
	SessionTimeout Cause = "session-timeout" //
	Quota          Cause = "quota"           // bytes used up; RADIUS: session-timeout
	AdminReset     Cause = "admin-reset"     // gatewayd logout
	NASReboot      Cause = "nas-reboot"      // the data path's state was lost: the machine restarted
	NASRequest     Cause = "nas-request"     // the address went to another client
	NASError       Cause = "nas-error"       // the data path failed to admit it
)

// Limits are the limits of a session. Zero values do not limit.
type Limits struct {
	SessionTimeout, IdleTimeout    time.Duration
	UpBytes, DownBytes, TotalBytes uint64 // of the session
	UpBps, DownBps                 uint64 // bits a second
	Connections                    uint32 // of the client at once, as connection tracking counts them
	// Interim is how often accounting is updated; zero: only at start and end.
	Interim time.Duration
}

// ExplicitLimits marks the limits that a login sets itself, also to 0: the configuration's defaults do not replace
// them.
type ExplicitLimits struct {
	SessionTimeout, IdleTimeout    bool
	UpBytes, DownBytes, TotalBytes bool
	UpBps, DownBps, Connections    bool
}

// Names of quotas, as the configuration has them.
const (
	UpQuota    = "up_quota"
	DownQuota  = "down_quota"
	TotalQuota = "total_quota"
)

// Ending is how a client's session ended.
type Ending struct {
	Cause Cause
	Quota string // that was used up, of Quota; empty: none
}

// Counts are the bytes and packets that a session has sent (Up) and received (Down).
type Counts struct {
	UpBytes, UpPackets, DownBytes, DownPackets, DroppedPackets uint64
}

// Login is the result of a successful login: the user and the limits.
type Login struct {
	User   string
	Class  [][]byte // RADIUS Class attributes, to be sent back in accounting
	Limits Limits
	// Explicit marks the limits that the login sets, even to 0: no default replaces them. It is
	// not stored in the table.
	Explicit ExplicitLimits
	// Sessions is how many sessions the user may have at once; 0 or less: any number. It is not in the
	// table's file; Table.OfUsers has it.
	Sessions int
	// Shared means that the name stands for many people, as that of click-through logins.
	Shared bool
	// Way is how a device came in that did not log in itself; empty: it logged in.
	Way Way
	// Local means that a local account accepted the login. Remember is the person's wish that the device need not log in
	// again. Neither is stored in the table.
	Local, Remember bool
	// Guest is what a person said and accepted who came in by a click; nil: they came in otherwise.
	Guest *Guest
	// Voucher names the voucher that admits the client; empty: none. It is not stored in the table.
	Voucher string
	// For is the client that logged in. While a RADIUS server was asked, the address may have gone to another client,
	// which Admit then refuses. Zero: whichever client has the address. It is not stored in the table.
	For Key
	// Attachment is where a client on PPPoE is attached, as its access node says. It is not stored in the table, where
	// Session.Attachment has it.
	Attachment Attachment
	// PPPoE is the client's PPPoE session; zero for logins at the portal.
	PPPoE PPPoESession
	// Framed is the address that the server gives a user on PPPoE; invalid: none. Pool is the name of the pool from which
	// the address is taken, and Routes are the networks behind the client. They are not stored in the table, where Key and
	// PPPoE have them, and neither is Proof: that the server knows the password, as MS-CHAPv2 has it.
	Framed netip.Addr
	Pool   string
	Routes []netip.Prefix
	Proof  string
	// Networks are IPv6 networks that the client has from the session's beginning: in the table, Session.Delegated has
	// them. Those of a client on Ethernet must be IPv6.Routes, which it loses with its session.
	Networks []netip.Prefix
	// IPv6 is what the server gives the client by IPv6; nil: nothing.
	IPv6 *Grant6
	// Former is the session at another gateway that this one goes on with; zero: none. It is not stored in the table.
	Former Former
	// SessionID is the session's ID if it was chosen before the login was decided; empty: Admit chooses one. In the table
	// it is Session.ID.
	SessionID string
}

// Former names a session of another gateway.
type Former struct{ Gateway, ID string }

// Guest is what a person said and accepted who came in by a click. It is never changed.
type Guest struct {
	Terms    string `json:"terms,omitempty"`     // the version of the terms that was accepted; left out: there were none
	Room     string `json:"room,omitempty"`      // as the operator's list has it
	LastName string `json:"last_name,omitempty"` // as typed, and as the operator's list has it
	Name     string `json:"name,omitempty"`      // as typed: nobody has checked it
	Email    string `json:"email,omitempty"`     // as typed: nobody has checked it
}

// Way is how a device came in without a login.
type Way string

const (
	ByMAC      Way = "mac"        // a RADIUS server accepted its MAC address
	ByList     Way = "list"       // the file of devices has its MAC address
	Remembered Way = "remembered" // a person logged in with it before
)

// PPPoESession is a client's PPPoE session. The zero value is none: the client is on Ethernet.
type PPPoESession struct {
	Session uint16 // PPPoE's, from 1 on
	MTU     uint16 // bytes of an IP packet; 0: datapath.PPPoEMTU
	State   []byte // of the link, for the concentrator only, to take it up after a restart
	// Routes are the networks behind the client, whose packets come and go by the PPPoE session.
	Routes []netip.Prefix
}

// Session is a copy of a client's entry; later changes do not affect it.
type Session struct {
	Key
	FurtherAddrs []netip.Addr   // further addresses
	Delegated    []netip.Prefix // IPv6 networks of the client: delegated to it, or its own
	Owner        string         // the gateway that has the client; empty: there is one gateway
	Attachment   Attachment
	State        State
	Hostname     string    // as the client said in DHCP
	LeasedAt     time.Time //
	LeaseEnd     time.Time // zero: the address is the client's for as long as its session lasts
	Login                  // zero unless Authenticated
	ID           string    // Acct-Session-Id: Login.SessionID, or a NewID
	Began        time.Time // of the authenticated session
	Seen         time.Time // of the last admitted packet; Began when there was none
	Counts                 // of the authenticated session, up to now
	// LastEnding is how the session before ended, until the next one begins or the daemon ends; zero: there was none.
	LastEnding Ending
}

// At returns the session as it is at a time, to show it. A session whose time, lease or quota has run out counts as
// ended, although the table may end it only a moment later.
func (s Session) At(now time.Time) Session {
	over := Ending{Cause: SessionTimeout}
	switch quota := s.Spent(); {
	case s.State != Authenticated:
		return s
	case s.Limits.SessionTimeout > 0 && now.Sub(s.Began) >= s.Limits.SessionTimeout:
	case !s.LeaseEnd.IsZero() && !now.Before(s.LeaseEnd):
		over.Cause = LeaseEnded
	case quota != "":
		over = Ending{Quota, quota}
	default:
		return s
	}
	return Session{
		Key: s.Key, FurtherAddrs: s.FurtherAddrs, Delegated: s.Delegated, Owner: s.Owner, Attachment: s.Attachment,
		State: PreAuth, Hostname: s.Hostname, LeasedAt: s.LeasedAt, LeaseEnd: s.LeaseEnd, LastEnding: over,
	}
}

// Allowance is what is left of a session's limit.
type Allowance struct {
	Quota string // name
	Left  uint64 // bytes
}

// Quotas returns the rest of each quota that a session has, in the order up, down, total.
func (s *Session) Quotas() (all []Allowance) { return quotas(&s.Limits, &s.Counts) }

func quotas(l *Limits, n *Counts) (all []Allowance) {
	for _, q := range [...]struct {
		name        string
		limit, used uint64
	}{{UpQuota, l.UpBytes, n.UpBytes}, {DownQuota, l.DownBytes, n.DownBytes},
		{TotalQuota, l.TotalBytes, n.UpBytes + n.DownBytes}} {
		if q.limit > 0 {
			all = append(all, Allowance{q.name, q.limit - min(q.used, q.limit)})
		}
	}
	return all
}

// Spent names the quota of a session that is used up; empty: none.
func (s *Session) Spent() string {
	for _, q := range s.Quotas() {
		if q.Left == 0 {
			return q.Quota
		}
	}
	return ""
}

// Kind is the kind of an event of an authenticated session.
type Kind string

const (
	Started Kind = "started"
	Updated Kind = "interim"
	Ended   Kind = "ended"
)

// Event is one event of an authenticated session. Each is reported once; accounting messages are made from events.
type Event struct {
	Kind
	Session
	Cause Cause // of Ended
	// At less Began is the session's length so far, also when the wall clock was set meanwhile.
	At time.Time

	number uint64 // in the outbox, from 1 on; 0: not from the outbox
}
