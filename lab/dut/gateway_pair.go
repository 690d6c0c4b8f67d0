package dut

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/experiment"
)

// GatewayPair is two gatewayd on one LAN, of which one serves at a time: each with a keepalived, and a Redis that both
// share on a host of its own. It takes the topology "pair".
type GatewayPair struct {
	*Gateway
	daemons map[string]daemon // by pairKey
}

var (
	_ Powered = (*GatewayPair)(nil)
	_ Counted = (*GatewayPair)(nil)
)

func newGatewayPair(clients int) *GatewayPair {
	return &GatewayPair{Gateway: NewGateway(experiment.Variant{}, clients), daemons: map[string]daemon{}}
}

// Hosts of a pair, and its daemons on them.
const (
	firstGateway, secondGateway, storeHost = "router", "standby", "store"
	gatewaydName, vrrpName, storeName      = "gatewayd", "keepalived", "redis"
)

var pairHosts = []string{firstGateway, secondGateway}

func pairKey(host, name string) string { return host + "/" + name }

// storeNeed is the server of a store.
var storeNeed = Need{Program: "redis-server", Package: "redis-server", Why: "the store of both gateways", On: "server"}

// Traits are gatewayd's, with the programs of a pair.
func (p *GatewayPair) Traits() Traits {
	t := p.Gateway.Traits()
	t.Families, t.NoIPv6 = nil, "the lab's pair has IPv4 alone"
	t.Needs = append(slices.Clone(t.Needs),
		Need{Program: "keepalived", Package: "keepalived", Why: "which gateway has the addresses"},
		storeNeed)
	t.About = "two gatewayd, keepalived and Redis, data path " + p.Path + ", RADIUS accounts (CHAP)"
	return t
}

// ofPair is Gateway by another name: embedded by that, it does not hide the gateway's address from templates.
type ofPair = Gateway

// pairHost is what the templates of one of two gateways are filled in with.
type pairHost struct {
	*ofPair
	Name  string
	ports map[string]string // of the topology, by what a single gateway calls them
}

// sharedLines are the parts of gatewayd.toml that only gateways with a store have.
type sharedLines struct {
	Store, Name string
	Roaming     string // what lets devices roam; empty: they do not
	WAN         string // address that a pair shares towards the server; empty: it is none of a pair
}

// Port is an interface of this host.
func (h pairHost) Port(name string) string { return h.ports[name] }

// Shared overrides Gateway's.
func (h pairHost) Shared() *sharedLines {
	return &sharedLines{Store: netip.AddrPortFrom(h.Store, storePort).String(), Name: h.Name,
		WAN: netip.PrefixFrom(h.RouterWAN, wanBits).String()}
}

// ownAddresses is how many addresses at the beginning of the LAN are of gateways.
const ownAddresses = 10

// Pool leaves out the addresses of gateways.
func (h pairHost) Pool() string {
	last := 1<<(32-h.LAN.Bits()) - 2
	return fmt.Sprintf("%s-%s", hostOf(h.LAN, ownAddresses), hostOf(h.LAN, last))
}

const (
	storePort = 6379
	wanBits   = 24 // of the server's network
)

// Start starts the RADIUS server, the store, both gateways with their keepaliveds, and returns once one serves and the
// other one is ready to.
func (p *GatewayPair) Start(ctx context.Context, env Env) error {
	if !env.Store.IsValid() {
		return errors.New(`two gateways need topology = "pair"`)
	}
	p.setEnv(env, gatewaydName)
	p.NAS = netip.PrefixFrom(env.RouterWAN, wanBits).Masked().String()
	if err := p.startRADIUS(ctx); err != nil {
		return err
	}
	store := storeOf(env)
	p.daemons[pairKey(storeHost, storeName)] = store
	if err := startStore(ctx, env, store); err != nil {
		return err
	}
	for i, host := range pairHosts {
		if err := p.install(ctx, i, host); err != nil {
			return fmt.Errorf("starting the gateway %s: %w", host, err)
		}
	}
	if err := p.awaitPair(ctx); err != nil {
		return err
	}
	p.setLogin(32)
	p.Admission.API = "http://" + p.Admission.Portal + "/api/captive-portal"
	return nil
}

// spawn starts a daemon of the pair.
func (p *GatewayPair) spawn(ctx context.Context, host, name string, argv ...string) error {
	d := daemon{host: p.Host(host), name: name}
	p.daemons[pairKey(host, name)] = d
	return d.spawn(ctx, argv...)
}

// storeOf is the server of a store that gateways share.
func storeOf(env Env) daemon {
	return daemon{host: env.Host(storeHost), name: storeName, support: true}
}

// startStore starts it, and returns once it listens.
func startStore(ctx context.Context, env Env, d daemon) error {
	err := d.spawn(ctx, "redis-server", "--port", fmt.Sprint(storePort), "--bind", "0.0.0.0",
		"--protected-mode", "no", "--save", "", "--appendonly", "no", "--dir", env.Scratch)
	if err != nil {
		return err
	}
	return d.await(ctx, listens("it does not listen", "t", storePort))
}

// installer is a host that makes programs of its machine reachable: see Env.Install.
type installer interface {
	Install(ctx context.Context, n Need, dir string) (path string, err error)
}

// install makes a gateway of a host: its addresses, its files, its daemons. The addresses that move are on neither.
func (p *GatewayPair) install(ctx context.Context, i int, host string) (err error) {
	h := pairHost{ofPair: p.Gateway, Name: host, ports: map[string]string{"lan": p.Port("lan"), "wan": p.Port("wan")}}
	if host == secondGateway {
		h.ports = map[string]string{"lan": p.Port("lan2"), "wan": p.Port("wan2")}
	}
	const prepare = `mkdir -p "$1/state" "$1/bpf" && mount -t bpf bpf "$1/bpf"
own=$(ip -o -4 addr show dev "$3" | awk -v moves="$5/" 'index($4, moves) != 1 {print $4}')
ip addr flush dev "$2"; ip addr add "$4" dev "$2"; ip link set "$2" up
ip addr flush dev "$3"; ip addr add $own dev "$3"; ip route replace default via "$6"`
	err = shell(ctx, p.Host(host), prepare, p.Dir, h.Port("lan"), h.Port("wan"),
		netip.PrefixFrom(hostOf(p.LAN, 2+i), p.LAN.Bits()).String(), p.RouterWAN.String(), p.ServerIP.String())
	if err != nil {
		return err
	}
	install := p.Install // which is the router's
	if on, ok := p.Host(host).(installer); ok {
		install = on.Install
	}
	if p.program, err = install(ctx, gatewaydNeed, p.Dir); err != nil {
		return err
	}
	if err := p.write(ctx, p.Host(host), h, "gatewayd.toml"); err != nil {
		return err
	}
	config := path.Join(p.Dir, "gatewayd.toml")
	if err := p.spawn(ctx, host, gatewaydName, p.program, "run", "-c", config); err != nil {
		return err
	}
	if _, err := p.daemons[pairKey(host, gatewaydName)].pollUntil(ctx, func() error {
		_, err := p.role(ctx, host)
		return err
	}); err != nil {
		return err
	}
	const print = `"$1" cluster keepalived -c "$2" >"$3"`
	keepalived := path.Join(p.Dir, "keepalived.conf")
	if err := shell(ctx, p.Host(host), print, p.program, config, keepalived); err != nil {
		return err
	}
	files := func(name string) string { return path.Join(p.Dir, name) }
	return p.spawn(ctx, host, vrrpName, "keepalived", "-n", "-l", "-D", "-f", keepalived, "-p", files("vrrp.pid"), "-r",
		files("vrrp-child.pid"), "-c", files("vrrp-checkers.pid"))
}

// pairState is what a gateway says of itself.
type pairState struct {
	Role  string
	Ready bool
}

const active = "active"

// role asks a gateway for its role. It is an error while the daemon does not answer.
func (p *GatewayPair) role(ctx context.Context, host string) (s pairState, err error) {
	out, err := p.Host(host).Run(ctx, agent.Command{Argv: []string{
		p.program, "status", "--json", "--socket", path.Join(p.Dir, "control.sock")}, Support: true})
	if err != nil {
		return s, err
	}
	var status struct{ Pair *pairState }
	if err := json.Unmarshal([]byte(out.Stdout), &status); err != nil {
		return s, err
	}
	if status.Pair == nil {
		return s, errors.New("gatewayd says that it is alone")
	}
	return *status.Pair, nil
}

// takesOver bounds the wait for one gateway that serves.
const takesOver = 30 * time.Second

// awaitPair returns once one gateway serves, and the other one is ready to.
func (p *GatewayPair) awaitPair(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, takesOver)
	defer cancel()
	var seen []string
	_, err := daemon{}.pollUntil(ctx, func() error {
		serving, ready := 0, 0
		seen = nil
		for _, host := range pairHosts {
			s, err := p.role(ctx, host)
			seen = append(seen, fmt.Sprintf("%s: %+v, %v", host, s, err))
			switch {
			case err != nil:
			case s.Role == active:
				serving++
			case s.Ready:
				ready++
			}
		}
		if serving == 1 && ready == 1 {
			return nil
		}
		return errTimeIsUp
	})
	if err != nil {
		return fmt.Errorf("after %s not one gateway serves while the other one is ready: %s", takesOver,
			strings.Join(seen, "; "))
	}
	return nil
}

// PowerOf implements Powered.
func (p *GatewayPair) PowerOf(ctx context.Context, _ Env) (string, error) {
	return p.serving(ctx)
}

// serving names the host of the gateway that serves.
func (p *GatewayPair) serving(ctx context.Context) (string, error) {
	for _, host := range pairHosts {
		if s, err := p.role(ctx, host); err == nil && s.Role == active {
			return host, nil
		}
	}
	return "", errors.New("no gateway serves")
}

// Refused implements Failing.
func (p *GatewayPair) Refused(f Fault) string {
	if f == FaultRestart {
		return "a pair is not restarted but switched"
	}
	return ""
}

// Cause implements Failing. What was killed stays away.
func (p *GatewayPair) Cause(ctx context.Context, _ Env, f Fault) error {
	host, err := p.serving(ctx)
	if err != nil || f == FaultNone {
		return err
	}
	name, signal := gatewaydName, syscall.SIGKILL
	switch f {
	case FaultLink:
		lan := p.Port("lan")
		if host == secondGateway {
			lan = p.Port("lan2")
		}
		return shell(ctx, p.Host(host), `ip link set "$1" down`, lan)
	case FaultStore:
		host, name = storeHost, storeName
	case FaultSwitch: // in order, keepalived tells the other one that it leaves
		name, signal = vrrpName, syscall.SIGTERM
	}
	_, err = p.Host(host).End(ctx, agent.Ending{Name: name, Signals: []syscall.Signal{signal}, Grace: endingTime})
	return err
}

// Stop ends all daemons. What they leave ends with the hosts.
func (p *GatewayPair) Stop(ctx context.Context, _ Env) error {
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(p.daemons)) {
		errs = append(errs, p.daemons[key].kill(ctx))
	}
	for _, d := range p.portal.daemons { // the RADIUS server
		errs = append(errs, d.kill(ctx))
	}
	return errors.Join(errs...)
}
