package dut

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"math/bits"
	"net/netip"
	"path"
	"strings"
	"time"

	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/machine"
)

// gatewayPort is where gatewayd's portal answers.
const gatewayPort = 8080

// Gateway is gatewayd, the gateway of this project, with accounts at a
// FreeRADIUS. To the lab it is a program like any other.
type Gateway struct {
	datapath  string // "ebpf", "tun" or "nfqueue"
	fast      bool   // as good as it gets, instead of as studied
	clients   int
	sessions  int // admitted in all, clients among them; 0: clients only
	admission client.Admission
	program   string // gatewayd on the router
	daemon    daemon
	dnsmasq   daemon // leases and names, where gatewayd leaves them to others
	radius    *radius
}

// NewGateway makes a gatewayd with the given data path, "-fast" behind its name for
// its fast mode, for a number of clients.
func NewGateway(datapath string, clients int) *Gateway {
	datapath, fast := strings.CutSuffix(datapath, "-fast")
	return &Gateway{datapath: datapath, fast: fast, clients: clients, admission: client.Admission{Kind: client.AdmitForm}}
}

// name is the device's in an experiment.
func (g *Gateway) name() string {
	if g.fast {
		return "gateway-" + g.datapath + "-fast"
	}
	return "gateway-" + g.datapath
}

// external says whether leases and names are another program's, as study 1's
// proprietary portal had them.
func (g *Gateway) external() bool { return g.datapath == "nfqueue" }

// gatewaydNeed is gatewayd on PATH or, as make build leaves it, beside the lab's own program.
var gatewaydNeed = Need{Program: "gatewayd", Beside: true, Advice: "make build in Gateweigh's source, and its bin directory on PATH", Why: "the gateway"}

// dataPathNeeds are the kernel's features that data paths are of no use without.
var dataPathNeeds = map[string]machine.Feature{"ebpf": machine.BPFAtTC, "nfqueue": machine.NFQUEUE, "tun": machine.TUN}

// Traits: gatewayd, or its dnsmasq, leases addresses, and needs nothing of its links.
func (g *Gateway) Traits() Traits {
	about := "gatewayd, data path " + strings.TrimPrefix(g.name(), "gateway-") + ", RADIUS accounts (CHAP)"
	if g.sessions > 0 {
		about += fmt.Sprintf(", %d sessions", g.sessions)
	}
	gatewayd := gatewaydNeed
	gatewayd.Feature = dataPathNeeds[g.datapath]
	needs := []Need{gatewayd}
	if g.datapath == "tun" {
		needs = append(needs, Need{Program: "nft", Package: "nftables", Why: "shutting the clients' interface off from the kernel"})
	}
	if g.external() {
		needs = append(needs, Need{Program: "dnsmasq", Package: "dnsmasq-base", Why: "leases and names"})
	}
	return Traits{
		LAN:       g.lan(),
		DHCP:      true,
		Gathers:   g.datapath == "tun" && g.fast,
		Admission: g.admission,
		Needs:     append(needs, radiusNeeds...),
		About:     about,
		Login:     3 * time.Millisecond, PersonaLogin: 900 * time.Microsecond, // 65,000 took 52 to 58 s
	}
}

// lan is a network with room for all clients.
func (g *Gateway) lan() netip.Prefix {
	switch n := max(g.clients, g.sessions); {
	case n+silentFrom >= 1<<16:
		return netip.MustParsePrefix("10.0.0.0/14")
	case n > 200, g.sessions > 0:
		return netip.MustParsePrefix("10.1.0.0/16")
	}
	return netip.MustParsePrefix("10.1.0.0/24")
}

// gatewayConf is what the template of gatewayd's configuration needs.
type gatewayConf struct {
	Dir, Datapath, LANIf, WANIf string
	Fast, External              bool
	LAN                         netip.Prefix
	Gateway                     netip.Addr
	Service                     netip.Addr
	Secret                      string
	Port, AuthPort, AcctPort    int
	Pool                        string // of leased addresses; empty: all

	First, Last netip.Addr // what dnsmasq leases
	Mask        string     // dotted
	MaxClients  int
}

// Start starts FreeRADIUS on the server and gatewayd on the router, and returns
// once the portal's port and the control socket answer.
func (g *Gateway) Start(ctx context.Context, env Env) error {
	dir := path.Join(env.Scratch, "gatewayd")
	g.daemon = daemon{host: env.Host("router"), name: "gatewayd"}
	g.radius = &radius{listen: env.ServiceIP, nas: env.RouterWAN, secret: rand.Text(), password: "not-a-secret"}
	if err := g.radius.start(ctx, env.Host("server")); err != nil {
		return fmt.Errorf("starting gatewayd's RADIUS server: %w", err)
	}
	conf := g.conf(dir, env)
	if err := g.prepare(ctx, env, conf); err != nil {
		return err
	}
	file := path.Join(dir, "gatewayd.toml")
	if err := writeTemplate(ctx, env.Host("router"), file, 0o600, "gatewayd.toml", conf); err != nil {
		return err
	}
	if g.external() {
		if err := g.startDnsmasq(ctx, env, conf); err != nil {
			return err
		}
	}
	var err error
	if g.program, err = env.Install(ctx, gatewaydNeed, dir); err != nil {
		return err
	}
	if err := g.daemon.spawn(ctx, false, nil, g.program, "run", "-c", file); err != nil {
		return err
	}
	err = g.daemon.await(ctx,
		probe{"its control socket does not answer", g.program + " status --socket " + path.Join(dir, "control.sock")},
		probe{"its portal does not listen", fmt.Sprintf("ss -Hltn 'sport = :%d' | grep -q .", gatewayPort)},
	)
	if err != nil {
		return err
	}
	if err := g.fill(ctx, env.Host("router"), dir, conf.LAN); err != nil {
		return err
	}
	portal := fmt.Sprintf("%s:%d", env.Gateway, gatewayPort)
	g.admission = client.Admission{
		Kind: client.AdmitForm, Portal: portal, API: "http://" + portal + "/api/captive-portal",
		Probe: "http://" + env.ServerIP.String() + "/generate_204",
		User:  radiusUser, Password: g.radius.password, Parallel: 32,
	}
	return nil
}

// conf is gatewayd's configuration for a lab.
func (g *Gateway) conf(dir string, env Env) gatewayConf {
	lan := env.LAN.Masked()
	conf := gatewayConf{
		Dir: dir, Datapath: g.datapath, Fast: g.fast, External: g.external(), LANIf: env.Port("lan"), WANIf: env.Port("wan"), LAN: lan, Gateway: env.Gateway,
		Service: env.ServiceIP, Secret: g.radius.secret,
		Port: gatewayPort, AuthPort: radiusAuthPort, AcctPort: radiusAcctPort,
	}
	if g.sessions > 0 {
		conf.Pool = fmt.Sprintf("%s-%s", env.Gateway.Next(), hostOf(lan, silentFrom-1))
	}
	return conf
}

// prepare makes gatewayd's folders and sets up the LAN's interface. Pins live in a file
// system of their own, which ends with the host. The TUN data path has a device of its
// own for the address.
func (g *Gateway) prepare(ctx context.Context, env Env, conf gatewayConf) error {
	const script = `mkdir -p "$1/state" "$1/bpf" && mount -t bpf bpf "$1/bpf" && ip link set "$3" up
[ -z "$2" ] || ip addr replace "$2" dev "$3"`
	address := netip.PrefixFrom(env.Gateway, conf.LAN.Bits()).String()
	if g.datapath == "tun" {
		address = ""
	}
	if err := shell(ctx, env.Host("router"), script, conf.Dir, address, env.Port("lan")); err != nil {
		return fmt.Errorf("setting up gatewayd's directories and %s: %w", env.Port("lan"), err)
	}
	return nil
}

// startDnsmasq has dnsmasq lease addresses and answer for names. It returns when it
// has its lease file.
func (g *Gateway) startDnsmasq(ctx context.Context, env Env, conf gatewayConf) (err error) {
	g.dnsmasq = daemon{host: env.Host("router"), name: "gatewayd-dnsmasq"}
	lan := env.LAN
	if g.sessions > 0 { // below the addresses of those that never send
		lan = netip.PrefixFrom(lan.Masked().Addr(), 32-bits.TrailingZeros(silentFrom))
	}
	if conf.First, conf.Last, err = leaseRange(lan, env.Gateway, g.clients); err != nil {
		return err
	}
	conf.Mask, conf.MaxClients = dottedMask(env.LAN), max(250, 2*g.clients)
	file := path.Join(conf.Dir, "dnsmasq.conf")
	if err := writeTemplate(ctx, env.Host("router"), file, 0o644, "gateway-dnsmasq.conf", conf); err != nil {
		return err
	}
	if err := g.dnsmasq.spawn(ctx, false, nil, "dnsmasq", "--keep-in-foreground", "--conf-file="+file); err != nil {
		return err
	}
	return g.dnsmasq.await(ctx, probe{"it has no lease file", "test -e " + path.Join(conf.Dir, "leases")})
}

// Stop ends gatewayd and its RADIUS server, and takes the programs out of the kernel.
func (g *Gateway) Stop(ctx context.Context, env Env) error {
	if g.radius == nil {
		return nil
	}
	dir := path.Join(env.Scratch, "gatewayd")
	const undo = `[ ! -e "$1/gatewayd.toml" ] || "$2" detach -c "$1/gatewayd.toml"
umount "$1/bpf" 2>/dev/null || :
rm -rf "$1"
ip addr del "$3" dev "$4" 2>/dev/null || :`
	var names error
	if g.dnsmasq.host != nil {
		names = g.dnsmasq.kill(ctx)
	}
	return errors.Join(
		names,
		g.daemon.kill(ctx),
		shell(ctx, env.Host("router"), undo, dir, g.program, netip.PrefixFrom(env.Gateway, env.LAN.Bits()).String(), env.Port("lan")),
		g.radius.stop(ctx),
	)
}

// Counts asks gatewayd over its control socket.
func (g *Gateway) Counts(ctx context.Context, env Env) (map[string]int, error) {
	text, err := ask(ctx, env, g.program, "status", "--json", "--socket", path.Join(env.Scratch, "gatewayd/control.sock"))
	if err != nil {
		return nil, err
	}
	return gatewayCounts(text)
}

func gatewayCounts(text string) (map[string]int, error) {
	var status struct {
		Sessions map[string]int
		Leases   int
	}
	if err := json.Unmarshal([]byte(text), &status); err != nil {
		return nil, fmt.Errorf("reading gatewayd's status: %w", err)
	}
	known := 0
	for _, n := range status.Sessions {
		known += n
	}
	return map[string]int{"sessions": status.Sessions["authenticated"], "clients": known, "leases": status.Leases}, nil
}

var _ Fillable = (*Gateway)(nil)
