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

// openvpnTunnels are OpenVPN 2.6 over UDP, between two peers. Study 4 used Blowfish.
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
	// PKCS #7 pads by at least one byte.
	openvpnBlowfish = Encapsulation{
		Headers: []Header{ipv4, udp, openvpnOpcode, {Name: "HMAC-SHA1", Bytes: 20}, {Name: "IV", Bytes: 8}, {
			Name: "packet number", Bytes: 4, Padded: true}},
		Pad: Pad{To: 8, Least: 1},
	}
)

func openvpn(about string, encapsulation Encapsulation, options ...string) tunnelKind {
	options = append(options, "data-ciphers "+strings.TrimPrefix(options[0], "cipher "), "disable-dco")
	return tunnelKind{
		about:         "OpenVPN 2.6 (UDP), " + about,
		needs:         []Need{{Program: "openvpn", Package: "openvpn", Why: "the tunnel", Feature: tunFeature}},
		encapsulation: encapsulation,
		up:            func(ctx context.Context, t *Tunnel) error { return startOpenVPN(ctx, t, options) },
	}
}

// openvpnDCO is OpenVPN whose data packets the kernel encrypts (data channel offload). Debian's kernel does not contain
// the module ovpn-dco: it is built on the machine.
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
			// OpenVPN encrypts in user space when it lacks the module or has an option that the module does not support.
			return t.onBothGateways(ctx, func(ctx context.Context, gateway *end) error { return gateway.run(ctx, dcoIntact) })
		},
		intact: dcoIntact,
	}
}

const dcoIntact = `ip -d link show dev "$DEV" | grep -q ovpn-dco || { echo 'its interface is not of ovpn-dco'; exit 1; }`

// startOpenVPN starts OpenVPN on both gateways. They authenticate each other by the fingerprints of certificates that
// are made for this start.
func startOpenVPN(ctx context.Context, t *Tunnel, options []string) error {
	ids := map[*end]identity{}
	for _, gateway := range t.ends {
		id, err := newIdentity(gateway.name)
		if err != nil {
			return err
		}
		ids[gateway] = id
	}
	return t.onBothGateways(ctx, func(ctx context.Context, gateway *end) error {
		gateway.dev = tunnelDev
		if err := gateway.write(ctx, "openvpn.conf",
			openvpnConfig(gateway, ids[gateway], ids[gateway.peer], options)); err != nil {
			return err
		}
		program, err := gateway.start(ctx, "openvpn", "openvpn", "--config", gateway.dir+"/openvpn.conf")
		if err != nil {
			return err
		}
		if err := program.awaitAgreement(ctx, []string{"Initialization Sequence Completed"}, "TLS Error: ", "AUTH_FAILED",
			"Exiting due to fatal error"); err != nil {
			return fmt.Errorf("%s: %w", gateway.name, err)
		}
		return nil
	})
}

// openvpnConfig returns the configuration of one gateway. OpenVPN renews keys after an hour, which is longer than a
// block. reneg-bytes 0 (see openvpnTunnels) switches off the limit of bytes for Blowfish, which would renew keys every
// few seconds.
func openvpnConfig(gateway *end, own, peer identity, options []string) string {
	role := "tls-server\ndh none"
	if gateway.number == 2 {
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
`, tunnelDev, gateway.outer, gateway.peer.outer, gateway.inner, gateway.peer.inner, gateway.mtu, role,
		strings.Join(options, "\n"), peer.fingerprint,
		own.certificate, own.key)
}

// awaitAgreement returns nil once the daemon has printed one of texts: it agrees with its peer on keys. It returns an
// error once the daemon has printed one of refusals.
func (d daemon) awaitAgreement(ctx context.Context, texts []string, refusals ...string) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	message, err := d.pollUntil(ctx, func() error {
		process, err := d.state(ctx)
		if err != nil {
			return err
		}
		for _, refusal := range refusals {
			if strings.Contains(process.Output, refusal) {
				cancel(errors.New("it refuses the other gateway, or is refused by it"))
			}
		}
		if process.Ended || !slices.ContainsFunc(texts,
			func(text string) bool { return strings.Contains(process.Output, text) }) {
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
