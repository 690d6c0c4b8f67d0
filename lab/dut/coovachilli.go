package dut

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/netip"
	"path"
	"strings"
	"time"

	"github.com/gateweigh/gateweigh/lab/client"
)

// uamPort is where CoovaChilli answers portal requests, its default.
const uamPort = 3990

// CoovaChilli is CoovaChilli 1.9 with accounts at a FreeRADIUS: the captive
// portal that takes every packet through user space, from a packet socket on
// the clients' interface to a TUN device and back.
type CoovaChilli struct {
	clients   int
	admission client.Admission
	chilli    daemon
	radius    *radius
}

// NewCoovaChilli makes a CoovaChilli for the given number of clients.
func NewCoovaChilli(clients int) *CoovaChilli {
	return &CoovaChilli{clients: clients, admission: client.Admission{Kind: client.AdmitUAM}}
}

// buildChilli is what to do without chilli: Debian has no package of it.
const buildChilli = "not in Debian: build CoovaChilli 1.9 from its source with localstatedir /var and put its sbin directory on PATH"

var coovaChilliNeeds = append([]Need{
	{Program: "chilli", Advice: buildChilli, Why: "the portal", Starts: "--version"},
	{Program: "chilli_query", Advice: buildChilli, Why: "the portal's control"},
	{Program: "iptables", Package: "iptables", Why: "the portal's rules"},
	{Program: "ip", Package: "iproute2", Why: "setting the router up"},
}, radiusNeeds...)

// Traits say what CoovaChilli cannot do without: with aggregated frames its
// packet socket truncates uploads, and it does not complete checksums left to
// the network card.
func (c *CoovaChilli) Traits() Traits {
	lan := netip.MustParsePrefix("10.1.0.0/24")
	if c.clients > 200 {
		lan = netip.MustParsePrefix("10.1.0.0/16")
	}
	return Traits{
		LAN:           lan,
		DHCP:          true,
		NoAggregation: true,
		NoTxChecksum:  true,
		Admission:     c.admission,
		Needs:         coovaChilliNeeds,
		Login:         28 * time.Millisecond,
		About:         "CoovaChilli 1.9, RADIUS accounts (CHAP), default buffers",
	}
}

// chilliConf is what the templates of CoovaChilli need.
type chilliConf struct {
	Dir, LANIf, WANIf, Tun        string
	LAN                           netip.Prefix
	Gateway, ServiceIP, RouterWAN netip.Addr
	UAMSecret, RADIUSSecret       string
	UAMPort, AuthPort, AcctPort   int
	MaxClients                    int
}

// Start starts FreeRADIUS on the server and CoovaChilli on the router, and
// returns once the portal's port and its control socket answer.
func (c *CoovaChilli) Start(ctx context.Context, env Env) error {
	dir := path.Join(env.Scratch, "chilli")
	c.chilli = daemon{host: env.Host("router"), name: "chilli"}
	c.radius = &radius{listen: env.ServiceIP, nas: env.RouterWAN, secret: rand.Text(), password: "not-a-secret"}
	if err := c.radius.start(ctx, env.Host("server")); err != nil {
		return fmt.Errorf("starting coovachilli's RADIUS server: %w", err)
	}
	conf := chilliConf{
		Dir: dir, LANIf: env.Port("lan"), WANIf: env.Port("wan"), Tun: "tun0",
		LAN: env.LAN.Masked(), Gateway: env.Gateway, ServiceIP: env.ServiceIP, RouterWAN: env.RouterWAN,
		UAMSecret: rand.Text(), RADIUSSecret: c.radius.secret,
		UAMPort: uamPort, AuthPort: radiusAuthPort, AcctPort: radiusAcctPort,
		// Room for every client and as many that left without a word.
		MaxClients: max(512, 2*c.clients),
	}
	if err := c.configure(ctx, env, conf); err != nil {
		return fmt.Errorf("configuring coovachilli: %w", err)
	}
	if err := c.chilli.spawn(ctx, false, nil, "chilli", "-f", "-c", path.Join(dir, "chilli.conf")); err != nil {
		return err
	}
	err := c.chilli.await(ctx,
		probe{"its TUN device is absent", "ip link show " + conf.Tun},
		probe{"its control socket does not answer", "chilli_query -s " + path.Join(dir, "chilli.sock") + " list"},
		probe{"its portal does not listen", fmt.Sprintf("ss -Hltn 'sport = :%d' | grep -q .", uamPort)},
	)
	if err != nil {
		return err
	}
	c.admission = client.Admission{
		Kind:     client.AdmitUAM,
		Portal:   fmt.Sprintf("%s:%d", env.Gateway, uamPort),
		Probe:    "http://" + env.ServerIP.String() + "/generate_204",
		User:     radiusUser,
		Password: c.radius.password,
		Secret:   conf.UAMSecret,
		Parallel: 16,
	}
	return nil
}

// configure writes CoovaChilli's files, sets its rules, and takes the address
// off the clients' interface: CoovaChilli answers for it from its TUN device,
// and the kernel would answer too, past the portal.
func (c *CoovaChilli) configure(ctx context.Context, env Env, conf chilliConf) error {
	// CoovaChilli writes /var/run/chilli.PID.cfg.bin wherever its other files are.
	if err := shell(ctx, env.Host("router"), `mkdir -p "$1" /var/run`, conf.Dir); err != nil {
		return err
	}
	if err := writeTemplate(ctx, env.Host("router"), path.Join(conf.Dir, "chilli.conf"), 0o600, "chilli.conf", conf); err != nil {
		return err
	}
	rules := path.Join(conf.Dir, "rules.sh")
	if err := writeTemplate(ctx, env.Host("router"), rules, 0o755, "chilli-rules.sh", conf); err != nil {
		return err
	}
	const prepare = `sh -e "$1" -I
ip -o -4 addr show dev "$2" | awk '{print $4}' >"$3/addresses"; ip addr flush dev "$2"; ip link set "$2" up`
	if err := shell(ctx, env.Host("router"), prepare, rules, env.Port("lan"), conf.Dir); err != nil {
		return fmt.Errorf("setting up rules and %s: %w", env.Port("lan"), err)
	}
	return nil
}

// Stop ends CoovaChilli and its RADIUS server, removes the rules and gives the
// clients' interface its address back.
func (c *CoovaChilli) Stop(ctx context.Context, env Env) error {
	if c.radius == nil {
		return nil
	}
	const undo = `[ -d "$1" ] || exit 0
[ ! -e "$1/rules.sh" ] || sh "$1/rules.sh" -D 2>/dev/null || :
[ ! -e "$1/addresses" ] || while read -r address; do ip addr replace "$address" dev "$2"; done <"$1/addresses"
rm -rf "$1" /var/run/chilli.*.cfg.bin`
	err := errors.Join(
		c.chilli.kill(ctx),
		shell(ctx, env.Host("router"), undo, path.Join(env.Scratch, "chilli"), env.Port("lan")),
		c.radius.stop(ctx),
	)
	if err != nil {
		return fmt.Errorf("stopping coovachilli: %w", err)
	}
	return nil
}

// Counts asks CoovaChilli, which lists clients with a lease.
func (c *CoovaChilli) Counts(ctx context.Context, env Env) (map[string]int, error) {
	text, err := ask(ctx, env, "chilli_query", "-s", path.Join(env.Scratch, "chilli", "chilli.sock"), "list")
	if err != nil {
		return nil, err
	}
	return chilliCounts(text), nil
}

func chilliCounts(text string) map[string]int {
	in, known := 0, 0
	for line := range strings.Lines(text) {
		switch {
		case strings.TrimSpace(line) == "":
			continue
		case strings.Contains(line, " pass "):
			in++
		}
		known++
	}
	return map[string]int{"sessions": in, "leases": known}
}

var _ Counted = (*CoovaChilli)(nil)
