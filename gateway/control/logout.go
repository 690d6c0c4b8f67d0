package control

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/gateweigh/gateweigh/gateway/session"
)

func (s *server) logout(w http.ResponseWriter, r *http.Request) {
	req, err := readLogout(http.MaxBytesReader(w, r.Body, maxBodyBytes))
	if err != nil {
		fail(w, http.StatusBadRequest, err)
		return
	}
	if req.Addr.IsValid() {
		s.logoutOne(w, req.Addr)
		return
	}
	clients := s.authenticated(req.User)
	if len(clients) == 0 && !req.All {
		fail(w, http.StatusNotFound, fmt.Errorf("no session is %q's", req.User))
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), logoutTimeout)
	defer cancel()
	done, err := s.endSessions(ctx, clients)
	if err != nil {
		fail(w, http.StatusInternalServerError, fmt.Errorf("after %d of %d sessions: %w", done.Ended, len(clients), err))
		return
	}
	reply(w, http.StatusOK, done)
}

func (s *server) logoutOne(w http.ResponseWriter, addr netip.Addr) {
	n, err := s.networkOf(addr)
	if err != nil {
		fail(w, http.StatusNotFound, err)
		return
	}
	switch client, ok := n.Table.Get(addr); {
	case !ok:
		fail(w, http.StatusNotFound, fmt.Errorf("no client has %s", addr))
		return
	case client.State != session.Authenticated:
		fail(w, http.StatusNotFound, fmt.Errorf("%s is not logged in: it is %s", addr, client.State))
		return
	}
	var done LogoutReply
	if _, err := n.Table.End(addr, session.AdminReset); !done.add(err) {
		fail(w, http.StatusInternalServerError, err)
		return
	}
	reply(w, http.StatusOK, done)
}

// holder is an address with a session.
type holder struct {
	table Sessions
	addr  netip.Addr
}

// authenticated lists the addresses with a session of a user; with "" those with any session.
func (s *server) authenticated(user string) []holder {
	filter := Filter{User: user, State: session.Authenticated}
	var all []holder
	for _, n := range s.Networks() {
		n.Table.Each(func(client session.Session) bool {
			if filter.match(client) {
				all = append(all, holder{n.Table, client.Addr})
			}
			return true
		})
	}
	return all
}

// add counts a session by the error of Sessions.End, and reports whether the session has ended.
func (r *LogoutReply) add(err error) bool {
	if err != nil && !errors.Is(err, session.ErrLater) {
		return false
	}
	r.Ended++
	if err != nil {
		r.Later++
	}
	return true
}

// endSessions ends sessions, several at once, and returns their number and the first failure. It stops when ctx ends:
// the caller has disconnected, or the time is over.
func (s *server) endSessions(ctx context.Context, all []holder) (reply LogoutReply, err error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	work := make(chan holder)
	var mu sync.Mutex // guards done
	var workers sync.WaitGroup
	for range min(logoutWorkers, len(all)) {
		workers.Go(func() {
			for h := range work {
				_, err := h.table.End(h.addr, session.AdminReset)
				mu.Lock()
				ended := reply.add(err)
				mu.Unlock()
				if !ended {
					// A session that has ended meanwhile is no failure.
					if client, ok := h.table.Get(h.addr); ok && client.State == session.Authenticated {
						stop(err)
					}
				}
			}
		})
	}
	for _, h := range all {
		select {
		case work <- h:
		case <-ctx.Done():
		}
	}
	close(work)
	workers.Wait()
	return reply, context.Cause(ctx)
}

// granted converts limits to the table's form.
func (l Limits) granted() session.Limits {
	return session.Limits{
		SessionTimeout: seconds(l.SessionTimeoutSeconds), IdleTimeout: seconds(l.IdleTimeoutSeconds),
		UpBytes: l.UpBytes, DownBytes: l.DownBytes, TotalBytes: l.TotalBytes, UpBps: l.UpBps, DownBps: l.DownBps,
	}
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// maxLimitSeconds is ten years: a longer limit is a typing mistake.
const maxLimitSeconds = 10 * 365 * 24 * 3600

// check refuses times that overflow a duration or are implausible.
func (l Limits) check() error {
	for _, s := range []float64{l.SessionTimeoutSeconds, l.IdleTimeoutSeconds} {
		if !(s >= 0 && s <= maxLimitSeconds) {
			return errors.New("time-outs must be seconds from 0 to ten years")
		}
	}
	return nil
}
