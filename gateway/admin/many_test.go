package admin

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/gateweigh/gateweigh/gateway/control"
)

// TestPageCostsTheSame: a page of sessions looks at as many clients as it shows, and reads the counters of those alone,
// however many there are. A search looks at all, and reads counters of what it finds.
func TestPageCostsTheSame(t *testing.T) {
	w := newWorld(t, 3000)
	for _, q := range []struct {
		req            control.PageRequest
		visited, reads int
	}{
		{control.PageRequest{Most: 50}, 50, 50},
		{control.PageRequest{Most: 50, Search: "user-2999"}, 3000, 1},
		{control.PageRequest{Most: 50, Search: "10.0.4.1"}, 1, 1},
		{control.PageRequest{Most: 50, Search: "nobody"}, 3000, 0},
	} {
		before := w.path.reads.Load()
		page, err := w.cfg.Answers.Page(q.req)
		must(t, err)
		reads := int(w.path.reads.Load() - before)
		if page.Visited > q.visited || reads > q.reads {
			t.Errorf("%+v: looked at %d of 3000 clients and read %d counters, want at most %d and %d", q.req, page.Visited,
				reads, q.visited, q.reads)
		}
	}
}

// BenchmarkSessionsPage is the first page of 100,000 sessions, as a browser gets it, a search among them, and the page
// of the API:
//
//	go test -run - -bench SessionsPage ./gateway/admin
func BenchmarkSessionsPage(b *testing.B) {
	w := newWorld(b, 100_000)
	v := w.logIn("ann")
	for _, q := range []struct{ name, path string }{{"first", "/sessions"}, {"search", "/sessions?q=user-99999"},
		{"nothing", "/sessions?q=nobody"}} {
		b.Run(q.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if a := v.get(q.path); a.StatusCode != http.StatusOK {
					b.Fatal(fmt.Sprint(a.Status))
				}
			}
		})
	}
}
