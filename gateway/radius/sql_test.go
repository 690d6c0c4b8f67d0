// A test of the recipe in docs/accounting.md: accounting in PostgreSQL, and limits of a day and a month.

package radius

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/gateway/session"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// database is a PostgreSQL server and a FreeRADIUS server with files and processes of their own. The machine's stay as
// they are.
type database struct {
	pid    int // of the first process there
	blocks map[string]string
}

// openDatabase starts both as the page says, with Debian's files.
func openDatabase(t *testing.T) *database {
	t.Helper()
	d := &database{blocks: blocksOf(t, "../../docs/accounting.md")}
	cmd := exec.Command("unshare", "--mount", "--pid", "--fork", "--kill-child=KILL", "--mount-proc", "sh", "-ec", `
mount -t tmpfs none /run
for folder in /etc/freeradius /etc/postgresql /var/lib/postgresql /var/log/freeradius /var/log/postgresql \
	/run/postgresql /run/freeradius; do
	own=$1$folder
	mkdir -p "$own" "$folder"
	case $folder in
	/etc/freeradius) cp -a "$folder/." "$own" ;;
	*postgresql) chown postgres: "$own" ;;
	*) chown freerad: "$own" ;;
	esac
	mount --bind "$own" "$folder"
done
chmod 2775 /run/postgresql
echo mounted
exec sleep infinity`, "sh", t.TempDir())
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := netnstest.Start(cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	if n, err := out.Read(make([]byte, 16)); n == 0 {
		t.Fatalf("the namespaces: %v", err)
	}
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", cmd.Process.Pid))
	if err == nil {
		d.pid, err = strconv.Atoi(strings.TrimSpace(string(children)))
	}
	if err != nil {
		t.Fatal(err)
	}
	d.run(t, `chmod 755 "$(dirname /var/lib/postgresql)"
version=$(ls /usr/lib/postgresql | sort -n | tail -1)
pg_createcluster --start-conf manual "$version" main --locale C.UTF-8 -- -A peer >/dev/null
pg_ctlcluster --skip-systemctl-redirect "$version" main start`)
	return d
}

// run runs a script there, and returns what it printed.
func (d *database) run(t *testing.T, script string) string {
	t.Helper()
	out, err := exec.Command("nsenter", "--mount", "--pid", "--target", strconv.Itoa(d.pid), "sh", "-euc",
		"PATH=$PATH:/usr/sbin:/sbin\n"+script).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", script, err, out)
	}
	return string(out)
}

// blocksOf returns the named blocks of code of a page.
func blocksOf(t *testing.T, page string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for i, part := range strings.Split(string(text), "```") {
		head, code, _ := strings.Cut(part, "\n")
		if _, name, named := strings.Cut(head, " "); i%2 == 1 && named {
			all[name] = code
		}
	}
	return all
}

// told tells the server of a session that has ended.
func told(t *testing.T, c *Client, user string, began, ended time.Time, bytes uint64) {
	t.Helper()
	err := c.Account(t.Context(), session.Event{Kind: session.Ended, Cause: session.UserRequest, At: ended,
		Session: session.Session{Key: testKey, State: session.Authenticated, ID: session.NewID(), Began: began,
			Login: session.Login{User: user}, Counts: session.Counts{UpBytes: bytes / 4, DownBytes: bytes - bytes/4}}})
	if err != nil {
		t.Fatal(err)
	}
}

// TestAccountingInDatabase: with the recipe a day's and a month's limits of time and data hold to the second and the
// byte, and the query says what everybody used. The server's time zone is one in which it is noon, so that a day has
// room before and after. Long: the steps of one day of two users.
func TestAccountingInDatabase(t *testing.T) {
	d, hour := openDatabase(t), time.Now().UTC().Hour()
	zone := time.FixedZone("noon", (12-hour)*3600)
	replace := strings.NewReplacer("192.0.2.1", "127.0.0.1", "a long and random text", testSecret,
		"systemctl restart freeradius", fmt.Sprintf("TZ=GWT%+d freeradius -l /var/log/freeradius/log || "+
			"{ freeradius -XC | tail -20; exit 1; }", hour-12))
	const folder = "cd /etc/freeradius/3.0\n"
	d.run(t, d.blocks["database"])
	d.run(t, folder+d.blocks["limits"])
	d.run(t, folder+"sed -i 's/ipaddr = 127.0.0.1$/ipaddr = 127.0.0.77/' clients.conf") // gatewayd is there here
	d.run(t, folder+replace.Replace(d.blocks["client"]))
	d.run(t, d.blocks["users"])
	loopback := netip.MustParseAddr("127.0.0.1")
	c := newClient(t, Config{Servers: []Server{{Address: netip.AddrPortFrom(loopback, 1812),
		AcctAddress: netip.AddrPortFrom(loopback, 1813), Secret: testSecret}}, NASAddress: loopback})
	left := func(state, user, password string, want session.Limits) {
		t.Helper()
		l, err := c.Authenticate(t.Context(), session.Credentials{User: user, Password: password, Key: testKey})
		if want == (session.Limits{}) {
			if !errors.Is(err, session.ErrRejected) {
				t.Errorf("%s used: %+v, %v", state, l.Limits, err)
			}
		} else if err != nil || l.Limits != want {
			t.Errorf("%s: %+v, %v, want %+v", state, l.Limits, err, want)
		}
	}
	year, month, day := time.Now().In(zone).Date()
	today := time.Date(year, month, day, 0, 0, 0, 0, zone)
	left("nothing used", "ann", "tulip", session.Limits{SessionTimeout: time.Hour})
	told(t, c, "ann", today.Add(-1000*time.Second), today.Add(500*time.Second), 7)
	left("500 s of a session over midnight", "ann", "tulip", session.Limits{SessionTimeout: 3100 * time.Second})
	told(t, c, "ann", today.Add(time.Hour), today.Add(time.Hour+3099*time.Second), 8)
	left("all but a second", "ann", "tulip", session.Limits{SessionTimeout: time.Second})
	told(t, c, "ann", today.Add(2*time.Hour), today.Add(2*time.Hour+time.Second), 9)
	left("an hour", "ann", "tulip", session.Limits{})
	left("no data", "ben", "rose", session.Limits{TotalBytes: 2_000_000_000})
	told(t, c, "ben", today.Add(time.Hour), today.Add(2*time.Hour), 1_999_999_999)
	left("all but a byte", "ben", "rose", session.Limits{TotalBytes: 1})
	told(t, c, "ben", today.Add(3*time.Hour), today.Add(4*time.Hour), 1)
	left("all", "ben", "rose", session.Limits{})
	ofMonth := strings.NewReplacer("'ann'", "'dora'", "'36000'", "'10000'",
		"'ben'", "'dora'", "'3000000000'", "'6000000000'",
		"('ann', 'Max-Daily-Session', ':=', '3600'),", "",
		"('ben', 'Max-Daily-Data', ':=', '2000000000'),", "")
	d.run(t, ofMonth.Replace(d.blocks["users"]))
	told(t, c, "dora", today.Add(time.Hour), today.Add(2*time.Hour), 100)
	left("a month's", "dora", "tulip", session.Limits{SessionTimeout: 6400 * time.Second, TotalBytes: 5_999_999_900})
	rows := d.run(t, "su -s /bin/sh freerad -c 'psql -qAt radius' <<'END'\n"+
		fmt.Sprintf("SET TIME ZONE '%s';\n", today.Format("-07"))+d.blocks["usage"]+"END")
	yesterday, now := today.AddDate(0, 0, -1).Format(time.DateOnly), today.Format(time.DateOnly)
	want := fmt.Sprintf(
		"%s|ann|1500|1|6\n%s|ann|3100|4|13\n%[2]s|ben|7200|499999999|1500000001\n%[2]s|dora|3600|25|75\n", yesterday, now)
	if rows != want {
		t.Errorf("what they used:\n%swant\n%s", rows, want)
	}
}
