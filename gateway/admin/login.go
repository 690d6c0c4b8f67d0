package admin

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gateweigh/gateweigh/gateway/guesses"
	"github.com/gateweigh/gateweigh/gateway/session"
	"github.com/gateweigh/gateweigh/gateway/users"
)

// cookieName has a prefix by which browsers take the cookie from this host alone, and by TLS (RFC 6265bis, 4.1.3.2).
const cookieName = "__Host-gatewayd"

// Bounds of the logins of browsers that are remembered.
const (
	maxLogins      = 1000
	maxLoginsOfOne = 20 // of an account
)

// person is who asks.
type person struct {
	Name string
	users.Operator
	from netip.Addr // zero: through the socket
	way  string     // "page" or "api"
	form string     // the token of this person's forms; empty: there are none
}

// logins are the browsers that are logged in. They end with the daemon.
type logins struct {
	idle, longest time.Duration

	mu  sync.Mutex
	all map[[sha256.Size]byte]*login // guarded by mu: by the cookie's hash
}

// login is a browser that is logged in.
type login struct {
	name, mark  string
	began, seen time.Time
}

// begin returns the cookie of a new login. It is another one each time, so that nobody knows it before.
func (l *logins) begin(name, mark string, now time.Time) string {
	raw := make([]byte, 32)
	rand.Read(raw)
	cookie := base64.RawURLEncoding.EncodeToString(raw)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all == nil {
		l.all = map[[sha256.Size]byte]*login{}
	}
	l.makeRoom(name)
	l.all[sha256.Sum256([]byte(cookie))] = &login{name, mark, now, now}
	return cookie
}

// makeRoom ends the login that was not used for longest, where an account or all have as many as they can have. mu must
// be held.
func (l *logins) makeRoom(name string) {
	oldest := func(of func(*login) bool, most int) {
		var key [sha256.Size]byte
		var found *login
		n := 0
		for k, one := range l.all {
			if of(one) {
				if n++; found == nil || one.seen.Before(found.seen) {
					key, found = k, one
				}
			}
		}
		if n >= most {
			delete(l.all, key)
		}
	}
	oldest(func(one *login) bool { return one.name == name }, maxLoginsOfOne)
	oldest(func(*login) bool { return true }, maxLogins)
}

// find returns the account of a cookie, whose time has not run out, and counts the time anew.
func (l *logins) find(cookie string, now time.Time) (name, mark string, found bool) {
	key := sha256.Sum256([]byte(cookie))
	l.mu.Lock()
	defer l.mu.Unlock()
	one := l.all[key]
	if one == nil {
		return "", "", false
	}
	if now.Sub(one.seen) >= l.idle || now.Sub(one.began) >= l.longest {
		delete(l.all, key)
		return "", "", false
	}
	one.seen = now
	return one.name, one.mark, true
}

func (l *logins) end(cookie string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.all, sha256.Sum256([]byte(cookie)))
}

// errWait is a password that comes too soon after wrong ones.
type errWait struct{ wait time.Duration }

func (e errWait) Error() string {
	return fmt.Sprintf("too many wrong passwords: try again in %d s", int(e.wait.Seconds())+1)
}

// errWrong is a wrong name or password.
var errWrong = errors.New("wrong name or password")

// What else the API answers to those whom it does not know. Each is an errWrong.
var (
	errToken  = unknown("the token is of no account: gatewayd admin token makes another")
	errNobody = unknown("no credentials: send a name and a password (Basic), or a token (Bearer)")
)

// unknown is an errWrong with a text of its own.
type unknown string

func (u unknown) Error() string      { return string(u) }
func (unknown) Is(target error) bool { return target == errWrong }

// hostOf stands for who has an address: an IPv6 host has a network.
func hostOf(a netip.Addr) netip.Addr {
	if a.Is6() {
		return netip.PrefixFrom(a, 64).Masked().Addr()
	}
	return a
}

// guesser stands for an address and a name where guesses are counted by device: who knows the password of one account
// must not clear the guesses at another by it.
func guesser(a netip.Addr, name string) (mac guesses.MAC) {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %q", hostOf(a), session.FoldUser(name)))
	copy(mac[:], sum[:])
	return mac
}

// checkPassword checks a name and password. Errors are errWrong, an errWait, session.ErrBusy or ctx's.
func (s *Server) checkPassword(ctx context.Context, name, password string, from netip.Addr) error {
	return s.guarded(ctx, name, from, func(failures int) error {
		return s.operators.Authenticate(ctx, session.Credentials{User: name, Password: password,
			Key: session.Key{MAC: guesser(from, name), Addr: from}, Failures: failures})
	})
}

// guarded checks a proof of who somebody is, unless the guesser must wait. name is "" for a token: a right one clears
// nothing.
func (s *Server) guarded(ctx context.Context, name string, from netip.Addr, check func(failures int) error) error {
	try, err := s.guard.Enter(ctx, guesses.Attempter{MAC: guesser(from, name)})
	if err != nil {
		return err
	}
	defer try.Leave()
	if wait := try.Wait(name); wait > 0 {
		s.counters.backedOff.Add(1)
		return errWait{wait}
	}
	err = check(try.Failures(name))
	switch {
	case err == nil && name != "":
		try.Right(name)
	case errors.Is(err, session.ErrRejected):
		s.counters.rejected.Add(1)
		s.log.Warn("admin page: a wrong name, password or token", "name", name, "from", from.String())
		if name == "" { // of a token
			try.WrongName()
		} else {
			try.Wrong(name)
		}
		return errWrong
	}
	return err
}

// checkToken returns the account of a token.
func (s *Server) checkToken(ctx context.Context, token string, from netip.Addr) (name string, err error) {
	err = s.guarded(ctx, "", from, func(int) error {
		if name = s.operators.OfToken(token); name == "" {
			return session.Reject("")
		}
		return nil
	})
	return name, err
}

// byProxy returns the user that a trusted proxy names; "": there is none.
func (s *Server) byProxy(r *http.Request) string {
	if s.cfg.UserHeader == "" || !s.isProxy(peerOf(r.RemoteAddr)) {
		return ""
	}
	if named := r.Header.Values(s.cfg.UserHeader); len(named) == 1 {
		return named[0]
	}
	return ""
}

// atPage returns who asks for a page, by a cookie or a proxy; nil: nobody who has an account.
func (s *Server) atPage(r *http.Request) *person {
	name, mark, secret := s.byProxy(r), "", ""
	if name == "" {
		cookie, err := r.Cookie(cookieName)
		if err != nil {
			return nil
		}
		found := false
		if name, mark, found = s.logins.find(cookie.Value, time.Now()); !found {
			return nil
		}
		secret = cookie.Value
	}
	operator, present, known := s.operators.Find(name)
	if secret == "" && !s.operators.ByProxy(name) { // an account with a password of its own is not the proxy's to give
		return nil
	}
	if !known || mark != "" && mark != present { // the password or the role has changed since the login
		return nil
	}
	return &person{Name: name, Operator: operator, from: s.clientOf(r), way: "page",
		form: s.formToken(name, present, secret)}
}

// formToken is the token that a person's forms must have. Other sites cannot read it.
func (s *Server) formToken(parts ...string) string {
	h := hmac.New(sha256.New, s.key)
	fmt.Fprintf(h, "%q", parts)
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil)[:16])
}

// atAPI returns who asks the API: whom a proxy names, and without a name, by a password or a token. Cookies are of
// pages alone.
func (s *Server) atAPI(r *http.Request) (*person, error) {
	from := s.clientOf(r)
	name := s.byProxy(r)
	var err error
	if name != "" {
		if !s.operators.ByProxy(name) {
			err = errWrong
		}
	} else if user, password, ok := r.BasicAuth(); ok {
		name, err = user, s.checkPassword(r.Context(), user, password, from)
	} else if token, ok := bearer(r); ok {
		if name, err = s.checkToken(r.Context(), token, from); errors.Is(err, errWrong) {
			err = errToken
		}
	} else {
		err = errNobody
	}
	if err != nil {
		return nil, err
	}
	operator, _, known := s.operators.Find(name)
	if !known {
		return nil, errWrong
	}
	return &person{Name: name, Operator: operator, from: from, way: "api"}, nil
}

// bearer returns the token of a request (RFC 6750, 2.1).
func bearer(r *http.Request) (token string, ok bool) {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	return strings.TrimSpace(token), strings.EqualFold(scheme, "Bearer")
}

// localPath returns where a login leads to: a path of this page, or the first page.
func localPath(next string) string {
	path, _, _ := strings.Cut(next, "?")
	first := slices.ContainsFunc(tabs, func(t tab) bool { return path == t.Path || strings.HasPrefix(path, t.Path+"/") })
	if !first || strings.ContainsAny(next, "\\\r\n") || strings.Contains(next, "//") || strings.Contains(next, "..") {
		return tabs[0].Path
	}
	return next
}
