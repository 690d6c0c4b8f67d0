// Tests of logins by vouchers' codes, by HTTP and in Chromium. See login_test.go and browser_test.go for what they use.

package portal

import (
	"bytes"
	"errors"
	"log/slog"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/gateweigh/gateweigh/gateway/session"
)

// Codes that the portal's users know (loginByCode).
const (
	goodCode    = "K7HM-2XPD-9RTW"
	otherCode   = "K7HM-2XPD-9RTX"
	expiredCode = "K7HM-2XPD-9RTY"
	usedUpCode  = "K7HM-2XPD-9RT2"
	revokedCode = "K7HM-2XPD-9RT3"
	goodVoucher = "voucher:lobby-1"
)

// loginByCode decides as vouchers do.
func loginByCode(code string) (session.Login, error) {
	switch code {
	case goodCode:
		return session.Login{User: goodVoucher, Voucher: "lobby-1"}, nil
	case expiredCode:
		return session.Login{}, &session.Rejection{Reason: session.Expired}
	case usedUpCode:
		return session.Login{}, &session.Rejection{Reason: session.UsedUp}
	case revokedCode:
		return session.Login{}, &session.Rejection{Reason: session.Revoked}
	}
	return session.Login{}, session.Reject("")
}

// voucherConfig is the configuration of a portal that takes vouchers.
func voucherConfig() Config {
	return Config{Methods: Methods{Voucher: true}, VoucherUsers: "voucher:", UserOfCode: func(code string) string {
		return map[string]string{goodCode: goodVoucher, otherCode: "voucher:lobby-2"}[code]
	}}
}

// codeForm is a filled-in form.
func codeForm(t testing.TB, client netip.Addr, code string) url.Values {
	return url.Values{"token": {token(t, client, "/login")}, "method": {"voucher"}, "code": {code}}
}

// TestCodes: a right code logs in. One of a voucher that admits nobody is told why, and does not count as a guess. A
// wrong code is told nothing, and after a few every code has to wait. Neither is in the log.
func TestCodes(t *testing.T) {
	var log bytes.Buffer
	cfg := voucherConfig()
	cfg.Log = slog.New(slog.NewTextHandler(&syncWriter{w: &log}, nil))
	w := start(t, cfg)
	send := func(code string) reply { return request(t, clientA, base+"/login", codeForm(t, clientA, code)) }
	for range 3 {
		for code, want := range map[string]string{expiredCode: english.VoucherExpired, usedUpCode: english.VoucherUsedUp,
			revokedCode: english.VoucherRevoked, "": english.NoCode} {
			if r := send(code); r.StatusCode != 200 || !strings.Contains(r.main(), strings.ReplaceAll(want, "'", "&#39;")) {
				t.Errorf("code %q: %s\n%s", code, r.Status, r.main())
			}
		}
	}
	r := send(goodCode)
	if s, _ := w.table.Get(clientA); r.StatusCode != 303 || s.User != goodVoucher {
		t.Errorf("the right code: %s, the client is %s as %q", r.Status, s.State, s.User)
	}
	codes := []string{otherCode, "<script>", "x\x00y", strings.Repeat("x", 200)}
	for i := range 12 {
		r := request(t, clientB, base+"/login", codeForm(t, clientB, codes[i%len(codes)]))
		if r.StatusCode == 429 {
			break
		}
		if r.StatusCode != 200 || !strings.Contains(r.main(), english.WrongCode) || strings.Contains(r.body, "<script>\"") {
			t.Errorf("a wrong code: %s\n%s", r.Status, r.main())
		}
		if i == 11 {
			t.Error("a guesser never has to wait")
		}
	}
	if r := request(t, clientB, base+"/login", codeForm(t, clientB, goodCode)); r.StatusCode != 429 {
		t.Errorf("while a guesser has to wait, the right code: %s", r.Status)
	}
	w.stop()
	for _, code := range []string{"K7HM", "script", "xxxx"} {
		if strings.Contains(log.String(), code) {
			t.Errorf("the log has %q:\n%s", code, log.String())
		}
	}
}

// TestOldCodesClearNothing: codes of vouchers that admit nobody do not clear a guesser's failures.
func TestOldCodesClearNothing(t *testing.T) {
	start(t, voucherConfig())
	for i := range 12 {
		code := []string{otherCode, otherCode, expiredCode}[i%3]
		if request(t, clientA, base+"/login", codeForm(t, clientA, code)).StatusCode == 429 {
			return
		}
	}
	t.Error("a guesser with an old code never has to wait")
}

// syncWriter writes for several goroutines.
type syncWriter struct {
	mu sync.Mutex
	w  *bytes.Buffer
}

func (s *syncWriter) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.w.Write(p)
}

// TestManyDevicesGuess: wrong codes of all devices together are bounded, and passwords are not.
func TestManyDevicesGuess(t *testing.T) {
	cfg := voucherConfig()
	cfg.Methods.Login = true
	w := start(t, cfg)
	answers := map[int]int{}
	for i := range 120 { // each device guesses once
		if err := w.table.change(clientB, func(s *session.Session) { s.MAC[4] = byte(i) }); err != nil {
			t.Fatal(err)
		}
		answers[request(t, clientB, base+"/login", codeForm(t, clientB, otherCode)).StatusCode]++
		if answers[429] > 0 {
			break
		}
	}
	if answers[429] == 0 || answers[200] < 50 {
		t.Errorf("answers to guesses: %v", answers)
	}
	if r := request(t, clientA, base+"/login", loginForm(t, clientA, goodUser, goodPassword)); r.StatusCode != 303 {
		t.Errorf("a password meanwhile: %s", r.Status)
	}
}

// TestNoCodes: a portal without vouchers takes no code, and its pages may run no script.
func TestNoCodes(t *testing.T) {
	start(t, Config{})
	r := request(t, clientA, base+"/login", codeForm(t, clientA, goodCode))
	if r.StatusCode != 200 || !strings.Contains(r.main(), english.Incomplete) || strings.Contains(r.body, "<script") ||
		strings.Contains(r.Header.Get("Content-Security-Policy"), "script-src") {
		t.Errorf("%s %s\n%s", r.Status, r.Header, r.main())
	}
}

// TestForgedCodeForm: another site's form, without the token, logs nobody in, and neither does a link.
func TestForgedCodeForm(t *testing.T) {
	w := start(t, voucherConfig())
	form := url.Values{"method": {"voucher"}, "code": {goodCode}}
	if r := request(t, clientA, base+"/login", form); r.StatusCode != 200 || !strings.Contains(r.main(), english.OldForm) {
		t.Errorf("without a token: %s", r.Status)
	}
	form.Set("token", token(t, clientB, "/login"))
	if r := request(t, clientA, base+"/login", form); r.StatusCode != 200 || !strings.Contains(r.main(), english.OldForm) {
		t.Errorf("with another client's token: %s", r.Status)
	}
	request(t, clientA, base+"/login?"+form.Encode(), nil)
	if s, _ := w.table.Get(clientA); s.State == session.Authenticated {
		t.Error("the client is logged in")
	}
}

// TestSignOutByCode: without the cookie of the login, the voucher's code signs out, and neither another code nor the
// user's name does.
func TestSignOutByCode(t *testing.T) {
	w := start(t, voucherConfig())
	request(t, clientA, base+"/login", codeForm(t, clientA, goodCode))
	page := request(t, clientA, base+"/logout", nil)
	if !strings.Contains(page.main(), english.ConfirmCodeText) {
		t.Errorf("the page asks for no code:\n%s", page.main())
	}
	for _, typed := range []string{otherCode, goodVoucher, goodCode} {
		form := url.Values{"token": {token(t, clientA, "/logout")}, "username": {typed}}
		r := request(t, clientA, base+"/logout", form)
		if s, _ := w.table.Get(clientA); (s.State == session.Authenticated) != (typed != goodCode) {
			t.Errorf("%s: %s, the client is %s", typed, r.Status, s.State)
		}
	}
}

// TestRevokedMeanwhile: a voucher that is revoked while its login is being decided admits nobody, in clear words.
func TestRevokedMeanwhile(t *testing.T) {
	w := start(t, voucherConfig())
	w.table.fails(errors.Join(&session.Rejection{Reason: session.Revoked}))
	form := codeForm(t, clientA, goodCode)
	if r := request(t, clientA, base+"/login", form); r.StatusCode != 200 || !strings.Contains(r.main(), "withdrawn") {
		t.Errorf("%s\n%s", r.Status, r.main())
	}
}

// TestCodeInBrowser does what a guest's phone does with a QR code: the link's code is in the form and neither in the
// address bar nor in a request, one tap logs in. A forged link does nothing, and after the tap clear words say so.
func TestCodeInBrowser(t *testing.T) {
	cfg := voucherConfig()
	cfg.Methods.Login, cfg.Title = true, "Hotel Krone"
	w := start(t, cfg)
	b := newBrowser(t)
	b.setView(t, views[0])
	b.load(t, chromedp.Navigate(base+"/login"))
	b.checkPage(t, "voucher")
	order := []string{"summary", "username", "password", "button", "code", "second"}
	if got := b.focused(t, len(order)); !slices.Equal(got, order) {
		t.Errorf("tab goes through %q, want %q", got, order)
	}
	b.load(t, chromedp.Navigate("data:text/html,elsewhere"))
	b.load(t, chromedp.Navigate(base+"/login#v=FORGED%3Cb%3E"))
	if s, _ := w.table.Get(clientA); s.State == session.Authenticated {
		t.Fatal("a link has logged the client in")
	}
	b.load(t, chromedp.Click("button.second"))
	if got := eval[string](t, b, `document.querySelector("[role=alert]").innerText`); got != english.WrongCode {
		t.Errorf("after a forged link the page says %q", got)
	}
	b.checkPage(t, "voucher-wrong")
	b.load(t, chromedp.Navigate("data:text/html,elsewhere"))
	b.load(t, chromedp.Navigate(base+"/login#v="+goodCode))
	if got := eval[string](t, b, `document.getElementById("code").value + " " + location.href + " " +
		document.activeElement.className`); got != goodCode+" "+base+"/login second" {
		t.Errorf("field, address and focus: %q", got)
	}
	b.load(t, chromedp.Click("button.second"))
	if s, _ := w.table.Get(clientA); s.User != goodVoucher || b.location(t) != base+"/status" {
		t.Errorf("after the tap the client is %s as %q, at %s", s.State, s.User, b.location(t))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, u := range b.requested {
		if strings.Contains(u, "K7HM") {
			t.Errorf("a request has the code: %s", u)
		}
	}
	if len(b.consoleErrors) > 0 {
		t.Errorf("the console complains: %q", b.consoleErrors)
	}
}
