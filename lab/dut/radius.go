package dut

import (
	"context"
	"fmt"
	"net/netip"
	"path"

	"github.com/gateweigh/gateweigh/lab/agent"
)

// Ports of RFC 2865 and 2866, and where FreeRADIUS of Debian keeps its modules.
const (
	radiusAuthPort = 1812
	radiusAcctPort = 1813
	radiusLibDir   = "/usr/lib/freeradius"
)

// radiusNeeds are the programs of the RADIUS server and of looking whether it listens.
var radiusNeeds = []Need{
	{Program: "freeradius", Package: "freeradius", Why: "the clients' accounts (RADIUS)"},
	{Program: "ss", Package: "iproute2", Why: "seeing daemons listen"},
}

// radiusDir is a private directory on the server: /tmp of a host is its own.
const radiusDir = "/tmp/gateweigh-radius"

// radiusUser is the name of the test users; "%d" is the client's number.
const radiusUser = "gateweigh-test-%d"

// radius is a FreeRADIUS on the server, for portals that ask one. It is not
// part of the device under test, so its CPU does not count.
type radius struct {
	daemon   daemon
	listen   netip.Addr // address on the server
	nas      netip.Addr // the router, as the server sees it
	secret   string     // shared by NAS and server
	password string     // of every test user
}

// radiusConf is what the templates of FreeRADIUS need.
type radiusConf struct {
	Dir, LibDir        string
	NAS, Listen        netip.Addr
	Secret, Password   string
	AuthPort, AcctPort int
}

// start configures FreeRADIUS in a directory of its own, so that the machine's
// configuration is neither read nor changed, and returns once it listens.
func (r *radius) start(ctx context.Context, h Host) error {
	r.daemon = daemon{host: h, name: "freeradius"}
	conf := radiusConf{
		Dir: radiusDir, LibDir: radiusLibDir, NAS: r.nas, Listen: r.listen, Secret: r.secret, Password: r.password,
		AuthPort: radiusAuthPort, AcctPort: radiusAcctPort,
	}
	if err := shell(ctx, h, `mkdir -p "$1"`, radiusDir); err != nil {
		return fmt.Errorf("making freeradius's directory: %w", err)
	}
	for name, tmpl := range map[string]string{"radiusd.conf": "radiusd.conf", "users": "radius-users"} {
		if err := writeTemplate(ctx, h, path.Join(radiusDir, name), 0o600, tmpl, conf); err != nil {
			return err
		}
	}
	if err := r.daemon.spawn(ctx, true, nil, "freeradius", "-f", "-d", radiusDir); err != nil {
		return err
	}
	return r.daemon.await(ctx, probe{
		"it does not listen", fmt.Sprintf("ss -Hlun 'sport = :%d' | grep -q .", radiusAcctPort),
	})
}

// stop ends FreeRADIUS and removes its directory. It may be called twice.
func (r *radius) stop(ctx context.Context) error {
	if r.daemon.host == nil {
		return nil
	}
	if err := r.daemon.kill(ctx); err != nil {
		return err
	}
	_, err := r.daemon.host.Run(ctx, agent.Command{Argv: []string{"rm", "-rf", radiusDir}})
	return err
}
