package dut

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"strconv"
	"time"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/client"
)

// Fixed places of the packaged openNDS 9.
const (
	openNDSLibrary = "/usr/lib/opennds/libopennds.sh"
	openNDSConfig  = "/etc/opennds/opennds.conf"
)

// openNDSCheck is the time between two checks in which openNDS looks through its clients, by a dozen programs. It is
// the packaged default of the option checkinterval.
const openNDSCheck = 15 * time.Second

// settleTimeout is the longest time for opennds-settle.sh, which takes 1 s on a real CPU and 20 s or more on an
// emulated one.
const settleTimeout = 5 * time.Minute

// OpenNDS is the packaged openNDS 9 (iptables-nft back end) in click-through
// mode, with dnsmasq for leases and names: the captive portal that admits
// clients by firewall rules, so that packets stay in the kernel.
type OpenNDS struct {
	portal
	login time.Duration // estimate of one client's login; Start measures it
}

var _ Counted = (*OpenNDS)(nil)

// NewOpenNDS makes an openNDS for the given number of clients.
func NewOpenNDS(clients int) *OpenNDS {
	return &OpenNDS{portal: portal{clients: clients, WebPort: 2050, Admission: client.Admission{
		Kind: client.AdmitOpenNDS}}, login: 150 * time.Millisecond}
}

// openNDSNeeds are the daemon and the programs that its packaged scripts and Start call. Without wget the scripts'
// watchdog would restart the portal's web server again and again.
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

// Traits say that openNDS leases addresses itself and how its clients log in. Every process that it starts counts,
// because its scripts are part of what it costs.
func (o *OpenNDS) Traits() Traits {
	var lan netip.Prefix // study 1's, for up to 250 clients
	if o.clients > 250 {
		lan = netip.MustParsePrefix("10.1.0.0/16")
	}
	return Traits{
		LAN:          lan,
		DHCP:         true,
		Housekeeping: openNDSCheck,
		Admission:    o.Admission,
		Needs:        openNDSNeeds,
		Login:        o.login,
		NoIPv6:       `openNDS 9 says "IPv6 is not supported yet"`,
		About:        "openNDS 9 (iptables-nft), click-through, no limits",
	}
}

// Start configures openNDS, starts dnsmasq and openNDS, and returns once the control socket answers and the rules for
// forwarding are in place.
func (o *OpenNDS) Start(ctx context.Context, env Env) error {
	o.setEnv(env, "opennds")
	if err := o.configure(ctx); err != nil {
		return fmt.Errorf("configuring opennds: %w", err)
	}
	// openNDS accepts only clients that are in the file of leases, which it looks for in three fixed places.
	err := o.lease(ctx, o.LAN, dnsmasq{Leases: "/tmp/dhcp.leases", URI: "http://status.client", Name: "status.client"})
	if err != nil {
		return err
	}
	// The packaged scripts restart dnsmasq through systemctl. On a private PATH that
	// command does nothing: it must not reach the machine's own service manager.
	const onPath = `PATH=$0/bin:$PATH; export PATH; exec opennds -f -d 1 -c ` + openNDSConfig
	// "ndsctl status" is no probe: it makes the daemon run a program while its first
	// periodic check runs some. When two such threads overlap in their SIGCHLD handling,
	// the daemon takes its own routing for broken and exits.
	err = o.run(ctx, daemon{host: o.Host("router"), name: "opennds"}, []string{"sh", "-c", onPath, o.Dir},
		probe{"its filter chain ndsNET is absent", "nft list chain ip filter ndsNET"},
		probe{"its control socket does not answer (ndsctl json)", "ndsctl json"},
		probe{"forwarded packets do not pass its chain", "nft list chain ip filter FORWARD | grep -q ndsNET"})
	if err != nil {
		return err
	}
	if err := o.settle(ctx); err != nil {
		return err
	}
	answer, err := o.answerTime(ctx)
	if err != nil {
		return fmt.Errorf("asking opennds's web server for a page: %w", err)
	}
	o.login = max(o.login, loginAnswers*answer)
	o.setLogin(openNDSAtOnce(answer))
	return nil
}

// settle returns when the daemon has come to rest after its start. Without this an openNDS under load exits by itself;
// the script explains why.
func (o *OpenNDS) settle(ctx context.Context) error {
	settle := agent.Command{
		Argv: []string{"sh", "-c", `exec sh "$0/opennds-settle.sh" "$(pgrep -xo opennds)"`, o.Dir}, Timeout: settleTimeout}
	if _, err := o.Host("router").Run(ctx, settle); err != nil {
		return fmt.Errorf("opennds did not come to rest after starting: %w", err)
	}
	return nil
}

// answerTime measures how long the web server takes for its shortest answer: that to a request from the router itself,
// which it refuses.
func (o *OpenNDS) answerTime(ctx context.Context) (time.Duration, error) {
	start := time.Now()
	// Exit status 8 of wget means an error page.
	err := o.shell(ctx, `wget -q -t 1 -T 60 -O /dev/null "http://$3/" || [ $? = 8 ]`,
		fmt.Sprintf("%s:%d", o.Gateway, o.WebPort))
	return time.Since(start), err
}

// loginAnswers is how many times as long as the shortest request a login takes.
const loginAnswers = 6

// openNDSAtOnce returns how many clients log in at the same time.
//
// One thread of openNDS serves all requests, and runs a dozen programs for each. Four clients keep that thread busy:
// 100 clients then take 11 to 14 s, and 21 s one by one. More clients would only wait.
//
// openNDS's periodic check restarts the web server when it has not answered within a second four times in succession,
// which breaks clients' connections. So no more clients log in than can be answered within a second. A request of a
// login takes about twice as long as the shortest one (answer).
func openNDSAtOnce(answer time.Duration) int {
	return min(4, max(1, int(time.Second/(2*max(answer, time.Millisecond)))))
}

// configure writes openNDS's files and mounts them over the packaged ones, because its programs read only those.
func (o *OpenNDS) configure(ctx context.Context) error {
	// In a network other than study 1's the interface gets the address in that network and loses all others, because the
	// portal uses the interface's first address.
	address := ""
	if o.Traits().LAN.IsValid() {
		address = netip.PrefixFrom(o.Gateway, o.LAN.Bits()).String()
	}
	// A script of openNDS needs the folder /run/tmpfiles.d. Where the neighbour towards the server is known, openNDS waits
	// 2 s for downloads that nobody asked for. So that neighbour is removed; the first packet brings it back.
	const prepare = `mkdir -p "$1/bin" /run/tmpfiles.d; printf '#!/bin/sh\nexit 0\n' >"$1/bin/systemctl"
chmod 755 "$1/bin/systemctl"; rm -f /tmp/dhcp.leases; ip neigh flush dev "$3"
[ -z "$4" ] || { ` + removeAddresses + `; ip addr add "$4" dev "$2"; }`
	if err := o.shell(ctx, prepare, o.Port("wan"), address); err != nil {
		return err
	}
	if err := o.write(ctx, o.Host("router"), o, "opennds.conf", "opennds-splash.sh", "opennds-settle.sh"); err != nil {
		return err
	}
	// The packaged scripts create the chains INPUT and FORWARD at priority -100, where iptables-nft refuses to work
	// (upstream issue 429). The portal would then start without rules and exit. At the usual priority the rules are the
	// same.
	return o.shell(ctx, `! grep -q 'priority -100' "$3" || {
	sed 's/priority -100/priority filter/g' "$3" >"$1/libopennds.sh"; chmod 755 "$1/libopennds.sh"; mount --bind "$1/libopennds.sh" "$3"
}
mount --bind "$1/opennds.conf" "$4"`, openNDSLibrary, openNDSConfig)
}

// Stop ends the daemons and removes rules and mounts. Afterwards the router
// forwards for everybody, as before Start.
func (o *OpenNDS) Stop(ctx context.Context, _ Env) error {
	return o.stop(ctx, `"$3" delete_chains >/dev/null 2>&1 || :
for chain in nds_allow_INP nds_allow_FWD; do nft delete chain ip filter $chain 2>/dev/null || :; done
for file in "$3" "$4"; do while umount "$file" 2>/dev/null; do :; done; done
rm -rf /tmp/ndsctl.sock /tmp/ndsctl.lock /tmp/ndscids /tmp/dhcp.leases`, openNDSLibrary, openNDSConfig)
}

// Counts asks openNDS for "sessions" and "clients". It has no "leases", because dnsmasq has these.
func (o *OpenNDS) Counts(ctx context.Context, env Env) (map[string]int, error) {
	text, err := queryRouter(ctx, env, "ndsctl", "json")
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
