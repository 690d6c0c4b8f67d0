package portal

import (
	"encoding/xml"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/gateway/session"
)

// smartAnswer is a message as a smart client reads it.
type smartAnswer struct {
	Inner struct {
		XMLName      xml.Name
		MessageType  int
		ResponseCode int
		LoginURL     string
		LogoffURL    string
		ReplyMessage string
	} `xml:",any"`
}

// readSmart reads the message in a page's comment.
func readSmart(t *testing.T, page string) (a smartAnswer) {
	t.Helper()
	_, rest, _ := strings.Cut(page, "<!--")
	body, _, found := strings.Cut(rest, "-->")
	if err := xml.Unmarshal([]byte(strings.TrimSpace(body)), &a); err != nil || !found {
		t.Fatalf("%v:\n%s", err, page)
	}
	return a
}

// TestSmartClient follows a smart client from its first request to its log-out, as WISPr 1.0 has it. Long: the steps
// of one run, each of which needs the state that the one before left.
func TestSmartClient(t *testing.T) {
	cfg, pool := writeCertificate(t, t.TempDir(), portalName, 1)
	w := start(t, Config{Name: portalName, TLS: cfg, WISPr: true, Methods: Methods{Login: true}})
	browser := secureClient(pool)
	send := func(target string, form url.Values, change ...func(*http.Request)) (int, smartAnswer) {
		t.Helper()
		r, err := http.NewRequest(http.MethodGet, target, nil)
		if form != nil {
			r, err = http.NewRequest(http.MethodPost, target, strings.NewReader(form.Encode()))
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range change {
			f(r)
		}
		resp, err := browser.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode == http.StatusForbidden {
			return resp.StatusCode, smartAnswer{}
		}
		return resp.StatusCode, readSmart(t, string(body))
	}
	code, a := send("http://site.example/", nil)
	login := a.Inner.LoginURL
	if code != 302 || a.Inner.XMLName.Local != "Redirect" || a.Inner.MessageType != 100 || a.Inner.ResponseCode != 0 ||
		login != secure+"/wispr/login" {
		t.Fatalf("the first request: %d %+v", code, a)
	}
	try := func(password string, wantCode int) smartAnswer {
		t.Helper()
		code, a := send(login, url.Values{"UserName": {goodUser}, "Password": {password}, "button": {"Login"}})
		if code != 200 || a.Inner.XMLName.Local != "AuthenticationReply" || a.Inner.MessageType != 120 ||
			a.Inner.ResponseCode != wantCode {
			t.Errorf("the log-in with %q: %d %+v", password, code, a)
		}
		return a
	}
	if a := try("wrong", 100); !strings.HasPrefix(a.Inner.ReplyMessage, "<script>") {
		t.Errorf("the server's message is %q", a.Inner.ReplyMessage)
	}
	w.users.answers(errors.New("no server answers"), nil)
	try(goodPassword, 102)
	w.users.answers(nil, nil)
	foreign := func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }
	if code, _ := send(login, url.Values{"UserName": {goodUser}, "Password": {goodPassword}}, foreign); code != 403 {
		t.Errorf("a page of another site logs in: %d", code)
	}
	out := try(goodPassword, 50).Inner.LogoffURL
	if s, _ := w.table.Get(clientA); s.State != session.Authenticated || out != secure+"/wispr/logoff" {
		t.Fatalf("the client is %s, and %q logs it out", s.State, out)
	}
	if code, _ := send(out, nil, foreign); code != 403 {
		t.Errorf("a page of another site logs out: %d", code)
	}
	for range 2 {
		if code, a := send(out, nil); code != 200 || a.Inner.MessageType != 130 || a.Inner.ResponseCode != 150 {
			t.Errorf("the log-out: %d %+v", code, a)
		}
	}
	if code, a := send(secure+"/wispr/abort", nil); code != 200 || a.Inner.ResponseCode != 151 {
		t.Errorf("the abort: %d %+v", code, a)
	}
	if s, _ := w.table.Get(clientA); s.State == session.Authenticated {
		t.Error("the session goes on")
	}
}

// TestSmartClientWithoutCredentials: logins that name nobody are delayed as wrong passwords are, so that they do not
// fill the log.
func TestSmartClientWithoutCredentials(t *testing.T) {
	cfg, pool := writeCertificate(t, t.TempDir(), portalName, 1)
	w := start(t, Config{Name: portalName, TLS: cfg, WISPr: true, Methods: Methods{Login: true}})
	browser := secureClient(pool)
	const requests = 40
	for range requests {
		resp, err := browser.PostForm(secure+wisprLogin, url.Values{"UserName": {"a\x01b"}, "Password": {"x"}})
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		if a := readSmart(t, string(body)); a.Inner.ResponseCode != 100 {
			t.Fatalf("%+v", a)
		}
	}
	// Each failure doubles the wait, so that a slow machine is slowed down too.
	if s := w.Stats(); s.Rejected > requests/2 || s.Rejected+s.BackedOff != requests || w.users.questions() != 0 {
		t.Errorf("%+v, and %d questions", s, w.users.questions())
	}
}
