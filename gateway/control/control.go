// Package control gives access to a running gatewayd: HTTP over a Unix socket for the control commands, and Prometheus
// metrics.
//
// HTTP provides deadlines, streams and clients: every command works with `curl --unix-socket` too. Write access to the
// socket allows logging clients in and out; it belongs to the daemon's user and group, mode 0660.
//
//	GET  /v1/status               Status
//	GET  /v1/sessions?user=&state=&network=  Session, one a line; broken off: incomplete
//	GET  /v1/sessions/ADDR        Session
//	POST /v1/login                LoginRequest → Session
//	POST /v1/logins               LoginRequest, one a line → LoginsReply
//	POST /v1/logout               LogoutRequest → LogoutReply
//	GET  /v1/vouchers?name=       voucher.Voucher, one a line, with its code; broken off: incomplete
//	POST /v1/vouchers             VouchersRequest → voucher.Voucher, one a line
//	POST /v1/vouchers/revoke      RevokeRequest → RevokeReply
//	GET  /v1/devices              list of Device
//	POST /v1/devices/forget       ForgetRequest → ForgetReply
//	POST /v1/reload               → ReloadReply
//
// Failures are {"error": "…"} with a 4xx or 5xx code.
package control

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/gateweigh/gateweigh/gateway/session"
)

// State is the state of a client.
type State = session.State

// States lists all states, in the order in which clients pass them.
var States = []State{session.Leased, session.PreAuth, session.Authenticated}

// Sessions is the table of clients. Every method may be called at any time from several goroutines.
type Sessions interface {
	Get(netip.Addr) (session.Session, bool)
	// Each yields all clients, ordered by address, until yield returns false. yield may take seconds with a slow reader
	// and must not block other callers.
	Each(yield func(session.Session) bool)
	// Lease gives a client an address until end; the zero time: for as long as the session that follows lasts.
	Lease(key session.Key, hostname string, end time.Time) error
	// ForgetStranger removes a client that has no session, and reports whether it is gone.
	ForgetStranger(session.Key) (bool, error)
	// Admit and End return errors that name the address. With session.ErrLater the session has ended.
	Admit(netip.Addr, session.Login) (session.Session, error)
	End(netip.Addr, session.Cause) (session.Session, error)
}

// Network is one of the networks that a daemon serves.
type Network struct {
	Name    string // "": it is the only one
	Table   Sessions
	Status  func() Status
	Changes Changer               // of its sessions; nil: they are not changed
	Devices Devices               // that are remembered; nil: none are
	Has     func(netip.Addr) bool // whether an address belongs to the network; nil: every address does
	// Counting: clients' connections are counted, so that they can be limited.
	Counting bool
}

// errNotCounted refuses a limit of connections where nothing counts them.
var errNotCounted = errors.New("connections are not counted here: set limits.connections in the configuration, to a " +
	"number or to \"none\", and restart gatewayd")

// Status is the status of a daemon, or of one of its networks. The maps are counters by label value; none is by client.
type Status struct {
	Version  string    `json:"version"`           // of gatewayd
	PID      int       `json:"pid"`               // of the daemon
	Since    time.Time `json:"since"`             // when it started
	Datapath string    `json:"datapath"`          // kind and present way of forwarding: "ebpf, redirect"
	Why      string    `json:"why"`               // the reason, where it is not the usual way; may be empty
	Network  string    `json:"network,omitempty"` // its name; left out: there is only one
	LAN      string    `json:"lan"`               // interface; of several networks empty
	WAN      string    `json:"wan"`               // interface
	NAT      string    `json:"nat,omitempty"`     // what clients' addresses are translated to; empty: they are not
	// addresses that clients can be given: in the pools or reserved, or all of the LAN
	Addresses int `json:"addresses"`

	Sessions map[State]int `json:"sessions"`        // clients by state
	Leases   int           `json:"leases"`          // in use
	Pools    []Pool        `json:"pools,omitempty"` // of DHCP, in the order of their addresses
	// accounting events that no RADIUS server has confirmed yet, without those that `aside` counts
	Outbox int `json:"outbox"`
	// accounting events that no server confirms while servers confirm others
	Aside int `json:"aside,omitempty"`
	// why changes of sessions, logins above all, are not kept: nobody new is admitted; left out: they are kept
	Unkept string `json:"unkept,omitempty"`
	// bytes that may still be written to the file system of `state_dir`; left out: more than 16 MiB
	DiskFree *uint64 `json:"disk_free,omitempty"`
	Users    *Users  `json:"users,omitempty"` // of the users' file; left out: none is used
	// devices that come in without a login; left out: none do
	Listed *Listed `json:"listed,omitempty"`
	Rooms  *Rooms  `json:"rooms,omitempty"` // left out: guests are not asked for theirs
	// RADIUS servers, each for logins and for accounting, in the order in which they are asked
	Servers []Server `json:"servers,omitempty"`
	// OpenID providers, in the configuration's order
	Providers []Provider `json:"providers,omitempty"`

	Store *Store `json:"store,omitempty"` // that several gateways share; left out: there is none
	Pair  *Pair  `json:"pair,omitempty"`  // of two gateways of which one serves; left out: the gateway is alone

	// the status of each of several networks, in the order of the configuration; only these have the counters by word
	Networks []Status `json:"networks,omitempty"`

	IPv6 *IPv6 `json:"ipv6,omitempty"` // left out: clients have no IPv6

	Traffic Traffic           `json:"traffic"`           // of all clients since the data path began
	Packets map[string]uint64 `json:"packets"`           // by outcome
	Repairs map[string]uint64 `json:"repairs,omitempty"` // of what others removed or switched off
	DHCP    map[string]uint64 `json:"dhcp,omitempty"`    // by word; this and the next: left out without such a part
	DNS     map[string]uint64 `json:"dns,omitempty"`     // by word
	RADIUS  map[string]uint64 `json:"radius,omitempty"`  // by word, of all servers
	Portal  map[string]uint64 `json:"portal,omitempty"`  // by word
	UAM     map[string]uint64 `json:"uam,omitempty"`     // by word, of a portal elsewhere
	PPPoE   map[string]uint64 `json:"pppoe,omitempty"`   // by word
	Devices map[string]uint64 `json:"devices,omitempty"` // by word
	Roams   map[string]uint64 `json:"roams,omitempty"`   // by word
	Ident   map[string]uint64 `json:"ident,omitempty"`   // by word
	Flows   map[string]uint64 `json:"flows,omitempty"`   // by word, of the flow log
	Admin   map[string]uint64 `json:"admin,omitempty"`   // by word, of the admin page; of several networks together

	AdminPage *AdminPage `json:"admin_page,omitempty"` // left out: there is none

	Neighbours map[string]uint64 `json:"neighbours,omitempty"` // by word, of clients' IPv6 addresses
	RouterAdv  map[string]uint64 `json:"router_adv,omitempty"` // by word, of router advertisements
	DHCP6      map[string]uint64 `json:"dhcp6,omitempty"`      // by word
}

// IPv6 is what clients have of IPv6.
type IPv6 struct {
	Addresses int `json:"addresses"` // of clients, link-local ones among them
	Clients   int `json:"clients"`   // MAC addresses that have them
	Contests  int `json:"contests"`  // addresses that another client claims, whose owner is asked for at the moment
	// leases of DHCPv6 by kind: "address", "prefix", "registered" (made by the client itself) and "declined" (which
	// another host has)
	Leases    map[string]int    `json:"leases,omitempty"`
	Delegated []DelegatedPrefix `json:"delegated,omitempty"` // by the provider
	// why the provider delegates no prefix, or does not prolong it; left out: all is well
	Delegation string `json:"delegation,omitempty"`
}

// DelegatedPrefix is a prefix that the provider delegates.
type DelegatedPrefix struct {
	Prefix         netip.Prefix `json:"prefix"`          // as the provider delegates it
	PreferredUntil time.Time    `json:"preferred_until"` // when clients begin no more connections with it
	ValidUntil     time.Time    `json:"valid_until"`     // when it is no longer the gateway's
}

// Pool is a pool of the DHCP server.
type Pool struct {
	First  netip.Addr `json:"first"`
	Last   netip.Addr `json:"last"`
	Size   int        `json:"size"`   // addresses, reserved ones among them
	Leased int        `json:"leased"` // at the moment
}

// Add adds a network's status to that of several.
func (s *Status) Add(n Status) {
	s.Networks = append(s.Networks, n)
	s.Addresses, s.Leases = s.Addresses+n.Addresses, s.Leases+n.Leases
	s.Outbox, s.Aside = s.Outbox+n.Outbox, s.Aside+n.Aside
	for state, clients := range n.Sessions {
		s.Sessions[state] += clients
	}
	s.Traffic.UpBytes += n.Traffic.UpBytes
	s.Traffic.UpPackets += n.Traffic.UpPackets
	s.Traffic.DownBytes += n.Traffic.DownBytes
	s.Traffic.DownPackets += n.Traffic.DownPackets
}

// Store is how the daemon gets on with the store that several gateways share.
type Store struct {
	Name    string    `json:"name"`           // of this gateway there
	Up      bool      `json:"up"`             // the store answers
	Why     string    `json:"why,omitempty"`  // why it does not
	Since   time.Time `json:"since,omitzero"` // when that changed last; left out: it was not tried yet
	Waiting int       `json:"waiting"`        // changes that are not in the store, at least
	// how long the oldest of them waits
	BehindMS int `json:"behind_ms"`
	// records of this gateway that another one has taken in the store
	Foreign int `json:"foreign,omitempty"`
	// records of this gateway that stay in the store because only a newer gatewayd reads them
	Newer int `json:"newer,omitempty"`
	// records and messages of others that were not used since the start: their signature is not of store.key_file
	Refused int `json:"refused,omitempty"`
}

// Member is a gateway that uses the store, as it has said itself there.
type Member struct {
	Name     string    `json:"name"`               // in the store
	Version  string    `json:"version"`            // of gatewayd
	Format   int       `json:"format"`             // the newest one of sessions' records that it reads; 0: it does not say
	Since    time.Time `json:"since"`              // when its daemon started
	Said     time.Time `json:"said"`               // when it said all this, by its clock
	Distrust string    `json:"distrust,omitempty"` // why nothing of it is used: its signature
	Sessions int       `json:"sessions"`           // clients that are logged in there
	Waiting  int       `json:"waiting"`            // changes that it had not written to the store
	BehindMS int       `json:"behind_ms"`          // how long the oldest of them had waited
	There    bool      `json:"there"`              // it has said so within the last 10 s
}

// AdminPage is the state of the admin page.
type AdminPage struct {
	Listen   string `json:"listen"`   // address and port, or "unix:" and a path
	Accounts int    `json:"accounts"` // that may log in
	// mistakes of the file of accounts as it is now, a line each: the accounts are those of the file before
	Problem string `json:"problem,omitempty"`
	// why nobody is let in, as with a certificate that has expired; left out: people are
	Closed string `json:"closed,omitempty"`
}

// Users is what the users' file holds.
type Users struct {
	Accounts int `json:"accounts"` // that can log in
	// mistakes of the file as it is now, a line each: the accounts are those of the file before
	Problem string `json:"problem,omitempty"`
}

// Rooms is the file of rooms.
type Rooms struct {
	Guests  int    `json:"guests"`            // in the file
	Problem string `json:"problem,omitempty"` // why the present file could not be read, so that they are those before
}

// Listed are devices that come in without a login.
type Listed struct {
	Devices    int `json:"devices"`    // in the file of devices
	Remembered int `json:"remembered"` // after a login
	// mistakes of the file as it is now, a line each: the devices are those of the file before
	Problem string `json:"problem,omitempty"`
}

// Server is a port of a RADIUS server.
type Server struct {
	Server  string `json:"server"`        // address and port
	Purpose string `json:"purpose"`       // "logins" or "accounting"
	Asked   bool   `json:"asked"`         // it answered, or should have, since the daemon's start
	Up      bool   `json:"up"`            // it answered when it was to last, or was not asked yet
	Why     string `json:"why,omitempty"` // why it is not up
}

// Provider is an OpenID provider at which clients log in.
type Provider struct {
	Name   string `json:"name"`          // oidc.name
	Issuer string `json:"issuer"`        // its URL
	Asked  bool   `json:"asked"`         // it answered, or should have, since the daemon's start
	Up     bool   `json:"up"`            // it answered when it was last asked, or was not asked yet
	Why    string `json:"why,omitempty"` // why it is not up
}

// Traffic is what was forwarded: Up from clients, Down to them.
type Traffic struct {
	UpBytes     uint64 `json:"up_bytes"`     // of IP packets
	UpPackets   uint64 `json:"up_packets"`   // IP packets as on the wire
	DownBytes   uint64 `json:"down_bytes"`   // as up_bytes
	DownPackets uint64 `json:"down_packets"` // as up_packets
}

// Session is a client as the socket shows it. Unknown times are left out. Hostname and User come from the client and
// may contain any bytes.
type Session struct {
	Network  string       `json:"network,omitempty"`       // whose client it is; left out: there is only one
	Addr     netip.Addr   `json:"addr"`                    // of the client
	Further  []netip.Addr `json:"further_addrs,omitempty"` // of the client, beside addr: of IPv6
	MAC      string       `json:"mac"`                     // of the client
	State    State        `json:"state"`                   // "leased", "preauth" or "authenticated"
	Hostname string       `json:"hostname,omitempty"`      // as the client says
	LeasedAt time.Time    `json:"leased_at,omitzero"`      // when the lease began
	LeaseEnd time.Time    `json:"lease_end,omitzero"`      // when it ends unless it is renewed

	// where the client is attached, as a relay, a switch or an access node says: text, or bytes as 0x0004000a
	Circuit string `json:"circuit_id,omitempty"`
	Remote  string `json:"remote_id,omitempty"` // as circuit_id
	Via     string `json:"via,omitempty"`       // MAC address of the router that it is behind; left out: none
	VLANs   string `json:"vlan,omitempty"`      // that it is in, "7", or "100:20" of a pair; left out: not known

	Delegated []netip.Prefix `json:"delegated,omitempty"` // IPv6 networks: delegated to it, or its PPPoE session's /64s

	User   string         `json:"user,omitempty"`   // who is logged in
	Way    session.Way    `json:"way,omitempty"`    // how it came in; left out: by a login
	Guest  *session.Guest `json:"guest,omitempty"`  // what a guest said and accepted who came in by a click
	ID     string         `json:"id,omitempty"`     // Acct-Session-Id
	PPPoE  uint16         `json:"pppoe,omitempty"`  // session of the client's line; left out: it has none
	Routes []netip.Prefix `json:"routes,omitempty"` // the networks behind the client (Framed-Route)
	Began  time.Time      `json:"began,omitzero"`   // of the session
	Seen   time.Time      `json:"seen,omitzero"`    // when the client last sent
	Limits Limits         `json:"limits,omitzero"`  // of the session
	Left   Left           `json:"left,omitzero"`    // of the limits
	Traffic
	DroppedPackets uint64  `json:"dropped_packets"`   // beyond rate and quota
	LastEnd        LastEnd `json:"last_end,omitzero"` // how the client's last session ended, until it logs in again
}

// Left is what is left of a session's limits; nil: there is no such limit.
type Left struct {
	SessionSeconds *float64 `json:"session_seconds,omitempty"` // until the session's time is over
	UpBytes        *uint64  `json:"up_bytes,omitempty"`        // until the quota is used up
	DownBytes      *uint64  `json:"down_bytes,omitempty"`      // as up_bytes
	TotalBytes     *uint64  `json:"total_bytes,omitempty"`     // as up_bytes, both together
}

// LastEnd is how a session ended.
type LastEnd struct {
	Cause session.Cause `json:"cause"`           // one of the causes in gateway-reference.md
	Quota string        `json:"quota,omitempty"` // key of [limits] that was used up
}

// Limits are a login's limits; zero: no limit.
type Limits struct {
	SessionTimeoutSeconds float64 `json:"session_timeout_seconds,omitempty"` // from the session's start
	IdleTimeoutSeconds    float64 `json:"idle_timeout_seconds,omitempty"`    // without a packet of the client
	UpBytes               uint64  `json:"up_bytes,omitempty"`                // of the session
	DownBytes             uint64  `json:"down_bytes,omitempty"`              // of the session
	TotalBytes            uint64  `json:"total_bytes,omitempty"`             // of the session, both together
	UpBps                 uint64  `json:"up_bps,omitempty"`                  // bits a second
	DownBps               uint64  `json:"down_bps,omitempty"`                // bits a second
	Connections           uint32  `json:"connections,omitempty"`             // of the client at once
}

// LoginRequest admits a client without authentication, with these limits and no others. With MAC the client needs no
// lease: the address is its own until the session ends, unless another client has it.
type LoginRequest struct {
	Addr   netip.Addr `json:"addr"`          // of the client
	MAC    string     `json:"mac,omitempty"` // of a client without a lease
	User   string     `json:"user"`          // in whose name
	Limits Limits     `json:"limits"`        // these and no others
}

// LoginsReply is the number of clients logged in.
type LoginsReply struct {
	Admitted int `json:"admitted"`
}

// LogoutRequest ends sessions: one address's, a user's, or all. Exactly one of them is set.
type LogoutRequest struct {
	Addr netip.Addr `json:"addr,omitzero"`  // one client
	User string     `json:"user,omitempty"` // all sessions of a user
	All  bool       `json:"all,omitempty"`  // all sessions
	ID   string     `json:"id,omitempty"`   // with addr: only this session, not another that the address has by now
}

// ReloadReply says what became of a configuration that was read again.
type ReloadReply struct {
	Problems []string `json:"problems,omitempty"` // mistakes in the file: nothing has changed
	Files    []string `json:"files,omitempty"`    // mistakes in files that it names: what they said before stays
	Networks []string `json:"networks,omitempty"` // that were added, changed and removed: "guests: added"
	Failed   bool     `json:"failed,omitempty"`   // a network is not as the file says
	Waiting  []string `json:"waiting,omitempty"`  // changed keys that take effect with a restart
	Held     bool     `json:"held,omitempty"`     // networks have changed in the file, and wait with those keys
}

// LogoutReply is the number of sessions ended.
type LogoutReply struct {
	Ended int `json:"ended"`
	Later int `json:"later,omitempty"` // of these, whose end is not on the disk yet: the clients are blocked
}

// Filter chooses sessions; empty: all.
type Filter struct {
	User    string
	State   State
	Network string // its name
}

// failure is the JSON body of an error response.
type failure struct {
	Error string `json:"error"`
}

// asShown returns a client of a network as the socket shows it.
func asShown(client session.Session, network string) Session {
	return asShownAt(client, network, time.Now())
}

// asShownAt is asShown with what is left of limits at a time.
func asShownAt(client session.Session, network string, now time.Time) Session {
	out := Session{
		Network: network, Addr: client.Addr, Further: client.FurtherAddrs, State: client.State,
		MAC:      net.HardwareAddr(client.MAC[:]).String(),
		Hostname: client.Hostname, Delegated: client.Delegated,
		Circuit: agentText(client.Attachment.Circuit), Remote: agentText(client.Attachment.Remote),
		VLANs:    client.Attachment.VLANs.String(),
		LeasedAt: client.LeasedAt, LeaseEnd: client.LeaseEnd, User: client.User, Way: client.Way, Guest: client.Guest,
		ID:     client.ID,
		PPPoE:  client.PPPoE.Session,
		Routes: client.PPPoE.Routes,
		Began:  client.Began, Seen: client.Seen,
		Limits: Limits{
			SessionTimeoutSeconds: client.Limits.SessionTimeout.Seconds(),
			IdleTimeoutSeconds:    client.Limits.IdleTimeout.Seconds(),
			UpBytes:               client.Limits.UpBytes, DownBytes: client.Limits.DownBytes,
			TotalBytes: client.Limits.TotalBytes,
			UpBps:      client.Limits.UpBps, DownBps: client.Limits.DownBps,
			Connections: client.Limits.Connections,
		},
		Traffic: Traffic{
			UpBytes: client.Counts.UpBytes, UpPackets: client.UpPackets, DownBytes: client.Counts.DownBytes,
			DownPackets: client.DownPackets,
		},
		DroppedPackets: client.DroppedPackets, LastEnd: LastEnd{client.LastEnding.Cause, client.LastEnding.Quota},
	}
	if via := client.Attachment.Via; via != ([6]byte{}) {
		out.Via = net.HardwareAddr(via[:]).String()
	}
	if client.State == session.Authenticated {
		out.Left = leftOf(client, now)
	}
	return out
}

// agentText returns a circuit or remote ID as text, or else its bytes as 0x0004000a.
func agentText(id string) string {
	if id == "" || session.Printable(id, session.MaxAttachment) {
		return id
	}
	return fmt.Sprintf("%#x", id)
}

// leftOf returns what remains of a session's limits at a time.
func leftOf(client session.Session, now time.Time) (l Left) {
	if client.Limits.SessionTimeout > 0 {
		seconds := max(0, (client.Limits.SessionTimeout - now.Sub(client.Began)).Seconds())
		l.SessionSeconds = &seconds
	}
	for _, q := range client.Quotas() {
		switch q.Quota {
		case session.UpQuota:
			l.UpBytes = &q.Left
		case session.DownQuota:
			l.DownBytes = &q.Left
		case session.TotalQuota:
			l.TotalBytes = &q.Left
		}
	}
	return l
}
