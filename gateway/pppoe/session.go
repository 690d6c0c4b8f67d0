package pppoe

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/gateweigh/gateweigh/gateway/budget"
	"github.com/gateweigh/gateweigh/gateway/due"
	"github.com/gateweigh/gateweigh/ppp"
	"github.com/gateweigh/gateweigh/ppp/pppoe"
)

// session is the session of one subscriber. The server's mu guards it.
type session struct {
	*Server
	mac             pppoe.MAC
	id              uint16
	uniq            []byte    // the client's Host-Uniq
	began           time.Time // zero once it has logged in
	payload         int
	circuit, remote string
	login           Request // of Access.Login, while it waits for its turn
	stop            func()  // cancels Access.Login; nil: it is not asked
	link            *ppp.Link

	due          time.Time
	due.Place    // in dues
	stage        stage
	waitElement  *list.Element // in waiting; nil: it has logged in
	admitted     netip.Addr    // by Access.Login; invalid: not, or no longer
	padtReceived bool          // the client has sent a PADT
	ended        bool
}

var _ ppp.Handler = (*session)(nil)

// add makes a session. The caller holds mu.
func (s *Server) add(mac pppoe.MAC, id uint16) (*session, error) {
	if s.cfg.Carrier != nil {
		if err := s.cfg.Carrier.Carry(mac, id); err != nil {
			return nil, err
		}
	}
	n := &session{Server: s, mac: mac, id: id}
	s.sessions[id] = n
	s.byMAC[mac] = append(s.byMAC[mac], n)
	return n, nil
}

// handleCarried handles a frame that the carrier has received. Where the line has ended a PADT may be on
// its way, which says more.
func (s *Server) handleCarried(mac [6]byte, id uint16, frame []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.sessions[id]
	switch {
	case n == nil || n.mac != mac || s.closed:
	case frame == nil:
		time.AfterFunc(outlivesCarrier, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			if !s.closed && !n.ended {
				n.link.Abort(errCarrierEnded)
				s.schedule(n)
			}
		})
	default:
		n.handleFrame(time.Now(), frame)
	}
}

// handleFrame handles a frame of the session's client. The caller holds mu.
func (n *session) handleFrame(now time.Time, frame []byte) {
	if n.waitElement != nil {
		n.setStage(negotiating)
	}
	n.link.Receive(now, frame)
	n.schedule(n)
}

// outlivesCarrier is how long a session outlives its line.
const outlivesCarrier = time.Second

var errCarrierEnded = errors.New("the line has ended: was the interface down?")

// Send implements ppp.Handler.
func (n *session) Send(frame []byte) {
	n.send(&pppoe.Frame{To: n.mac, Session: n.id, PPP: frame})
}

// Authenticate implements ppp.Handler: Access decides in a goroutine of its own, when it is the session's turn.
func (n *session) Authenticate(c ppp.Credentials) {
	state, _ := n.link.State()
	n.login = Request{MAC: n.mac, Session: n.id, Credentials: c, Circuit: n.circuit, Remote: n.remote, State: state}
	n.setStage(queued)
	n.logIn()
}

// logIn asks Access about the next sessions whose turn it is. The caller holds mu.
func (s *Server) logIn() {
	for s.logins < s.cfg.Logins && !s.closed {
		first := s.waiting[queued].Front()
		if first == nil {
			return
		}
		n := first.Value.(*session)
		n.setStage(loginPending)
		s.logins++
		ctx, stop := context.WithDeadline(s.ctx, n.began.Add(loginTime))
		n.stop = stop
		r := n.login
		n.login = Request{}
		s.running.Go(func() {
			defer stop()
			grant, err := s.access.Login(ctx, r)
			n.decided(r.Credentials.User, grant, err)
		})
	}
}

// decided ends a user's login.
func (n *session) decided(user string, grant ppp.Grant, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.logins--
	defer n.logIn()
	switch gone := n.ended || n.stage == terminating; {
	case gone && err == nil:
		n.logout(grant.Addr, ppp.ErrPeerClosed)
		return
	case n.closed && err == nil: // nobody can tell the client: it would wait for an answer
		n.logout(grant.Addr, errStopped)
		return
	case gone, n.closed: // a login that was cancelled says nothing of the password
		return
	case err == nil:
		n.admitted, n.began = grant.Addr, time.Time{}
		n.setStage(loggedIn)
	default:
		n.cfg.Log.Info("pppoe: login refused", "mac", net.HardwareAddr(n.mac[:]).String(), "session", n.id,
			"user", fmt.Sprintf("%.80q", user), "err", err) // in quotes whatever it holds, and no longer than a name is
		n.setStage(terminating)
	}
	n.link.Decide(time.Now(), err == nil, grant)
	n.schedule(n)
	if err == nil && !n.ended {
		n.makeRoom()
	}
}

// makeRoom ends the oldest sessions of the subscriber's address where it has too many: those of a client that lost its
// link without a word and has logged in again.
func (n *session) makeRoom() {
	others := slices.DeleteFunc(n.byMAC[n.mac], func(o *session) bool { return o == n })
	n.byMAC[n.mac] = append(others, n) // in the order of logins
	up := slices.DeleteFunc(slices.Clone(n.byMAC[n.mac]), func(o *session) bool { return !o.admitted.IsValid() })
	for len(up) > n.cfg.PerMAC {
		oldest := up[0]
		up = up[1:]
		oldest.link.Abort(errMoved)
		n.schedule(oldest)
	}
}

// Opened implements ppp.Handler.
func (n *session) Opened(t ppp.Terms) {
	n.cfg.Log.Info("pppoe: session up", "mac", net.HardwareAddr(n.mac[:]).String(), "session", n.id, "address",
		t.Peer.String(), "mtu", t.MTU)
	if t.PeerID != ([8]byte{}) && n.cfg.Opened6 != nil {
		n.cfg.Opened6(n.mac, n.id)
	}
}

// Closed implements ppp.Handler.
func (n *session) Closed(reason error) {
	if !n.began.IsZero() && n.stage != terminating { // otherwise its refusal was told, or its owner has ended it
		n.neverIn(reason)
	}
	n.ended = true
	delete(n.sessions, n.id)
	n.setStage(loggedIn) // it waits no longer
	n.byMAC[n.mac] = slices.DeleteFunc(n.byMAC[n.mac], func(o *session) bool { return o == n })
	if len(n.byMAC[n.mac]) == 0 {
		delete(n.byMAC, n.mac)
	}
	if n.cfg.Carrier != nil {
		n.cfg.Carrier.Release(n.mac, n.id)
	}
	if !n.padtReceived {
		n.send(&pppoe.Frame{To: n.mac, Code: pppoe.PADT, Session: n.id})
	}
	if n.admitted.IsValid() {
		n.logout(n.admitted, reason)
	}
}

// neverIn writes to the log why a session ended without a login: once a minute of each address.
func (n *session) neverIn(reason error) {
	if n.logBudgets.Spend(n.mac, false, budget.Now()) {
		mac := net.HardwareAddr(n.mac[:]).String()
		n.cfg.Log.Info("pppoe: session ended before its login", "mac", mac, "session", n.id, "reason", reason)
	}
}

// logout tells Access, which may take its time and may call End.
func (n *session) logout(addr netip.Addr, reason error) {
	n.running.Go(func() { n.access.Logout(n.mac, n.id, addr, reason) })
}
