// Devices that come in without a login: by their MAC address, asked of FreeRADIUS, and after a login.

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/gateway/control"
	"github.com/gateweigh/gateweigh/gateway/session"
)

// add appends to a file of the world's folder.
func (w *world) add(name, text string) {
	w.t.Helper()
	f, err := os.OpenFile(filepath.Join(w.Dir, name), os.O_APPEND|os.O_WRONLY, 0)
	must(w.t, err)
	defer f.Close()
	_, err = f.WriteString(text)
	must(w.t, err)
}

// station is the client's MAC address as RFC 3580 has it.
func (c *client) station() string {
	mac := c.w.sh("ip -n $ID-" + c.host + " -br link show c0 | awk '{print $3}'")
	return strings.ToUpper(strings.ReplaceAll(mac, ":", "-"))
}

// awaitWay waits until the client has a state, by a way in.
func (c *client) awaitWay(state control.State, way session.Way) (s control.Session) {
	c.w.t.Helper()
	eventually(c.w.t, fmt.Sprintf("%s is %s by %q", c.addr, state, way), func() error {
		if s = c.session(); s.State != state || s.Way != way {
			return fmt.Errorf("it is %s by %q", s.State, s.Way)
		}
		return nil
	})
	return s
}

// looksAround has the client look at the web, and returns what it gets.
func (c *client) looksAround() string {
	c.w.t.Helper()
	out, _ := c.try(curl + `-o /dev/null -w '%{http_code} %{redirect_url}' http://` + serverAddr.String() + `/`)
	return out
}

// TestDevicesByRADIUS: a television comes in by its MAC address, with the server's limits, and is accounted for as
// others, also after a Disconnect-Request; a refused device sees the portal, and is remembered after a login there,
// also when the daemon is killed and all sessions are lost; while the server is away, devices see the portal at once
// and are asked about again; a device that the server no longer knows loses its session. Long: the steps of one run,
// each of which needs what the one before left.
func TestDevicesByRADIUS(t *testing.T) {
	w := newWorld(t)
	tv, late := w.addUnaddressed(), w.addUnaddressed()
	const users = "auth/users"
	plain, err := os.ReadFile(filepath.Join(w.Dir, users))
	must(t, err)
	entry := func(c *client) string {
		return fmt.Sprintf("%s Cleartext-Password := \"%[1]s\", Service-Type == Call-Check\n\tClass = 0x7476,\n"+
			"\tSession-Timeout = 3600,\n\tWISPr-Bandwidth-Max-Down = 20000000\n", c.station())
	}
	w.add(users, "\n"+entry(tv)+entry(late))
	w.auth.stop()
	w.auth.start()
	w.add("gatewayd.toml", "\n[devices]\nradius = true\nmac_format = \"AA-BB-CC-DD-EE-FF\"\nask_again = \"2s\"\n"+
		"remember = \"30d\"\n")
	w.start()

	tv.lease()
	s := tv.awaitWay(session.Authenticated, session.ByMAC)
	if s.User != tv.station() || s.Limits.DownBps != 20_000_000 || s.Limits.SessionTimeoutSeconds != 3600 ||
		s.Limits.IdleTimeoutSeconds != 0 {
		t.Errorf("the session is %+v", s)
	}
	tv.sh("ping -c 1 -W 5 " + serverAddr.String())
	asked := w.auth.accessRequests(s.ID)
	if len(asked) == 0 || asked[0].value("Service-Type") != "Call-Check" || asked[0].value("User-Name") != tv.station() ||
		asked[0].value("Calling-Station-Id") != tv.station() {
		t.Errorf("the server was asked %v", asked)
	}
	begun := w.acct.awaitAccounting("Start", s.ID)
	if begun.value("Class") != "0x7476" || begun.value("Acct-Authentic") != "RADIUS" {
		t.Errorf("accounting begins with %v", begun)
	}
	if out := w.radclient("disconnect", w.Secret, "Acct-Session-Id = "+s.ID); !strings.Contains(out, "Disconnect-ACK") {
		t.Errorf("a Disconnect-Request is answered:\n%s", out)
	}
	w.acct.awaitAccounting("Stop", s.ID)
	tv.looksAround()
	if again := tv.awaitWay(session.Authenticated, session.ByMAC); again.ID == s.ID {
		t.Error("a Disconnect-Request ended nothing")
	}

	phone := w.client()
	if caught := phone.looksAround(); !strings.HasPrefix(caught, "302 http://"+portalAddr+"/login") {
		t.Errorf("a refused device gets %q", caught)
	}
	token, err := phone.token("login")
	must(t, err)
	if code := phone.sh(phone.fillIn(token, "ann") + " -d remember=1"); code != "303" {
		t.Fatalf("the form is answered with %s", code)
	}
	w.kill()
	must(t, os.Remove(filepath.Join(w.Dir, "state/sessions.db")))
	w.start()
	phone.looksAround()
	if s := phone.awaitWay(session.Authenticated, session.Remembered); s.User != "ann" {
		t.Errorf("the session is %+v", s)
	}
	var known control.Device
	verb := w.program + " --socket " + filepath.Join(w.Dir, "run/control.sock") + " device "
	must(t, json.Unmarshal([]byte(w.sh(verb+"list --json")), &known))
	if known.User != "ann" || !strings.Contains(w.sh(verb+"list"), known.MAC) {
		t.Errorf("the list of devices has %+v", known)
	}
	if out := w.sh(verb + "forget " + known.MAC); out != "1 device forgotten" {
		t.Errorf("forgetting a device prints %q", out)
	}
	phone.awaitWay(session.PreAuth, "")
	phone.looksAround()
	phone.awaitWay(session.PreAuth, "")

	w.auth.stop()
	late.lease()
	if caught := late.looksAround(); !strings.HasPrefix(caught, "302 http://"+portalAddr+"/login") {
		t.Errorf("while the server is away a device gets %q", caught)
	}
	must(t, os.WriteFile(filepath.Join(w.Dir, users), append(plain, "\n"+entry(late)...), 0o600))
	w.auth.start()
	late.awaitWay(session.Authenticated, session.ByMAC)
	tv.awaitWay(session.PreAuth, "")
}
