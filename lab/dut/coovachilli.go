package dut

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/netip"
	"path"
	"strings"
	"time"

	"github.com/gateweigh/gateweigh/lab/client"
)

// CoovaChilli is CoovaChilli 1.9 with accounts at a FreeRADIUS: the captive
// portal that takes every packet through user space, from a packet socket on
// the clients' interface to a TUN device and back.
type CoovaChilli struct{ portal }

var _ Counted = (*CoovaChilli)(nil)

// NewCoovaChilli makes a CoovaChilli for the given number of clients.
func NewCoovaChilli(clients int) *CoovaChilli {
	return &CoovaChilli{portal{clients: clients, WebPort: 3990, Admission: client.Admission{Kind: client.AdmitUAM}}}
}

// buildChilli is the advice where CoovaChilli is missing; Debian has no package of it.
const buildChilli = "not in Debian: build CoovaChilli 1.9 from its source with localstatedir /var and put its sbin " +
	"directory on PATH"

var coovaChilliNeeds = append([]Need{
	{Program: "chilli", Advice: buildChilli, Why: "the portal", ProbeArg: "--version"},
	{Program: "chilli_query", Advice: buildChilli, Why: "the portal's control"},
	{Program: "iptables", Package: "iptables", Why: "the portal's rules"},
	{Program: "ip", Package: "iproute2", Why: "setting the router up"},
}, radiusNeeds...)

// Traits switch offloads off that CoovaChilli cannot work with: its packet socket truncates aggregated frames, and it
// does not complete checksums that are left to the network card.
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
		Admission:     c.Admission,
		Needs:         coovaChilliNeeds,
		Login:         28 * time.Millisecond,
		NoIPv6:        "CoovaChilli leases and admits IPv4 addresses (its issue 587)",
		About:         "CoovaChilli 1.9, RADIUS accounts (CHAP), default buffers",
	}
}

// Start starts FreeRADIUS on the server and CoovaChilli on the router, and
// returns once the portal's port and its control socket answer.
func (c *CoovaChilli) Start(ctx context.Context, env Env) error {
	c.setEnv(env, "chilli")
	c.Admission.Secret = rand.Text()
	if err := c.startRADIUS(ctx); err != nil {
		return err
	}
	if err := c.configure(ctx); err != nil {
		return fmt.Errorf("configuring coovachilli: %w", err)
	}
	argv := []string{"chilli", "-f", "-c", path.Join(c.Dir, "chilli.conf")}
	err := c.run(ctx, daemon{host: c.Host("router"), name: "chilli"}, argv,
		probe{"its TUN device is absent", "ip link show tun0"},
		probe{"its control socket does not answer", "chilli_query -s " + path.Join(c.Dir, "chilli.sock") + " list"},
		listens("its portal does not listen", "t", c.WebPort))
	if err != nil {
		return err
	}
	c.setLogin(16)
	return nil
}

// configure writes CoovaChilli's files, sets its rules, and removes the address from the clients' interface.
// CoovaChilli answers for that address from its TUN device; otherwise the kernel would answer too, without the portal.
func (c *CoovaChilli) configure(ctx context.Context) error {
	// CoovaChilli writes /var/run/chilli.PID.cfg.bin wherever its other files are.
	if err := c.shell(ctx, `mkdir -p "$1" /var/run`); err != nil {
		return err
	}
	if err := c.write(ctx, c.Host("router"), c, "chilli.conf", "chilli-rules.sh"); err != nil {
		return err
	}
	return c.shell(ctx, `sh -e "$1/chilli-rules.sh" -I; `+removeAddresses+`; ip link set "$2" up`)
}

// Stop ends CoovaChilli and its RADIUS server, removes the rules and gives the
// clients' interface its address back.
func (c *CoovaChilli) Stop(ctx context.Context, _ Env) error {
	return c.stop(ctx, `[ ! -e "$1/chilli-rules.sh" ] || sh "$1/chilli-rules.sh" -D 2>/dev/null || :
rm -rf /var/run/chilli.*.cfg.bin`)
}

// Counts asks CoovaChilli for "sessions" and "leases".
func (c *CoovaChilli) Counts(ctx context.Context, env Env) (map[string]int, error) {
	text, err := queryRouter(ctx, env, "chilli_query", "-s", path.Join(env.Scratch, "chilli", "chilli.sock"), "list")
	if err != nil {
		return nil, err
	}
	return chilliCounts(text), nil
}

func chilliCounts(text string) map[string]int {
	known := 0
	for line := range strings.Lines(text) {
		if strings.TrimSpace(line) != "" {
			known++
		}
	}
	return map[string]int{"sessions": strings.Count(text, " pass "), "leases": known}
}
