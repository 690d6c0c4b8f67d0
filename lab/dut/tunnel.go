package dut

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gateweigh/gateweigh/lab/agent"
)

// Encapsulating is a device that makes a tunnel.
type Encapsulating interface {
	DUT
	// Encapsulation is what the tunnel adds to each packet.
	Encapsulation() Encapsulation
	// MTU is the largest packet that the tunnel takes, bytes with the IP header.
	MTU() int
}

// Tunnel is a tunnel between the two gateways of the topology "tunnel". It runs between their outer addresses. While it
// stands, each gateway's route to the other one's network leads into the tunnel instead of over the outer link.
//
//	pc1 ── gw1 10.8.0.1 ═══ tunnel ═══ 10.8.0.2 gw2 ── pc2
//	         192.168.0.1 ── outer link ── 192.168.0.2
type Tunnel struct {
	tunnelKind
	mtu      int           // of the tunnel; 0: the largest whose outer packets fit the outer link
	patience time.Duration // bounds Start; 0: tunnelPatience
	ends     []*end
	server   netip.Addr // an address of the host behind gw2
}

var (
	_ Encapsulating = (*Tunnel)(nil)
	_ Provable      = (*Tunnel)(nil)
)

// tunnelKind is the part of a tunnel that differs between kinds: IPsec, OpenVPN, ….
type tunnelKind struct {
	about         string // one line for reports
	needs         []Need
	kernelThreads []string // see Traits.KernelThreads
	housekeeping  time.Duration
	encapsulation Encapsulation
	maxMTU        int // limit of the tunnel's programs; 0: none
	// up makes the tunnel and returns once both ends agree on keys. It sets each end's dev to the tunnel's interface,
	// or leaves it empty when the kernel's IPsec policies lead packets into the tunnel.
	up func(ctx context.Context, t *Tunnel) error
	// undo is a script that removes what remains on a gateway after the tunnel's programs have ended and its interface
	// is removed.
	undo string
	// intact is a script that fails, and prints why, on a gateway where the tunnel has changed since up or does not
	// carry the traffic. May be empty.
	intact string
}

// end is one of the tunnel's gateways.
type end struct {
	Host
	name         string       // "gw1"
	number       int          // 1 or 2
	dir          string       // folder of its files, in memory
	dev          string       // the tunnel's interface
	port         string       // the interface towards the other gateway
	outer, inner netip.Addr   // its addresses outside of the tunnel and in it
	near         netip.Prefix // the network behind it: the clients' or the server's
	address      netip.Addr   // its address in near
	mtu          int          // of the tunnel
	peer         *end
	daemons      []daemon // spawned, in this order
}

const (
	// tunnelDev is the name of the tunnel's interface on both gateways, where a program does not choose it.
	tunnelDev = "tunnel"
	// tunnelPatience bounds the start of a tunnel, and each of its scripts. A start takes 3 s on a real CPU and up to
	// 45 s on a busy emulated one.
	tunnelPatience = 2 * time.Minute
)

// innerAddrs are the addresses of gw1 and gw2 in the tunnel.
var innerAddrs = [2]netip.Addr{netip.MustParseAddr("10.8.0.1"), netip.MustParseAddr("10.8.0.2")}

// tunnelTable is every tunnel by its name in experiments.
var tunnelTable = func() map[string]func() tunnelKind {
	table := map[string]func() tunnelKind{}
	for _, family := range []map[string]func() tunnelKind{
		ipTunnels, ipsecTunnels, charonTunnels, openvpnTunnels, wireguardTunnels, sslTunnels} {
		maps.Copy(table, family)
	}
	return table
}()

// tunnels lists the names of all tunnels, sorted.
func tunnels() []string { return slices.Sorted(maps.Keys(tunnelTable)) }

// newTunnel makes a tunnel by its name in tunnelTable. mtu 0 is the largest whose outer packets fit the outer link.
func newTunnel(name string, mtu int) *Tunnel {
	return &Tunnel{tunnelKind: tunnelTable[name](), mtu: mtu}
}

// Encapsulation is what the tunnel adds to each packet.
func (t *Tunnel) Encapsulation() Encapsulation { return t.encapsulation }

// MTU is the largest packet that the tunnel takes, in bytes with its IP header: the chosen one, or the largest whose
// outer packet fits the outer link.
func (t *Tunnel) MTU() int {
	fits := t.encapsulation.MTU(OuterLink)
	return cmp.Or(t.mtu, min(fits, cmp.Or(t.maxMTU, fits)))
}

// Traits say that clients need no admission and that every program of the tunnel counts, on both gateways.
//
// NoTxChecksum: packets come to the gateways with complete checksums, as from a network card. Otherwise the tunnel
// would have to complete them and be charged for the sender's work.
//
// Aggregates: the kernel joins packets that it takes out of a tunnel (GRO), whatever the links' settings, and a TCP
// connection joins packets in segments.
func (t *Tunnel) Traits() Traits {
	about, needs := fmt.Sprintf("%s, MTU %d", t.about, t.MTU()), slices.Clone(t.needs)
	for _, n := range tunnelNeeds {
		if !slices.ContainsFunc(needs, func(own Need) bool { return own.Program == n.Program }) {
			needs = append(needs, n)
		}
	}
	return Traits{
		NoIPv6: "the lab configures its networks in IPv4",
		Tunnel: true, NoTxChecksum: true, Aggregates: t.kernelThreads != nil || t.encapsulation.Stream,
		KernelThreads: t.kernelThreads, Housekeeping: t.housekeeping, Needs: needs, About: about,
	}
}

// tunnelNeeds are what all tunnels use.
var tunnelNeeds = []Need{
	{Program: "ip", Package: "iproute2", Why: "setting the tunnel up"},
	{Program: "ping", Package: "iputils-ping", Why: "seeing that the tunnel carries packets"},
}

// Start makes the tunnel, leads the routes into it, and returns once a packet has gone through it to the server and
// back. The error of a start quotes what the tunnel's programs printed.
func (t *Tunnel) Start(ctx context.Context, env Env) error {
	t.setEnds(env)
	ctx, cancel := context.WithTimeoutCause(ctx, cmp.Or(t.patience, tunnelPatience), errors.New("time is up"))
	defer cancel()
	err := t.onBothGateways(ctx, func(ctx context.Context, gateway *end) error {
		return gateway.run(ctx,
			`mkdir -p -m 700 "$DIR"; ip -o route show exact "$NET" | sed 's/ linkdown//; s/ dead//' >"$DIR/route"`)
	})
	if err == nil {
		err = t.up(ctx, t)
	}
	if err == nil {
		err = t.onBothGateways(ctx, func(ctx context.Context, gateway *end) error { return gateway.connect(ctx, t.mtu) })
	}
	if err == nil {
		err = t.awaitPackets(ctx)
	}
	if err != nil {
		return t.explain(ctx, err)
	}
	return nil
}

// setEnds fills in both ends from the lab in which the tunnel starts.
func (t *Tunnel) setEnds(env Env) {
	far := netip.PrefixFrom(env.ServerIP, 24).Masked() // study 1's network
	dir := path.Join(env.Scratch, "tunnel")
	t.server = env.ServerIP
	t.ends = []*end{
		{Host: env.Host("gw1"), name: "gw1", port: env.Port("outer1"), near: env.LAN, address: env.Gateway},
		{Host: env.Host("gw2"), name: "gw2", port: env.Port("outer2"), near: far, address: env.RouterWAN},
	}
	for i, gateway := range t.ends {
		gateway.number, gateway.dir, gateway.outer, gateway.inner, gateway.mtu, gateway.peer = i+1, dir, env.Outer[i],
			innerAddrs[i], t.MTU(), t.ends[1-i]
	}
}

// onBothGateways calls do for both gateways at once and waits for both. An error on one ends the context of the other.
func (t *Tunnel) onBothGateways(ctx context.Context, do func(ctx context.Context, gateway *end) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	errs := make([]error, len(t.ends))
	var wg sync.WaitGroup
	for i, gateway := range t.ends {
		wg.Go(func() {
			if errs[i] = do(ctx, gateway); errs[i] != nil {
				cancel(fmt.Errorf("%s has given up", gateway.name))
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// run runs a script on the gateway. Its environment describes the tunnel: DEV, PORT, … (see command).
func (e *end) run(ctx context.Context, script string, env ...string) error {
	_, err := e.outputOf(ctx, script, env...)
	return err
}

// outputOf is run, and returns what the script printed on standard output.
func (e *end) outputOf(ctx context.Context, script string, env ...string) (string, error) {
	out, err := e.Run(ctx, e.command(script, env...))
	if err != nil {
		err = fmt.Errorf("%s: %w", e.name, err)
	}
	return out.Stdout, err
}

// command makes the command that runs a script on the gateway. FAR is the peer's address in the tunnel, NEAR the
// network behind this gateway, and NET the one behind the peer.
func (e *end) command(script string, env ...string) agent.Command {
	return agent.Command{Argv: []string{"sh", "-ec", script}, Timeout: tunnelPatience, Env: append([]string{
		"DIR=" + e.dir, "DEV=" + cmp.Or(e.dev, tunnelDev), "PORT=" + e.port, "MTU=" + fmt.Sprint(e.mtu),
		"OUTER=" + e.outer.String(), "PEER=" + e.peer.outer.String(), "INNER=" + e.inner.String(),
		"FAR=" + e.peer.inner.String(),
		"NEAR=" + e.near.String(), "NET=" + e.peer.near.String(),
	}, env...)}
}

// write writes a file into the end's folder, readable for root alone. Keys reach the gateway only in such files,
// because the folder is in memory.
func (e *end) write(ctx context.Context, name, text string) error {
	if err := e.WriteFile(ctx, path.Join(e.dir, name), []byte(text), 0o600); err != nil {
		return fmt.Errorf("%s: writing %s: %w", e.name, name, err)
	}
	return nil
}

// start starts a program of the tunnel, which must stay in the foreground. The caller may wait until it is ready with
// daemon.await.
func (e *end) start(ctx context.Context, name string, argv ...string) (daemon, error) {
	program := daemon{host: e.Host, name: name}
	e.daemons = append(e.daemons, program)
	if err := program.spawn(ctx, argv...); err != nil {
		return program, fmt.Errorf("%s: %w", e.name, err)
	}
	return program, nil
}

// connect sets the address and the MTU of the tunnel's interface and the route to the other network. A tunnel without
// an interface needs no route, because IPsec policies lead packets into it; only an MTU that the experiment chose
// (chosen, not 0) is set as the route's.
func (e *end) connect(ctx context.Context, chosen int) error {
	script := `ip addr flush dev "$DEV"; ip addr add "$INNER" peer "$FAR" dev "$DEV"; ip link set "$DEV" mtu "$MTU" up
ip route replace "$NET" via "$FAR" dev "$DEV"`
	if e.dev == "" {
		if chosen == 0 {
			return nil
		}
		script = `ip route replace "$NET" via "$PEER" mtu "$MTU"`
	}
	return e.run(ctx, script)
}

// errUnproven is the error of a tunnel that is set up and carries no packets.
var errUnproven = errors.New("the tunnel stands, and no packet comes through it to the server and back")

// awaitPackets repeats a ping from gw1's address in the clients' network to the server until it is answered. It returns
// an error when a program of the tunnel ends, or ctx does.
func (t *Tunnel) awaitPackets(ctx context.Context) error {
	gw1 := t.ends[0]
	ping := agent.Command{
		Argv: []string{"ping", "-q", "-c", "1", "-W", "1", "-I", gw1.address.String(), t.server.String()}, Support: true}
	for {
		_, err := gw1.Run(ctx, ping)
		if err == nil {
			return nil
		}
		if ended := t.endedPrograms(ctx); ended != "" {
			return errors.New(ended)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", errUnproven, context.Cause(ctx))
		case <-time.After(pollEvery):
		}
	}
}

// endedPrograms names the tunnel's programs that have ended and quotes their output; "" when all run.
func (t *Tunnel) endedPrograms(ctx context.Context) string {
	var list []string
	for _, gateway := range t.ends {
		for _, program := range gateway.daemons {
			if process, err := program.state(ctx); err == nil && process.Ended {
				list = append(list,
					fmt.Sprintf("%s on %s ended, %s: %s", program.name, gateway.name, process.Status,
						cmp.Or(process.Output, "it printed nothing")))
			}
		}
	}
	return strings.Join(list, "; ")
}

// explain adds to the error of a start what the programs of both gateways printed last, and advice: it pings the peer
// outside of the tunnel to find out whether the link or the keys are at fault.
func (t *Tunnel) explain(ctx context.Context, err error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stateTimeout)
	defer cancel()
	text := err.Error()
	for _, gateway := range t.ends {
		for _, program := range gateway.daemons {
			if process, unknown := program.state(ctx); unknown == nil && process.Output != "" &&
				!strings.Contains(text, process.Output) {
				text += fmt.Sprintf("; %s on %s says: %s", program.name, gateway.name, process.Output)
			}
		}
	}
	gw1, gw2 := t.ends[0], t.ends[1]
	const ping = `ping -q -c 1 -W 1 "$PEER"`
	if gw1.run(ctx, ping) != nil {
		text += fmt.Sprintf(
			"; %s (%s) does not answer %s outside of the tunnel either: is it there, and is the link between them up?", gw2.name,
			gw2.outer, gw1.name)
	} else {
		text += fmt.Sprintf(
			"; %s answers %s outside of the tunnel, so the two do not agree: compare their keys and ciphers", gw2.name, gw1.name)
	}
	return errorWithDetails{err, text}
}

// errorWithDetails gives an error a longer text.
type errorWithDetails struct {
	error
	text string
}

func (e errorWithDetails) Error() string { return e.text }
func (e errorWithDetails) Unwrap() error { return e.error }

// FailedProof checks on each gateway that the route to the other network leads into the tunnel, and runs the kind's
// script intact. Scripts may compare counters with those of the last call, so both gateways are checked even when the
// first one fails.
func (t *Tunnel) FailedProof(ctx context.Context, _ Env) (string, error) {
	var messages []string
	for _, gateway := range t.ends {
		script := t.intact
		if gateway.dev != "" {
			script = `ip -o route get "$TO" | grep -q " dev $DEV " || { echo "its route to $NET does not lead into the tunnel"; exit 1; }` +
				"\n" + script
		}
		check := gateway.command(script, "TO="+gateway.peer.address.String())
		check.Support = true
		out, err := gateway.Run(ctx, check)
		switch {
		case err != nil && out.ExitCode > 0:
			messages = append(messages,
				fmt.Sprintf("the tunnel of %s is not as it was made: %s", gateway.name, agent.LastLines(out.Stdout+out.Stderr)))
		case err != nil:
			return "", fmt.Errorf("looking at the tunnel of %s: %w", gateway.name, err)
		}
	}
	return strings.Join(messages, "; "), nil
}

// Stop ends the programs, the last one first, removes the tunnel and restores the gateways' direct routes.
func (t *Tunnel) Stop(ctx context.Context, _ Env) error {
	err := t.onBothGateways(ctx, func(_ context.Context, gateway *end) error {
		var errs []error
		for _, program := range slices.Backward(gateway.daemons) {
			errs = append(errs, program.kill(ctx))
		}
		errs = append(errs, gateway.run(ctx, t.undo+`
ip link del "$DEV" 2>/dev/null || :
[ ! -s "$DIR/route" ] || ip route replace $(cat "$DIR/route")
rm -rf "$DIR"`))
		return errors.Join(errs...)
	})
	if err != nil {
		return fmt.Errorf("ending the tunnel: %w", err)
	}
	t.ends = nil
	return nil
}
