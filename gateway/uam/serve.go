// Requests of clients.

package uam

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/gateweigh/gateweigh/gateway/guesses"
	"github.com/gateweigh/gateweigh/gateway/session"
	"github.com/gateweigh/gateweigh/gateway/wispr"
)

// Peer is the client's connection.
type Peer struct {
	Client netip.Addr
	Secure bool            // https
	Life   context.Context // ends with the server: a login is decided although its client hangs up
}

// answerTime is how long an answer may take once a login is decided.
const answerTime = 70 * time.Second

// Serve answers a request for the gateway's own address and port.
func (s *Server) Serve(w http.ResponseWriter, r *http.Request, p Peer) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer") // queries have responses
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.Set("Allow", "GET, HEAD")
		http.Error(w, http.StatusText(http.StatusMethodNotAllowed), http.StatusMethodNotAllowed)
		return
	}
	path, asJSON := strings.CutPrefix(r.URL.Path, "/json/")
	callback := ""
	if asJSON {
		path = "/" + path
		var ok bool
		if callback, ok = s.callback(w, r); !ok {
			return
		}
	}
	one, ok := s.client(p.Client)
	if !ok {
		http.Error(w, "This device has no address of this network. Connect to the network anew.", http.StatusForbidden)
		return
	}
	o, ok := s.outcome(path, w, r, p, one)
	if ok {
		s.answer(w, o, asJSON, callback)
	} else if r.Context().Err() == nil {
		http.NotFound(w, r)
	}
}

// outcome does what a request asks for. ok is false if there is no such path, or the client has hung up.
func (s *Server) outcome(path string, w http.ResponseWriter, r *http.Request, p Peer, one session.Session,
) (o outcome, ok bool) {
	q := r.URL.Query()
	if link := linkOf(q.Get("userurl")); link != "" && one.State != session.Authenticated {
		s.challenges.issue(one.Key, link, time.Now())
	}
	o = outcome{client: one, res: resNotYet, kind: wispr.Redirect}
	if one.State == session.Authenticated {
		o.res, o.kind, o.code = resAlready, wispr.Poll, wispr.Succeeded
	}
	switch path {
	case "/logon", "/login":
		o, ok = s.logon(w, r, p, one)
	case "/logoff", "/logout":
		o, ok = s.logoff(one), true
	case "/status":
		if o.status, ok = true, true; o.res == resNotYet {
			o.kind, o.code = wispr.Poll, wispr.LoggedOff
		}
	case "/abort":
		if ok = true; o.res == resNotYet {
			s.challenges.take(one.Key, time.Now())
			o.res, o.kind, o.code = resLogoff, wispr.AbortLogin, wispr.Aborted
		} else {
			o.kind = wispr.AbortLogin
		}
	case "/prelogin", "/":
		ok = true
	}
	if lang := q.Get("lang"); languages.MatchString(lang) {
		o.lang = lang
	}
	return o, ok
}

// answer sends an outcome: a redirect to the portal, or JSON.
func (s *Server) answer(w http.ResponseWriter, o outcome, asJSON bool, callback string) {
	var ch challenge
	needed := o.client.State != session.Authenticated
	if needed {
		ch = s.challenges.issue(o.client.Key, "", time.Now())
	}
	if asJSON {
		s.sendJSON(w, s.jsonOf(o, ch, needed), callback)
		return
	}
	body := s.message(o, ch).Page("Portal")
	h := w.Header()
	h.Set("Location", s.location(o, ch, needed))
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(http.StatusFound)
	w.Write(body)
}

// logoff ends a client's session. Without one there is nothing to do, and the answer is the same.
func (s *Server) logoff(one session.Session) outcome {
	o := outcome{client: one, res: resLogoff, kind: wispr.Logoff, code: wispr.LoggedOff}
	if one.State != session.Authenticated {
		return o
	}
	ended, err := s.sessions.End(one.Addr, session.UserRequest)
	if err != nil && !errors.Is(err, session.ErrLater) {
		s.counters.failed.Add(1)
		s.log.Error("ending a session", "client", one.Key.String(), "error", err)
		o.res, o.code = resAlready, wispr.Internal
		return o
	}
	s.counters.logouts.Add(1)
	s.log.Info("client logged out", "client", one.Key.String(), "user", one.User, "session", one.ID, "by", "uam")
	one.State = ended.State
	if one.State == session.Authenticated { // the table ends it later
		one.State = session.PreAuth
	}
	o.client = one
	return o
}

// failed is the outcome of a login that admitted nobody.
func failed(one session.Session, reason, reply string) outcome {
	o := outcome{client: one, res: resFailed, reason: reason, reply: reply, kind: wispr.Poll, code: wispr.ServerError}
	if reason == reasonReject {
		o.code = wispr.Rejected
	}
	return o
}

// logon decides on a login. ok is false if the client has hung up.
func (s *Server) logon(w http.ResponseWriter, r *http.Request, p Peer, one session.Session) (o outcome, ok bool) {
	// The request has been read. Its context would otherwise end with the time for reading.
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	already := outcome{client: one, res: resAlready, kind: wispr.Poll, code: wispr.Succeeded}
	if one.State == session.Authenticated {
		return already, true
	}
	q := r.URL.Query()
	if !p.Secure && (!s.cfg.HTTP || q.Has("password") && s.cfg.has(Plain)) {
		s.counters.rejected.Add(1)
		s.overHTTP.Do(func() {
			s.log.Warn("a login of the portal elsewhere came over plain HTTP, which is off", "client", one.Key.String())
		})
		return failed(one, reasonOther, "Log-in is over https only."), true
	}
	try, err := s.cfg.Guard.Enter(r.Context(), guesses.Attempter{MAC: one.MAC})
	if err != nil {
		return o, false
	}
	defer try.Leave()
	// A second request of the client arrives here while the first is being decided.
	if one, ok = s.client(p.Client); !ok {
		return o, false
	}
	if already.client = one; one.State == session.Authenticated {
		return already, true
	}
	o = s.decide(p.Life, one, q, try)
	// The time for the answer begins now: the decision may have taken longer.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(answerTime))
	return o, true
}

// decide takes the client's challenge, and asks whether the credentials that answer it are right.
func (s *Server) decide(life context.Context, one session.Session, q url.Values, try *guesses.Try) outcome {
	if wait := try.Wait(q.Get("username")); wait > 0 {
		s.counters.backedOff.Add(1)
		return failed(one, reasonReject, fmt.Sprintf("Too many attempts. Wait %d seconds.", int(wait/time.Second)+1))
	}
	ch, fresh := s.challenges.take(one.Key, time.Now())
	s.challenges.keep(one.Key, ch.link)
	if !fresh && s.cfg.challenged() {
		s.counters.stale.Add(1)
		return failed(one, reasonOther, "The log-in page was too old. Try again.")
	}
	c, err := s.cfg.credentials(q, ch)
	if err != nil {
		try.WrongName()
		s.counters.rejected.Add(1)
		s.log.Info("log-in rejected", "client", one.Key.String(), "by", "uam", "error", err)
		return failed(one, reasonOther, "")
	}
	c.Key, c.FurtherAddrs, c.Failures = one.Key, one.FurtherAddrs, try.Failures(c.User)
	login, err := s.auth.Authenticate(life, c)
	var no interface{ RejectMessage() string }
	switch {
	case err == nil:
		try.Right(c.User)
		return s.admit(one, login)
	case errors.As(err, &no):
		try.Wrong(c.User)
		s.counters.rejected.Add(1)
		s.log.Info("log-in rejected", "client", one.Key.String(), "user", c.User, "by", "uam", "error", err)
		return failed(one, reasonReject, session.ForUser(no.RejectMessage()))
	case errors.Is(err, session.ErrUnfit), errors.Is(err, session.ErrMoreAsked):
		s.counters.rejected.Add(1)
		s.log.Warn("log-in rejected although the server did not reject it", "client", one.Key.String(), "user", c.User,
			"error", err)
		return failed(one, reasonReject, "")
	}
	s.counters.unavailable.Add(1)
	s.log.Warn("nobody could decide on a log-in", "client", one.Key.String(), "user", c.User, "error", err)
	return failed(one, reasonOther, "")
}

// admit starts the session.
func (s *Server) admit(one session.Session, login session.Login) outcome {
	now, err := s.sessions.Admit(one.Addr, login)
	switch {
	case errors.Is(err, session.ErrSessions), errors.Is(err, session.ErrUnfit), errors.Is(err, session.ErrRejected):
		s.counters.rejected.Add(1)
		s.log.Info("log-in rejected", "client", one.Key.String(), "user", login.User, "by", "uam", "error", err)
		reply := ""
		if errors.Is(err, session.ErrSessions) {
			reply = "Too many devices use this account."
		}
		return failed(one, reasonReject, reply)
	case err != nil:
		s.counters.failed.Add(1)
		s.log.Error("admitting a client", "client", one.Key.String(), "user", login.User, "error", err)
		o := failed(one, reasonOther, "")
		o.code = wispr.Internal
		return o
	}
	s.counters.logins.Add(1)
	return outcome{client: now, res: resSuccess, kind: wispr.Poll, code: wispr.Succeeded}
}
