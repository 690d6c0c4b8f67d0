// What operators ask of sessions and vouchers: the control socket's requests and the admin page's come here.

package control

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/gateweigh/gateweigh/gateway/session"
	"github.com/gateweigh/gateweigh/gateway/voucher"
)

// Refusal is why a request was not carried out, with the HTTP status that says so.
type Refusal struct {
	Status int
	Err    error
}

func (r *Refusal) Error() string { return r.Err.Error() }

// Unwrap lets errors.Is see the reason.
func (r *Refusal) Unwrap() error { return r.Err }

// refuse returns a Refusal, and nil for no error.
func refuse(status int, err error) error {
	if err == nil {
		return nil
	}
	return &Refusal{status, err}
}

// statusOf is the HTTP status of an error.
func statusOf(err error) int {
	var r *Refusal
	if errors.As(err, &r) {
		return r.Status
	}
	return http.StatusInternalServerError
}

// Find returns the client of an address.
func (a Answers) Find(addr netip.Addr) (Session, error) {
	n, err := a.networkOf(addr)
	if err != nil {
		return Session{}, refuse(http.StatusNotFound, err)
	}
	client, ok := n.Table.Get(addr)
	if !ok {
		return Session{}, refuse(http.StatusNotFound, unknownClient(addr))
	}
	return asShown(client.At(time.Now()), n.Name), nil
}

// Logout ends sessions. With an ID in the request, that session alone.
func (a Answers) Logout(ctx context.Context, req LogoutRequest) (LogoutReply, error) {
	if req.Addr.IsValid() {
		return a.logoutOne(req)
	}
	clients := a.authenticated(req.User)
	if len(clients) == 0 && !req.All {
		return LogoutReply{}, refuse(http.StatusNotFound, fmt.Errorf("no session is %q's", req.User))
	}
	ctx, cancel := context.WithTimeout(ctx, logoutTimeout)
	defer cancel()
	done, err := a.endSessions(ctx, clients)
	if err != nil {
		err = fmt.Errorf("after %d of %d sessions: %w", done.Ended, len(clients), err)
	}
	return done, err
}

func (a Answers) logoutOne(req LogoutRequest) (done LogoutReply, err error) {
	n, _, err := a.sessionAt(req.Addr, req.ID)
	if err != nil {
		return done, err
	}
	if _, err := n.Table.End(req.Addr, session.AdminReset); !done.add(err) {
		return done, err
	}
	return done, nil
}

// sessionAt returns the session of an address, and its network. With an id it must be that session.
func (a Answers) sessionAt(addr netip.Addr, id string) (n Network, s session.Session, err error) {
	if n, err = a.networkOf(addr); err != nil {
		return n, s, refuse(http.StatusNotFound, err)
	}
	s, known := n.Table.Get(addr)
	switch {
	case !known:
		return n, s, refuse(http.StatusNotFound, fmt.Errorf("no client has %s", addr))
	case s.State != session.Authenticated:
		return n, s, refuse(http.StatusNotFound, fmt.Errorf("%s is not logged in: it is %s", addr, s.State))
	case id != "" && s.ID != id:
		return n, s, refuse(http.StatusConflict, fmt.Errorf("%s has another session by now, of %q: look again", addr, s.User))
	}
	return n, s, nil
}

// ChangeRequest changes the limits of a session.
type ChangeRequest struct {
	Addr netip.Addr `json:"addr"`
	ID   string     `json:"id,omitempty"` // of the session; empty: whichever the address has
	// AddSeconds and AddBytes are added to what the session has of each. They are for sessions that have such a limit.
	AddSeconds float64 `json:"add_seconds,omitempty"`
	AddBytes   uint64  `json:"add_bytes,omitempty"`
	// the limits in place of the present ones; 0: none; left out: as before
	SessionTimeoutSeconds *float64 `json:"session_timeout_seconds,omitempty"` // from the session's start
	IdleTimeoutSeconds    *float64 `json:"idle_timeout_seconds,omitempty"`
	UpBytes               *uint64  `json:"up_bytes,omitempty"`
	DownBytes             *uint64  `json:"down_bytes,omitempty"`
	TotalBytes            *uint64  `json:"total_bytes,omitempty"`
	UpBps                 *uint64  `json:"up_bps,omitempty"`
	DownBps               *uint64  `json:"down_bps,omitempty"`
	Connections           *uint32  `json:"connections,omitempty"` // of the client at once
}

// Bounds of limits that an operator gives.
const (
	maxLimitBytes = 1 << 60
	minLimitBps   = 8_000 // as in the configuration
	maxLimitBps   = 1e12
)

// check refuses changes that no session can have.
func (r ChangeRequest) check() error {
	changes := r.AddSeconds != 0 || r.AddBytes != 0 || r.Connections != nil
	for _, s := range []*float64{&r.AddSeconds, r.SessionTimeoutSeconds, r.IdleTimeoutSeconds} {
		if s != nil && (!(*s >= 0 && *s <= maxLimitSeconds) || *s > 0 && *s < 1) {
			return errors.New("times must be seconds from 1 to ten years, or 0")
		}
		changes = changes || s != nil && s != &r.AddSeconds
	}
	for _, b := range []*uint64{&r.AddBytes, r.UpBytes, r.DownBytes, r.TotalBytes} {
		if b != nil && *b > maxLimitBytes {
			return errors.New("data must be below 1 EiB")
		}
		changes = changes || b != nil && b != &r.AddBytes
	}
	for _, b := range []*uint64{r.UpBps, r.DownBps} {
		if b != nil && *b != 0 && (*b < minLimitBps || *b > maxLimitBps) {
			return errors.New("rates must be bits a second from 8000 to 1000000000000, or 0 for none")
		}
		changes = changes || b != nil
	}
	if !changes {
		return errors.New("nothing is to be changed: give at least one limit")
	}
	return nil
}

// ofVoucher reports whether the request changes what a voucher gives to all of its sessions together.
func (r ChangeRequest) ofVoucher() bool {
	return r.AddSeconds != 0 || r.AddBytes != 0 || r.SessionTimeoutSeconds != nil || r.TotalBytes != nil
}

// isOfVoucher reports whether a user is a voucher.
func isOfVoucher(user string) bool {
	return user != voucher.UserOf("") && strings.HasPrefix(user, voucher.UserOf(""))
}

// OfVoucher reports whether a voucher admitted the session: Change then refuses time and data.
func (s Session) OfVoucher() bool { return isOfVoucher(s.User) }

// Change changes the limits of a session, and returns it as it is then.
func (a Answers) Change(req ChangeRequest) (Session, error) {
	if err := req.check(); err != nil {
		return Session{}, refuse(http.StatusBadRequest, err)
	}
	network, s, err := a.sessionAt(req.Addr, req.ID)
	if err != nil {
		return Session{}, err
	}
	if network.Changes == nil {
		return Session{}, refuse(http.StatusNotImplemented, errors.New("sessions of this table cannot be changed"))
	}
	if n := req.Connections; n != nil && *n > 0 && !network.Counting {
		return Session{}, refuse(http.StatusConflict, errNotCounted)
	}
	if isOfVoucher(s.User) && req.ofVoucher() {
		return Session{}, refuse(http.StatusConflict, fmt.Errorf("the time and data of %s are those of its voucher: make "+
			"another voucher, or change idle time and rates", req.Addr))
	}
	var problem error
	err = network.Changes.Alter(req.Addr, s.ID, func(l *session.Limits) { problem = req.apply(l) })
	switch {
	case problem != nil:
		return Session{}, refuse(http.StatusConflict, problem)
	case errors.Is(err, session.ErrNoSession):
		return Session{}, refuse(http.StatusConflict, err)
	case err != nil:
		return Session{}, err
	}
	return a.Find(req.Addr)
}

// apply changes limits. On error they are as before.
func (r ChangeRequest) apply(l *session.Limits) error {
	next := *l
	if s := r.SessionTimeoutSeconds; s != nil {
		next.SessionTimeout = seconds(*s)
	}
	if s := r.IdleTimeoutSeconds; s != nil {
		next.IdleTimeout = seconds(*s)
	}
	for _, f := range []struct {
		limit *uint64
		value *uint64
	}{{&next.UpBytes, r.UpBytes}, {&next.DownBytes, r.DownBytes}, {&next.TotalBytes, r.TotalBytes}, {&next.UpBps, r.UpBps},
		{&next.DownBps, r.DownBps}} {
		if f.value != nil {
			*f.limit = *f.value
		}
	}
	if n := r.Connections; n != nil {
		next.Connections = *n
	}
	if r.AddSeconds > 0 {
		if next.SessionTimeout == 0 {
			return errors.New("the session has no time limit that could be extended")
		}
		next.SessionTimeout = min(next.SessionTimeout+seconds(r.AddSeconds), seconds(maxLimitSeconds))
	}
	if r.AddBytes > 0 {
		limited := false
		for _, quota := range []*uint64{&next.UpBytes, &next.DownBytes, &next.TotalBytes} {
			if *quota > 0 {
				limited = true
				*quota += min(r.AddBytes, math.MaxUint64-*quota)
			}
		}
		if !limited {
			return errors.New("the session has no data limit that could be extended")
		}
	}
	*l = next
	return nil
}

// NewVouchers makes a batch of vouchers.
func (a Answers) NewVouchers(req VouchersRequest) ([]voucher.Voucher, error) {
	if a.Vouchers == nil {
		return nil, refuse(http.StatusNotImplemented, ErrNoVouchers)
	}
	counting := func(n Network) bool { return n.Counting }
	if req.Terms.Connections > 0 && !slices.ContainsFunc(a.Networks(), counting) {
		return nil, refuse(http.StatusConflict, errNotCounted)
	}
	all, err := a.Vouchers.Create(req.Batch, req.Count, req.Terms)
	return all, refuse(http.StatusBadRequest, err)
}

// RevokeVouchers revokes the vouchers that a name means.
func (a Answers) RevokeVouchers(ctx context.Context, name string) (voucher.Revocation, error) {
	if a.Vouchers == nil {
		return voucher.Revocation{}, refuse(http.StatusNotImplemented, ErrNoVouchers)
	}
	ctx, cancel := context.WithTimeout(ctx, logoutTimeout)
	defer cancel()
	done, err := a.Vouchers.Revoke(ctx, name)
	switch {
	case errors.Is(err, voucher.ErrUnknown):
		err = refuse(http.StatusNotFound, err)
	case err != nil:
		err = fmt.Errorf("after %d vouchers and %d sessions: %w", done.Vouchers, done.Sessions, err)
	}
	return done, err
}
