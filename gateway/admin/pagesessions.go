package admin

import (
	"math"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gateweigh/gateweigh/gateway/control"
)

// sessionsBody is what the list of sessions shows.
type sessionsBody struct {
	control.PageRequest
	Rows     []control.Session
	States   []stateCount
	Networks []string // names; none: there is one network
	Total    int
	Next     string // the query of the next page; empty: there is none
	Looked   int    // clients that were looked at; 0: it does not matter
	Online   bool   // some row is of a session, which may be ended
}

type stateCount struct {
	State control.State
	Count int
}

func (p *paged) sessions(w http.ResponseWriter, r *http.Request, who *person) {
	req, err := pageRequest(r)
	var page control.SessionPage
	if err == nil {
		page, err = p.cfg.Answers.Page(req)
	}
	if err != nil {
		p.failed(w, r, who, err)
		return
	}
	body := sessionsBody{PageRequest: req, Rows: page.Sessions}
	counts, names := p.cfg.Answers.Counts()
	for _, state := range slices.Backward(control.States) {
		body.States = append(body.States, stateCount{state, counts[state]})
		body.Total += counts[state]
	}
	body.Online = slices.ContainsFunc(page.Sessions,
		func(s control.Session) bool { return s.State == "authenticated" })
	body.Networks = names
	if page.Next != "" {
		q := r.URL.Query()
		q.Set("cursor", page.Next)
		body.Next = "?" + q.Encode()
		if len(page.Sessions) < req.Most {
			body.Looked = page.Visited
		}
	}
	p.show(w, http.StatusOK, "sessions", &view{Title: "Sessions", Path: "/sessions", Person: who, Body: body})
}

// sessionBody is what the page of a client shows.
type sessionBody struct {
	control.Session
	Online bool
	Limit  []limitField
}

// limitField is a limit in the form that changes it.
type limitField struct{ Name, Label, Hint, Value string }

// limitFields are the limits of a session that can be changed: time and data of a voucher's session are the voucher's.
func limitFields(s control.Session) []limitField {
	l := s.Limits
	number := func(n uint64, per float64) string {
		if n == 0 {
			return ""
		}
		return strconv.FormatFloat(float64(n)/per, 'f', -1, 64)
	}
	own := []limitField{
		{"minutes", "Session time", "minutes from its start", number(uint64(l.SessionTimeoutSeconds), 60)},
		{"total", "Data, both directions", "MB", number(l.TotalBytes, 1e6)},
		{"up", "Data up", "MB", number(l.UpBytes, 1e6)},
		{"down", "Data down", "MB", number(l.DownBytes, 1e6)},
	}
	if s.OfVoucher() {
		own = nil
	}
	return append(own, []limitField{
		{"idle", "Idle time", "minutes", number(uint64(l.IdleTimeoutSeconds), 60)},
		{"uprate", "Rate up", "Mbit/s", number(l.UpBps, 1e6)},
		{"downrate", "Rate down", "Mbit/s", number(l.DownBps, 1e6)},
		{"connections", "Connections", "at once", number(uint64(l.Connections), 1)},
	}...)
}

func (p *paged) session(w http.ResponseWriter, r *http.Request, who *person) {
	addr, err := addressOf(r)
	var found control.Session
	if err == nil {
		found, err = p.cfg.Answers.Find(addr)
	}
	if err != nil {
		p.failed(w, r, who, err)
		return
	}
	body := sessionBody{Session: found, Online: found.State == "authenticated", Limit: limitFields(found)}
	notes := map[string]string{"ended": "The session has ended. The client gets the login page.",
		"changed": "The limits have been changed."}
	p.show(w, http.StatusOK, "session", &view{Title: addr.String(), Path: "/sessions", Person: who, Body: body,
		Note: notes[r.URL.Query().Get("done")]})
}

func (p *paged) endSession(w http.ResponseWriter, r *http.Request, who *person) {
	addr, err := addressOf(r)
	if err == nil {
		_, err = p.end(r.Context(), *who, control.LogoutRequest{Addr: addr, ID: r.PostForm.Get("id")})
	}
	p.backTo(w, r, who, addr, "ended", err)
}

// backTo leads to the page of a client after a change.
func (p *paged) backTo(w http.ResponseWriter, r *http.Request, who *person, addr netip.Addr, done string, err error) {
	if err != nil {
		p.failed(w, r, who, err)
		return
	}
	http.Redirect(w, r, "/sessions/"+url.PathEscape(addr.String())+"?done="+done, http.StatusSeeOther)
}

func (p *paged) changeSession(w http.ResponseWriter, r *http.Request, who *person) {
	addr, err := addressOf(r)
	var req control.ChangeRequest
	if err == nil {
		req, err = changeOf(r.PostForm)
	}
	if err == nil {
		req.Addr, req.ID = addr, r.PostForm.Get("id")
		_, err = p.alter(*who, req)
	}
	p.backTo(w, r, who, addr, "changed", err)
}

// changeOf reads the form of a change: more time or data, or with "limits" the limits that are not as the page has
// shown them ("was-" and the limit's name): what somebody else has changed meanwhile stays. An empty one is none.
func changeOf(f url.Values) (req control.ChangeRequest, err error) {
	number := func(name string, scale float64) float64 {
		text := strings.Replace(strings.TrimSpace(f.Get(name)), ",", ".", 1)
		if text == "" {
			return 0
		}
		n, bad := strconv.ParseFloat(text, 64)
		if (bad != nil || !(n >= 0 && n*scale <= 1<<60)) && err == nil {
			err = refuse(http.StatusBadRequest, "%q is no number for %s", text, name)
			return 0
		}
		return math.Round(n * scale)
	}
	if f.Get("what") != "limits" {
		req.AddSeconds, req.AddBytes = number("addminutes", 60), uint64(number("addmegabytes", 1e6))
		return req, err
	}
	changed := func(name string) bool {
		return f.Has(name) && strings.TrimSpace(f.Get(name)) != f.Get("was-"+name)
	}
	for _, t := range []struct {
		name   string
		target **float64
	}{{"minutes", &req.SessionTimeoutSeconds}, {"idle", &req.IdleTimeoutSeconds}} {
		if changed(t.name) {
			n := number(t.name, 60)
			*t.target = &n
		}
	}
	for _, t := range []struct {
		name   string
		target **uint64
	}{{"total", &req.TotalBytes}, {"up", &req.UpBytes}, {"down", &req.DownBytes}, {"uprate", &req.UpBps},
		{"downrate", &req.DownBps}} {
		if changed(t.name) {
			n := uint64(number(t.name, 1e6))
			*t.target = &n
		}
	}
	if changed("connections") {
		n := uint32(min(number("connections", 1), math.MaxUint32))
		req.Connections = &n
	}
	return req, err
}

// Duration is how long the session has run.
func (b sessionBody) Duration() time.Duration { return time.Since(b.Began) }
