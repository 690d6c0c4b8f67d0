package gateway

import (
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/gateway/config"
	"github.com/gateweigh/gateweigh/gateway/control"
	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/datapath/kinds"
	"github.com/gateweigh/gateweigh/gateway/session"
)

// closedPath is a data path that lets nobody through: an example of all that a new kind has in its folder.
type closedPath struct{ datapath.Forwarder }

func (closedPath) Clients() ([]datapath.ID, error)     { return nil, nil }
func (closedPath) Forwarding() (word, reason string)   { return "shut", "" }
func (closedPath) Packets() (map[string]uint64, error) { return nil, nil }
func (closedPath) Total() (datapath.Counters, error)   { return datapath.Counters{}, nil }
func (closedPath) Close() error                        { return nil }

// TestNewKind: with its line in the table of kinds a new one is configured, checked, opened, and left, by others and by
// detach.
func TestNewKind(t *testing.T) {
	network(t)
	were := kinds.All
	t.Cleanup(func() { kinds.All = were })
	checked, left := 0, 0
	kinds.All = append(slices.Clone(were), datapath.Kind{
		Traits: datapath.Traits{Name: "shut", Keys: []string{"fast"}},
		Open: func(s datapath.Setup) (datapath.Running, error) {
			return datapath.Running{Forwarder: closedPath{}}, s.LeaveFormer()
		},
		Check: func(datapath.Setup) error { checked++; return nil },
		Leave: func(datapath.Setup) error { left++; return nil },
	})
	former := start(t, t.TempDir())
	must(t, former.stop())
	left = 0
	d := startOn(t, t.TempDir(), "kind = \"shut\"\nfast = true")
	c, err := control.Dial(d.cfg.ControlSocket())
	must(t, err)
	if s, err := c.Status(t.Context()); err != nil || s.Datapath != "shut, shut" || checked == 0 || left > 0 {
		t.Errorf("checked %d times, left %d times, its status is %+v, %v", checked, left, s, err)
	}
	must(t, d.stop())
	if kindOf(former.cfg).Left(setup(former.cfg)) {
		t.Error("the former data path's programs are there")
	}
	must(t, start(t, t.TempDir()).stop())
	must(t, Detach(d.cfg, false))
	if left != 2 {
		t.Errorf("left %d times, want once by another kind and once by detach", left)
	}
	_, err = config.Parse("x.toml", []byte("datapath = { kind = \"shut\", device = \"tun1\" }\npppoe.enabled = true\n"))
	for _, want := range []string{
		`datapath.device: has no effect: datapath.kind is "shut"`, `"shut" does not take PPPoE's`,
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the file is told %v, want %s", err, want)
		}
	}
}

// TestKindsTakeOver: after a change of data path a client is still logged in, passes, and keeps its counts.
func TestKindsTakeOver(t *testing.T) {
	dir := t.TempDir()
	d := startWithAnn(t, dir)
	before := d.client(t)
	const onTUN, onNFQueue, fast = `kind = "tun"`, `kind = "nfqueue"`, "\nfast = true"
	for _, keys := range []string{
		onTUN, onEBPF, onNFQueue, onEBPF, onNFQueue + fast, onTUN + fast, onNFQueue, onTUN, onEBPF} {
		if !clientReachesServer() {
			t.Fatalf("before %s the client does not pass", keys)
		}
		must(t, d.stop())
		sh(t, "ip addr flush dev lan0")
		if keys != onTUN && keys != onTUN+fast { // with TUN the device has the address
			sh(t, "ip link del tun0 2>/dev/null || true; ip addr add 10.1.0.1/24 dev lan0")
		}
		d = startOn(t, dir, keys)
		now := d.client(t)
		if now.State != session.Authenticated || now.ID != before.ID || now.UpPackets <= before.UpPackets {
			t.Fatalf("on %s the session %+v became %+v", keys, before, now)
		}
		byHand(t, d, now)
		before = d.client(t)
	}
	if !clientReachesServer() {
		t.Error("in the end the client does not pass")
	}
}

// byHand checks that a user who types the gateway's address, or the portal's name, gets to the portal, before login and
// after.
func byHand(t *testing.T, d daemon, s control.Session) {
	t.Helper()
	leads := func(to string) {
		t.Helper()
		for _, host := range []string{"10.1.0.1", "10.1.0.1:80", "login.hotel.example"} {
			if got := sh(t, curl+`-o /dev/null -w '%{http_code} %{redirect_url}' -H 'Host: `+host+
				`' http://10.1.0.1/`); got != "302 http://10.1.0.1:8080"+to &&
				got != "302 http://10.1.0.1:8080"+to+"?url=http%3A%2F%2F"+host+"%2F" {
				t.Errorf("http://%s/ is answered by %q, not with %s", host, got, to)
			}
		}
	}
	c, err := control.Dial(d.cfg.ControlSocket())
	must(t, err)
	leads("/status")
	_, err = c.Logout(t.Context(), control.LogoutRequest{User: "ann"})
	must(t, err)
	leads("/login")
	_, err = c.Login(t.Context(), control.LoginRequest{Addr: s.Addr, User: "ann"})
	must(t, err)
}

// TestForeignProgramOnPort80: a program that has port 80 keeps it, out of reach before login, and is named by the log.
func TestForeignProgramOnPort80(t *testing.T) {
	network(t)
	l, err := net.Listen("tcp4", "0.0.0.0:80")
	must(t, err)
	defer l.Close()
	d := start(t, t.TempDir())
	t.Cleanup(func() { must(t, Detach(d.cfg, false)) })
	addr := netip.MustParseAddr(lease(t))
	if got, err := try(curl + "-m 2 http://10.1.0.1/"); err == nil {
		t.Errorf("before login it answers %q", got)
	}
	c, err := control.Dial(d.cfg.ControlSocket())
	must(t, err)
	_, err = c.Login(t.Context(), control.LoginRequest{Addr: addr, User: "ann"})
	must(t, err)
	go func() {
		if conn, err := l.Accept(); err == nil {
			conn.Read(make([]byte, 4096)) // else it is reset
			conn.Write([]byte("HTTP/1.0 200 OK\r\n\r\nits own"))
			conn.Close()
		}
	}()
	if got := sh(t, curl+"http://10.1.0.1/"); !strings.Contains(got, "its own") {
		t.Errorf("after login it answers %q", got)
	}
	must(t, d.stop())
}
