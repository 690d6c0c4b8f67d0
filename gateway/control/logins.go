package control

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gateweigh/gateweigh/gateway/session"
)

const (
	loginWorkers  = 64              // logins at the same time: they share a write to the disk
	loginsTimeout = 5 * time.Minute // for all logins of a list
)

func (s *server) login(w http.ResponseWriter, r *http.Request) {
	req, err := readLogin(http.MaxBytesReader(w, r.Body, maxBodyBytes))
	if err != nil {
		fail(w, http.StatusBadRequest, err)
		return
	}
	n, err := s.networkOf(req.Addr)
	if err != nil {
		fail(w, http.StatusNotFound, err)
		return
	}
	client, code, err := n.admit(req)
	if err != nil {
		fail(w, code, err)
		return
	}
	reply(w, http.StatusOK, asShown(client, n.Name))
}

// admitAny carries out one request of any network.
func (s *server) admitAny(req LoginRequest) error {
	n, err := s.networkOf(req.Addr)
	if err == nil {
		_, _, err = n.admit(req)
	}
	return err
}

// admit carries out one request. code is the HTTP status of a failure.
func (n Network) admit(req LoginRequest) (session.Session, int, error) {
	if req.Limits.Connections > 0 && !n.Counting {
		return session.Session{}, http.StatusConflict, errNotCounted
	}
	if req.MAC != "" {
		if code, err := n.giveAddress(req); err != nil {
			return session.Session{}, code, err
		}
	} else if _, ok := n.Table.Get(req.Addr); !ok {
		return session.Session{}, http.StatusNotFound, unknownClient(req.Addr)
	}
	client, err := n.Table.Admit(req.Addr, session.Login{User: req.User, Limits: req.Limits.granted(), Shared: true})
	if err != nil && req.MAC != "" {
		err = errors.Join(err, n.removeUnleased(req.Addr))
	}
	return client, http.StatusInternalServerError, err
}

// removeUnleased removes the client of an address if it has neither a session nor a lease.
func (n Network) removeUnleased(addr netip.Addr) error {
	client, ok := n.Table.Get(addr)
	if !ok || client.State == session.Authenticated || !client.LeaseEnd.IsZero() {
		return nil
	}
	_, err := n.Table.ForgetStranger(client.Key)
	return err
}

// giveAddress gives a client that needs no lease its address, unless another client has the address.
func (n Network) giveAddress(req LoginRequest) (code int, err error) {
	mac, err := parseMAC(req.MAC)
	if err != nil { // cannot happen: LoginRequest.Check has parsed it
		return http.StatusBadRequest, err
	}
	switch client, ok := n.Table.Get(req.Addr); {
	case ok && client.MAC == mac:
		return 0, nil
	case ok:
		return http.StatusConflict, fmt.Errorf("%s has %s: it must leave first", net.HardwareAddr(client.MAC[:]), req.Addr)
	}
	return http.StatusInternalServerError, n.Table.Lease(session.Key{MAC: mac, Addr: req.Addr}, "", time.Time{})
}

// parseMAC reads an Ethernet address.
func parseMAC(text string) (mac [6]byte, err error) {
	a, err := net.ParseMAC(text)
	if err != nil || len(a) != len(mac) || a[0]&1 != 0 {
		return mac, fmt.Errorf("mac must be a client's Ethernet address such as 02:00:5e:10:00:01, not %q", text)
	}
	return [6]byte(a), nil
}

func unknownClient(a netip.Addr) error {
	return fmt.Errorf("no client has %s: it needs a lease first", a)
}

// logins carries out a list of requests, one JSON object a line, several at once. It ends with the first failure;
// requests before it, and possibly some after it, stay in effect.
func (s *server) logins(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), loginsTimeout)
	defer cancel()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	work := make(chan LoginRequest)
	var admitted atomic.Int64
	var workers sync.WaitGroup
	for range loginWorkers {
		workers.Go(func() {
			for req := range work {
				if ctx.Err() != nil {
					continue
				}
				if err := s.admitAny(req); err != nil {
					stop(err)
					continue
				}
				admitted.Add(1)
			}
		})
	}
	deadline := http.NewResponseController(w)
	lines := bufio.NewScanner(r.Body)
	lines.Buffer(nil, maxBodyBytes)
	wait := func() { deadline.SetReadDeadline(time.Now().Add(s.stallAfter)) }
	// Read the whole list also after a failure: a client reads the answer only after it has written its request.
	wait()
	for n := 1; lines.Scan(); n++ {
		wait()
		if ctx.Err() != nil {
			continue
		}
		req, err := readLogin(bytes.NewReader(lines.Bytes()))
		if err != nil {
			stop(fmt.Errorf("line %d: %w", n, err))
			continue
		}
		work <- req
	}
	close(work)
	workers.Wait()
	if err := errors.Join(context.Cause(ctx), lines.Err()); err != nil {
		fail(w, http.StatusBadRequest, fmt.Errorf("after logging %d in: %w", admitted.Load(), err))
		return
	}
	reply(w, http.StatusOK, LoginsReply{int(admitted.Load())})
}
