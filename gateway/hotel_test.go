// A test of the hotel in the manual: one configuration, and five kinds of guests, each with its own way in.

package gateway

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/gateweigh/gateweigh/gateway/config"
	"github.com/gateweigh/gateweigh/gateway/control"
	"github.com/gateweigh/gateweigh/gateway/session"
	"github.com/gateweigh/gateweigh/gateway/voucher"
	"github.com/gateweigh/gateweigh/internal/netnstest"
	"github.com/gateweigh/gateweigh/internal/oidctest"
)

// hotelPage shows the files of the hotel, each after a line that begins with its path.
const hotelPage = "../docs/hotel.md"

var hotelFile = regexp.MustCompile("(?s)\n`/etc/gatewayd/([a-z.]+)`[^\n]*\n\n```[a-z]*\n(.*?)```")

// hotelPortal is the URL of the hotel's portal, as in the page.
const hotelPortal = "https://wifi.hotel.example:8443"

// hotelDevices are the hotel's devices: namespace, whose link is its first letter and 0, and MAC address. The
// television's is that in the page.
var hotelDevices = map[string]string{
	"visitor": "00:00:5e:00:53:01", "room": "00:00:5e:00:53:02", "phone": "00:00:5e:00:53:03",
	"tv": "00:00:5e:00:53:04", "employee": "00:00:5e:00:53:05",
}

// openHotel plugs the hotel's devices into network's hub, starts the provider and the Internet, and returns the
// configuration of the page, with its files. In network's own client sits a stranger.
func openHotel(t *testing.T) (*config.Config, *oidctest.Provider) {
	t.Helper()
	network(t)
	for name, mac := range hotelDevices {
		addr, err := net.ParseMAC(mac)
		must(t, err)
		addClient(t, name, name[:1], addr)
	}
	provider := startProvider(t, oidctest.Config{Host: "login.hotel.example",
		Accounts: map[string]map[string]any{"carla": {"email": "carla@hotel.example", "email_verified": true}},
		Clients: []oidctest.Client{{ID: "gatewayd", Secret: providerSecret,
			RedirectURIs: []string{hotelPortal + "/oidc/staff/callback"}}}})
	dir := t.TempDir()
	must(t, os.Chmod(dir, 0o700))
	write := func(name, text string) { must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600)) }
	page, err := os.ReadFile(hotelPage)
	must(t, err)
	files := map[string]string{}
	for _, m := range hotelFile.FindAllStringSubmatch(string(page), -1) {
		files[m[1]] = m[2]
	}
	if got := slices.Sorted(maps.Keys(files)); !slices.Equal(got, []string{"devices", "gatewayd.toml", "rooms"}) {
		t.Fatalf("%s shows the files %q", hotelPage, got)
	}
	// Where the test has its files is all that it adds.
	files["gatewayd.toml"] = fmt.Sprintf("state_dir = %q\nrun_dir = %q\n%s\n[datapath]\n%s\n",
		filepath.Join(dir, "state"), dir, files["gatewayd.toml"], onEBPF)
	ca, err := os.ReadFile(provider.Cert)
	must(t, err)
	files["login-ca.pem"], files["staff.secret"] = string(ca), providerSecret+"\n"
	for name, text := range files {
		write(name, text)
	}
	cert, key := oidctest.Certificate(t, dir, "wifi.hotel.example")
	must(t, os.Rename(cert, filepath.Join(dir, "portal.crt")))
	must(t, os.Rename(key, filepath.Join(dir, "portal.key")))
	cfg, err := config.Load(filepath.Join(dir, "gatewayd.toml"))
	must(t, err)
	if found := CheckFiles(cfg); len(found) > 0 {
		t.Errorf("check-config finds %+v", found)
	}
	return cfg, provider
}

// hotelReaches holds that exactly these devices reach the server.
func hotelReaches(t *testing.T, when string, want ...string) {
	t.Helper()
	for _, name := range append(slices.Sorted(maps.Keys(hotelDevices)), "client") {
		in := slices.Contains(want, name)
		flags := "-c 2 -i 0.1 -W 0.2 "
		if in {
			flags = "-c 1 -W 5 "
		}
		if _, err := try("ip netns exec " + name + " ping " + flags + outside); (err == nil) != in {
			t.Errorf("%s: %s reaches the server: %v", when, name, err == nil)
		}
	}
}

// hotelSession is a device's session, once it is in a state.
func hotelSession(t *testing.T, d daemon, name string, state control.State) (found control.Session) {
	t.Helper()
	netnstest.Await(t, fmt.Sprintf("%s to be %s", name, state), func() error {
		for _, s := range d.sessions(t) {
			if s.MAC == hotelDevices[name] {
				if found = s; s.State == state {
					return nil
				}
				return fmt.Errorf("it is %+v", s)
			}
		}
		return errors.New("it has no lease")
	})
	return found
}

// ask asks for a page, and comes to the login page.
func (p *person) ask(t *testing.T) {
	t.Helper()
	if at := p.navigate(t, chromedp.Navigate(wanted)); !strings.HasPrefix(at, hotelPortal+"/login") {
		t.Fatalf("%s asked for %s, and came to %s", p.name, wanted, at)
	}
}

// rememberPhone has the phone's person log in with the box for remembering checked, and the phone leave afterwards: its
// session has ended when this returns, as it does when a device was silent for long.
func rememberPhone(t *testing.T, cfg *config.Config) {
	t.Helper()
	d, g := serveAs(t, cfg)
	leaseIn(t, "phone", "p0")
	code, page := sendGuestBy(t, "ip netns exec phone curl -sk --max-time 30 ", "https://10.1.0.1:8443", "305",
		"Van der Berg")
	if code != "303" {
		t.Fatalf("the phone's person is answered by %s:\n%s", code, page)
	}
	s := hotelSession(t, d, "phone", session.Authenticated)
	must(t, g.table.Kick(s.Addr, s.ID, session.IdleTimeout))
	hotelSession(t, d, "phone", session.PreAuth)
	sh(t, "ip -n phone addr flush dev p0")
	must(t, d.stop())
}

// checkHotelSessions holds that the list of sessions has all five with their names, ways in and limits.
func checkHotelSessions(t *testing.T, d daemon) (ids map[string]string) {
	t.Helper()
	ids = map[string]string{}
	const hour, day = 3600., 24 * 3600.
	for name, want := range map[string]struct {
		user     string
		way      session.Way
		up, down uint64  // bits a second
		bytes    uint64  // at most; 100 kB may have been used
		time     float64 // seconds at most; an hour may have passed
	}{
		"visitor":  {user: "voucher:lobby-1", down: 30e6, time: day},
		"room":     {user: "room:204", up: 10e6, down: 50e6, bytes: 5e9, time: 20 * hour},
		"phone":    {user: "room:305", way: session.Remembered, up: 10e6, down: 50e6, bytes: 5e9, time: 20 * hour},
		"tv":       {user: "television in the lobby", way: session.ByList, down: 20e6},
		"employee": {user: "carla@hotel.example", down: 100e6, time: 10 * hour},
	} {
		s := hotelSession(t, d, name, session.Authenticated)
		ids[name] = s.ID
		l := s.Limits
		if s.User != want.user || s.Way != want.way || l.UpBps != want.up || l.DownBps != want.down ||
			l.TotalBytes > want.bytes || l.TotalBytes+100_000 < want.bytes || s.UpBytes == 0 || s.DownBytes == 0 ||
			l.SessionTimeoutSeconds > want.time || l.SessionTimeoutSeconds+hour < want.time {
			t.Errorf("the session of %s is %+v, want %+v", name, s, want)
		}
		if (name == "tv") != (l.IdleTimeoutSeconds == 0 && s.Left.SessionSeconds == nil) {
			t.Errorf("%s has the times %+v, and left %+v", name, l, s.Left)
		}
	}
	return ids
}

// TestHotel has a hotel's five kinds of guests come in, each in its own way, with the files that docs/hotel.md shows. A
// restart ends nobody's session. A voucher that is revoked and a room that checks out put out theirs, and nobody else.
// The page's pictures are made by
//
//	GATEWAYD_TEST_SHOTS=$PWD/docs go test ./gateway -run 'TestHotel$'
//
// Long: the steps of one run, each of which needs the state that the one before left.
func TestHotel(t *testing.T) {
	cfg, provider := openHotel(t)
	t.Cleanup(func() { must(t, Detach(cfg, false)) }) // once it has ended
	rememberPhone(t, cfg)
	d := serve(t, cfg)
	c, err := control.Dial(cfg.ControlSocket())
	must(t, err)
	var code voucher.Voucher
	must(t, c.CreateVouchers(t.Context(), control.VouchersRequest{Batch: "lobby", Count: 1,
		Terms: voucher.Terms{ForSeconds: 24 * 3600, Devices: 2, DownBps: 30e6}},
		func(v voucher.Voucher) error { code = v; return nil }))

	lease(t)
	for _, name := range []string{"visitor", "room", "employee"} {
		leaseIn(t, name, name[:1]+"0")
	}
	hotelReaches(t, "before anybody came in")
	leaseIn(t, "tv", "t0")
	leaseIn(t, "phone", "p0")
	hotelSession(t, d, "tv", session.Authenticated)
	hotelSession(t, d, "phone", session.Authenticated)
	hotelReaches(t, "without a login", "tv", "phone")

	t.Run("visitor", func(t *testing.T) {
		p := newGuest(t, "visitor", "hotel-visitor")
		p.ask(t)
		p.navigate(t, chromedp.SendKeys("#code", strings.ToLower(code.Code.String())+"\r"))
		p.arrives(t, hotelPortal+"/status")
	})
	t.Run("room", func(t *testing.T) {
		p := newGuest(t, "room", "hotel-room")
		p.ask(t)
		p.expectPage(t, "login", "Hotel Aurora", "Staff account", "(?i)voucher", "(?i)room", "kindly")
		p.navigate(t, chromedp.Click(`input[name="accept"]`), chromedp.SendKeys("#room", "204"),
			chromedp.SendKeys("#last_name", "garcia\r"))
		p.arrives(t, hotelPortal+"/status")
		p.expectPage(t, "status", "204", "(?i)left today", "GB")
	})
	t.Run("employee", func(t *testing.T) {
		p := newGuest(t, "employee", "hotel-employee")
		p.ask(t)
		p.navigate(t, chromedp.Click(`button[value="staff"]`))
		p.arrives(t, provider.Issuer+"/interaction/")
		p.logInAt(t, provider, "carla")
		p.arrives(t, hotelPortal+"/status")
	})
	if t.Failed() {
		return
	}
	all := slices.Collect(maps.Keys(hotelDevices))
	hotelReaches(t, "with everybody in", all...)
	ids := checkHotelSessions(t, d)

	must(t, d.stop())
	hotelReaches(t, "without the daemon", all...)
	d = serve(t, cfg)
	hotelReaches(t, "after a restart", all...)
	if again := checkHotelSessions(t, d); !maps.Equal(again, ids) {
		t.Errorf("after a restart the sessions are %v, before it %v", again, ids)
	}

	c, err = control.Dial(cfg.ControlSocket())
	must(t, err)
	reply, err := c.RevokeVouchers(t.Context(), "lobby-1")
	if must(t, err); reply != (control.RevokeReply{Vouchers: 1, Sessions: 1}) {
		t.Errorf("revoking says %+v", reply)
	}
	hotelReaches(t, "with the voucher revoked", "room", "phone", "tv", "employee")
	must(t, c.Vouchers(t.Context(), "lobby-1", func(v voucher.Voucher) error {
		if v.UsedBytes == 0 || v.Sessions != 0 {
			t.Errorf("the revoked voucher is %+v", v)
		}
		return nil
	}))
	rooms := cfg.Click.Rooms
	must(t, errors.Join(os.WriteFile(rooms+".new", []byte("305; van der Berg\n"), 0o600), os.Rename(rooms+".new", rooms)))
	if s := hotelSession(t, d, "room", session.PreAuth); s.LastEnd.Cause != session.SessionTimeout {
		t.Errorf("after the check-out the room's session ended by %s", s.LastEnd.Cause)
	}
	hotelReaches(t, "with room 204 checked out", "phone", "tv", "employee")
	for _, name := range []string{"phone", "tv", "employee"} {
		if s := hotelSession(t, d, name, session.Authenticated); s.ID != ids[name] {
			t.Errorf("the session of %s is another: %+v", name, s)
		}
	}
}
