package admin

import (
	"html"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/gateway/session"
	"github.com/gateweigh/gateweigh/gateway/voucher"
)

var inputs = regexp.MustCompile(`<input[^>]* name="([^"]+)" value="([^"]*)"`)

// limitsForm is the form of limits that a page shows.
func limitsForm(t *testing.T, page string) url.Values {
	t.Helper()
	_, form, found := strings.Cut(page, `name="what" value="limits"`)
	if !found {
		t.Fatalf("no form of limits in\n%s", page)
	}
	form, _, _ = strings.Cut(form, "</form>")
	values := url.Values{"what": {"limits"}}
	for _, m := range inputs.FindAllStringSubmatch(form, -1) {
		values.Set(m[1], html.UnescapeString(m[2]))
	}
	return values
}

// TestLimitsOfTwo: a form changes what its sender has changed, and leaves what somebody else has meanwhile.
func TestLimitsOfTwo(t *testing.T) {
	w := newWorld(t, 1)
	ann := w.logIn("ann")
	path := "/sessions/" + addrOf(1).String()
	form := limitsForm(t, ann.get(path).body)
	if a := w.as("backup", "PATCH", "/api/v1"+path, `{"add_seconds":3600,"up_bps":2000000}`); a.StatusCode != 200 {
		t.Fatal(a.body)
	}
	form.Set("downrate", "8.19")
	form.Set("total", "")
	if a := ann.submit(path, path+"/change", form); a.StatusCode != 303 {
		t.Fatalf("answered %s: %s", a.Status, a.body)
	}
	s, _ := w.table.Get(addrOf(1))
	if l := s.Limits; l.SessionTimeout.Hours() != 3 || l.UpBps != 2e6 || l.DownBps != 8_190_000 || l.TotalBytes != 0 {
		t.Errorf("the limits are %+v", l)
	}
}

// TestLimitsOfVouchers: the page of a voucher's session offers what can be changed, and that is changed.
func TestLimitsOfVouchers(t *testing.T) {
	w := newWorld(t, 10)
	addr := addrOf(10)
	_, err := w.table.Admit(addr, session.Login{User: voucher.UserOf("lobby-1")})
	must(t, err)
	ann := w.logIn("ann")
	path := "/sessions/" + addr.String()
	page := ann.get(path).body
	form := limitsForm(t, page)
	if form.Has("minutes") || form.Has("total") || strings.Contains(page, "addminutes") {
		t.Error("the page offers time or data of a voucher's session")
	}
	form.Set("idle", "10")
	if a := ann.submit(path, path+"/change", form); a.StatusCode != 303 {
		t.Fatalf("answered %s: %s", a.Status, a.body)
	}
	if s, _ := w.table.Get(addr); s.Limits.IdleTimeout.Minutes() != 10 {
		t.Errorf("the limits are %+v", s.Limits)
	}
}
