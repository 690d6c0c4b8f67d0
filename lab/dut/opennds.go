package dut

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/client"
)

// Fixed places of the packaged openNDS 9.
const (
	openNDSLibrary = "/usr/lib/opennds/libopennds.sh"
	openNDSConfig  = "/etc/opennds/opennds.conf"
	openNDSPort    = "2050"
)

// openNDSCheck is how often openNDS looks through its clients, a dozen programs
// each time: checkinterval, whose packaged default this is.
const openNDSCheck = 15 * time.Second

// openNDSDefaultLAN is how many clients study 1's /24 has addresses for.
const openNDSDefaultLAN = 250

// OpenNDS is the packaged openNDS 9 (iptables-nft back end) in click-through
// mode, with dnsmasq for leases and names: the captive portal that admits
// clients by firewall rules, so that packets stay in the kernel.
type OpenNDS struct {
	clients   int
	admission client.Admission
	dnsmasq   daemon
	opennds   daemon
}

// NewOpenNDS makes an openNDS for the given number of clients.
func NewOpenNDS(clients int) *OpenNDS {
	return &OpenNDS{clients: clients, admission: client.Admission{Kind: client.AdmitOpenNDS}}
}

// openNDSNeeds are the daemon, what its packaged scripts call and what Start
// calls. Without wget the scripts' watchdog restarts the portal's web server for ever.
var openNDSNeeds = []Need{
	{Program: "opennds", Package: "opennds", Why: "the portal"},
	{Program: "ndsctl", Package: "opennds", Why: "the portal's control"},
	{Program: "dnsmasq", Package: "dnsmasq-base", Why: "leases and names"},
	{Program: "iptables", Package: "iptables", Why: "the portal's rules"},
	{Program: "nft", Package: "nftables", Why: "the portal's rules"},
	{Program: "ip", Package: "iproute2", Why: "setting the router up"},
	{Program: "bash", Package: "bash", Why: "the portal's scripts"},
	{Program: "wget", Package: "wget", Why: "the portal's watchdog"},
	{Program: "pgrep", Package: "procps", Why: "the portal's scripts"},
	{Program: "logger", Package: "bsdutils", Why: "the portal's scripts"},
}

// Traits say that openNDS leases addresses itself and how its clients log in.
// Every process it starts counts: its scripts are part of its cost.
func (o *OpenNDS) Traits() Traits {
	var lan netip.Prefix // study 1's, as long as it has room
	if o.clients > openNDSDefaultLAN {
		lan = netip.MustParsePrefix("10.1.0.0/16")
	}
	return Traits{
		LAN:          lan,
		DHCP:         true,
		Housekeeping: openNDSCheck,
		Admission:    o.admission,
		Needs:        openNDSNeeds,
		Login:        150 * time.Millisecond,
		About:        "openNDS 9 (iptables-nft), click-through, no limits",
	}
}

// openNDSConf is what the templates of openNDS and its dnsmasq need.
type openNDSConf struct {
	LANIf       string
	Gateway     netip.Addr
	First, Last netip.Addr // leased range
	Mask        string     // dotted
	MaxClients  int
	Check       int    // seconds between two looks through the clients
	Splash      string // path of the splash page script
	Key         string // shared by daemon and splash page, of this run
}

// Start configures openNDS privately, starts it and dnsmasq, and returns once
// the control socket answers and the forwarding rules are in place.
func (o *OpenNDS) Start(ctx context.Context, env Env) error {
	dir := path.Join(env.Scratch, "opennds")
	o.dnsmasq = daemon{host: env.Host("router"), name: "opennds-dnsmasq"}
	o.opennds = daemon{host: env.Host("router"), name: "opennds"}
	if err := o.configure(ctx, env, dir); err != nil {
		return fmt.Errorf("configuring opennds: %w", err)
	}
	conf := path.Join(dir, "dnsmasq.conf")
	if err := o.dnsmasq.spawn(ctx, false, nil, "dnsmasq", "--keep-in-foreground", "--conf-file="+conf); err != nil {
		return err
	}
	// The packaged scripts restart dnsmasq through systemctl. On a private PATH
	// that is a no-op: the machine's own service manager must not hear of it.
	onPath := `PATH=$0/bin:$PATH; export PATH; exec opennds -f -d 1 -c ` + openNDSConfig
	if err := o.opennds.spawn(ctx, false, nil, "sh", "-c", onPath, dir); err != nil {
		return err
	}
	// Not "ndsctl status": it makes the daemon run a program at the same time as
	// its first periodic check does, and when the two meet in its SIGCHLD
	// handling the daemon takes its own routing for broken and exits.
	err := o.opennds.await(ctx,
		probe{"its filter chain ndsNET is absent", "nft list chain ip filter ndsNET"},
		probe{"its control socket does not answer (ndsctl json)", "ndsctl json"},
		probe{"forwarded packets do not pass its chain", "nft list chain ip filter FORWARD | grep -q ndsNET"},
	)
	if err != nil {
		return err
	}
	// Without this a busy openNDS ends by itself; the script says why.
	settle := `sh "$1/settle.sh" "$(pgrep -xo opennds)"`
	if err := shell(ctx, env.Host("router"), settle, dir); err != nil {
		return fmt.Errorf("opennds did not come to rest after starting: %w", err)
	}
	if err := o.dnsmasq.await(ctx, probe{"it has no lease file", "test -e /tmp/dhcp.leases"}); err != nil {
		return err
	}
	o.admission = client.Admission{
		Kind:   client.AdmitOpenNDS,
		Portal: env.Gateway.String() + ":" + openNDSPort,
		Probe:  "http://" + env.ServerIP.String() + "/generate_204",
		// One thread serves all requests and runs a dozen programs for each, so
		// more clients at once only wait; a few keep it busy between the requests
		// of one. 100 clients take 11 to 14 s with four, 21 s one by one.
		Parallel: 4,
	}
	return nil
}

// configure writes openNDS's files and mounts them over the packaged ones,
// which are the only ones its programs read.
func (o *OpenNDS) configure(ctx context.Context, env Env, dir string) error {
	first, last, err := leaseRange(env.LAN, env.Gateway, o.clients)
	if err != nil {
		return err
	}
	conf := openNDSConf{
		LANIf: env.Port("lan"), Gateway: env.Gateway, First: first, Last: last, Mask: dottedMask(env.LAN),
		// Room for every client and as many that left without a word.
		MaxClients: max(250, 2*o.clients), Check: int(openNDSCheck.Seconds()),
		Splash: path.Join(dir, "splash.sh"), Key: rand.Text(),
	}
	// /run/tmpfiles.d is where a script of openNDS makes its temporary files. A
	// known upstream neighbour makes openNDS wait 2 s for downloads it has not
	// been asked for; a forgotten one is learnt again with the first packet.
	prepare := `mkdir -p "$1/bin" /run/tmpfiles.d; printf '#!/bin/sh\nexit 0\n' >"$1/bin/systemctl"
chmod 755 "$1/bin/systemctl"; rm -f /tmp/dhcp.leases; ip neigh flush dev "$2"`
	if err := shell(ctx, env.Host("router"), prepare, dir, env.Port("wan")); err != nil {
		return err
	}
	if o.Traits().LAN.IsValid() {
		// Its own address in a network of its own, and no other: openNDS's portal
		// is at the interface's first.
		const address = `ip -o -4 addr show dev "$2" | awk '{print $4}' >"$1/addresses"; ip addr flush dev "$2"; ip addr add "$3" dev "$2"`
		own := netip.PrefixFrom(env.Gateway, env.LAN.Bits()).String()
		if err := shell(ctx, env.Host("router"), address, dir, env.Port("lan"), own); err != nil {
			return fmt.Errorf("giving %s the address %s: %w", env.Port("lan"), own, err)
		}
	}
	for _, file := range []struct {
		name, template string
		mode           uint32
	}{
		{"opennds.conf", "opennds.conf", 0o644},
		{"dnsmasq.conf", "opennds-dnsmasq.conf", 0o644},
		{"splash.sh", "opennds-splash.sh", 0o755},
		{"settle.sh", "opennds-settle.sh", 0o755},
	} {
		if err := writeTemplate(ctx, env.Host("router"), path.Join(dir, file.name), file.mode, file.template, conf); err != nil {
			return err
		}
	}
	if err := o.repairLibrary(ctx, env.Host("router"), dir); err != nil {
		return err
	}
	if err := shell(ctx, env.Host("router"), `mount --bind "$1/opennds.conf" "$2"`, dir, openNDSConfig); err != nil {
		return fmt.Errorf("mounting the private configuration: %w", err)
	}
	return nil
}

// repairLibrary makes the packaged scripts work with iptables-nft, on this
// host only. They create the INPUT and FORWARD chains at priority -100, a place
// where iptables-nft refuses to work (upstream issue 429): the portal then
// starts without rules and exits. At the usual priority the rules are the same.
func (o *OpenNDS) repairLibrary(ctx context.Context, h Host, dir string) error {
	library, err := h.Run(ctx, agent.Command{Argv: []string{"cat", openNDSLibrary}})
	if err != nil {
		return fmt.Errorf("reading openNDS's script library: %w", err)
	}
	repaired := strings.ReplaceAll(library.Stdout, "priority -100", "priority filter")
	if repaired == library.Stdout {
		return nil // a version without the fault
	}
	ours := path.Join(dir, "libopennds.sh")
	if err := h.WriteFile(ctx, ours, []byte(repaired), 0o755); err != nil {
		return fmt.Errorf("writing the repaired script library: %w", err)
	}
	if err := shell(ctx, h, `mount --bind "$1" "$2"`, ours, openNDSLibrary); err != nil {
		return fmt.Errorf("mounting the repaired script library: %w", err)
	}
	return nil
}

// Stop ends the daemons and removes rules and mounts. Afterwards the router
// forwards for everybody, as before Start.
func (o *OpenNDS) Stop(ctx context.Context, env Env) error {
	if o.opennds.host == nil {
		return nil
	}
	undo := `[ -d "$1" ] || exit 0
"$2" delete_chains >/dev/null 2>&1 || :
for chain in nds_allow_INP nds_allow_FWD; do nft delete chain ip filter $chain 2>/dev/null || :; done
for file in "$2" "$3"; do while umount "$file" 2>/dev/null; do :; done; done
[ ! -e "$1/addresses" ] || { ip addr flush dev "$4"; while read -r address; do ip addr add "$address" dev "$4"; done <"$1/addresses"; }
rm -rf "$1" /tmp/ndsctl.sock /tmp/ndsctl.lock /tmp/ndscids /tmp/dhcp.leases`
	err := errors.Join(
		o.opennds.kill(ctx),
		o.dnsmasq.kill(ctx),
		shell(ctx, env.Host("router"), undo, path.Join(env.Scratch, "opennds"), openNDSLibrary, openNDSConfig, env.Port("lan")),
	)
	if err != nil {
		return fmt.Errorf("stopping opennds: %w", err)
	}
	return nil
}

// leaseRange is the part of a network that is leased to n clients.
//
// openNDS removes the rules of a client that leaves by searching for its
// address as text, so that a log-out of .1 also cuts off .10 to .19. Addresses
// of equal length, from .100 on, are never part of another.
func leaseRange(lan netip.Prefix, gateway netip.Addr, n int) (first, last netip.Addr, err error) {
	base := lan.Masked().Addr().As4()
	size := 1 << (32 - lan.Bits())
	from, to := 100, size-2
	if to-from < n {
		from = 1
	}
	if to-from < n {
		return first, last, fmt.Errorf("%s is too small for %d clients", lan, n)
	}
	at := func(i int) netip.Addr {
		return netip.AddrFrom4([4]byte{base[0], base[1], base[2] + byte(i>>8), base[3] + byte(i)})
	}
	first, last = at(from), at(to)
	// A gateway at either end is left out; dnsmasq skips one in the middle itself.
	if last == gateway {
		last = last.Prev()
	}
	if first == gateway {
		first = first.Next()
	}
	return first, last, nil
}

// dottedMask is a prefix length as dnsmasq and CoovaChilli write it: 255.255.255.0.
func dottedMask(p netip.Prefix) string {
	m := ^uint32(0) << (32 - p.Bits())
	return netip.AddrFrom4([4]byte{byte(m >> 24), byte(m >> 16), byte(m >> 8), byte(m)}).String()
}

// Counts asks openNDS, which knows no leases: they are its dnsmasq's.
func (o *OpenNDS) Counts(ctx context.Context, env Env) (map[string]int, error) {
	text, err := ask(ctx, env, "ndsctl", "json")
	if err != nil {
		return nil, err
	}
	return openNDSCounts(text)
}

func openNDSCounts(text string) (map[string]int, error) {
	var list struct {
		Length  string `json:"client_list_length"`
		Clients map[string]struct{ State string }
	}
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return nil, fmt.Errorf("reading ndsctl's list: %w", err)
	}
	known, err := strconv.Atoi(list.Length)
	if err != nil {
		return nil, fmt.Errorf("reading ndsctl's list: %w", err)
	}
	in := 0
	for _, c := range list.Clients {
		if c.State == "Authenticated" {
			in++
		}
	}
	return map[string]int{"sessions": in, "clients": known}, nil
}

var _ Counted = (*OpenNDS)(nil)
