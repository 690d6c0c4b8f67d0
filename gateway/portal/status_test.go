// Tests of the status page and of the captive portal API (RFC 8908). start (world_test.go) serves a portal, whose table
// of clients is w.table; logIn logs a client in, and request(t, client, url, form, change...) sends one request as a
// client.

package portal

import (
	"encoding/json"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gateweigh/gateweigh/gateway/session"
)

func TestRemaining(t *testing.T) {
	now := time.Now()
	for name, tt := range map[string]struct {
		limits session.Limits
		want   remaining
	}{
		"no limits":      {session.Limits{IdleTimeout: time.Minute, UpBps: 1}, remaining{}},
		"time":           {session.Limits{SessionTimeout: time.Hour}, remaining{timed: true, time: 50 * time.Minute}},
		"time is over":   {session.Limits{SessionTimeout: time.Minute}, remaining{timed: true}},
		"upload":         {session.Limits{UpBytes: 150}, remaining{quota: true, bytes: 50}},
		"upload is over": {session.Limits{UpBytes: 50}, remaining{quota: true}},
		"the first quota": {
			session.Limits{UpBytes: 500, DownBytes: 1010, TotalBytes: 1150}, remaining{quota: true, bytes: 10}},
		"all together": {
			session.Limits{UpBytes: 500, DownBytes: 2000, TotalBytes: 1105}, remaining{quota: true, bytes: 5}},
		"one of them 0": {session.Limits{UpBytes: 100, DownBytes: 2000}, remaining{quota: true}},
	} {
		s := session.Session{
			State: session.Authenticated, Began: now.Add(-10 * time.Minute), Login: session.Login{Limits: tt.limits},
			Counts: session.Counts{UpBytes: 100, DownBytes: 1000},
		}
		if got := remainingOf(s, now); got != tt.want {
			t.Errorf("%s: %+v, want %+v", name, got, tt.want)
		}
	}
}

// TestAPI follows RFC 8908, 4.2 and 5.
func TestAPI(t *testing.T) {
	w := start(t, Config{VenueURL: "https://venue.example/"})
	get := func() map[string]any {
		t.Helper()
		r := request(t, clientA, base+"/api/captive-portal", nil,
			func(r *http.Request) { r.Header.Set("Accept", "application/captive+json") })
		if r.StatusCode != 200 || r.Header.Get("Content-Type") != "application/captive+json" ||
			r.Header.Get("Cache-Control") != "private, no-store" {
			t.Errorf("%s, %v", r.Status, r.Header)
		}
		var m map[string]any
		if err := json.Unmarshal([]byte(r.body), &m); err != nil {
			t.Errorf("%q: %v", r.body, err)
		}
		return m
	}
	captive := map[string]any{"captive": true, "can-extend-session": false, "venue-info-url": "https://venue.example/"}
	if diff := cmp.Diff(captive, get()); diff != "" {
		t.Errorf("before login (-want +got):\n%s", diff)
	}
	s, _ := w.table.Get(clientA)
	s.State, s.Began = session.Authenticated, time.Now()
	w.table.set(s)
	free := map[string]any{"captive": false, "can-extend-session": false, "venue-info-url": "https://venue.example/"}
	if diff := cmp.Diff(free, get()); diff != "" {
		t.Errorf("a session without limits (-want +got):\n%s", diff)
	}
	s.Limits = session.Limits{SessionTimeout: time.Hour, DownBytes: 1000}
	s.DownBytes, s.Began = 400, time.Now().Add(time.Hour) // not begun: all of its time is left, however slow the test is
	w.table.set(s)
	free["bytes-remaining"] = 600.0
	got := get()
	if left, _ := got["seconds-remaining"].(float64); left < 3600 {
		t.Errorf("%v s are left of an hour", got["seconds-remaining"])
	}
	delete(got, "seconds-remaining")
	if diff := cmp.Diff(free, got); diff != "" {
		t.Errorf("a session with limits (-want +got):\n%s", diff)
	}
}

func TestCaptivityKeepsNumbersExact(t *testing.T) {
	s := session.Session{
		State: session.Authenticated, Login: session.Login{Limits: session.Limits{TotalBytes: math.MaxUint64}}}
	if got := captivityOf(s, time.Now()); *got.BytesRemaining != 1<<53-1 {
		t.Errorf("bytes-remaining %d, which JavaScript would round", *got.BytesRemaining)
	}
}

// TestSessionThatIsOver: a client whose session's end has passed is not told that it is online, also before the table
// has ended the session: it gets the login page, with why, and can log in again.
func TestSessionThatIsOver(t *testing.T) {
	w := start(t, Config{})
	for name, tt := range map[string]struct {
		limits session.Limits
		lease  time.Duration // from now
		says   string
	}{
		"time":  {session.Limits{SessionTimeout: time.Minute}, time.Hour, english.TimeUp},
		"quota": {session.Limits{UpBytes: 100}, time.Hour, english.SentUp},
		"lease": {session.Limits{}, -time.Second, english.SignIn},
	} {
		s, _ := w.table.Get(clientA)
		s.State, s.Began, s.LeaseEnd = session.Authenticated, time.Now().Add(-time.Hour), time.Now().Add(tt.lease)
		s.User, s.ID, s.Limits, s.UpBytes = goodUser, session.NewID(), tt.limits, 100
		w.table.set(s)
		for _, path := range []string{"/", "/status", "/logout"} {
			if to := request(t, clientA, base+path, nil).Header.Get("Location"); to != "/login" {
				t.Errorf("%s: %s leads to %q", name, path, to)
			}
		}
		if r := request(t, clientA, base+"/login", nil); r.StatusCode != http.StatusOK || !strings.Contains(r.body, tt.says) {
			t.Errorf("%s: %s\n%s", name, r.Status, r.main())
		}
		var device captivePortalJSON
		if err := json.Unmarshal([]byte(request(t, clientA, base+apiPath, nil).body), &device); err != nil ||
			!device.Captive {
			t.Errorf("%s: the device is told %+v, %v", name, device, err)
		}
		if w.isAdmitted(clientA) {
			t.Errorf("%s: probes are answered as if it was online", name)
		}
		logIn(t, clientA)
		if now, _ := w.table.Get(clientA); now.ID == s.ID {
			t.Errorf("%s: no new session", name)
		}
	}
}
