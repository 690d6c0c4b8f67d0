package admin

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/gateweigh/gateweigh/gateway/control"
	"github.com/gateweigh/gateweigh/gateway/voucher"
)

// vouchersBody is what the page of vouchers shows.
type vouchersBody struct {
	Name string // that the list is of; empty: all
	Rows []voucher.Voucher
	Next string // the query of the next page
	Made string // a batch that was made
	None bool   // there are no vouchers at this gateway
}

func (p *paged) vouchers(w http.ResponseWriter, r *http.Request, who *person) {
	q := r.URL.Query()
	body := vouchersBody{Name: strings.TrimSpace(q.Get("name")), None: p.cfg.Answers.Vouchers == nil}
	v := &view{Title: "Vouchers", Path: "/vouchers", Person: who}
	if !body.None {
		page, next, err := p.Server.vouchers(*who, body.Name, q.Get("cursor"), usualPage)
		if err != nil {
			p.failed(w, r, who, err)
			return
		}
		if body.Rows = page; next != "" {
			q.Set("cursor", next)
			body.Next = "?" + q.Encode()
		}
	}
	if q.Get("done") == "made" {
		v.Note = "The batch has been made."
	} else if q.Get("done") == "revoked" {
		v.Note = "The vouchers have been revoked, and their sessions ended."
	}
	v.Body = body
	p.show(w, http.StatusOK, "vouchers", v)
}

func (p *paged) createVouchers(w http.ResponseWriter, r *http.Request, who *person) {
	f := r.PostForm
	var bad error
	number := func(name string, scale float64) float64 {
		text := strings.Replace(strings.TrimSpace(f.Get(name)), ",", ".", 1)
		if text == "" {
			return 0
		}
		n, err := strconv.ParseFloat(text, 64)
		if err != nil || !(n >= 0 && n*scale < 1<<60) {
			bad = refuse(http.StatusBadRequest, "%q is no number for %s", text, name)
			return 0
		}
		return n * scale
	}
	req := control.VouchersRequest{Batch: strings.TrimSpace(f.Get("batch")), Count: int(number("count", 1)),
		Terms: voucher.Terms{ForSeconds: int64(number("hours", 3600)), OnlineSeconds: int64(number("online", 3600)),
			Bytes: uint64(number("megabytes", 1e6)), Devices: max(1, int(number("devices", 1))),
			UpBps: uint64(number("uprate", 1e6)), DownBps: uint64(number("downrate", 1e6)),
			Connections: uint32(min(number("connections", 1), math.MaxUint32)),
			Note:        strings.TrimSpace(f.Get("note"))}}
	var all []voucher.Voucher
	if bad == nil {
		all, bad = p.newVouchers(*who, req)
	}
	if bad != nil {
		p.failed(w, r, who, bad)
		return
	}
	http.Redirect(w, r, "/vouchers?done=made&name="+all[0].Batch, http.StatusSeeOther)
}

func (p *paged) revokeVouchers(w http.ResponseWriter, r *http.Request, who *person) {
	name := strings.TrimSpace(r.PostForm.Get("name"))
	var err error
	if name == "" {
		err = refuse(http.StatusBadRequest, "which batch or voucher? its name is missing")
	} else {
		_, err = p.revoke(r.Context(), *who, name)
	}
	if err != nil {
		p.failed(w, r, who, err)
		return
	}
	http.Redirect(w, r, "/vouchers?done=revoked&name="+name, http.StatusSeeOther)
}

func (p *paged) exportVouchers(w http.ResponseWriter, r *http.Request, who *person) {
	all, err := p.export(*who, strings.TrimSpace(r.PostForm.Get("name")))
	if err != nil {
		p.failed(w, r, who, err)
		return
	}
	w.Header().Set("Content-Type", "text/csv; charset=utf-8")
	w.Header().Set("Content-Disposition", `attachment; filename="vouchers.csv"`)
	_ = voucher.WriteCSV(w, all) // the browser has gone
}

func (p *paged) networks(w http.ResponseWriter, _ *http.Request, who *person) {
	p.show(w, http.StatusOK, "networks", &view{Title: "Networks", Path: "/networks", Person: who,
		Body: p.Server.networks()})
}

// usageBody is what the page of usage shows.
type usageBody struct {
	Network  string
	Networks []string
	Hours    chart
	Days     chart
}

func (p *paged) usage(w http.ResponseWriter, r *http.Request, who *person) {
	name := r.URL.Query().Get("network")
	hours, days := p.Server.usage.of(name, name == "")
	body := usageBody{Network: name, Hours: hourChart(hours, time.Now()), Days: dayChart(days, time.Now())}
	for _, n := range p.cfg.Answers.Status().Networks {
		body.Networks = append(body.Networks, n.Network)
	}
	p.show(w, http.StatusOK, "usage", &view{Title: "Usage", Path: "/usage", Person: who, Body: body})
}

// whoisBody is what the page of who used an address shows.
type whoisBody struct {
	Endpoint, At string
	Asked        bool
	Answer       whoisAnswer
	Now          []control.Session // the client that has the address now
}

func (p *paged) whois(w http.ResponseWriter, r *http.Request, who *person) {
	q := r.URL.Query()
	body := whoisBody{Endpoint: strings.TrimSpace(q.Get("endpoint")), At: strings.TrimSpace(q.Get("at"))}
	v := &view{Title: "Who used an address", Path: "/whois", Person: who}
	status := http.StatusOK
	if err := p.mayWhois(r, *who); err != nil {
		p.failed(w, r, who, err)
		return
	}
	if body.Endpoint != "" {
		endpoint, at, err := whoisRequest(r)
		if err == nil {
			body.Asked = true
			body.Answer, err = p.Server.whois(r.Context(), *who, endpoint, at)
			body.At = at.Format(time.RFC3339)
		}
		if err != nil {
			status, v.Alert = statusOf(err), err.Error()
		}
		if err == nil || status == http.StatusNotFound { // the search is in the audit log
			if now, err := p.cfg.Answers.Find(endpoint.Addr()); err == nil {
				body.Now = []control.Session{now}
			}
		}
	}
	v.Body = body
	p.show(w, status, "whois", v)
}

func (p *paged) health(w http.ResponseWriter, _ *http.Request, who *person) {
	p.show(w, http.StatusOK, "health", &view{Title: "Health", Path: "/health", Person: who,
		Body: newHealthBody(p.Server.health(), p.Server.usage.dnsSince)})
}

// auditBody is what the page of the audit log shows.
type auditBody struct {
	Rows    []Entry
	Next    string
	Damaged int
}

func (p *paged) auditLog(w http.ResponseWriter, r *http.Request, who *person) {
	page, next, damaged, err := p.auditPage(r.URL.Query().Get("cursor"), usualPage)
	if err != nil {
		p.failed(w, r, who, err)
		return
	}
	if next != "" {
		next = "?cursor=" + next
	}
	p.show(w, http.StatusOK, "audit", &view{Title: "Audit log", Path: "/audit", Person: who,
		Body: auditBody{page, next, damaged}})
}
