package admin

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

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

// TestNothingUnaudited: what cannot be written to the audit log is not done.
func TestNothingUnaudited(t *testing.T) {
	w := newWorld(t, 3)
	must(t, w.audit.file.Close())
	a := w.as("ann", "DELETE", "/api/v1/sessions/"+addrOf(1).String(), nil)
	if a.StatusCode != 503 || !w.online(1) {
		t.Errorf("answered %s", a.Status)
	}
	f, err := os.Open(filepath.Join(w.dir, auditName))
	must(t, err)
	w.audit.file = f // for Close
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
