package dut

import (
	"context"
	"crypto/ecdh"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"time"

	"github.com/gateweigh/gateweigh/lab/machine"
)

// wireguardTunnels are WireGuard in the kernel and in user space.
var wireguardTunnels = map[string]func() tunnelKind{
	"wireguard": func() tunnelKind {
		k := wireguard("WireGuard in the kernel", `ip link add "$DEV" type wireguard`,
			Need{Program: "ip", Package: "iproute2", Why: "making the tunnel", Feature: machine.WireGuard})
		k.kernelThreads = softirqThreads
		return k
	},
	"wireguard-go": func() tunnelKind {
		k := wireguard("WireGuard in user space, wireguard-go", "",
			Need{Program: "wireguard-go", Package: "wireguard-go", Why: "the tunnel", Feature: tunFeature})
		k.needs = append(k.needs, Need{Program: "ss", Package: "iproute2", Why: "seeing it listen"})
		return k
	},
}

// wireguardRekey is how often the ends of a tunnel that carries packets agree on new keys: REKEY_AFTER_TIME of
// WireGuard's paper (6.1), which cannot be chosen.
const wireguardRekey = 2 * time.Minute

// wireguardPort is WireGuard's usual one.
const wireguardPort = 51820

// wireguard is a tunnel whose interface a script makes, or wireguard-go where it is empty. Its data packets are those
// of the paper, 5.4.6.
func wireguard(about, script string, program Need) tunnelKind {
	return tunnelKind{
		about:        about,
		needs:        []Need{program, {Program: "wg", Package: "wireguard-tools", Why: "the tunnel's keys"}},
		housekeeping: wireguardRekey,
		encapsulation: Encapsulation{
			Headers: []Header{ipv4, udp, {Name: "type, receiver and counter", Bytes: 16}, {Name: "tag", Bytes: 16}},
			Pad:     Pad{To: 16, ByMTU: true},
		},
		up: func(ctx context.Context, t *Tunnel) error { return startWireGuard(ctx, t, script) },
		// The ends shake hands with the first packet, so there is nothing before it to wait for.
		intact: `wg show "$DEV" latest-handshakes | grep -qv '	0$' || { echo 'it has not shaken hands with the other gateway'; exit 1; }`,
	}
}

func startWireGuard(ctx context.Context, t *Tunnel, script string) error {
	keys := map[*end]*ecdh.PrivateKey{}
	for _, e := range t.ends {
		key, err := ecdh.X25519().GenerateKey(rand.Reader)
		if err != nil {
			return fmt.Errorf("making a key for %s: %w", e.name, err)
		}
		keys[e] = key
	}
	return t.onBothGateways(ctx, func(ctx context.Context, e *end) error {
		e.dev = tunnelDev
		if err := e.write(ctx, "wireguard.conf", wireguardConfig(e, keys[e], keys[e.peer].PublicKey())); err != nil {
			return err
		}
		if script == "" {
			// of handshakes, not of packets
			d, err := e.start(ctx, "wireguard-go", "env", "LOG_LEVEL=verbose", "wireguard-go", "--foreground", tunnelDev)
			if err != nil {
				return err
			}
			// Not by asking it: wg removes a socket that does not listen yet, and then the program ends.
			if err := d.await(ctx, probe{"it has no control socket", "ss -Hlx | grep -q /wireguard/" + tunnelDev}); err != nil {
				return fmt.Errorf("%s: %w", e.name, err)
			}
		}
		return e.run(ctx, script+"\n"+`wg setconf "$DEV" "$DIR/wireguard.conf"`)
	})
}

// wireguardConfig is what wg(8) calls a configuration file.
func wireguardConfig(e *end, own *ecdh.PrivateKey, peer *ecdh.PublicKey) string {
	return fmt.Sprintf(`[Interface]
PrivateKey = %s
ListenPort = %d
[Peer]
PublicKey = %s
Endpoint = %s:%[2]d
AllowedIPs = 0.0.0.0/0
`, base64.StdEncoding.EncodeToString(own.Bytes()), wireguardPort, base64.StdEncoding.EncodeToString(peer.Bytes()),
		e.peer.outer)
}
