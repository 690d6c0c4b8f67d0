// Most tests of this package serve the admin page of a table of sessions whose data path stores nothing, with a real
// book of vouchers, flow log and accounts: newWorld makes it, and as sends requests of an account. The accounts are
// "ann", an admin, "bob", who may only look, "eve", who may look and ask who used an address, and "backup", a program
// with token. Their password is "right".

package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/gateway/control"
	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/flowlog"
	"github.com/gateweigh/gateweigh/gateway/session"
	"github.com/gateweigh/gateweigh/gateway/users"
	"github.com/gateweigh/gateweigh/gateway/voucher"
	"github.com/gateweigh/gateweigh/internal/logtest"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

var must = netnstest.Must

// rightHash is the hash of the password of all accounts: making one takes a while.
var rightHash = sync.OnceValue(func() string { return users.Hash("right") })

// token is that of the account "backup".
var token, tokenHash = users.NewToken()

// countedPath is a data path that stores nothing, and counts how often counters are read.
type countedPath struct{ reads atomic.Int64 }

var _ datapath.Datapath = (*countedPath)(nil)

func (*countedPath) Set(datapath.Client) error          { return nil }
func (*countedPath) Remove(datapath.ID) error           { return nil }
func (*countedPath) Open(netip.Prefix, time.Time) error { return nil }
func (*countedPath) Close() error                       { return nil }
func (d *countedPath) Counters(datapath.ID) (datapath.Counters, error) {
	d.reads.Add(1)
	return datapath.Counters{Epoch: 1, UpBytes: 120_000_000, UpPackets: 100_000, DownBytes: 2_400_000_000,
		DownPackets: 1_700_000, Seen: time.Now()}, nil
}

// world is an admin page and what it is of.
type world struct {
	*Server
	t     testing.TB
	path  *countedPath
	table *session.Table
	dir   string
	base  string // "http://127.0.0.1:…"
	stop  func()
	said  logtest.Log
}

// addrOf is the address of client i.
func addrOf(i int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
}

// newWorld makes the page of so many clients, of which all but every tenth are logged in.
func newWorld(t testing.TB, clients int, change ...func(*Config)) *world {
	t.Helper()
	w := &world{t: t, path: &countedPath{}, dir: t.TempDir()}
	log := w.said.Logger()
	var err error
	w.table, err = session.Open(filepath.Join(w.dir, "sessions.db"), w.path, log)
	must(t, err)
	t.Cleanup(func() { w.table.Close() })
	w.admit(clients)
	if clients >= 30 {
		w.admitOdd()
	}
	book, err := voucher.Open(w.dir, log)
	must(t, err)
	t.Cleanup(func() { book.Close() })
	accounts := filepath.Join(w.dir, "admins")
	must(t, os.WriteFile(accounts, fmt.Appendf(nil, "ann:%[1]s:admin\nbob:%[1]s:read-only\neve:%[1]s:read-only,whois\n"+
		"backup:%[2]s:admin\nproxied:proxy:admin\n", rightHash(), tokenHash), 0o600))
	began := time.Now()
	cfg := Config{Listen: "127.0.0.1:0", Accounts: accounts, Idle: time.Hour, Longest: 12 * time.Hour,
		StateDir: w.dir, Log: log,
		Answers: control.Single(control.Network{Table: w.table, Changes: w.table}, func() control.Status {
			return control.Status{Version: "1.2.3", PID: 1, Since: began, Datapath: "ebpf, redirect", LAN: "lan0", WAN: "wan0",
				Addresses: 65_000, Leases: clients, Sessions: w.table.States(), Packets: map[string]uint64{"forwarded": 7},
				Traffic: control.Traffic{UpBytes: 5e9, DownBytes: 9e10}, DHCP: map[string]uint64{"ack": 3},
				Pools: []control.Pool{{First: addrOf(1), Last: addrOf(20_000), Size: 20_000, Leased: 19_000},
					{First: addrOf(30_000), Last: addrOf(74_999), Size: 45_000, Leased: 12}},
				DNS:     map[string]uint64{"query": 12345, "failed": 3},
				Servers: []control.Server{{Server: "192.0.2.10:1812", Purpose: "logins", Asked: true, Up: true}}}
		}),
		Findings: func() []Finding { return []Finding{{"warning", "eth1 is down: ip link set eth1 up"}} },
		Whois: func(ctx context.Context, endpoint netip.AddrPort, at time.Time) ([]flowlog.Search, error) {
			logs := []flowlog.Search{{Folder: filepath.Join(w.dir, "flows")}}
			return logs, flowlog.FindAll(ctx, logs, endpoint, at)
		},
	}
	cfg.Answers.Vouchers = book
	for _, c := range change {
		c(&cfg)
	}
	w.Server, err = New(cfg)
	must(t, err)
	t.Cleanup(func() { w.Server.Close() })
	w.serve()
	return w
}

// admit adds clients, several at once: they share writes to the disk.
func (w *world) admit(clients int) {
	var workers sync.WaitGroup
	next := make(chan int)
	for range 64 {
		workers.Go(func() {
			for i := range next {
				addr := addrOf(i)
				must(w.t, w.table.Lease(session.Key{MAC: [6]byte{2, 0, 0, byte(i >> 16), byte(i >> 8), byte(i)}, Addr: addr},
					fmt.Sprint("host-", i), time.Now().Add(time.Hour)))
				if i%10 != 0 {
					_, err := w.table.Admit(addr, session.Login{User: fmt.Sprint("user-", i), Limits: session.Limits{
						SessionTimeout: 2 * time.Hour, TotalBytes: 5e9, DownBps: 50e6, UpBps: 10e6}})
					must(w.t, err)
				}
			}
		})
	}
	for i := 1; i <= clients; i++ {
		next <- i
	}
	close(next)
	workers.Wait()
}

// admitOdd logs in a guest by a click, and a client of a PPPoE session with networks behind it.
func (w *world) admitOdd() {
	_, err := w.table.Admit(addrOf(10), session.Login{User: "guest", Guest: &session.Guest{Terms: "2026-01", Room: "101",
		LastName: "Doe", Name: "Jane Doe", Email: "jane@guest.example"}})
	must(w.t, err)
	_, err = w.table.Admit(addrOf(20), session.Login{User: "line", PPPoE: session.PPPoESession{Session: 7,
		Routes: []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}}})
	must(w.t, err)
}

func (w *world) serve() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(w.t, err)
	w.serveAt(l)
	w.base = "http://" + l.Addr().String()
}

// serveAt serves a listener until the test ends.
func (w *world) serveAt(l net.Listener) {
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Serve(ctx, l) }()
	w.stop = sync.OnceFunc(func() { stop(); must(w.t, <-ended) })
	w.t.Cleanup(w.stop)
}

// answer is an answer whose body was read.
type answer struct {
	*http.Response
	body string
}

// send sends a request. prepare may change it; nil: nothing.
func (w *world) send(client *http.Client, method, path, body string, prepare func(*http.Request)) answer {
	w.t.Helper()
	r, err := http.NewRequest(method, w.base+path, strings.NewReader(body))
	must(w.t, err)
	if prepare != nil {
		prepare(r)
	}
	resp, err := client.Do(r)
	must(w.t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	must(w.t, err)
	return answer{resp, string(text)}
}

// plainClient follows no redirects and keeps no cookies.
var plainClient = &http.Client{
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	Transport:     &http.Transport{DisableKeepAlives: true}}

// as asks the API in the name of an account. body is nil, text, or a value that is sent as JSON.
func (w *world) as(name, method, path string, body any) answer {
	w.t.Helper()
	text, isText := body.(string)
	if !isText && body != nil {
		encoded, err := json.Marshal(body)
		must(w.t, err)
		text = string(encoded)
	}
	return w.send(plainClient, method, path, text, func(r *http.Request) {
		switch name {
		case "":
		case "backup":
			r.Header.Set("Authorization", "Bearer "+token)
		default:
			r.SetBasicAuth(name, "right")
		}
		if body != nil {
			r.Header.Set("Content-Type", "application/json")
		}
	})
}

// secureJar has a jar of a plain HTTP client keep cookies that are Secure, as browsers do for a loopback address.
type secureJar struct{ *cookiejar.Jar }

func secure(u *url.URL) *url.URL { c := *u; c.Scheme = "https"; return &c }

func (j secureJar) SetCookies(u *url.URL, c []*http.Cookie) { j.Jar.SetCookies(secure(u), c) }
func (j secureJar) Cookies(u *url.URL) []*http.Cookie       { return j.Jar.Cookies(secure(u)) }

// visitor is a browser without JavaScript.
type visitor struct {
	w      *world
	client *http.Client
}

func (w *world) visitor() *visitor {
	jar, err := cookiejar.New(nil)
	must(w.t, err)
	return &visitor{w, &http.Client{Jar: secureJar{jar}, CheckRedirect: plainClient.CheckRedirect,
		Transport: &http.Transport{DisableKeepAlives: true}}}
}

// logIn logs in at the page.
func (w *world) logIn(name string) *visitor {
	w.t.Helper()
	v := w.visitor()
	if a := v.post("/login", url.Values{"name": {name}, "password": {"right"}}); a.StatusCode != http.StatusSeeOther {
		w.t.Fatalf("the login is answered %s: %s", a.Status, a.body)
	}
	return v
}

func (v *visitor) get(path string) answer {
	v.w.t.Helper()
	return v.w.send(v.client, "GET", path, "", nil)
}

func (v *visitor) post(path string, form url.Values) answer {
	v.w.t.Helper()
	return v.w.send(v.client, "POST", path, form.Encode(), func(r *http.Request) {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	})
}

var formField = regexp.MustCompile(`name="form" value="([^"]+)"`)

// submit sends a form with the token of a page.
func (v *visitor) submit(page, path string, form url.Values) answer {
	v.w.t.Helper()
	found := formField.FindStringSubmatch(v.get(page).body)
	if found == nil {
		v.w.t.Fatalf("%s has no form", page)
	}
	form.Set("form", found[1])
	return v.post(path, form)
}

// entries are those of the audit log, the newest first.
func (w *world) entries() []Entry {
	w.t.Helper()
	all, _, damaged, err := w.audit.page(0, 1000)
	must(w.t, err)
	if damaged > 0 {
		w.t.Errorf("%d damaged lines in the audit log", damaged)
	}
	return all
}

// decoded reads JSON.
func decoded[T any](t testing.TB, text string) (v T) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader([]byte(text)))
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return v
}
