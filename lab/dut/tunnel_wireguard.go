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
		kind := wireguard("WireGuard in the kernel", `ip link add "$DEV" type wireguard`,
			Need{Program: "ip", Package: "iproute2", Why: "making the tunnel", Feature: machine.WireGuard})
		kind.kernelThreads = softirqThreads
		return kind
	},
	"wireguard-go": func() tunnelKind {
		kind := wireguard("WireGuard in user space, wireguard-go", "",
			Need{Program: "wireguard-go", Package: "wireguard-go", Why: "the tunnel", Feature: tunFeature})
		kind.needs = append(kind.needs, Need{Program: "ss", Package: "iproute2", Why: "seeing it listen"})
		return kind
	},
}

// wireguardRekey is the interval at which the ends of a tunnel in use negotiate new keys: the constant REKEY_AFTER_TIME
// of WireGuard's paper (6.1).
const wireguardRekey = 2 * time.Minute

// wireguardPort is WireGuard's usual port.
const wireguardPort = 51820

// wireguard is a WireGuard tunnel. script makes its interface; when it is empty, wireguard-go does. The paper describes
// data packets in 5.4.6.
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
		// up does not wait for a handshake: the first packet triggers it.
		intact: `wg show "$DEV" latest-handshakes | grep -qv '	0$' || { echo 'it has not shaken hands with the other gateway'; exit 1; }`,
	}
}

func startWireGuard(ctx context.Context, t *Tunnel, script string) error {
	keys := map[*end]*ecdh.PrivateKey{}
	for _, gateway := range t.ends {
		key, err := ecdh.X25519().GenerateKey(rand.Reader)
		if err != nil {
			return fmt.Errorf("making a key for %s: %w", gateway.name, err)
		}
		keys[gateway] = key
	}
	return t.onBothGateways(ctx, func(ctx context.Context, gateway *end) error {
		gateway.dev = tunnelDev
		if err := gateway.write(ctx, "wireguard.conf",
			wireguardConfig(gateway, keys[gateway], keys[gateway.peer].PublicKey())); err != nil {
			return err
		}
		if script == "" {
			// The level verbose logs handshakes, not packets.
			program, err := gateway.start(ctx, "wireguard-go", "env", "LOG_LEVEL=verbose", "wireguard-go", "--foreground",
				tunnelDev)
			if err != nil {
				return err
			}
			// wg is no probe: it removes a socket that does not listen yet, and wireguard-go then ends.
			if err := program.await(ctx,
				probe{"it has no control socket", "ss -Hlx | grep -q /wireguard/" + tunnelDev}); err != nil {
				return fmt.Errorf("%s: %w", gateway.name, err)
			}
		}
		return gateway.run(ctx, script+"\n"+`wg setconf "$DEV" "$DIR/wireguard.conf"`)
	})
}

// wireguardConfig returns wg(8)'s configuration file.
func wireguardConfig(gateway *end, own *ecdh.PrivateKey, peer *ecdh.PublicKey) string {
	return fmt.Sprintf(`[Interface]
PrivateKey = %s
ListenPort = %d
[Peer]
PublicKey = %s
Endpoint = %s:%[2]d
AllowedIPs = 0.0.0.0/0
`, base64.StdEncoding.EncodeToString(own.Bytes()), wireguardPort, base64.StdEncoding.EncodeToString(peer.Bytes()),
		gateway.peer.outer)
}
