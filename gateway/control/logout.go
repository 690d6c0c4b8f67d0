package control

import (
	"context"
	"errors"
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
	done, err := s.Logout(r.Context(), req)
	if err != nil {
		fail(w, statusOf(err), err)
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
func (s Answers) authenticated(user string) []holder {
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
func (s Answers) endSessions(ctx context.Context, all []holder) (reply LogoutReply, err error) {
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
		Connections: l.Connections,
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
