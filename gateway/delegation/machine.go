package delegation

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv6"
	"github.com/insomniacslk/dhcp/iana"
)

// phase is a state of the machine. Its names are in State.
type phase int

const (
	idle phase = iota // before start, and when all is released
	soliciting
	requesting
	bound
	renewing
	rebinding
	releasing
)

func (p phase) String() string {
	return [...]string{"idle", "soliciting", "requesting", "bound", "renewing", "rebinding", "releasing"}[p]
}

// enough is the preference with which a server asks to be chosen at once (RFC 8415 18.2.1).
const enough = 255

// identity is what servers know the client by. It stays the same for good.
type identity struct {
	DUID []byte
	IAID uint32 // of the first wanted prefix; those of the others follow it
}

// machine is the client without socket, clock and file. Its methods take the present time, which never goes back. After
// each of them tick is to be called until it has no message, and again at the time of due.
type machine struct {
	identity identity
	wanted   int        // prefixes
	length   int        // which is wished; 0: any
	random   *rand.Rand // for transaction ids and pauses; unpredictable, so that nobody can answer in a server's place

	phase    phase
	leases   []Prefix
	unbound  map[int]bool // numbers of which the server has said NoBinding: their prefixes end when it gives others
	server   []byte       // DUID of the server that has delegated; nil: none yet
	t1, t2   time.Time
	exchange exchange
	asked    []Prefix // what the exchange asks for
	best     *answer  // the best advertisement so far; nil: there is none
	solMaxRT time.Duration
	failures int    // refusals since the last delegation
	problem  string // State.LastError
}

func newMachine(id identity, wanted, length int, random *rand.Rand) *machine {
	return &machine{identity: id, wanted: wanted, length: length, random: random, solMaxRT: defaultSolMaxRT,
		unbound: map[int]bool{}}
}

// start begins with the prefixes that are known from before the program's start, and the server that gave them.
func (m *machine) start(now time.Time, known []Prefix, server []byte) {
	m.leases, m.server = known, server
	m.expire(now)
	m.begin(now)
}

// linkUp is called when the interface has come up: its link may be another one, or the server may have lost its state.
func (m *machine) linkUp(now time.Time) {
	if m.phase != idle && m.phase != releasing {
		m.failures = 0
		m.expire(now)
		m.begin(now)
	}
}

// begin asks for the prefixes that are known, or for any (RFC 8415 18.2.12).
func (m *machine) begin(now time.Time) {
	if len(m.leases) == 0 {
		m.solicit(now, m.jitter())
		return
	}
	m.phase, m.asked = rebinding, slices.Clone(m.leases)
	m.exchange = newExchange(m.random, now.Add(m.jitter()), dhcpv6.MessageTypeRebind, nil, confirmLimits)
}

// jitter is a random delay before a first message, so that not all clients send at once after a power cut.
func (m *machine) jitter() time.Duration { return time.Duration(m.random.Int64N(int64(maxDelay))) }

// release gives all prefixes back: they are not used from now on.
func (m *machine) release(now time.Time) {
	if len(m.leases) == 0 || m.server == nil {
		m.phase, m.leases = idle, nil
		return
	}
	m.phase, m.asked, m.leases, m.problem = releasing, m.leases, nil, ""
	m.exchange = newExchange(m.random, now, dhcpv6.MessageTypeRelease, m.server, releaseLimits)
}

func (m *machine) solicit(now time.Time, delay time.Duration) {
	m.phase, m.best, m.asked = soliciting, nil, slices.Clone(m.leases)
	l := limits{initial: solicitTimeout, most: m.solMaxRT}
	m.exchange = newExchange(m.random, now.Add(delay), dhcpv6.MessageTypeSolicit, nil, l)
}

// retry solicits again after a refusal: after 2 s, then 4 s, up to SOL_MAX_RT, so that a server that offers and then
// refuses is not asked without a pause.
func (m *machine) retry(now time.Time, reason string) {
	m.problem = reason
	pause := m.solMaxRT
	if m.failures++; m.failures < 12 { // 2^12 s is longer than the default of SOL_MAX_RT
		pause = min(pause, time.Second<<m.failures)
	}
	m.solicit(now, pause+m.jitter())
}

// request asks a server for prefixes that it has offered, or of which it knows nothing any more.
func (m *machine) request(now time.Time, server []byte, wish []Prefix) {
	m.phase, m.asked = requesting, wish
	m.exchange = newExchange(m.random, now, dhcpv6.MessageTypeRequest, server, requestLimits)
}

// due is when tick is to be called; the zero time: not before another event.
func (m *machine) due() (first time.Time) {
	earlier := func(t time.Time) {
		if first.IsZero() || t.Before(first) {
			first = t
		}
	}
	switch m.phase {
	case idle:
	case bound:
		earlier(m.t1)
	case renewing:
		earlier(m.t2)
		earlier(m.exchange.next)
	default:
		earlier(m.exchange.next)
	}
	for _, p := range m.leases {
		earlier(p.ValidUntil)
	}
	return first
}

// tick does what is due, and returns a message that is to be sent to all servers; nil: there is none.
func (m *machine) tick(now time.Time) []byte {
	m.expire(now)
	if m.phase == bound && !now.Before(m.t1) {
		m.phase, m.asked = renewing, slices.Clone(m.leases)
		m.exchange = newExchange(m.random, now, dhcpv6.MessageTypeRenew, m.server, renewLimits)
	}
	if m.phase == renewing && !now.Before(m.t2) {
		m.phase, m.asked = rebinding, slices.Clone(m.leases)
		m.exchange = newExchange(m.random, now, dhcpv6.MessageTypeRebind, nil, rebindLimits)
	}
	if m.phase == idle || m.phase == bound || now.Before(m.exchange.next) {
		return nil
	}
	if m.phase == soliciting && m.best != nil {
		m.accept(now)
	}
	if m.exchange.isOver() {
		if m.phase == releasing {
			m.phase = idle
			return nil
		}
		m.retry(now, "the provider's server offered a prefix, and then did not answer")
		return nil
	}
	m.exchange.count(m.random, now)
	return m.encode(now)
}

// expire ends prefixes that are not valid any more. Without any the client begins anew.
func (m *machine) expire(now time.Time) {
	before := len(m.leases)
	m.leases = slices.DeleteFunc(slices.Clone(m.leases), func(p Prefix) bool { return !now.Before(p.ValidUntil) })
	if before > 0 && len(m.leases) == 0 && (m.phase == bound || m.phase == renewing || m.phase == rebinding) {
		m.problem = "the prefix has expired: no server has renewed it"
		m.solicit(now, m.jitter())
	}
}

// receive takes a message from the network, and reports whether it was an answer to the client's own.
func (m *machine) receive(now time.Time, datagram []byte) bool {
	kind, transaction, ok := decodeHead(datagram)
	waits := m.phase != idle && m.phase != bound && m.exchange.sent > 0
	if !ok || !waits || transaction != m.exchange.transaction {
		return false
	}
	if kind != dhcpv6.MessageTypeReply && (kind != dhcpv6.MessageTypeAdvertise || m.phase != soliciting) {
		return false
	}
	a, err := decode(datagram)
	if err != nil {
		m.problem = fmt.Sprintf("the answer of a DHCPv6 server is malformed: %v", err)
		return false
	}
	switch want := m.exchange.server; {
	case !bytes.Equal(a.client, m.identity.DUID), a.server == nil, want != nil && !bytes.Equal(a.server, want),
		m.phase == soliciting && kind == dhcpv6.MessageTypeReply && !a.rapidCommit: // RFC 8415 18.2.1
		return false
	}
	if a.solMaxRT > 0 {
		m.solMaxRT = a.solMaxRT
		if m.phase == soliciting {
			m.exchange.limits.most = a.solMaxRT
		}
	}
	switch {
	case m.phase == releasing: // whatever the status (RFC 8415 18.2.10.2)
		m.phase = idle
	case kind == dhcpv6.MessageTypeAdvertise:
		m.advertised(now, &a)
	default:
		m.replied(now, &a)
	}
	return true
}

// advertised notes an offer. The best one that comes before the first SOLICIT is repeated is accepted, and later the
// first; one with the preference 255 at once (RFC 8415 18.2.1).
func (m *machine) advertised(now time.Time, a *answer) {
	count := len(m.offered(a))
	if a.status.code != iana.StatusSuccess || count == 0 {
		m.problem = m.refusal(a)
		return
	}
	if m.best == nil || a.preference > m.best.preference ||
		a.preference == m.best.preference && count > len(m.offered(m.best)) {
		m.best = a
	}
	if a.preference == enough || m.exchange.sent > 1 {
		m.accept(now)
	}
}

// accept requests the prefixes of the best offer.
func (m *machine) accept(now time.Time) { m.request(now, m.best.server, m.offered(m.best)) }

// offered returns the usable prefixes that an answer has for the wanted numbers.
func (m *machine) offered(a *answer) (found []Prefix) {
	for number := range m.wanted {
		ia := a.find(m.iaid(number))
		if ia == nil || ia.status.code != iana.StatusSuccess {
			continue
		}
		for _, o := range ia.prefixes[:min(len(ia.prefixes), maxPrefixes)] {
			if o.valid > 0 {
				found = append(found, Prefix{Prefix: o.prefix, Number: number})
			}
		}
	}
	return found
}

// refusal says in plain words why an answer delegates nothing.
func (m *machine) refusal(a *answer) string {
	said := a.status
	for number := 0; said.code == iana.StatusSuccess && number < m.wanted; number++ {
		if ia := a.find(m.iaid(number)); ia != nil {
			said = ia.status
		}
	}
	switch {
	case said.code != iana.StatusSuccess:
		return fmt.Sprintf("the provider's server said %v", said)
	case a.refused != nil:
		return a.refused.Error()
	}
	return "the provider's server answered without a prefix"
}

// state tells what there is for a status listing.
func (m *machine) state(now time.Time) State {
	s := State{Phase: m.phase.String(), DUID: hex.EncodeToString(m.identity.DUID),
		ServerDUID: hex.EncodeToString(m.server), Prefixes: sorted(m.leases), LastError: m.problem,
		Warnings: warnings(m.leases)}
	if len(m.leases) > 0 && m.phase != requesting && m.phase != soliciting {
		s.T1, s.T2 = m.t1, m.t2
	}
	if s.LastError == "" && m.phase != bound && m.phase != idle && m.exchange.sent > 1 {
		s.LastError = fmt.Sprintf("no DHCPv6 server has answered %d messages in %v",
			m.exchange.sent, now.Sub(m.exchange.begun).Round(time.Second))
	}
	return s
}

// silentAfter is after how many messages without an answer that is said: some 7 s (RFC 8415, section 15).
const silentAfter = 3

// silent reports whether no server answers, and there is no prefix.
func (m *machine) silent() bool {
	return m.phase != bound && m.phase != idle && m.problem == "" && len(m.leases) == 0 && m.exchange.sent >= silentAfter
}
