package admin

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// FuzzRequests: no method, path, query, form or JSON makes the page answer by a failure of its own or panic, and none
// by somebody who may look only changes anything.
func FuzzRequests(f *testing.F) {
	for _, e := range endpoints {
		f.Add(e.method, strings.Replace(e.path, "{address}", "10.0.0.1", 1),
			`{"add_seconds":60,"count":1,"terms":{"devices":1}}`)
	}
	for _, path := range []string{"/sessions?q=a&cursor=1.x&limit=-1", "/sessions/10.0.0.1/end",
		"/sessions/10.0.0.1/change", "/vouchers?name=-1&cursor=%00", "/vouchers/revoke", "/usage?network=%ff",
		"/whois?endpoint=[::1%25lo]:1&at=x",
		"/audit?cursor=18446744073709551616", "/login", "/%2e%2e/", "/static/x"} {
		f.Add("GET", path, "")
		f.Add("POST", path, "what=limits&minutes=1e999&up=NaN&total=-1&count=1e30")
	}
	w := newWorld(f, 3)
	before := w.audit.last
	f.Fuzz(func(t *testing.T, method, path, body string) {
		r, err := http.NewRequest(method, "http://127.0.0.1"+path, strings.NewReader(body))
		if err != nil || r.URL.Host != "127.0.0.1" {
			return
		}
		for _, kind := range []string{"application/json", "application/x-www-form-urlencoded"} {
			r := r.Clone(t.Context())
			r.Body = io.NopCloser(strings.NewReader(body))
			r.RemoteAddr = "127.0.0.1:1"
			r.Header.Set("Content-Type", kind)
			r.SetBasicAuth("bob", "right")
			got := &recorder{header: http.Header{}}
			w.handler.ServeHTTP(got, r)
			if got.status >= 500 && got.status != http.StatusServiceUnavailable {
				t.Errorf("%s %q %q is answered %d", method, path, body, got.status)
			}
		}
		if strings.Contains(w.said.String(), "panic") {
			t.Fatal("a panic")
		}
		if n := w.audit.last; n != before || !slices.Equal([]bool{w.online(1), w.online(2)}, []bool{true, true}) {
			t.Errorf("%s %q %q changed something", method, path, body)
		}
	})
}

// recorder keeps the status of an answer.
type recorder struct {
	header http.Header
	status int
}

func (r *recorder) Header() http.Header { return r.header }
func (r *recorder) WriteHeader(s int)   { r.status = s }
func (r *recorder) Write(b []byte) (int, error) {
	return len(b), nil
}
