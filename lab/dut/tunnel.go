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

// Encapsulating is a device that puts packets into others.
type Encapsulating interface {
	DUT
	// Encapsulation is what it puts around each packet.
	Encapsulation() Encapsulation
	// MTU is the largest packet that the tunnel takes, bytes with the IP header.
	MTU() int
}

// Tunnel is a tunnel between the two gateways of the topology "tunnel". It runs between their outer addresses, and
// takes the place of the routes by which the gateways reach each other's networks.
//
//	pc1 ── gw1 10.8.0.1 ═══ tunnel ═══ 10.8.0.2 gw2 ── pc2
//	         192.168.0.1 ── outer link ── 192.168.0.2
type Tunnel struct {
	tunnelKind
	mtu      int           // of the tunnel, 0: the one whose packets fill the outer link
	patience time.Duration // with a start, 0: tunnelPatience
	ends     []*end
	server   netip.Addr // an address of the host behind gw2
}

var (
	_ Encapsulating = (*Tunnel)(nil)
	_ Proven        = (*Tunnel)(nil)
)

// tunnelKind is what one kind of tunnel differs in from others.
type tunnelKind struct {
	about         string // in a line
	needs         []Need
	kernelThreads []string // see Traits.KernelThreads
	housekeeping  time.Duration
	encapsulation Encapsulation
	mostMTU       int // that its programs take; 0: any
	// up makes the tunnel, and returns once both ends have agreed on it. Each end's dev is its interface then, or empty
	// where policies lead packets into it.
	up func(ctx context.Context, t *Tunnel) error
	// undo is a script that takes from a gateway what is not gone with the programs of the tunnel and its interface.
	undo string
	// intact is a script that fails on a gateway whose end is not as up made it, or does not carry what it should. May be
	// empty.
	intact string
}

// end is one of the tunnel's gateways.
type end struct {
	Host
	name         string     // "gw1"
	number       int        // 1 or 2
	dir          string     // of its files, in memory
	dev          string     // the tunnel's interface
	port         string     // the interface towards the other gateway
	outer, inner netip.Addr // outside of the tunnel and in it
	near         netip.Prefix
	address      netip.Addr // in near, its own network
	mtu          int
	peer         *end
	daemons      []daemon // spawned, in this order
}

const (
	// tunnelDev is the name of the tunnel's interface on both gateways, where a program does not choose it.
	tunnelDev = "tunnel"
	// tunnelPatience bounds the start of a tunnel, which takes 3 s on a real CPU, and up to 45 on an emulated one that is
	// busy, and each script on the way.
	tunnelPatience = 2 * time.Minute
)

// innerAddrs are the gateways' addresses in the tunnel.
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

// newTunnel makes a tunnel that has a line in tunnelTable. mtu 0 is the one whose packets fill the outer link.
func newTunnel(name string, mtu int) *Tunnel {
	return &Tunnel{tunnelKind: tunnelTable[name](), mtu: mtu}
}

// Encapsulation is what the tunnel puts around each packet.
func (t *Tunnel) Encapsulation() Encapsulation { return t.encapsulation }

// MTU is the largest packet that the tunnel takes: where none was chosen, the largest whose outer packet fits the link.
func (t *Tunnel) MTU() int {
	fits := t.encapsulation.MTU(OuterLink)
	return cmp.Or(t.mtu, min(fits, cmp.Or(t.mostMTU, fits)))
}

// Traits: nothing is admitted, and every program of the tunnel counts, on both gateways.
//
// Checksums are complete when packets come to the gateways, as they are from a network card: a tunnel would have to
// complete them itself, and be charged for what the sender left undone. The kernel makes one packet of several that it
// has unpacked, whatever the links' setting, and a TCP connection one segment.
func (t *Tunnel) Traits() Traits {
	about, needs := fmt.Sprintf("%s, MTU %d", t.about, t.MTU()), slices.Clone(t.needs)
	for _, n := range tunnelNeeds {
		if !slices.ContainsFunc(needs, func(own Need) bool { return own.Program == n.Program }) {
			needs = append(needs, n)
		}
	}
	return Traits{
		Tunnel: true, NoTxChecksum: true, Gathers: t.kernelThreads != nil || t.encapsulation.Stream,
		KernelThreads: t.kernelThreads, Housekeeping: t.housekeeping, Needs: needs, About: about,
	}
}

// tunnelNeeds are what all tunnels use.
var tunnelNeeds = []Need{
	{Program: "ip", Package: "iproute2", Why: "setting the tunnel up"},
	{Program: "ping", Package: "iputils-ping", Why: "seeing that the tunnel carries packets"},
}

// Start makes the tunnel, leads the routes into it, and returns once packets have gone through it to the server and
// back.
func (t *Tunnel) Start(ctx context.Context, env Env) error {
	t.open(env)
	ctx, cancel := context.WithTimeoutCause(ctx, cmp.Or(t.patience, tunnelPatience), errors.New("time is up"))
	defer cancel()
	err := t.onBothGateways(ctx, func(ctx context.Context, e *end) error {
		return e.run(ctx,
			`mkdir -p -m 700 "$DIR"; ip -o route show exact "$NET" | sed 's/ linkdown//; s/ dead//' >"$DIR/route"`)
	})
	if err == nil {
		err = t.up(ctx, t)
	}
	if err == nil {
		err = t.onBothGateways(ctx, func(ctx context.Context, e *end) error { return e.connect(ctx, t.mtu) })
	}
	if err == nil {
		err = t.awaitPackets(ctx)
	}
	if err != nil {
		return t.explain(ctx, err)
	}
	return nil
}

// open notes in which lab the tunnel starts.
func (t *Tunnel) open(env Env) {
	far := netip.PrefixFrom(env.ServerIP, 24).Masked() // study 1's network
	dir := path.Join(env.Scratch, "tunnel")
	t.server = env.ServerIP
	t.ends = []*end{
		{Host: env.Host("gw1"), name: "gw1", port: env.Port("outer1"), near: env.LAN, address: env.Gateway},
		{Host: env.Host("gw2"), name: "gw2", port: env.Port("outer2"), near: far, address: env.RouterWAN},
	}
	for i, e := range t.ends {
		e.number, e.dir, e.outer, e.inner, e.mtu, e.peer = i+1, dir, env.Outer[i], innerAddrs[i], t.MTU(), t.ends[1-i]
	}
}

// onBothGateways works on both gateways at once, and returns once it has ended on both. An error on one ends the
// context of the other.
func (t *Tunnel) onBothGateways(ctx context.Context, do func(ctx context.Context, e *end) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	errs := make([]error, len(t.ends))
	var wg sync.WaitGroup
	for i, e := range t.ends {
		wg.Go(func() {
			if errs[i] = do(ctx, e); errs[i] != nil {
				cancel(fmt.Errorf("%s has given up", e.name))
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// run runs a script on the gateway, which finds in its environment what the tunnel consists of: DEV, PORT, …
func (e *end) run(ctx context.Context, script string, env ...string) error {
	_, err := e.outputOf(ctx, script, env...)
	return err
}

// outputOf is what a script for run prints.
func (e *end) outputOf(ctx context.Context, script string, env ...string) (string, error) {
	out, err := e.Run(ctx, e.command(script, env...))
	if err != nil {
		err = fmt.Errorf("%s: %w", e.name, err)
	}
	return out.Stdout, err
}

func (e *end) command(script string, env ...string) agent.Command {
	return agent.Command{Argv: []string{"sh", "-ec", script}, Timeout: tunnelPatience, Env: append([]string{
		"DIR=" + e.dir, "DEV=" + cmp.Or(e.dev, tunnelDev), "PORT=" + e.port, "MTU=" + fmt.Sprint(e.mtu),
		"OUTER=" + e.outer.String(), "PEER=" + e.peer.outer.String(), "INNER=" + e.inner.String(),
		"FAR=" + e.peer.inner.String(),
		"NEAR=" + e.near.String(), "NET=" + e.peer.near.String(),
	}, env...)}
}

// write writes a file of the tunnel, for root alone. Keys reach the gateway in no other way: its folder is in memory.
func (e *end) write(ctx context.Context, name, text string) error {
	if err := e.WriteFile(ctx, path.Join(e.dir, name), []byte(text), 0o600); err != nil {
		return fmt.Errorf("%s: writing %s: %w", e.name, name, err)
	}
	return nil
}

// start starts a program of the tunnel in the foreground. Signs may follow with daemon.await.
func (e *end) start(ctx context.Context, name string, argv ...string) (daemon, error) {
	d := daemon{host: e.Host, name: name}
	e.daemons = append(e.daemons, d)
	if err := d.spawn(ctx, argv...); err != nil {
		return d, fmt.Errorf("%s: %w", e.name, err)
	}
	return d, nil
}

// connect gives the tunnel's interface its address and MTU and leads the packets for the other network into it. Where
// there is none policies do that, whose MTU the kernel knows: another one, not 0, is the route's.
func (e *end) connect(ctx context.Context, other int) error {
	script := `ip addr flush dev "$DEV"; ip addr add "$INNER" peer "$FAR" dev "$DEV"; ip link set "$DEV" mtu "$MTU" up
ip route replace "$NET" via "$FAR" dev "$DEV"`
	if e.dev == "" {
		if other == 0 {
			return nil
		}
		script = `ip route replace "$NET" via "$PEER" mtu "$MTU"`
	}
	return e.run(ctx, script)
}

// errUnproven begins the error of a tunnel that stands and carries nothing.
var errUnproven = errors.New("the tunnel stands, and no packet comes through it to the server and back")

// awaitPackets returns once packets go through the tunnel: a ping from gw1's address in the clients' network to the
// server.
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

// endedPrograms says which programs of the tunnel have ended, and with what words; "" when all run.
func (t *Tunnel) endedPrograms(ctx context.Context) string {
	var list []string
	for _, e := range t.ends {
		for _, d := range e.daemons {
			if p, err := d.state(ctx); err == nil && p.Ended {
				list = append(list,
					fmt.Sprintf("%s on %s ended, %s: %s", d.name, e.name, p.How, cmp.Or(p.Output, "it printed nothing")))
			}
		}
	}
	return strings.Join(list, "; ")
}

// explain adds to the error of a start what the programs of both gateways said last and what to look at.
func (t *Tunnel) explain(ctx context.Context, err error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerTimeout)
	defer cancel()
	text := err.Error()
	for _, e := range t.ends {
		for _, d := range e.daemons {
			if p, unknown := d.state(ctx); unknown == nil && p.Output != "" && !strings.Contains(text, p.Output) {
				text += fmt.Sprintf("; %s on %s says: %s", d.name, e.name, p.Output)
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

// errorWithDetails is an error with more words.
type errorWithDetails struct {
	error
	text string
}

func (e errorWithDetails) Error() string { return e.text }
func (e errorWithDetails) Unwrap() error { return e.error }

// Unlike looks whether each gateway still leads the other's network into the tunnel, and whether the tunnel has carried
// what it should since the last look. Both are looked at, so that the next look counts from this one.
func (t *Tunnel) Unlike(ctx context.Context, _ Env) (string, error) {
	var messages []string
	for _, e := range t.ends {
		script := t.intact
		if e.dev != "" {
			script = `ip -o route get "$TO" | grep -q " dev $DEV " || { echo "its route to $NET does not lead into the tunnel"; exit 1; }` +
				"\n" + script
		}
		look := e.command(script, "TO="+e.peer.address.String())
		look.Support = true
		out, err := e.Run(ctx, look)
		switch {
		case err != nil && out.ExitCode > 0:
			messages = append(messages,
				fmt.Sprintf("the tunnel of %s is not as it was made: %s", e.name, agent.LastLines(out.Stdout+out.Stderr)))
		case err != nil:
			return "", fmt.Errorf("looking at the tunnel of %s: %w", e.name, err)
		}
	}
	return strings.Join(messages, "; "), nil
}

// Stop ends the programs, the last ones first, and gives the gateways the direct routes back.
func (t *Tunnel) Stop(ctx context.Context, _ Env) error {
	err := t.onBothGateways(ctx, func(_ context.Context, e *end) error {
		var errs []error
		for _, d := range slices.Backward(e.daemons) {
			errs = append(errs, d.kill(ctx))
		}
		errs = append(errs, e.run(ctx, t.undo+`
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
