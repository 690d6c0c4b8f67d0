// What the Server does with a frame that it receives.

package bindings

import (
	"errors"
	"sync"
	"time"

	"github.com/gateweigh/gateweigh/gateway/budget"
)

// rogues are clients that were reported because they redirect.
type rogues struct {
	mu     sync.Mutex
	recent budget.Recent[MAC, struct{}] // guarded by mu
	spent  budget.Clock
}

// add reports whether a client is to be reported.
func (r *rogues) add(mac MAC) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.recent.Get(mac) != nil || !r.spent.Spend(reports, budget.Now()) {
		return false
	}
	r.recent.Add(mac, maxRogues)
	return true
}

// handle does what a frame asks for.
func (s *Server) handle(frame []byte) {
	if s.echo(frame) {
		return
	}
	m, err := Decode(frame)
	switch {
	case errors.Is(err, ErrExtension):
		s.stats.extensions.Add(1)
	case errors.Is(err, ErrForged):
		s.stats.forged.Add(1)
	case err != nil:
		s.stats.malformed.Add(1)
	case m.From.MAC == s.link.MAC(): // a bridge returned the gateway's own
	case !s.may(m):
		s.stats.throttled.Add(1)
	default:
		s.waitForRoom()
		s.obey(m)
	}
}

// may reports whether a message is handled: it is the answer to a question, or within its sender's budget and that of
// all senders, from which it then takes a token.
func (s *Server) may(m Message) bool {
	a := m.From
	s.mu.Lock()
	answers := m.Type == NeighborAdvertisement && s.table.IsAsked(a, m.Target)
	known := s.table.HasAnswered(a) || s.table.known(a)
	s.mu.Unlock()
	now := budget.Now()
	return answers || s.senders.Spend(m.From.MAC, known, now) && s.all.Spend(everybody, now)
}

// obey handles a well-formed message that is within the budgets.
func (s *Server) obey(m Message) {
	a := m.From
	switch m.Type {
	case RouterAdvertisement: // which package routeradv reports
	case Redirect:
		s.stats.redirects.Add(1)
		if s.cfg.Redirects != nil && s.rogues.add(m.From.MAC) {
			s.cfg.Redirects(m.From.MAC)
		}
	case NeighborAdvertisement:
		s.stats.advertisements.Add(1)
		s.change(func(t *Table, now time.Time) []Action { return t.Advertised(a, m.Target, now) })
	case NeighborSolicitation:
		s.stats.solicitations.Add(1)
		if m.Source.IsUnspecified() {
			s.change(func(t *Table, now time.Time) []Action { return t.Probed(a, m.Target, now) })
			s.answerSession(m)
			return
		}
		s.change(func(t *Table, now time.Time) []Action { return t.Used(a, m.Source, now) })
		s.answerSession(m)
		s.proxy(m)
	case RouterSolicitation:
		s.stats.routerSolicitations.Add(1)
		if !m.Source.IsUnspecified() {
			s.change(func(t *Table, now time.Time) []Action { return t.Used(a, m.Source, now) })
		}
	}
}

// proxy answers a client's solicitation for another client's address with the gateway's MAC address. Link-local packets
// do not cross the gateway, so it answers for global addresses only.
func (s *Server) proxy(m Message) {
	if !s.cfg.Proxy || !s.cfg.Rules.Isolated || m.Target.IsLinkLocalUnicast() {
		return
	}
	s.mu.Lock()
	asker, mayAsk := s.table.Owner(m.Source)
	owner, bound := s.table.Owner(m.Target)
	s.mu.Unlock()
	if !mayAsk || !bound || asker != m.From || owner == asker {
		return
	}
	s.stats.proxied.Add(1)
	s.sendFrame(sender{s.link.MAC(), s.source}.proxied(m.From, m.Source, m.Target))
}
