// Tests of clients that come in by a click, with a list of rooms and so much a day.

package gateway

import (
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/gateway/config"
	"github.com/gateweigh/gateweigh/gateway/control"
	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/device"
	"github.com/gateweigh/gateweigh/gateway/rooms"
	"github.com/gateweigh/gateweigh/gateway/session"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// hotel is the configuration of a house with a list of rooms, and further keys of [click_through] and others.
func hotel(t *testing.T, dir, keys string) *config.Config {
	t.Helper()
	cfg, err := config.Parse(filepath.Join(dir, "gatewayd.toml"), fmt.Appendf(nil, `
state_dir = "%[1]s/state"
run_dir = "%[1]s"
[lan]
interface = "lan0"
address = "10.1.0.1/24"
[wan]
interface = "wan0"
[dns]
upstreams = ["192.0.2.2"]
[portal]
terms = "Be kind."
[auth]
methods = ["click-through"]
[datapath]
%[2]s
[click_through]
terms = "box"
ask = ["room", "last_name", "email"]
optional = ["email"]
rooms = "rooms"
%[3]s
`, dir, onEBPF, keys))
	must(t, err)
	return cfg
}

// sendGuest sends the form of a click with a room and a last name, and returns the answer's code and page.
func sendGuest(t *testing.T, room, lastName string) (code, page string) {
	t.Helper()
	return sendGuestBy(t, curl, home, room, lastName)
}

// sendGuestBy is sendGuest by a command that begins so, at a portal.
func sendGuestBy(t *testing.T, curl, portal, room, lastName string) (code, page string) {
	t.Helper()
	page = sh(t, curl+portal+`/login`)
	token := regexp.MustCompile(`name="token" value="([^"]+)"`).FindStringSubmatch(page)
	accept := regexp.MustCompile(`name="accept" value="([^"]+)"`).FindStringSubmatch(page)
	if token == nil || accept == nil {
		t.Fatalf("no form on the login page:\n%s", page)
	}
	answer := sh(t, curl+`-w '\n%{http_code}' -d token=`+token[1]+` -d method=click -d accept=`+accept[1]+` -d remember=1`+
		` -d room=`+room+` -d last_name=`+url.QueryEscape(lastName)+` -d email=ada@example.org `+portal+`/login`)
	i := strings.LastIndexByte(strings.TrimSpace(answer), '\n')
	return strings.TrimSpace(answer)[i+1:], answer
}

// awaitState waits until the only client is in a state.
func awaitState(t *testing.T, d daemon, state control.State) control.Session {
	t.Helper()
	return awaitClient(t, d, fmt.Sprintf("the client is %s", state), func(s control.Session) bool {
		return s.State == state
	})
}

// TestGuestOfARoom takes a hotel guest through a wrong name, a login, a restart, the end of the day's data, another
// allowance, and the guest's departure. Long: the steps of one run, each of which needs the state that the one before
// left.
func TestGuestOfARoom(t *testing.T) {
	network(t)
	dir := t.TempDir()
	list := filepath.Join(dir, "rooms")
	replace := func(text string) {
		must(t, os.WriteFile(list+".new", []byte(text), 0o600))
		must(t, os.Rename(list+".new", list))
	}
	replace("# rooms\n204; García; 2099-12-31\n")
	log := &logOf{}
	serveHotel := func(keys string) daemon {
		return serveLogging(t, hotel(t, dir, keys), slog.New(slog.NewTextHandler(log, nil)))
	}
	begins := time.Now().Add(12 * time.Hour).Format("15:04") // the test's day must not be over meanwhile
	limited := fmt.Sprintf("daily_time = \"2h\"\nroom_daily_data = \"400kB\"\nday_begins = %q", begins)
	d := serveHotel(limited)
	t.Cleanup(func() { must(t, Detach(d.cfg, false)) })
	lease(t)
	if code, page := sendGuest(t, "204", "Smith"); code != "200" || !strings.Contains(page, "We did not find") ||
		clientReachesServer() {
		t.Errorf("a wrong name is answered by %s:\n%s", code, page)
	}
	if code, page := sendGuest(t, "204", " GARCIA "); code != "303" || !clientReachesServer() {
		t.Fatalf("the guest is answered by %s:\n%s", code, page)
	}
	s := d.client(t)
	if s.User != "room:204" || s.Guest == nil || s.Guest.Terms == "" || s.Guest.Email != "ada@example.org" ||
		s.Limits.SessionTimeoutSeconds > 7200 || s.Limits.SessionTimeoutSeconds < 7000 || s.Limits.TotalBytes != 400_000 {
		t.Errorf("the session is %+v, of %+v", s, s.Guest)
	}
	if want := "terms=" + s.Guest.Terms + " room=204"; !strings.Contains(log.String(), want) {
		t.Errorf("the log has no %q:\n%s", want, log.String())
	}

	must(t, d.stop())
	if !clientReachesServer() {
		t.Error("without the daemon the guest is cut off")
	}
	d = serveHotel(limited)
	if again := d.client(t); again.ID != s.ID || again.Guest == nil || *again.Guest != *s.Guest {
		t.Errorf("after a restart the session is %+v, of %+v", again, again.Guest)
	}
	_, _ = try("ip netns exec client ping -q -f -c 400 -w 5 -s 1400 192.0.2.2") // more than is left
	awaitState(t, d, session.PreAuth)
	netnstest.Await(t, "the day is used up", func() error {
		code, page := sendGuest(t, "204", "García")
		if code != "200" || !strings.Contains(page, "all of today&#39;s") || !strings.Contains(page, begins) {
			return fmt.Errorf("answered by %s:\n%s", code, page)
		}
		return nil
	})
	must(t, d.stop())
	d = serveHotel(limited)
	if code, page := sendGuest(t, "204", "García"); code != "200" || !strings.Contains(page, "all of today&#39;s") {
		t.Errorf("after another restart the guest is answered by %s:\n%s", code, page)
	}

	must(t, d.stop())
	d = serveHotel("daily_time = \"3h\"")
	if code, page := sendGuest(t, "204", "García"); code != "303" || !clientReachesServer() {
		t.Fatalf("with another allowance the guest is answered by %s:\n%s", code, page)
	}
	id := d.client(t).ID
	replace("204; García\n205 Smith\n") // a mistake
	netnstest.Await(t, "the status names the mistake", func() error {
		c, err := control.Dial(d.cfg.ControlSocket())
		must(t, err)
		st, err := c.Status(t.Context())
		must(t, err)
		if st.Rooms == nil || st.Rooms.Guests != 1 || !strings.HasPrefix(st.Rooms.Problem, list+":2: \"205 Smith\"") {
			return fmt.Errorf("it says %+v", st.Rooms)
		}
		return nil
	})
	must(t, os.Remove(list))
	netnstest.Await(t, "the status misses the file", func() error {
		c, err := control.Dial(d.cfg.ControlSocket())
		must(t, err)
		st, err := c.Status(t.Context())
		must(t, err)
		if st.Rooms == nil || st.Rooms.Guests != 1 || !strings.Contains(st.Rooms.Problem, "no such file") {
			return fmt.Errorf("it says %+v", st.Rooms)
		}
		return nil
	})
	must(t, d.stop()) // without a list the gateway starts too
	d = serveHotel("daily_time = \"3h\"")
	if got := d.client(t); got.ID != id || !clientReachesServer() {
		t.Errorf("a file with a mistake, or none, ended the session: %+v", got)
	}
	if want := "who has which room is not known"; !strings.Contains(log.String(), want) {
		t.Errorf("the log has no %q", want)
	}
	replace("204; Smith\n") // the next guest
	if s := awaitState(t, d, session.PreAuth); s.LastEnd.Cause != session.SessionTimeout {
		t.Errorf("the session ended by %s", s.LastEnd.Cause)
	}
	if code, _ := sendGuest(t, "204", "García"); code != "200" || clientReachesServer() {
		t.Errorf("a guest who has left is answered by %s", code)
	}
}

// TestRememberedGuest: a guest's remembered device comes in again without a click as long as the room is theirs, with
// what is left of the day, and not once the room is another's.
func TestRememberedGuest(t *testing.T) {
	network(t)
	dir := t.TempDir()
	list := filepath.Join(dir, "rooms")
	must(t, os.WriteFile(list, []byte("204; García\n"), 0o600))
	d := serve(t, hotel(t, dir, "daily_data = \"1GB\"\n[devices]\nremember = \"30d\""))
	t.Cleanup(func() { must(t, Detach(d.cfg, false)) })
	lease(t)
	if code, page := sendGuest(t, "204", "García"); code != "303" || !clientReachesServer() {
		t.Fatalf("the guest is answered by %s:\n%s", code, page)
	}
	s := d.client(t)
	g := d.cfg
	must(t, d.stop())
	must(t, os.Remove(filepath.Join(g.StateDir, "sessions.db"))) // the session is gone, and the device remembered
	d = serve(t, g)
	lease(t)
	again := awaitWay(t, d, session.Authenticated, session.Remembered)
	if again.ID == s.ID || again.User != "room:204" || again.Guest == nil || *again.Guest != *s.Guest ||
		again.Limits.TotalBytes == 0 || again.Limits.TotalBytes > 1_000_000_000 {
		t.Errorf("the session is %+v, of %+v", again, again.Guest)
	}
	must(t, os.WriteFile(list, []byte("204; Smith\n"), 0o600))
	awaitWay(t, d, session.PreAuth, "")
	if clientReachesServer() {
		t.Error("a guest who has left still passes")
	}
}

// TestCheckRooms: what is wrong with the list of rooms is found with its line before the gateway starts.
func TestCheckRooms(t *testing.T) {
	dir := t.TempDir()
	cfg := hotel(t, dir, "")
	list := filepath.Join(dir, "rooms")
	for text, want := range map[string]string{
		"":                          "has no room",
		"204; García; 3.12.2026\n":  `:1: room 204: "3.12.2026" is no date`,
		"204; García; 2020-12-03\n": "no guest whose time is not over",
		"204; a; 2026-12-03; b\n":   ":1: a line has at most three parts",
	} {
		must(t, os.WriteFile(list, []byte(text), 0o600))
		var all []string
		for _, f := range CheckFiles(cfg) {
			all = append(all, f.Text)
		}
		if got := strings.Join(all, "\n"); !strings.Contains(got, want) || !strings.Contains(got, list) {
			t.Errorf("%q: found %q, want %q", text, got, want)
		}
	}
	must(t, os.WriteFile(list, []byte("204; García\n"), 0o600))
	must(t, os.Chmod(list, 0o644))
	if found := CheckFiles(cfg); len(found) == 0 || !strings.Contains(found[0].Text, "chmod 640") {
		t.Errorf("a list that everybody reads: %v", found)
	}
	must(t, os.Remove(list))
	if found := CheckFiles(cfg); len(found) == 0 || !strings.Contains(found[0].Text, list) ||
		!strings.Contains(found[0].Text, "write a guest a line") {
		t.Errorf("a list that is missing: %v", found)
	}
}

// TestStillGuest: a remembered guest comes in as one who clicks now would: there is the method, and a room, where they
// are asked for. As long as nobody knows the rooms nobody is refused, and no session ends.
func TestStillGuest(t *testing.T) {
	dir := t.TempDir()
	list := filepath.Join(dir, "rooms")
	must(t, os.WriteFile(list, []byte("204; García\n"), 0o600))
	none, garcia, smith := session.Guest{Name: "Ada"}, session.Guest{Room: "204", LastName: "García"},
		session.Guest{Room: "204", LastName: "Smith"}
	asked := hotel(t, dir, "")
	optional, free, closed := *asked, *asked, *asked
	optional.Click.Optional = []string{config.AskRoom, config.AskLastName}
	free.Click.Ask, free.Click.Optional, free.Click.Rooms = nil, nil, ""
	closed.Auth.Methods = []string{config.MethodVoucher}
	read := rooms.Begin(list, time.UTC, slog.New(slog.DiscardHandler))
	unread := rooms.Begin(list+".missing", time.UTC, slog.New(slog.DiscardHandler))
	for name, tt := range map[string]struct {
		cfg   *config.Config
		rooms *rooms.File
		guest session.Guest
		want  error
	}{
		"their room":              {asked, read, garcia, nil},
		"another's room":          {asked, read, smith, session.ErrRejected},
		"no room":                 {asked, read, none, session.ErrRejected},
		"no room, which they may": {&optional, read, none, nil},
		"another's, optional":     {&optional, read, smith, session.ErrRejected},
		"rooms are not asked":     {&free, nil, none, nil},
		"rooms no longer asked":   {&free, nil, garcia, session.ErrRejected},
		"no method":               {&closed, read, garcia, session.ErrRejected},
		"no method, no room":      {&closed, read, none, session.ErrRejected},
		"rooms not known":         {asked, unread, smith, errRooms},
		"not known, no room":      {asked, unread, none, session.ErrRejected},
	} {
		g := &gateway{cfg: tt.cfg, rooms: tt.rooms}
		if err := g.stillGuest(&tt.guest); !errors.Is(err, tt.want) || (err == nil) != (tt.want == nil) {
			t.Errorf("%s: %v, want %v", name, err, tt.want)
		}
	}
	if left := (&gateway{rooms: unread}).endLeftOf(map[string]bool{"a": true}); len(left) != 0 { // it has no table
		t.Errorf("without a list %v have left", left)
	}
}

// TestListedDevicesStay: a device that came in by the file stays while the file cannot be read; others are refused, and
// are let in once it can.
func TestListedDevicesStay(t *testing.T) {
	path := filepath.Join(t.TempDir(), "devices")
	file := device.BeginFile(path, slog.New(slog.DiscardHandler))
	in, out := datapath.MAC{2, 0, 0, 0, 0, 1}, datapath.MAC{2, 0, 0, 0, 0, 2}
	l := listedDevices{file, listedOnes{in}}
	ask := func(mac datapath.MAC) error {
		_, err := l.Ask(t.Context(), session.Credentials{Key: session.Key{MAC: mac}})
		return err
	}
	if err := ask(in); !errors.Is(err, errListed) {
		t.Errorf("the device that is inside: %v", err)
	}
	if err := ask(out); !errors.Is(err, session.ErrRejected) {
		t.Errorf("the device outside: %v", err)
	}
	if _, problem := file.State(); problem == nil || !strings.Contains(problem.Error(), path) ||
		!strings.Contains(problem.Error(), "write a device a line") {
		t.Errorf("the problem is %v", problem)
	}
	must(t, os.WriteFile(path, []byte("02:00:00:00:00:02\n"), 0o600))
	if err := ask(in); !errors.Is(err, session.ErrRejected) {
		t.Errorf("the device that the file does not have: %v", err)
	}
	if err := ask(out); err != nil {
		t.Errorf("the device of the file: %v", err)
	}
}

// listedOnes has a session of a device that came in by the file.
type listedOnes struct{ mac datapath.MAC }

func (l listedOnes) ClientsOf(mac datapath.MAC) []session.Session {
	if mac != l.mac {
		return nil
	}
	return []session.Session{{Key: session.Key{MAC: mac}, Login: session.Login{Way: session.ByList}}}
}
