package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/legacy"
	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/flowlog"
	"github.com/gateweigh/gateweigh/internal/goldentest"
)

//go:generate go test -count=1 -run ^TestDescriptionIsServed$ . -args -update

const description = "../../docs/reference/admin-api.yaml"

func readDescription(t testing.TB) *openapi3.T {
	t.Helper()
	text, err := os.ReadFile(description)
	must(t, err)
	doc, err := openapi3.NewLoader().LoadFromData(text)
	must(t, err)
	return doc
}

// TestDescriptionIsServed: the document is valid OpenAPI 3.1, and what is served is made of it.
func TestDescriptionIsServed(t *testing.T) {
	doc := readDescription(t)
	if err := doc.Validate(t.Context(), openapi3.IsOpenAPI31OrLater()); err != nil {
		t.Fatal(err)
	}
	text, err := doc.MarshalJSON()
	must(t, err)
	goldentest.Compare(t, "openapi.json", string(text)+"\n")
}

// TestDescriptionHasAllOperations: the document has the operations that are served, and no others.
func TestDescriptionHasAllOperations(t *testing.T) {
	var served, described []string
	for _, e := range endpoints {
		served = append(served, e.method+" "+e.path)
	}
	for path, item := range readDescription(t).Paths.Map() {
		for method := range item.Operations() {
			described = append(described, method+" "+path)
		}
	}
	slices.Sort(served)
	slices.Sort(described)
	if !slices.Equal(served, described) {
		t.Errorf("served:\n%s\ndescribed:\n%s", strings.Join(served, "\n"), strings.Join(described, "\n"))
	}
}

// checker holds answers against the document.
type checker struct {
	router routers.Router
	seen   map[string]bool // "GET /api/v1/sessions 200"
}

func newChecker(t testing.TB) *checker {
	t.Helper()
	doc := readDescription(t)
	doc.Servers = nil // the router would want the test's address
	router, err := legacy.NewRouter(doc, openapi3.IsOpenAPI31OrLater())
	must(t, err)
	return &checker{router, map[string]bool{}}
}

// check holds a request and its answer against the document. Only requests that are answered by success must fit.
func (c *checker) check(t *testing.T, a answer, body string) {
	t.Helper()
	r := a.Request.Clone(context.Background())
	r.Body = io.NopCloser(strings.NewReader(body))
	route, params, err := c.router.FindRoute(r)
	if err != nil {
		t.Errorf("%s %s: %v", r.Method, r.URL, err)
		return
	}
	options := &openapi3filter.Options{IncludeResponseStatus: true,
		AuthenticationFunc: openapi3filter.NoopAuthenticationFunc}
	in := &openapi3filter.RequestValidationInput{Request: r, PathParams: params, Route: route, Options: options}
	if a.StatusCode < http.StatusBadRequest {
		if err := openapi3filter.ValidateRequest(r.Context(), in); err != nil {
			t.Errorf("%s %s is answered %s, and the document refuses it: %v", r.Method, r.URL, a.Status, err)
		}
	}
	c.seen[r.Method+" "+route.Path+" "+a.Status[:3]] = true
	err = openapi3filter.ValidateResponse(r.Context(), &openapi3filter.ResponseValidationInput{RequestValidationInput: in,
		Status: a.StatusCode, Header: a.Header, Body: io.NopCloser(bytes.NewReader([]byte(a.body))), Options: options})
	if err != nil {
		t.Errorf("%s %s: %v\n%s", r.Method, r.URL, err, a.body)
	}
}

// TestAnswersAreAsDescribed: every operation, by success and by failures, answers as the document says. Long: the
// table.
func TestAnswersAreAsDescribed(t *testing.T) {
	w := newWorld(t, 30)
	w.logFlow(t)
	c := newChecker(t)
	ask := func(name, method, path, body string, status int) {
		t.Helper()
		var a answer
		if body == "" {
			a = w.as(name, method, path, nil)
		} else {
			a = w.as(name, method, path, body)
		}
		if a.StatusCode != status {
			t.Errorf("%s: %s %s %s: %s, want %d: %s", name, method, path, body, a.Status, status, a.body)
		}
		c.check(t, a, body)
	}
	one := "/api/v1/sessions/" + addrOf(1).String()
	for _, q := range []struct {
		name, method, path, body string
		status                   int
	}{
		{"ann", "GET", "/api/v1/account", "", 200},
		{"backup", "GET", "/api/v1/account", "", 200},
		{"ann", "GET", "/api/v1/sessions", "", 200},
		{"ann", "GET", "/api/v1/sessions?limit=7&state=authenticated&q=user", "", 200},
		{"ann", "GET", "/api/v1/sessions?state=odd", "", 400},
		{"ann", "GET", "/api/v1/sessions?limit=0", "", 400},
		{"ann", "GET", "/api/v1/sessions?cursor=x", "", 400},
		{"ann", "GET", "/api/v1/sessions?network=none", "", 404},
		{"ann", "GET", one, "", 200},
		{"ann", "GET", "/api/v1/sessions/" + addrOf(10).String(), "", 200}, // a guest
		{"ann", "GET", "/api/v1/sessions/" + addrOf(20).String(), "", 200}, // by PPPoE
		{"ann", "GET", "/api/v1/sessions/192.0.2.1", "", 404},
		{"ann", "GET", "/api/v1/sessions/odd", "", 400},
		{"ann", "PATCH", one, `{"add_seconds":3600,"add_bytes":1000000}`, 200},
		{"ann", "PATCH", one, `{"up_bps":0,"idle_timeout_seconds":600}`, 200},
		{"ann", "PATCH", one, `{}`, 400},
		{"ann", "PATCH", one, `{"up_bps":5}`, 400},
		{"ann", "PATCH", one, `{"odd":5}`, 400},
		{"ann", "PATCH", one, `{"connections":5}`, 409}, // nothing counts them
		{"ann", "PATCH", one, `{"connections":0}`, 200},
		{"ann", "PATCH", one, `{"id":"another","add_seconds":60}`, 409},
		{"bob", "PATCH", one, `{"add_seconds":3600}`, 403},
		{"bob", "DELETE", one, "", 403},
		{"ann", "DELETE", one + "?id=another", "", 409},
		{"ann", "DELETE", one, "", 200},
		{"ann", "DELETE", one, "", 404},
		{"ann", "GET", one, "", 200},
		{"ann", "POST", "/api/v1/vouchers", `{"batch":"lobby","count":3,"terms":{"for_seconds":3600,"devices":1}}`, 201},
		{"ann", "POST", "/api/v1/vouchers", `{"batch":"lobby","count":3,"terms":{"devices":1}}`, 400},
		{"bob", "POST", "/api/v1/vouchers", `{"count":3,"terms":{"devices":1}}`, 403},
		{"ann", "GET", "/api/v1/vouchers?limit=2", "", 200},
		{"bob", "GET", "/api/v1/vouchers?name=lobby-2", "", 200},
		{"bob", "GET", "/api/v1/vouchers?name=none", "", 404},
		{"ann", "POST", "/api/v1/vouchers/revoke", `{"name":"lobby-1"}`, 200},
		{"ann", "POST", "/api/v1/vouchers/revoke", `{"name":"none"}`, 404},
		{"ann", "POST", "/api/v1/vouchers/revoke", `{"name":""}`, 400},
		{"bob", "POST", "/api/v1/vouchers/revoke", `{"name":"lobby"}`, 403},
		{"bob", "GET", "/api/v1/networks", "", 200},
		{"bob", "GET", "/api/v1/usage", "", 200},
		{"bob", "GET", "/api/v1/whois?endpoint=203.0.113.5:40321", "", 403},
		{"eve", "GET", "/api/v1/whois?endpoint=203.0.113.5:40321", "", 200},
		{"eve", "GET", "/api/v1/whois?endpoint=203.0.113.5:40322", "", 200},
		{"eve", "GET", "/api/v1/whois?endpoint=203.0.113.5:1&at=2001-01-01T00:00:00Z", "", 404},
		{"eve", "GET", "/api/v1/whois?endpoint=203.0.113.5", "", 400},
		{"eve", "GET", "/api/v1/whois?endpoint=203.0.113.5:1&at=2200-01-01T00:00:00Z", "", 400},
		{"bob", "GET", "/api/v1/audit?limit=5", "", 200},
		{"bob", "GET", "/api/v1/audit?cursor=x", "", 400},
		{"bob", "GET", "/api/v1/health", "", 200},
		{"", "GET", "/api/v1/health", "", 401},
	} {
		ask(q.name, q.method, q.path, q.body, q.status)
	}
	for _, e := range endpoints {
		if !c.seen[e.method+" "+e.path+" 200"] && !c.seen[e.method+" "+e.path+" 201"] {
			t.Errorf("%s %s was never answered by success", e.method, e.path)
		}
	}
}

// logFlow writes a file of the flow log with a connection of client 1 that has begun a minute ago and not ended.
func (w *world) logFlow(t testing.TB) {
	t.Helper()
	began := time.Now().Add(-time.Minute).UTC()
	line, err := json.Marshal(flowlog.Flow{Event: flowlog.Begins, Start: began, Protocol: unix.IPPROTO_TCP,
		Client: netip.AddrPortFrom(addrOf(1), 50000), Peer: netip.MustParseAddrPort("198.51.100.80:443"),
		Outside: netip.MustParseAddrPort("203.0.113.5:40321"), MAC: "02:00:00:00:00:01", User: "user-1", Session: "5e55"})
	must(t, err)
	folder := filepath.Join(w.dir, "flows")
	must(t, os.MkdirAll(folder, 0o700))
	must(t, os.WriteFile(filepath.Join(folder, "flows-"+began.Format("20060102T150405Z")+".ndjson"), append(line, '\n'),
		0o600))
}

// TestWhoisNamesTheUser: API and page name who used an address and port at a time, to those who may ask.
func TestWhoisNamesTheUser(t *testing.T) {
	w := newWorld(t, 1)
	w.logFlow(t)
	const ask = "whois?endpoint=203.0.113.5:40321"
	answer := decoded[whoisAnswer](t, w.as("eve", "GET", "/api/v1/"+ask, nil).body)
	if len(answer.Flows) != 1 || answer.Flows[0].User != "user-1" || answer.Flows[0].Client.Addr() != addrOf(1) {
		t.Errorf("the API says %+v", answer)
	}
	if text := w.logIn("eve").get("/" + ask).body; !strings.Contains(text, "user-1") ||
		!strings.Contains(text, "02:00:00:00:00:01") {
		t.Errorf("the page says\n%s", text)
	}
	if a := w.logIn("bob").get("/" + ask); a.StatusCode != http.StatusForbidden || strings.Contains(a.body, "user-1") {
		t.Errorf("to others the page says %s", a.Status)
	}
}
