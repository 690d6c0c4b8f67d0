package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/gateweigh/gateweigh/gateway/control"
	"github.com/gateweigh/gateweigh/gateway/flowlog"
	"github.com/gateweigh/gateweigh/gateway/voucher"
)

// What pages and API do for a person. Errors are of *control.Refusal where it is the request that is refused.

func refuse(status int, format string, args ...any) error {
	return &control.Refusal{Status: status, Err: fmt.Errorf(format, args...)}
}

// audited does something that is in the audit log before, and its result after.
func (s *Server) audited(p person, action, object string, details any, do func() (result string, err error)) error {
	id, err := s.audit.begin(p, action, object, details)
	if err != nil {
		s.log.Error("nothing is changed by the admin page: free space at state_dir", "err", err)
		return refuse(http.StatusServiceUnavailable, "nothing was done, because the audit log cannot be written")
	}
	result, err := do()
	if err != nil {
		result = "failed: " + err.Error()
	}
	s.audit.end(id, result)
	return err
}

// denied returns the refusal of what an account may not do. It is in the daemon's log: a list that is bounded must not
// fill with what was not done.
func (s *Server) denied(p person, action, object, why string) error {
	s.counters.denied.Add(1)
	s.log.Warn("admin: refused: "+why, "who", p.Name, "from", p.from, "action", action, "object", object)
	return refuse(http.StatusForbidden, "%s", why)
}

// change is audited for those who may change something.
func (s *Server) change(p person, action, object string, details any, do func() (string, error)) error {
	if !p.Changes() {
		return s.denied(p, action, object, "this account may look, and change nothing")
	}
	s.counters.changes.Add(1)
	return s.audited(p, action, object, details, do)
}

// ofSession is whose session it was, for those who read the log later.
type ofSession struct {
	User    string `json:"user,omitempty"`
	MAC     string `json:"mac,omitempty"`
	Session string `json:"session,omitempty"` // Acct-Session-Id
}

// sessionOf returns whose the session of an address is now. Where the request names no session, it is bound to that
// one.
func (s *Server) sessionOf(addr netip.Addr, id *string) ofSession {
	now, err := s.cfg.Answers.Find(addr)
	if err != nil || *id != "" && *id != now.ID { // the request will be refused
		return ofSession{Session: *id}
	}
	*id = now.ID
	return ofSession{now.User, now.MAC, now.ID}
}

// end ends the session of an address.
func (s *Server) end(ctx context.Context, p person, req control.LogoutRequest) (done control.LogoutReply, err error) {
	details := s.sessionOf(req.Addr, &req.ID)
	err = s.change(p, "session.end", req.Addr.String(), details, func() (string, error) {
		done, err = s.cfg.Answers.Logout(ctx, req)
		return "done", err
	})
	return done, err
}

// alter changes the limits of a session.
func (s *Server) alter(p person, req control.ChangeRequest) (changed control.Session, err error) {
	whose := s.sessionOf(req.Addr, &req.ID)
	details := struct {
		ofSession
		Change control.ChangeRequest `json:"change"`
	}{whose, req}
	err = s.change(p, "session.change", req.Addr.String(), details, func() (string, error) {
		changed, err = s.cfg.Answers.Change(req)
		return "done", err
	})
	return changed, err
}

// newVouchers makes a batch of vouchers.
func (s *Server) newVouchers(p person, req control.VouchersRequest) (all []voucher.Voucher, err error) {
	err = s.change(p, "vouchers.create", req.Batch, req, func() (string, error) {
		if all, err = s.cfg.Answers.NewVouchers(req); err != nil {
			return "", err
		}
		return fmt.Sprintf("done: %d vouchers of batch %s", len(all), all[0].Batch), nil
	})
	return all, err
}

// revoke revokes vouchers.
func (s *Server) revoke(ctx context.Context, p person, name string) (done voucher.Revocation, err error) {
	err = s.change(p, "vouchers.revoke", name, nil, func() (string, error) {
		done, err = s.cfg.Answers.RevokeVouchers(ctx, name)
		return fmt.Sprintf("done: %d vouchers, %d sessions ended", done.Vouchers, done.Sessions), err
	})
	return done, err
}

// vouchers returns a page of vouchers. Their codes admit, so only those who may make vouchers see them.
func (s *Server) vouchers(p person, name, after string, most int) (page []voucher.Voucher, next string, err error) {
	book := s.cfg.Answers.Vouchers
	if book == nil {
		return nil, "", refuse(http.StatusNotImplemented, "%v", control.ErrNoVouchers)
	}
	page, next, err = book.Page(name, after, most)
	if errors.Is(err, voucher.ErrUnknown) {
		err = refuse(http.StatusNotFound, "there is no voucher or batch of this name")
	}
	if !p.Changes() {
		for i := range page {
			page[i].Code = ""
		}
	}
	return page, next, err
}

// export calls yield with vouchers, with their codes, and has that in the audit log.
func (s *Server) export(p person, name string) (all []voucher.Voucher, err error) {
	if s.cfg.Answers.Vouchers == nil {
		return nil, refuse(http.StatusNotImplemented, "%v", control.ErrNoVouchers)
	}
	err = s.change(p, "vouchers.export", name, nil, func() (string, error) {
		err := s.cfg.Answers.Vouchers.Each(name, func(v voucher.Voucher) bool { all = append(all, v); return true })
		if errors.Is(err, voucher.ErrUnknown) {
			err = refuse(http.StatusNotFound, "there is no voucher or batch of this name")
		}
		return fmt.Sprintf("done: %d vouchers", len(all)), err
	})
	return all, err
}

// Owner is who used an address, by the flow log.
type Owner struct {
	Network string `json:"network,omitempty"`
	flowlog.Flow
}

// whoisAnswer is who used an address and port at a time.
type whoisAnswer struct {
	Flows   []Owner `json:"flows"`
	Damaged int     `json:"damaged_lines"` // of the log, which may have been of this address
}

// mayWhois refuses those who may not ask who used an address, and browsers that a page of another site has ask: asking
// costs, and is in the log with the person's name.
func (s *Server) mayWhois(r *http.Request, p person) error {
	asked := r.URL.Query().Get("endpoint")
	if !p.Whois {
		return s.denied(p, "whois", asked, "this account may not ask who used an address")
	}
	if asked != "" && r.Header.Get("Sec-Fetch-Site") == "cross-site" {
		s.counters.forged.Add(1)
		return refuse(http.StatusForbidden, "this search was sent by a page of another site: search here")
	}
	return nil
}

// whois searches the flow log for those who may ask, for one at a time: a search reads large files.
func (s *Server) whois(ctx context.Context, p person, endpoint netip.AddrPort, at time.Time) (answer whoisAnswer,
	err error) {
	if at.After(time.Now()) {
		return answer, refuse(http.StatusBadRequest, "the time %s is in the future", at.Format(time.RFC3339))
	}
	select {
	case s.searching <- struct{}{}:
	case <-ctx.Done():
		return answer, ctx.Err()
	}
	defer func() { <-s.searching }()
	s.counters.whois.Add(1)
	details := struct {
		At time.Time `json:"at"`
	}{at}
	err = s.audited(p, "whois", endpoint.String(), details, func() (string, error) {
		logs, err := s.cfg.Whois(ctx, endpoint, at)
		if errors.Is(err, flowlog.ErrNoLog) || errors.Is(err, flowlog.ErrTooOld) {
			err = refuse(http.StatusNotFound, "%w", err)
		}
		for _, l := range logs {
			answer.Damaged += l.Damaged
			for _, f := range l.Flows {
				answer.Flows = append(answer.Flows, Owner{l.Network, f})
			}
		}
		return fmt.Sprintf("done: %d connections", len(answer.Flows)), err
	})
	return answer, err
}

// health is how the gateway is.
type health struct {
	Status   control.Status `json:"status"`
	Findings []Finding      `json:"findings"`
}

func (s *Server) health() health {
	h := health{Status: s.cfg.Answers.Status(), Findings: s.findings.now()}
	if h.Findings == nil {
		h.Findings = []Finding{}
	}
	return h
}

// findings are those of check-config, read at most once in findingsAge: that takes a while, and reads the machine.
type findings struct {
	read func() []Finding

	mu    sync.Mutex
	last  []Finding // guarded by mu
	since time.Time // guarded by mu
}

const findingsAge = time.Minute

func (f *findings) now() []Finding {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.read != nil && (f.since.IsZero() || time.Since(f.since) >= findingsAge) {
		f.last, f.since = f.read(), time.Now()
	}
	return f.last
}
