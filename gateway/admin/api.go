package admin

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/gateweigh/gateweigh/gateway/control"
	"github.com/gateweigh/gateweigh/gateway/session"
	"github.com/gateweigh/gateweigh/gateway/voucher"
)

// openAPI is the description of the API in JSON, made of docs/reference/admin-api.yaml.
//
//go:embed openapi.json web
var files embed.FS

// OpenAPIPath is where the API's description is, for everybody.
const OpenAPIPath = "/api/openapi.json"

// endpoint is an operation of the API. serve returns the HTTP status and the value of the answer.
type endpoint struct {
	method, path string
	serve        func(*Server, *http.Request, person) (status int, body any, err error)
}

// endpoints are all operations, as openapi.json has them.
var endpoints = []endpoint{
	{"GET", "/api/v1/account", (*Server).apiAccount},
	{"GET", "/api/v1/sessions", (*Server).apiSessions},
	{"GET", "/api/v1/sessions/{address}", (*Server).apiSession},
	{"PATCH", "/api/v1/sessions/{address}", (*Server).apiChange},
	{"DELETE", "/api/v1/sessions/{address}", (*Server).apiEnd},
	{"GET", "/api/v1/vouchers", (*Server).apiVouchers},
	{"POST", "/api/v1/vouchers", (*Server).apiNewVouchers},
	{"POST", "/api/v1/vouchers/revoke", (*Server).apiRevoke},
	{"GET", "/api/v1/networks", (*Server).apiNetworks},
	{"GET", "/api/v1/usage", (*Server).apiUsage},
	{"GET", "/api/v1/whois", (*Server).apiWhois},
	{"GET", "/api/v1/audit", (*Server).apiAudit},
	{"GET", "/api/v1/health", (*Server).apiHealth},
}

// pageLimits are how many entries a page of a list has unless the request says, and at most.
const usualPage, longestPage = 50, 500

// api returns the handler of an operation.
func (s *Server) api(e endpoint) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		p, err := s.atAPI(r)
		if err != nil {
			s.problem(w, r, err)
			return
		}
		status, body, err := e.serve(s, r, *p)
		if err != nil {
			s.problem(w, r, err)
			return
		}
		writeJSON(w, status, "application/json", body)
	}
}

func writeJSON(w http.ResponseWriter, status int, kind string, body any) {
	text, err := json.Marshal(body)
	if err != nil {
		http.Error(w, http.StatusText(http.StatusInternalServerError), http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Type", kind)
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Length", strconv.Itoa(len(text)+1))
	w.WriteHeader(status)
	w.Write(append(text, '\n'))
}

// Problem is an error (RFC 9457).
type Problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`
}

// problem answers with an error.
func (s *Server) problem(w http.ResponseWriter, r *http.Request, err error) {
	status := statusOf(err)
	var wait errWait
	switch {
	case status == http.StatusUnauthorized:
		w.Header().Add("WWW-Authenticate", `Basic realm="gatewayd", charset="UTF-8"`)
		w.Header().Add("WWW-Authenticate", `Bearer realm="gatewayd"`)
	case errors.As(err, &wait):
		w.Header().Set("Retry-After", strconv.Itoa(int(wait.wait.Seconds())+1))
	case status >= http.StatusInternalServerError:
		s.log.Log(r.Context(), slog.LevelWarn, "admin: a request failed", "path", r.URL.Path, "err", err)
	}
	writeJSON(w, status, "application/problem+json",
		Problem{"about:blank", http.StatusText(status), status, err.Error()})
}

// statusOf is the HTTP status of an error.
func statusOf(err error) int {
	var refusal *control.Refusal
	var wait errWait
	switch {
	case errors.As(err, &refusal):
		return refusal.Status
	case errors.As(err, &wait):
		return http.StatusTooManyRequests
	case errors.Is(err, errWrong):
		return http.StatusUnauthorized
	case errors.Is(err, session.ErrBusy), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}

// readJSON reads a request's body: one value with known fields, said to be JSON, which other sites' forms cannot say.
func readJSON(r *http.Request, target any) error {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return refuse(http.StatusUnsupportedMediaType, "the body must be application/json")
	}
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	err := d.Decode(target)
	if err == nil {
		if _, more := d.Token(); more != io.EOF {
			err = errors.New("there is more than one value")
		}
	}
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return refuse(http.StatusRequestEntityTooLarge, "the body is larger than %d bytes", large.Limit)
	case err != nil:
		return refuse(http.StatusBadRequest, "reading the body: %w", err)
	}
	return nil
}

// pageSize reads the parameter limit.
func pageSize(r *http.Request) (int, error) {
	text := r.URL.Query().Get("limit")
	if text == "" {
		return usualPage, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > longestPage {
		return 0, refuse(http.StatusBadRequest, "limit must be a number from 1 to %d", longestPage)
	}
	return n, nil
}

// listOf is a page of a list.
type listOf[T any] struct {
	Items []T    `json:"items"`
	Next  string `json:"next,omitempty"` // the cursor of the next page
}

func newList[T any](items []T, next string) listOf[T] {
	if items == nil {
		items = []T{}
	}
	return listOf[T]{items, next}
}

func addressOf(r *http.Request) (netip.Addr, error) {
	addr, err := netip.ParseAddr(r.PathValue("address"))
	if err != nil || addr.Zone() != "" {
		return addr, refuse(http.StatusBadRequest, "%q is no address", r.PathValue("address"))
	}
	return addr.Unmap(), nil
}

type account struct {
	Name  string `json:"name"`
	Role  string `json:"role"`
	Whois bool   `json:"whois"`
}

func (s *Server) apiAccount(_ *http.Request, p person) (int, any, error) {
	return http.StatusOK, account{p.Name, string(p.Role), p.Whois}, nil
}

// pageRequest reads what a list of sessions is chosen by.
func pageRequest(r *http.Request) (req control.PageRequest, err error) {
	q := r.URL.Query()
	req = control.PageRequest{Search: strings.TrimSpace(q.Get("q")), Cursor: q.Get("cursor"),
		Filter: control.Filter{User: q.Get("user"), State: control.State(q.Get("state")), Network: q.Get("network")}}
	req.Most, err = pageSize(r)
	return req, err
}

func (s *Server) apiSessions(r *http.Request, _ person) (int, any, error) {
	req, err := pageRequest(r)
	if err != nil {
		return 0, nil, err
	}
	page, err := s.cfg.Answers.Page(req)
	return http.StatusOK, newList(page.Sessions, page.Next), err
}

func (s *Server) apiSession(r *http.Request, _ person) (int, any, error) {
	addr, err := addressOf(r)
	if err != nil {
		return 0, nil, err
	}
	found, err := s.cfg.Answers.Find(addr)
	return http.StatusOK, found, err
}

func (s *Server) apiChange(r *http.Request, p person) (int, any, error) {
	addr, err := addressOf(r)
	var req control.ChangeRequest
	if err == nil {
		err = readJSON(r, &req)
	}
	if err == nil && req.Addr.IsValid() {
		err = refuse(http.StatusBadRequest, "the address is that of the path")
	}
	if err != nil {
		return 0, nil, err
	}
	req.Addr = addr
	changed, err := s.alter(p, req)
	return http.StatusOK, changed, err
}

func (s *Server) apiEnd(r *http.Request, p person) (int, any, error) {
	addr, err := addressOf(r)
	if err != nil {
		return 0, nil, err
	}
	done, err := s.end(r.Context(), p, control.LogoutRequest{Addr: addr, ID: r.URL.Query().Get("id")})
	return http.StatusOK, done, err
}

func (s *Server) apiVouchers(r *http.Request, p person) (int, any, error) {
	most, err := pageSize(r)
	if err != nil {
		return 0, nil, err
	}
	page, next, err := s.vouchers(p, r.URL.Query().Get("name"), r.URL.Query().Get("cursor"), most)
	return http.StatusOK, newList(page, next), err
}

func (s *Server) apiNewVouchers(r *http.Request, p person) (int, any, error) {
	var req control.VouchersRequest
	if err := readJSON(r, &req); err != nil {
		return 0, nil, err
	}
	all, err := s.newVouchers(p, req)
	return http.StatusCreated, newList[voucher.Voucher](all, ""), err
}

func (s *Server) apiRevoke(r *http.Request, p person) (int, any, error) {
	var req control.RevokeRequest
	err := readJSON(r, &req)
	if err == nil && req.Name == "" {
		err = refuse(http.StatusBadRequest, "name: the batch or voucher to revoke is missing")
	}
	if err != nil {
		return 0, nil, err
	}
	done, err := s.revoke(r.Context(), p, req.Name)
	return http.StatusOK, done, err
}

// networkSummary is a network and how it is.
type networkSummary struct {
	Name      string                `json:"name"`
	LAN       string                `json:"lan"`
	Datapath  string                `json:"datapath"`
	Why       string                `json:"why,omitempty"`
	NAT       string                `json:"nat,omitempty"`
	Addresses int                   `json:"addresses"`
	Leases    int                   `json:"leases"`
	Sessions  map[control.State]int `json:"sessions"`
	Traffic   control.Traffic       `json:"traffic"`
}

// Online and AtLogin are the clients with a session, and those that have been shown the login page.
func (n networkSummary) Online() int  { return n.Sessions["authenticated"] }
func (n networkSummary) AtLogin() int { return n.Sessions["preauth"] }

// networks lists the networks.
func (s *Server) networks() (all []networkSummary) {
	st := s.cfg.Answers.Status()
	list := st.Networks
	if len(list) == 0 {
		list = []control.Status{st}
	}
	for _, n := range list {
		all = append(all, networkSummary{n.Network, n.LAN, n.Datapath, n.Why, n.NAT, n.Addresses, n.Leases, n.Sessions,
			n.Traffic})
	}
	return all
}

func (s *Server) apiNetworks(*http.Request, person) (int, any, error) {
	return http.StatusOK, newList(s.networks(), ""), nil
}

type usageAnswer struct {
	Hours []Slot `json:"hours"`
	Days  []Slot `json:"days"`
}

func (s *Server) apiUsage(r *http.Request, _ person) (int, any, error) {
	name := r.URL.Query().Get("network")
	hours, days := s.usage.of(name, name == "")
	return http.StatusOK, usageAnswer{append([]Slot{}, hours...), append([]Slot{}, days...)}, nil
}

// whoisRequest reads an address and port, and a time.
func whoisRequest(r *http.Request) (endpoint netip.AddrPort, at time.Time, err error) {
	q := r.URL.Query()
	endpoint, err = netip.ParseAddrPort(strings.TrimSpace(q.Get("endpoint")))
	if err != nil || endpoint.Addr().Zone() != "" {
		return endpoint, at, refuse(http.StatusBadRequest,
			"%q is no address with a port, such as 203.0.113.5:40321 or [2001:db8::5]:40321", q.Get("endpoint"))
	}
	endpoint = netip.AddrPortFrom(endpoint.Addr().Unmap(), endpoint.Port())
	if text := strings.TrimSpace(q.Get("at")); text != "" {
		if at, err = time.Parse(time.RFC3339, strings.Replace(text, " ", "T", 1)); err != nil {
			return endpoint, at, refuse(http.StatusBadRequest,
				"%q is no time with a time zone such as 2026-03-01T14:05:06Z", text)
		}
		return endpoint, at, nil
	}
	return endpoint, time.Now().Truncate(time.Second), nil
}

func (s *Server) apiWhois(r *http.Request, p person) (int, any, error) {
	if err := s.mayWhois(r, p); err != nil {
		return 0, nil, err
	}
	endpoint, at, err := whoisRequest(r)
	if err != nil {
		return 0, nil, err
	}
	answer, err := s.whois(r.Context(), p, endpoint, at)
	answer.Flows = append([]Owner{}, answer.Flows...)
	return http.StatusOK, answer, err
}

// auditPage returns a page of the audit log, by a cursor.
func (s *Server) auditPage(cursor string, most int) (page []Entry, next string, damaged int, err error) {
	before := uint64(0)
	if cursor != "" {
		if before, err = strconv.ParseUint(cursor, 10, 64); err != nil || before == 0 {
			return nil, "", 0, refuse(http.StatusBadRequest, "the cursor is none of this list")
		}
	}
	page, id, damaged, err := s.audit.page(before, most)
	if id > 0 {
		next = strconv.FormatUint(id, 10)
	}
	return page, next, damaged, err
}

func (s *Server) apiAudit(r *http.Request, _ person) (int, any, error) {
	most, err := pageSize(r)
	if err != nil {
		return 0, nil, err
	}
	page, next, _, err := s.auditPage(r.URL.Query().Get("cursor"), most)
	return http.StatusOK, newList(page, next), err
}

func (s *Server) apiHealth(*http.Request, person) (int, any, error) {
	return http.StatusOK, s.health(), nil
}
