package dut

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gateweigh/gateweigh/lab/machine"
)

// tunFeature is the kernel's interface to tunnels in user space.
const tunFeature = machine.TUN

// openvpnTunnels are OpenVPN 2.6 over UDP, in its mode for two peers. "blowfish" is study 4's cipher.
var openvpnTunnels = map[string]func() tunnelKind{
	"openvpn-none": func() tunnelKind {
		return openvpn("no encryption, no authentication", openvpnNone, "cipher none", "auth none")
	},
	"openvpn-blowfish": func() tunnelKind {
		return openvpn("Blowfish-128-CBC with HMAC-SHA1", openvpnBlowfish, "cipher BF-CBC", "auth SHA1",
			"providers legacy default", "reneg-bytes 0")
	},
	"openvpn-aes-gcm":  func() tunnelKind { return openvpn("AES-256-GCM", openvpnAEAD, "cipher AES-256-GCM") },
	"openvpn-chacha20": func() tunnelKind { return openvpn("ChaCha20-Poly1305", openvpnAEAD, "cipher CHACHA20-POLY1305") },
	"openvpn-dco":      openvpnDCO,
}

// Parts of OpenVPN's data packets (its doc/doxygen/doc_data_crypto.h and doc_protocol_overview.h).
var (
	openvpnOpcode   = Header{Name: "opcode and peer", Bytes: 4}
	openvpnPacketID = Header{Name: "packet number", Bytes: 4}

	openvpnNone = Encapsulation{Headers: []Header{ipv4, udp, openvpnOpcode, openvpnPacketID}}
	openvpnAEAD = Encapsulation{Headers: []Header{ipv4, udp, openvpnOpcode, openvpnPacketID, {Name: "tag", Bytes: 16}}}
	// PKCS #7 fills up by at least one byte.
	openvpnBlowfish = Encapsulation{
		Headers: []Header{ipv4, udp, openvpnOpcode, {Name: "HMAC-SHA1", Bytes: 20}, {Name: "IV", Bytes: 8}, {
			Name: "packet number", Bytes: 4, Padded: true}},
		Pad: Pad{To: 8, Least: 1},
	}
)

func openvpn(about string, e Encapsulation, options ...string) tunnelKind {
	options = append(options, "data-ciphers "+strings.TrimPrefix(options[0], "cipher "), "disable-dco")
	return tunnelKind{
		about:         "OpenVPN 2.6 (UDP), " + about,
		needs:         []Need{{Program: "openvpn", Package: "openvpn", Why: "the tunnel", Feature: tunFeature}},
		encapsulation: e,
		up:            func(ctx context.Context, t *Tunnel) error { return startOpenVPN(ctx, t, options) },
	}
}

// openvpnDCO has the kernel encrypt (data channel offload). The module is not one of Debian's kernel: it is built on
// the machine.
func openvpnDCO() tunnelKind {
	return tunnelKind{
		about:         "OpenVPN 2.6 (UDP), AES-256-GCM in the kernel (ovpn-dco)",
		needs:         []Need{{Program: "openvpn", Package: "openvpn", Why: "the tunnel", Feature: machine.OpenVPNDCO}},
		kernelThreads: softirqThreads,
		encapsulation: openvpnAEAD,
		up: func(ctx context.Context, t *Tunnel) error {
			if err := startOpenVPN(ctx, t, []string{"cipher AES-256-GCM", "data-ciphers AES-256-GCM"}); err != nil {
				return err
			}
			// Without the module, or with an option that it does not know, OpenVPN goes on in user space.
			return t.onBothGateways(ctx, func(ctx context.Context, e *end) error { return e.run(ctx, dcoIntact) })
		},
		intact: dcoIntact,
	}
}

const dcoIntact = `ip -d link show dev "$DEV" | grep -q ovpn-dco || { echo 'its interface is not of ovpn-dco'; exit 1; }`

// startOpenVPN starts both ends, which know each other by the fingerprints of certificates of this start.
func startOpenVPN(ctx context.Context, t *Tunnel, options []string) error {
	ids := map[*end]identity{}
	for _, e := range t.ends {
		id, err := newIdentity(e.name)
		if err != nil {
			return err
		}
		ids[e] = id
	}
	return t.onBothGateways(ctx, func(ctx context.Context, e *end) error {
		e.dev = tunnelDev
		if err := e.write(ctx, "openvpn.conf", openvpnConfig(e, ids[e], ids[e.peer], options)); err != nil {
			return err
		}
		d, err := e.start(ctx, "openvpn", "openvpn", "--config", e.dir+"/openvpn.conf")
		if err != nil {
			return err
		}
		if err := d.awaitAgreement(ctx, []string{"Initialization Sequence Completed"}, "TLS Error: ", "AUTH_FAILED",
			"Exiting due to fatal error"); err != nil {
			return fmt.Errorf("%s: %w", e.name, err)
		}
		return nil
	})
}

// openvpnConfig is the configuration of one end. Keys are renewed after an hour, which is longer than a block; the
// limit of bytes that OpenVPN has for Blowfish would renew them every few seconds.
func openvpnConfig(e *end, own, peer identity, options []string) string {
	role := "tls-server\ndh none"
	if e.number == 2 {
		role = "tls-client"
	}
	return fmt.Sprintf(`dev %s
dev-type tun
proto udp
port 1194
local %s
remote %s
ifconfig %s %s
tun-mtu %d
mssfix 0
verb 3
persist-tun
connect-retry 1 1
%s
%s
peer-fingerprint %s
<cert>
%s</cert>
<key>
%s</key>
`, tunnelDev, e.outer, e.peer.outer, e.inner, e.peer.inner, e.mtu, role, strings.Join(options, "\n"), peer.fingerprint,
		own.certificate, own.key)
}

// awaitAgreement returns once the daemon has printed one of the texts that say that it agrees with its peer, and ends
// at the first text of refusals.
func (d daemon) awaitAgreement(ctx context.Context, texts []string, refusals ...string) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	message, err := d.pollUntil(ctx, func() error {
		p, err := d.state(ctx)
		if err != nil {
			return err
		}
		for _, refusal := range refusals {
			if strings.Contains(p.Output, refusal) {
				cancel(errors.New("it refuses the other gateway, or is refused by it"))
			}
		}
		if p.Ended || !slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(p.Output, text) }) {
			return errors.New("not yet")
		}
		return nil
	})
	if errors.Is(err, errTimeIsUp) {
		return fmt.Errorf(
			"%s is running and does not agree with the other gateway: %w; %s", d.name, context.Cause(ctx), message)
	}
	return err
}
