package uam

import (
	"crypto/md5"
	"encoding/hex"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gateweigh/gateweigh/gateway/session"
	"github.com/gateweigh/gateweigh/gateway/weblink"
)

// TestSchemes logs in by each scheme, with and without a secret, and refuses it where it is off.
func TestSchemes(t *testing.T) {
	for _, secret := range []string{"", theSecret} {
		for scheme, query := range map[Scheme]func(challenge string) string{
			CHAP:  func(c string) string { return chap(goodUser, goodPassword, c, secret) },
			PAP:   func(c string) string { return pap(goodUser, goodPassword, c, secret) },
			Plain: func(string) string { return url.Values{"username": {goodUser}, "password": {goodPassword}}.Encode() },
		} {
			w := newWorld(t, Config{Secret: secret, Schemes: []Scheme{scheme}})
			challenge := strings.Repeat("00", challengeBytes)
			if scheme != Plain {
				challenge = w.challenge(t, clientA)
			}
			q := w.sent(t, w.ask(t, clientA, "/logon?"+query(challenge)))
			if q.Get("res") != "success" || q.Get("uid") != goodUser || q.Get("timeleft") != "3600" || !w.online(clientA) {
				t.Errorf("%s with secret %q: %v", scheme, secret, q)
			}
			other := map[Scheme]Scheme{CHAP: PAP, PAP: CHAP, Plain: CHAP}[scheme]
			w = newWorld(t, Config{Secret: secret, Schemes: []Scheme{other}})
			q = w.sent(t, w.ask(t, clientA, "/logon?"+query(w.challenge(t, clientA))))
			if q.Get("res") != "failed" || w.online(clientA) {
				t.Errorf("%s is off, and leads to %v", scheme, q)
			}
		}
	}
}

// TestMSCHAPv2 holds that the server gets the response as RFC 2548 has it: the peer's challenge is the server's.
func TestMSCHAPv2(t *testing.T) {
	w := newWorld(t, Config{Secret: theSecret})
	key := shared(w.challenge(t, clientA), theSecret)
	nt := strings.Repeat("ab", ntBytes)
	w.ask(t, clientA, "/logon?username=anna&ntresponse="+nt)
	if w.questions() != 1 {
		t.Fatal("nobody was asked")
	}
	got := w.asked[0].CHAP
	want := hex.EncodeToString(key) + strings.Repeat("00", 8) + nt + "00"
	if got == nil || !got.Microsoft || string(got.Challenge) != string(key) || hex.EncodeToString(got.Response) != want {
		t.Errorf("asked with %+v", got)
	}
}

// TestChallengeServesOnce: not a second time, right or wrong, not for another client, and not for ever.
func TestChallengeServesOnce(t *testing.T) {
	w := newWorld(t, Config{Secret: theSecret})
	login := "/logon?" + chap(goodUser, goodPassword, w.challenge(t, clientA), theSecret)

	if q := w.sent(t, w.ask(t, clientB, login)); q.Get("res") != "failed" || w.questions() != 0 {
		t.Errorf("without a challenge of its own a client gets %v, %d questions", q, w.questions())
	}
	w.challenge(t, clientB)
	if q := w.sent(t, w.ask(t, clientB, login)); q.Get("res") != "failed" || w.online(clientB) {
		t.Errorf("by another client's challenge a client gets %v", q)
	}
	if q := w.sent(t, w.ask(t, clientA, login)); q.Get("res") != "success" {
		t.Fatalf("the first use gets %v", q)
	}
	w.sent(t, w.ask(t, clientA, "/logoff"))
	if q := w.sent(t, w.ask(t, clientA, login)); q.Get("res") != "failed" || w.online(clientA) {
		t.Errorf("the second use gets %v", q)
	}

	wrong := w.challenge(t, clientA)
	w.ask(t, clientA, "/logon?"+chap(goodUser, "wrong", wrong, theSecret))
	if q := w.sent(t, w.ask(t, clientA, "/logon?"+chap(goodUser, goodPassword, wrong, theSecret))); w.online(clientA) {
		t.Errorf("a challenge that was answered wrongly gets %v", q)
	}
}

// TestChallengeExpires: it is given out again until it is taken, and can be answered for some time more.
func TestChallengeExpires(t *testing.T) {
	var c challenges
	key, start := session.Key{Addr: clientA}, time.Now()
	one := c.issue(key, "http://a/", start)
	again := c.issue(key, "", start.Add(3*goodFor))
	if again.Value != one.Value || again.SessionID != one.SessionID || again.link != "http://a/" {
		t.Errorf("%+v, then %+v", one, again)
	}
	if _, ok := c.take(key, start.Add(4*goodFor-1)); !ok {
		t.Error("it is refused before its time")
	}
	if _, ok := c.take(key, start); ok {
		t.Error("it is there although it was taken")
	}
	one = c.issue(key, "", start)
	if _, ok := c.take(key, start.Add(goodFor)); ok {
		t.Error("it is taken after its time")
	}
	if again := c.issue(key, "", start); again.Value == one.Value || again.SessionID == one.SessionID {
		t.Errorf("once it was taken: %+v, then %+v", one, again)
	}
	for i := range 2 * maxChallenges {
		c.issue(session.Key{MAC: [6]byte{1, byte(i >> 16), byte(i >> 8), byte(i)}}, "", start)
	}
	if len(c.byKey) != maxChallenges || c.oldest.Len() != maxChallenges {
		t.Errorf("%d challenges are kept, in a list of %d", len(c.byKey), c.oldest.Len())
	}
}

// TestSlowTyping: somebody types for as long as 50 minutes, while the device sends its probes, and logs in.
func TestSlowTyping(t *testing.T) {
	for _, typed := range []time.Duration{9 * time.Minute, 11 * time.Minute, 21 * time.Minute, 50 * time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, Config{Secret: theSecret})
			login := "/logon?" + chap(goodUser, goodPassword, w.challenge(t, clientA), theSecret)
			for range typed / time.Minute {
				time.Sleep(time.Minute)
				one, _ := w.Get(clientA)
				w.Redirect(one, "")
			}
			if q := w.sent(t, w.ask(t, clientA, login)); q.Get("res") != "success" {
				t.Errorf("after %s: %v", typed, q)
			}
		})
	}
}

// TestForgedChecksum: what anybody changes in a redirect changes its checksum.
func TestForgedChecksum(t *testing.T) {
	w := newWorld(t, Config{Secret: theSecret})
	s, _ := w.Get(clientA)
	location, _ := w.Redirect(s, "http://site.example/a?b=c&md=0")
	w.sent(t, w.ask(t, clientA, "/"))
	made, sum, _ := strings.Cut(location, "&md=")
	for i := range len(made) {
		forged := []byte(made)
		forged[i] ^= 1
		if Checksum(string(forged), theSecret) == sum {
			t.Fatalf("%q has the checksum of %q", forged, made)
		}
	}
	if Checksum(made, "") == sum || Checksum(made, "other") == sum {
		t.Error("the checksum does not need the secret")
	}
	if q, _ := url.ParseQuery(location); q.Get("userurl") != "http://site.example/a?b=c&md=0" {
		t.Errorf("the link is %q", q.Get("userurl"))
	}
}

// TestOverHTTP: passwords come over https only, unless the configuration says otherwise, and plain ones never.
func TestOverHTTP(t *testing.T) {
	for _, allowed := range []bool{false, true} {
		for _, scheme := range []Scheme{CHAP, Plain} {
			w := newWorld(t, Config{Secret: theSecret, HTTP: allowed, Schemes: []Scheme{CHAP, Plain}})
			query := chap(goodUser, goodPassword, w.challenge(t, clientA), theSecret)
			if scheme == Plain {
				query = url.Values{"username": {goodUser}, "password": {goodPassword}}.Encode()
			}
			q := w.sent(t, w.over(t, false, clientA, "/logon?"+query))
			if want := allowed && scheme == CHAP; w.online(clientA) != want || want != (q.Get("res") == "success") {
				t.Errorf("%s over HTTP, allowed %v: %v", scheme, allowed, q)
			}
		}
	}
}

// TestWhereClientsAreSent: to the portal alone, whatever userurl says; a link that is no web page is not passed on.
func TestWhereClientsAreSent(t *testing.T) {
	for _, c := range [...]struct{ given, want string }{
		{"http://site.example/a?b=1", "http://site.example/a?b=1"},
		{"http%3A%2F%2Fsite.example%2Fa", "http://site.example/a"}, // encoded twice
		{"javascript:alert(1)", ""}, {"//evil.example/", ""}, {"data:text/html,x", ""}, {"ftp://site.example/", ""},
		{"http://u:p@site.example/", ""}, {"http://site.example/\r\nSet-Cookie: a=b", ""}, {"http:///a", ""},
		{`http://site.example/"><script>`, "http://site.example/%22%3E%3Cscript%3E"},
		{"http://site.example/" + strings.Repeat("a", weblink.Max), ""},
	} {
		w := newWorld(t, Config{Secret: theSecret})
		for _, path := range []string{"/prelogin?", "/logoff?", "/status?", "/logon?username=x&response=00&", "/abort?"} {
			q := w.sent(t, w.ask(t, clientA, path+"userurl="+url.QueryEscape(c.given)))
			if path != "/abort?" && q.Get("userurl") != c.want {
				t.Errorf("%s with %q: passed on as %q", path, c.given, q.Get("userurl"))
			}
		}
	}
}

// TestGuessesAreSlowedDown, for all ways of the protocol together and for one client alone.
func TestGuessesAreSlowedDown(t *testing.T) {
	w := newWorld(t, Config{Secret: theSecret})
	var q url.Values
	for range 10 { // each failure doubles the wait, so that a slow machine is caught too
		before := w.questions()
		q = w.sent(t, w.ask(t, clientA, "/logon?"+chap(goodUser, "wrong", w.challenge(t, clientA), theSecret)))
		if w.questions() == before {
			break
		}
	}
	if n := w.questions(); n < 3 || n > 9 || !strings.HasPrefix(q.Get("reply"), "Too many attempts") {
		t.Errorf("after %d wrong passwords: %v", n, q)
	}
	if w.ask(t, clientB, "/logon?"+chap(goodUser, goodPassword, w.challenge(t, clientB), theSecret)); !w.online(clientB) {
		t.Error("another client has to wait")
	}
}

// TestRequestsDoNotFloodTheLog: what somebody who is not logged in sends again and again is logged a few times, and
// logins that are none have to wait as wrong passwords have.
func TestRequestsDoNotFloodTheLog(t *testing.T) {
	for name, login := range map[string]struct {
		secure bool
		query  string
	}{
		"over plain HTTP":      {false, "username=anna&response=00"},
		"no proof":             {true, "username=anna"},
		"no name":              {true, "response=00"},
		"no hexadecimal":       {true, "username=anna&response=zz"},
		"another secret's":     {true, "username=anna&password=ff"},
		"a name that is wrong": {true, "username=%00&password=ff"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, Config{Secret: theSecret})
				var lines countingHandler
				w.log = slog.New(&lines)
				for range 1000 {
					w.challenge(t, clientA)
					w.sent(t, w.over(t, login.secure, clientA, "/logon?"+login.query))
				}
				if n := lines.n.Load(); n < 1 || n > 5 {
					t.Errorf("%d messages of 1000 requests", n)
				}
				if s := w.Stats(); s.Rejected+s.BackedOff != 1000 || w.questions() > 5 {
					t.Errorf("counted as %+v, %d questions", s, w.questions())
				}
			})
		})
	}
}

// TestNobodyCanDecide is told from a wrong password.
func TestNobodyCanDecide(t *testing.T) {
	w := newWorld(t, Config{Secret: theSecret})
	w.down = errors.New("no RADIUS server answers")
	out := w.ask(t, clientA, "/logon?"+chap(goodUser, goodPassword, w.challenge(t, clientA), theSecret))
	if q := w.sent(t, out); q.Get("reason") != "other" || !strings.Contains(out.Body.String(), ">102<") {
		t.Errorf("%v\n%s", q, out.Body)
	}
	w.down = nil
	out = w.ask(t, clientA, "/logon?"+chap(goodUser, "wrong", w.challenge(t, clientA), theSecret))
	q := w.sent(t, out)
	if q.Get("reason") != "reject" || q.Get("reply") != "<b>no</b> --> such user" ||
		!strings.Contains(out.Body.String(), ">100<") || strings.Count(out.Body.String(), "-->") != 1 {
		t.Errorf("%v\n%s", q, out.Body)
	}
}

// TestScripts: an answer is a script only where that is on, and calls a name and nothing else.
func TestScripts(t *testing.T) {
	w := newWorld(t, Config{Secret: theSecret})
	if out := w.ask(t, clientA, "/json/status?callback=f"); out.Code != http.StatusForbidden {
		t.Errorf("a script, although that is off: %d %s", out.Code, out.Body)
	}
	w = newWorld(t, Config{Secret: theSecret, Script: true})
	for _, name := range []string{"f", "chilliJSON.reply", "$._a1"} {
		out := w.ask(t, clientA, "/json/status?callback="+url.QueryEscape(name))
		body, begins := strings.CutPrefix(out.Body.String(), name+"(")
		body, ends := strings.CutSuffix(body, ")")
		h := out.Header()
		if !begins || !ends || !json.Valid([]byte(body)) ||
			h.Get("Content-Type") != "text/javascript" || h.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: %d %s", name, out.Code, out.Body)
		}
	}
	for _, name := range []string{"", "alert(1)//", "a b", "a..b", "1a", "a\nb", "a<b", "a[0]", "a;b", "é", ".a", "a.",
		strings.Repeat("a", 100), "a.b.c.d.e.f.g"} {
		if out := w.ask(t, clientA, "/json/status?callback="+url.QueryEscape(name)); out.Code != http.StatusBadRequest ||
			strings.HasPrefix(out.Body.String(), name+"(") {
			t.Errorf("%q: %d %s", name, out.Code, out.Body)
		}
	}
	if out := w.ask(t, clientA, "/json/status"); strings.ContainsAny(out.Body.String(), "<>") ||
		out.Header().Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("other pages can read it: %v", out.Header())
	}
}

// TestUnknownClient: without a lease there is nothing to log in.
func TestUnknownClient(t *testing.T) {
	w := newWorld(t, Config{Secret: theSecret})
	delete(w.clients, clientA)
	for _, path := range []string{"/logon?username=a&response=00", "/json/status", "/logoff"} {
		if out := w.ask(t, clientA, path); out.Code != http.StatusForbidden {
			t.Errorf("%s: %d %s", path, out.Code, out.Body)
		}
	}
	if out := w.ask(t, clientB, "/www/../../etc/passwd"); out.Code != http.StatusNotFound {
		t.Errorf("another path: %d", out.Code)
	}
}

// FuzzQueries holds, of every request: nobody is sent elsewhere than to the portal, nobody gets in without the
// password, and answers are well formed.
func FuzzQueries(f *testing.F) {
	sum := md5.Sum(nil)
	for _, s := range []string{"/prelogin", "/logon?username=anna&response=" + hex.EncodeToString(sum[:]),
		"/logon?username=anna&password=00", "/login?username=%00&ntresponse=zz&lang=de", "/logoff?userurl=http://a/",
		"/json/status?callback=a.b", "/json/logon?username=a&response=0&ident=999", "/abort", "/status?lang=x\"y",
		"/json//logon", "/json/json/status", "/prelogin?userurl=%2568ttp://a"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, target string) {
		w := newWorld(t, Config{Secret: theSecret, Script: true})
		w.challenge(t, clientA)
		out := w.ask(t, clientA, target)
		if w.online(clientA) {
			t.Fatal("in without the password")
		}
		switch out.Code {
		case http.StatusFound:
			w.sent(t, out)
			if strings.ContainsAny(out.Header().Get("Location"), "\r\n\"<> ") {
				t.Errorf("sent to %q", out.Header().Get("Location"))
			}
		case http.StatusOK:
			body := out.Body.String()
			if out.Header().Get("Content-Type") == "text/javascript" {
				body = strings.TrimSuffix(body[strings.IndexByte(body, '(')+1:], ")")
			}
			if !json.Valid([]byte(body)) {
				t.Errorf("no JSON: %s", body)
			}
		case http.StatusNotFound, http.StatusBadRequest:
		default:
			t.Errorf("%d: %s", out.Code, out.Body)
		}
	})
}
