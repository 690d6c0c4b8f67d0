// Logins with the code of a voucher.

package portal

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"strings"
	"time"

	"github.com/gateweigh/gateweigh/gateway/guesses"
	"github.com/gateweigh/gateweigh/gateway/session"
)

// methodVoucher is a value of the form field "method".
const methodVoucher = "voucher"

// maxCode is the longest code as typed, bytes.
const maxCode = 64

// VoucherFragment begins the fragment of a link with a code: "https://portal.example/login#v=K7HM-2XPD-9RTW". Browsers
// send no fragment, so that the code is in no log and no Referer, and does not leave the device where the link leads
// elsewhere.
const VoucherFragment = "v="

// voucherScript puts the code of a link into the form, and takes it out of the address bar and the history. It does not
// send the form: a link alone logs nobody in, whoever made it. Without scripts people type the code.
const voucherScript = template.JS(`(function(){var m=/^#v=(.{1,64})$/.exec(location.hash),` +
	`c=document.getElementById("code");if(m&&c){c.value=m[1];` +
	`history.replaceState(null,"",location.pathname+location.search);c.form.querySelector("button").focus()}})()`)

// voucherScriptHash lets the content security policy allow this script and no other.
func voucherScriptHash() string {
	sum := sha256.Sum256([]byte(voucherScript))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

// logInByCode checks a voucher's code, after the delay that wrong ones require.
func (p *Portal) logInByCode(w http.ResponseWriter, r *http.Request, page *Page, c Credentials, try *guesses.Try) {
	page.Code = c.Code
	if c.Code == "" {
		page.WrongCode, page.Alert = true, page.T.NoCode
		p.render(w, http.StatusOK, "login.html", page)
		return
	}
	if wait, all := try.WaitCode(); wait > 0 {
		if all {
			p.manyCodes.Do(func() {
				p.log.Warn("too many wrong voucher codes of all devices together: codes have to wait", "client", c.Key.String())
			})
		}
		p.wait(w, page, "login.html", wait)
		return
	}
	var login session.Login
	err := error(implausible{})
	if session.Printable(c.Code, maxCode) {
		login, err = p.auth.Authenticate(peerOf(r).serverCtx, c)
	}
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTimeout))
	var no rejected
	switch {
	case err == nil:
		try.RightCode()
		p.admit(w, r, page, c.Key, login)
	case p.refuseVoucher(w, page, c.Key, err): // clears no failures: a guesser may have old paper
	case errors.As(err, &no):
		try.WrongCode()
		p.counters.rejected.Add(1)
		p.log.Info("log-in rejected: a wrong voucher code", "client", c.Key.String(), "failures", try.FailedCodes())
		page.WrongCode, page.Alert = true, page.T.WrongCode
		p.render(w, http.StatusOK, "login.html", page)
	default:
		p.counters.unavailable.Add(1)
		p.log.Warn("nobody could decide on a log-in", "client", c.Key.String(), "by", "voucher", "error", err)
		p.unavailable(w, page)
	}
}

// refuseVoucher answers, if err says why a voucher admits nobody although its code is right, or a day is used up, and
// reports that.
func (p *Portal) refuseVoucher(w http.ResponseWriter, page *Page, key session.Key, err error) bool {
	var no *session.Rejection
	if !errors.As(err, &no) || no.Reason == "" {
		return false
	}
	p.counters.rejected.Add(1)
	p.log.Info("log-in rejected", "client", key.String(), "error", err)
	page.Code = "" // another one is needed
	page.Alert = map[session.Reason]string{session.Expired: page.T.VoucherExpired, session.UsedUp: page.T.VoucherUsedUp,
		session.Revoked: page.T.VoucherRevoked, session.UsedToday: page.T.UsedToday}[no.Reason]
	p.render(w, http.StatusOK, "login.html", page)
	return true
}

// wait answers that a client has to wait because of wrong passwords, names or codes.
func (p *Portal) wait(w http.ResponseWriter, page *Page, template string, wait time.Duration) {
	p.counters.backedOff.Add(1)
	seconds := int(wait/time.Second) + 1
	page.Alert = page.T.Wait.For(seconds)
	w.Header().Set("Retry-After", fmt.Sprint(seconds))
	p.render(w, http.StatusTooManyRequests, template, page)
}

// byVoucher reports whether a session was admitted by a voucher. Its people know the code, and not the user's name.
func (p *Portal) byVoucher(s session.Session) bool {
	return p.cfg.Methods.Voucher && strings.HasPrefix(s.User, p.cfg.VoucherUsers)
}

// isCodeOf reports whether a code as typed is that of the voucher that admitted a session.
func (p *Portal) isCodeOf(typed string, s session.Session) bool {
	return p.byVoucher(s) && p.cfg.UserOfCode != nil && p.cfg.UserOfCode(typed) == s.User
}
