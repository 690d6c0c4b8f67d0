package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/gateweigh/gateweigh/gateway/voucher"
)

// Vouchers are a daemon's vouchers. Its methods may be called from several goroutines.
type Vouchers interface {
	Create(batch string, count int, terms voucher.Terms) ([]voucher.Voucher, error)
	// Each yields the vouchers that a name means, "lobby" or "lobby-17", and with "" all. yield may take seconds with a
	// slow reader and must not block other callers.
	Each(name string, yield func(voucher.Voucher) bool) error
	// Revoke revokes the vouchers that a name means, and ends their sessions.
	Revoke(ctx context.Context, name string) (voucher.Revocation, error)
}

// VoucherBook is a daemon's own vouchers.
type VoucherBook interface {
	Vouchers
	// Page is Each for up to most vouchers after the one of a name. next is the name to go on after; "": there are no
	// more.
	Page(name, after string, most int) (page []voucher.Voucher, next string, err error)
}

// VouchersRequest asks for a batch of vouchers.
type VouchersRequest struct {
	Batch string        `json:"batch,omitempty"` // empty: the first number that is free
	Count int           `json:"count"`
	Terms voucher.Terms `json:"terms"`
}

// RevokeRequest revokes a batch, "lobby", or a voucher, "lobby-17".
type RevokeRequest struct {
	Name string `json:"name"`
}

// RevokeReply is what the revocation did.
type RevokeReply = voucher.Revocation

// ErrNoVouchers means that the daemon serves no vouchers.
var ErrNoVouchers = errors.New(
	`the running gatewayd has no vouchers: add "voucher" to auth.methods and restart it`)

// served reports whether there are vouchers, or answers that there are none.
func (s *server) served(w http.ResponseWriter) bool {
	if s.Vouchers == nil {
		fail(w, http.StatusNotImplemented, ErrNoVouchers)
	}
	return s.Vouchers != nil
}

func (s *server) listVouchers(w http.ResponseWriter, r *http.Request) {
	if !s.served(w) {
		return
	}
	send := s.voucherLines(w, r)
	var broken error
	err := s.Vouchers.Each(r.URL.Query().Get("name"), func(v voucher.Voucher) bool {
		broken = send(v)
		return broken == nil
	})
	endLines(w, errors.Join(err, broken))
}

func (s *server) createVouchers(w http.ResponseWriter, r *http.Request) {
	var req VouchersRequest
	if !s.served(w) {
		return
	}
	if err := readRequest(http.MaxBytesReader(w, r.Body, maxBodyBytes), &req); err != nil {
		fail(w, http.StatusBadRequest, err)
		return
	}
	all, err := s.NewVouchers(req)
	if err != nil {
		fail(w, statusOf(err), err)
		return
	}
	send := s.voucherLines(w, r)
	for i := 0; i < len(all) && err == nil; i++ {
		err = send(all[i])
	}
	endLines(w, err)
}

// voucherLines returns a function that sends a voucher as a line, within listTimeout for all of them.
func (s *server) voucherLines(w http.ResponseWriter, r *http.Request) func(voucher.Voucher) error {
	encoder, deadline := json.NewEncoder(w), http.NewResponseController(w)
	end, begun := time.Now().Add(listTimeout), false
	return func(v voucher.Voucher) error {
		if !begun {
			begun = true
			w.Header().Set("Content-Type", "application/x-ndjson")
		}
		if err := r.Context().Err(); err != nil {
			return err
		}
		deadline.SetWriteDeadline(earlier(time.Now().Add(s.stallAfter), end))
		return encoder.Encode(v)
	}
}

// endLines ends a list. With an error it answers that, or closes the connection where lines have been sent.
func endLines(w http.ResponseWriter, err error) {
	switch {
	case err == nil:
	case w.Header().Get("Content-Type") != "":
		panic(http.ErrAbortHandler)
	case errors.Is(err, voucher.ErrUnknown):
		fail(w, http.StatusNotFound, err)
	default:
		fail(w, http.StatusInternalServerError, err)
	}
}

func (s *server) revokeVouchers(w http.ResponseWriter, r *http.Request) {
	var req RevokeRequest
	if !s.served(w) {
		return
	}
	if err := readRequest(http.MaxBytesReader(w, r.Body, maxBodyBytes), &req); err != nil {
		fail(w, http.StatusBadRequest, err)
		return
	}
	done, err := s.RevokeVouchers(r.Context(), req.Name)
	if err != nil {
		fail(w, statusOf(err), err)
		return
	}
	reply(w, http.StatusOK, done)
}

// Vouchers calls yield with each voucher that a name means, with "" with all. It returns an error if the list is
// incomplete, or yield's first error.
func (c *Client) Vouchers(ctx context.Context, name string, yield func(voucher.Voucher) error) error {
	return c.voucherList(ctx, http.MethodGet, "/v1/vouchers?name="+url.QueryEscape(name), nil, yield)
}

// CreateVouchers creates a batch, and calls yield with each of its vouchers.
func (c *Client) CreateVouchers(ctx context.Context, req VouchersRequest, yield func(voucher.Voucher) error) error {
	return c.voucherList(ctx, http.MethodPost, "/v1/vouchers", req, yield)
}

// ErrUncertain means that gatewayd was asked and did not answer to the end: it may have done what it was asked for.
var ErrUncertain = errors.New("gatewayd's answer is incomplete")

func (c *Client) voucherList(ctx context.Context, method, path string, req any,
	yield func(voucher.Voucher) error) error {
	ctx, cancel := context.WithTimeout(ctx, listTimeout+answerTimeout)
	defer cancel()
	body, err := c.open(ctx, method, path, req)
	if err != nil {
		return err
	}
	defer body.Close()
	decoder := json.NewDecoder(body)
	for {
		var v voucher.Voucher
		switch err := decoder.Decode(&v); {
		case err == io.EOF:
			return nil
		case err != nil:
			return fmt.Errorf("the list of vouchers broke off: %w: %w", ErrUncertain, err)
		}
		if err := yield(v); err != nil {
			return err
		}
	}
}

// RevokeVouchers revokes the vouchers that a name means, and ends their sessions.
func (c *Client) RevokeVouchers(ctx context.Context, name string) (r RevokeReply, err error) {
	err = c.call(ctx, logoutTimeout+answerTimeout, http.MethodPost, "/v1/vouchers/revoke", RevokeRequest{name}, &r)
	return r, err
}
