package admin

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/control"
	"github.com/gateweigh/gateweigh/gateway/voucher"
)

// decodedVouchers asks for a batch called lobby.
var decodedVouchers = control.VouchersRequest{Batch: "lobby", Count: 3,
	Terms: voucher.Terms{ForSeconds: 3600, Devices: 1}}

func quiet(t testing.TB) *slog.Logger { return slog.New(slog.DiscardHandler) }

// TestAuditOutlastsTornLines: whatever is at the end of the file after a power cut, entries before it are read, and
// later ones too.
func TestAuditOutlastsTornLines(t *testing.T) {
	for _, torn := range []string{"", `{"id":3,"at":"20`, "\x00\x00\x00", "{}\n", "\n\n"} {
		dir := t.TempDir()
		a, err := openAudit(dir, quiet(t))
		must(t, err)
		for i := range 2 {
			id, err := a.begin(person{Name: "ann", way: "page"}, "test", fmt.Sprint(i), nil)
			must(t, err)
			a.end(id, "done")
		}
		must(t, a.close()) // as kill -9: every entry was on the disk before
		f, err := os.OpenFile(filepath.Join(dir, auditName), os.O_APPEND|os.O_WRONLY, 0)
		must(t, err)
		_, err = f.WriteString(torn)
		must(t, err)
		must(t, f.Close())
		if a, err = openAudit(dir, quiet(t)); err != nil {
			t.Fatal(err)
		}
		if _, err = a.begin(person{Name: "bob", way: "api"}, "test", "later", nil); err != nil {
			t.Fatal(err)
		}
		page, _, _, err := a.page(0, 10)
		must(t, err)
		if len(page) != 3 || page[0].Object != "later" || page[0].Result != "" || page[2].Object != "0" ||
			page[2].Result != "done" || page[0].ID <= page[1].ID {
			t.Errorf("after %q: %+v", torn, page)
		}
		must(t, a.close())
	}
}

// TestAuditIsBounded: files are renamed by size and the oldest goes; IDs go on, and pages go through all files.
func TestAuditIsBounded(t *testing.T) {
	defer func(n int64) { auditBytes = n }(auditBytes)
	auditBytes = 2000
	dir := t.TempDir()
	a, err := openAudit(dir, quiet(t))
	must(t, err)
	const entries = 300
	for i := range entries {
		id, err := a.begin(person{Name: "ann"}, "test", fmt.Sprint(i), nil)
		must(t, err)
		a.end(id, "done")
	}
	files, err := filepath.Glob(filepath.Join(dir, auditName+"*"))
	must(t, err)
	if len(files) != auditFiles {
		t.Errorf("%d files", len(files))
	}
	var ids []uint64
	for before := uint64(0); ; {
		page, next, damaged, err := a.page(before, 7)
		must(t, err)
		if damaged > 0 {
			t.Fatalf("%d damaged lines", damaged)
		}
		for _, e := range page {
			ids = append(ids, e.ID)
		}
		if before = next; next == 0 {
			break
		}
	}
	if !slices.IsSortedFunc(ids, func(a, b uint64) int { return int(b) - int(a) }) || ids[0] != entries ||
		len(ids) < 50 || len(slices.Compact(ids)) != len(ids) {
		t.Errorf("entries %v", ids)
	}
	must(t, a.close())
	a, err = openAudit(dir, quiet(t))
	must(t, err)
	defer a.close()
	if id, err := a.begin(person{Name: "ann"}, "test", "", nil); err != nil || id != entries+1 {
		t.Errorf("the next entry is %d, %v", id, err)
	}
}

// breakAudit has the log fail until mend.
func (w *world) breakAudit() (mend func()) {
	w.t.Helper()
	path := w.audit.path(0)
	must(w.t, os.Rename(path, path+".away"))
	must(w.t, os.Symlink("/dev/full", path))
	must(w.t, w.audit.file.Close())
	return func() {
		must(w.t, os.Remove(path))
		must(w.t, os.Rename(path+".away", path))
	}
}

// TestNothingUnaudited: what cannot be written to the audit log is not done, a login and a search included, and is done
// again once the log can be written.
func TestNothingUnaudited(t *testing.T) {
	w := newWorld(t, 3)
	eve := w.logIn("eve")
	mend := w.breakAudit()
	one := "/api/v1/sessions/" + addrOf(1).String()
	for range 2 {
		if a := w.as("ann", "DELETE", one, nil); a.StatusCode != 503 || !w.online(1) {
			t.Errorf("ending a session is answered %s", a.Status)
		}
	}
	v := w.visitor()
	login := url.Values{"name": {"ann"}, "password": {"right"}}
	if a := v.post("/login", login); a.StatusCode != 503 || a.Header.Get("Set-Cookie") != "" {
		t.Errorf("a login is answered %s", a.Status)
	}
	whois := "/whois?endpoint=" + addrOf(1).String() + ":80"
	if a := eve.get(whois); a.StatusCode != 503 || strings.Contains(a.body, "user-1") {
		t.Errorf("a search is answered %s", a.Status)
	}
	mend()
	if a := eve.get(whois); !strings.Contains(a.body, "user-1") {
		t.Errorf("a search that is logged is answered %s, without who has the address", a.Status)
	}
	if a := eve.get(whois + "&at=2200-01-01T00:00:00Z"); strings.Contains(a.body, "user-1") {
		t.Errorf("a search of the future, which is not logged, tells who has the address: %s", a.Status)
	}
	if a := v.post("/login", login); a.StatusCode != 303 {
		t.Errorf("a login is answered %s", a.Status)
	}
	if a := w.as("ann", "DELETE", one, nil); a.StatusCode != 200 || w.online(1) {
		t.Errorf("ending a session is answered %s", a.Status)
	}
	var got []string
	for _, e := range w.entries() {
		got = append(got, e.Who+" "+e.Action)
	}
	want := []string{"ann session.end", "ann login", "eve whois", "eve login"}
	if !slices.Equal(got, want) {
		t.Errorf("the log has %q, want %q", got, want)
	}
}

// TestAuditWithoutNewFile: while no new file can be made, nothing is written, no former file is lost, and a damaged end
// of the file is ended by the next line. Long: the steps.
func TestAuditWithoutNewFile(t *testing.T) {
	defer func(n int64) { auditBytes = n }(auditBytes)
	auditBytes = 300
	dir := t.TempDir()
	a, err := openAudit(dir, quiet(t))
	must(t, err)
	defer a.close()
	begin := func() (uint64, error) { return a.begin(person{Name: "ann"}, "test", "", nil) }
	for a.size < auditBytes {
		_, err := begin()
		must(t, err)
	}
	for n := 1; n < auditFiles; n++ {
		must(t, os.WriteFile(a.path(n), fmt.Appendln(nil, n), 0o600))
	}
	var usual unix.Rlimit
	must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &usual))
	for range 2 * auditFiles { // renaming works, and opening does not
		must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 3, Max: usual.Max}))
		_, err := begin()
		must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &usual))
		if err == nil {
			t.Fatal("an entry was written without a file")
		}
	}
	if _, err := os.Lstat(a.path(0)); err == nil {
		t.Fatal("the large file was not shifted: the test tests nothing")
	}
	for n := 2; n < auditFiles; n++ {
		text, err := os.ReadFile(a.path(n))
		must(t, err)
		if string(text) != fmt.Sprintln(n-1) {
			t.Errorf("file %d is %q, the former file %d is lost", n, text, n-1)
		}
	}
	id, err := begin()
	must(t, err)
	if page, _, _, err := a.page(0, 2); err != nil || len(page) != 2 || page[0].ID != id || page[1].ID >= id {
		t.Errorf("%+v, %v", page, err)
	}
	must(t, a.file.Truncate(a.size-1)) // the line's end is lost with a disk's error
	must(t, a.file.Close())
	if _, err := begin(); err == nil {
		t.Error("an entry was written to a closed file")
	}
	later, err := begin()
	must(t, err)
	if page, _, _, err := a.page(0, 2); err != nil || len(page) != 2 || page[0].ID != later || page[1].ID != id {
		t.Errorf("after a torn line: %+v, %v", page, err)
	}
}

// TestAuditLastID: the newest file may hold but the result of a former entry.
func TestAuditLastID(t *testing.T) {
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, auditName), []byte("{\"id\":7,\"result\":\"done\"}\n"), 0o600))
	must(t, os.WriteFile(filepath.Join(dir, auditName+".1"), []byte("{\"id\":7,\"action\":\"x\"}\n{\"id\":9,\"action\":"+
		"\"x\"}\n"), 0o600))
	a, err := openAudit(dir, quiet(t))
	must(t, err)
	defer a.close()
	if id, err := a.begin(person{Name: "ann"}, "test", "", nil); err != nil || id != 10 {
		t.Errorf("the next entry is %d, %v", id, err)
	}
}

// TestBackwards: lines are read from the end, whatever blocks they cross.
func TestBackwards(t *testing.T) {
	var text []byte
	var want []string
	for i := range 200 {
		line := strings.Repeat(string(rune('a'+i%26)), i*i%(3*auditBlock/2))
		text = append(append(text, line...), '\n')
		want = append([]string{line}, want...)
	}
	var got []string
	must(t, backwards(bytes.NewReader(text), int64(len(text)), func(line []byte) bool {
		got = append(got, string(line))
		return true
	}))
	if len(got) != len(want)+1 || got[0] != "" || !slices.Equal(got[1:], want) {
		t.Errorf("%d lines, want %d and the empty end", len(got), len(want))
	}
}

// TestChangesAreAudited: the log has who did what, from where, and what became of it.
func TestChangesAreAudited(t *testing.T) {
	w := newWorld(t, 3)
	w.as("ann", "PATCH", "/api/v1/sessions/"+addrOf(1).String(), `{"add_seconds":60}`)
	w.as("backup", "DELETE", "/api/v1/sessions/"+addrOf(2).String(), nil)
	w.as("ann", "DELETE", "/api/v1/sessions/192.0.2.1", nil)
	w.as("eve", "GET", "/api/v1/whois?endpoint=203.0.113.5:40321", nil)
	var got bytes.Buffer
	for _, e := range w.entries() {
		fmt.Fprintln(&got, e.Who, e.From, e.Way, e.Action, e.Object, e.Result != "")
		if n := strings.TrimPrefix(e.Object, "10.0.0."); n != e.Object && (!strings.Contains(e.Details, `"user":"user-`+n) ||
			!strings.Contains(e.Details, `"mac":"02:00:00:00:00:0`+n) || !strings.Contains(e.Details, `"session":"`)) {
			t.Errorf("%s: the details do not name user, MAC address and session: %s", e.Object, e.Details)
		}
	}
	want := `eve 127.0.0.1 api whois 203.0.113.5:40321 true
ann 127.0.0.1 api session.end 192.0.2.1 true
backup 127.0.0.1 api session.end 10.0.0.2 true
ann 127.0.0.1 api session.change 10.0.0.1 true
`
	if got.String() != want {
		t.Errorf("got\n%swant\n%s", got.String(), want)
	}
}

// TestUsage: traffic is kept by hour and day, over restarts and beyond the daemon's absence, counters that began anew
// are counted from 0, and a clock that was wrong leaves nothing.
func TestUsage(t *testing.T) {
	dir := t.TempDir()
	u, err := openUsage(dir, quiet(t))
	must(t, err)
	at := time.Date(2026, 3, 1, 23, 30, 0, 0, time.Local)
	add := func(at time.Time, up, down uint64) {
		t.Helper()
		must(t, u.add(at, control.Status{Sessions: map[control.State]int{"authenticated": int(up % 7)},
			Traffic: control.Traffic{UpBytes: up, DownBytes: down}}))
	}
	add(at.Add(20*365*24*time.Hour), 1, 0) // the clock was wrong
	add(at, 100, 1000)
	add(at.Add(10*time.Minute), 150, 1500)
	must(t, u.save())
	u, err = openUsage(dir, quiet(t))
	must(t, err)
	add(at.Add(time.Hour), 250, 2500) // the next day
	add(at.Add(61*time.Minute), 0, 0) // not served
	add(at.Add(62*time.Minute), 10, 20)
	hours, days := u.of("", true)
	if len(hours) != 2 || len(days) != 2 || hours[0].UpBytes != 149 || hours[1].UpBytes != 110 ||
		days[1].DownBytes != 1020 {
		t.Errorf("hours %+v, days %+v", hours, days)
	}
	for i := range 2 * keptDays {
		add(at.Add(time.Duration(i)*24*time.Hour), uint64(i+1), 1)
	}
	if hours, days = u.of("", true); len(hours) != keptHours || len(days) != keptDays {
		t.Errorf("%d hours and %d days are kept", len(hours), len(days))
	}
	must(t, os.WriteFile(u.path, []byte("torn"), 0o600))
	if _, err = openUsage(dir, quiet(t)); err != nil {
		t.Errorf("a damaged file: %v", err)
	}
}

// TestUsageTogether: clients of several networks are counted together, and are not the sum of each network's most.
func TestUsageTogether(t *testing.T) {
	u, err := openUsage(t.TempDir(), quiet(t))
	must(t, err)
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.Local)
	for i, clients := range [][2]int{{30, 0}, {0, 20}, {12, 20}} {
		var all []control.Status
		for k, name := range []string{"guests", "staff"} {
			all = append(all, control.Status{Network: name, Traffic: control.Traffic{UpBytes: uint64(100 * (i + 1))},
				Sessions: map[control.State]int{"authenticated": clients[k]}})
		}
		must(t, u.add(at.Add(time.Duration(i)*time.Minute), control.Status{Networks: all}))
	}
	for label, want := range map[string]Slot{"": {at, 400, 0, 32}, "guests": {at, 200, 0, 30}, "staff": {at, 200, 0, 20}} {
		if hours, _ := u.of(label, label == ""); len(hours) != 1 || hours[0] != want {
			t.Errorf("%q: %+v, want %+v", label, hours, want)
		}
	}
}

// TestHealth: DNS is judged by its last minutes, and forwarding by the cache of flows is good.
func TestHealth(t *testing.T) {
	u, err := openUsage(t.TempDir(), quiet(t))
	must(t, err)
	status := control.Status{Datapath: "ebpf, flow cache", Why: "netfilter has rules in ip gatewayd-nat-lan0 forward",
		DNS: map[string]uint64{"query": 1000, "failed": 900}}
	words := func() (all []string) {
		for _, c := range newHealthBody(health{Status: status}, u.dnsSince).Checks {
			all = append(all, c.What+" "+c.Word)
		}
		return all
	}
	if got, want := words(), []string{"Data path good", "DNS warn"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.Local)
	for i := range 20 {
		must(t, u.add(at.Add(time.Duration(i)*time.Minute), status))
		status.DNS = map[string]uint64{"query": status.DNS["query"] + 100, "failed": 900}
	}
	status.Datapath = "ebpf, stack"
	if got, want := words(), []string{"Data path warn", "DNS good"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
