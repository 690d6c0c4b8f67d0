package dut

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
)

// charon is strongSwan's daemon. It negotiates keys (IKEv2, RFC 7296) for the kernel's ESP, or for its own ESP in user
// space (plugin kernel-libipsec).
type charon struct {
	cipher    espCipher
	userSpace bool // strongSwan encrypts, not the kernel
}

// charonProgram is the daemon's file. Debian does not put it on PATH.
const charonProgram = "/usr/lib/ipsec/charon"

var charonNeeds = []Need{
	{Program: charonProgram, Package: "strongswan-charon", Why: "agreeing on keys"},
	{Program: "swanctl", Package: "strongswan-swanctl", Why: "telling strongSwan what to agree on"},
}

// charonTunnels are ESP tunnels that strongSwan encrypts in user space. It sends ESP in UDP (RFC 3948), and refuses ESP
// without encryption.
var charonTunnels = map[string]func() tunnelKind{
	"ipsec-user-aes-cbc-sha1": func() tunnelKind { return ipsecUser(espCBC) },
	"ipsec-user-aes-gcm":      func() tunnelKind { return ipsecUser(espGCM) },
	"ipsec-user-chacha20":     func() tunnelKind { return ipsecUser(espChaCha) },
}

func ipsecUser(cipher espCipher) tunnelKind {
	return tunnelKind{
		about: "IPsec (ESP in UDP) in user space, " + cipher.about + ", strongSwan 5 (kernel-libipsec, IKEv2)",
		needs: append([]Need{{Program: charonProgram, Package: "libcharon-extra-plugins",
			Why: "encrypting (its plugin kernel-libipsec)", Feature: tunFeature}}, charonNeeds...),
		encapsulation: cipher.encapsulation(ipv4, udp),
		maxMTU:        1400, // strongSwan drops larger packets (libstrongswan, tun_device.c)
		up:            func(ctx context.Context, t *Tunnel) error { return (charon{cipher, true}).up(ctx, t) },
		undo:          charonUndo,
	}
}

// charonDev is the interface of strongSwan's ESP in user space. strongSwan fixes the name.
const charonDev = "ipsec0"

// charonUndo removes the rule and the routes that strongSwan adds.
const charonUndo = `
ip rule del pref 220 2>/dev/null || :
ip route flush table 220 2>/dev/null || :
ip link del ` + charonDev + ` 2>/dev/null || :`

// up starts strongSwan on both gateways and has gw1 negotiate the tunnel's keys with gw2.
func (c charon) up(ctx context.Context, t *Tunnel) error {
	secret := rand.Text()
	err := t.onBothGateways(ctx, func(ctx context.Context, gateway *end) error { return c.start(ctx, gateway, secret) })
	if err != nil {
		return err
	}
	const initiate = `swanctl --initiate --child tunnel --timeout 20 --uri "unix://$DIR/vici" 2>&1`
	if err := t.ends[0].run(ctx, initiate); err != nil {
		return fmt.Errorf("agreeing on the tunnel's keys: %w", err)
	}
	return nil
}

// start starts strongSwan on a gateway and loads the tunnel's connection into it.
func (c charon) start(ctx context.Context, gateway *end, secret string) error {
	err := gateway.write(ctx, "strongswan.conf", c.settings(gateway))
	if err == nil {
		err = gateway.write(ctx, "swanctl.conf", c.connection(gateway, secret))
	}
	if err != nil {
		return err
	}
	program, err := gateway.start(ctx, "charon", "env", "STRONGSWAN_CONF="+gateway.dir+"/strongswan.conf", charonProgram)
	if err != nil {
		return err
	}
	uri := "--uri unix://" + gateway.dir + "/vici"
	signs := []probe{{"it does not answer swanctl", "swanctl --stats " + uri}}
	if c.userSpace {
		// strongSwan that lacks the plugin uses the kernel's ESP instead.
		signs = append(signs, probe{"has not loaded its plugin kernel-libipsec (package libcharon-extra-plugins)",
			"swanctl --stats " + uri + " | grep -q kernel-libipsec"})
		gateway.dev = charonDev
	}
	if err := program.await(ctx, signs...); err != nil {
		return fmt.Errorf("%s: %w", gateway.name, err)
	}
	return gateway.run(ctx, fmt.Sprintf(`swanctl --load-all --file "$DIR/swanctl.conf" %s >/dev/null`, uri))
}

// charonPlugins are the plugins of strongSwan that a tunnel needs. strongswan-charon depends on their packages.
var charonPlugins = []string{"random", "nonce", "aes", "sha1", "sha2", "hmac", "kdf", "gcm", "openssl", "pem", "pkcs1",
	"x509", "pubkey", "socket-default"}

// settings returns strongswan.conf(5). install_routes is off because strongSwan's routes would override the lab's.
func (c charon) settings(gateway *end) string {
	plugins := charonPlugins
	if c.userSpace {
		plugins = append(plugins[:len(plugins):len(plugins)], "kernel-libipsec")
	}
	return fmt.Sprintf(`charon {
	load = %s kernel-netlink vici
	install_routes = no
	install_virtual_ip = no
	retransmit_timeout = 1
	retransmit_tries = 4
	filelog { stderr { default = 1 } }
	plugins { vici { socket = unix://%s/vici } }
}
`, strings.Join(plugins, " "), gateway.dir)
}

// connection returns swanctl.conf(5). The gateways authenticate each other by secret, which is made for this start.
// strongSwan renews keys only on request: otherwise some windows would contain the work of a renewal and others not.
func (c charon) connection(gateway *end, secret string) string {
	return fmt.Sprintf(`connections { tunnel {
	version = 2
	local_addrs = %s
	remote_addrs = %s
	proposals = aes256-sha256-curve25519
	mobike = no
	rekey_time = 0
	local { 
		auth = psk
		id = %s
	}
	remote {
		auth = psk
		id = %s
	}
	children { tunnel {
		local_ts = %s
		remote_ts = %s
		esp_proposals = %s
		rekey_time = 0
	} }
} }
secrets { ike {
	secret = "%s"
} }
`, gateway.outer, gateway.peer.outer, gateway.name, gateway.peer.name, gateway.near, gateway.peer.near,
		c.cipher.proposal, secret)
}
