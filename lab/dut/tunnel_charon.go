package dut

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
)

// charon is strongSwan's daemon. It agrees on keys (IKEv2, RFC 7296) for ESP of the kernel, or of its own.
type charon struct {
	cipher espCipher
	user   bool // it encrypts itself, in user space
}

// charonProgram is the daemon's file. Debian does not put it on PATH.
const charonProgram = "/usr/lib/ipsec/charon"

var charonNeeds = []Need{
	{Program: charonProgram, Package: "strongswan-charon", Why: "agreeing on keys"},
	{Program: "swanctl", Package: "strongswan-swanctl", Why: "telling strongSwan what to agree on"},
}

// charonTunnels are ESP tunnels of strongSwan itself. It puts ESP into UDP (RFC 3948), and refuses ESP without
// encryption.
var charonTunnels = map[string]func() tunnelKind{
	"ipsec-user-aes-cbc-sha1": func() tunnelKind { return ipsecUser(espCBC) },
	"ipsec-user-aes-gcm":      func() tunnelKind { return ipsecUser(espGCM) },
	"ipsec-user-chacha20":     func() tunnelKind { return ipsecUser(espChaCha) },
}

func ipsecUser(c espCipher) tunnelKind {
	return tunnelKind{
		about: "IPsec (ESP in UDP) in user space, " + c.about + ", strongSwan 5 (kernel-libipsec, IKEv2)",
		needs: append([]Need{{Program: charonProgram, Package: "libcharon-extra-plugins",
			Why: "encrypting (its plugin kernel-libipsec)", Feature: tunFeature}}, charonNeeds...),
		encapsulation: c.encapsulation(ipv4, udp),
		maxMTU:        1400, // of its buffers (libstrongswan, tun_device.c); it drops larger packets
		up:            func(ctx context.Context, t *Tunnel) error { return (charon{c, true}).up(ctx, t) },
		undo:          charonUndo,
	}
}

// charonDev is the interface of strongSwan's own ESP. Its name is fixed.
const charonDev = "ipsec0"

// charonUndo removes the rule and the routes that strongSwan adds.
const charonUndo = `
ip rule del pref 220 2>/dev/null || :
ip route flush table 220 2>/dev/null || :
ip link del ` + charonDev + ` 2>/dev/null || :`

// up starts strongSwan on both gateways and has the first agree with the second.
func (c charon) up(ctx context.Context, t *Tunnel) error {
	secret := rand.Text()
	err := t.onBothGateways(ctx, func(ctx context.Context, e *end) error { return c.start(ctx, e, secret) })
	if err != nil {
		return err
	}
	const initiate = `swanctl --initiate --child tunnel --timeout 20 --uri "unix://$DIR/vici" 2>&1`
	if err := t.ends[0].run(ctx, initiate); err != nil {
		return fmt.Errorf("agreeing on the tunnel's keys: %w", err)
	}
	return nil
}

// start starts strongSwan on a gateway and tells it what to agree on.
func (c charon) start(ctx context.Context, e *end, secret string) error {
	err := e.write(ctx, "strongswan.conf", c.settings(e))
	if err == nil {
		err = e.write(ctx, "swanctl.conf", c.connection(e, secret))
	}
	if err != nil {
		return err
	}
	d, err := e.start(ctx, "charon", "env", "STRONGSWAN_CONF="+e.dir+"/strongswan.conf", charonProgram)
	if err != nil {
		return err
	}
	uri := "--uri unix://" + e.dir + "/vici"
	signs := []probe{{"it does not answer swanctl", "swanctl --stats " + uri}}
	if c.user {
		// Without the plugin it goes on with the kernel's ESP.
		signs = append(signs, probe{"has not loaded its plugin kernel-libipsec (package libcharon-extra-plugins)",
			"swanctl --stats " + uri + " | grep -q kernel-libipsec"})
		e.dev = charonDev
	}
	if err := d.await(ctx, signs...); err != nil {
		return fmt.Errorf("%s: %w", e.name, err)
	}
	return e.run(ctx, fmt.Sprintf(`swanctl --load-all --file "$DIR/swanctl.conf" %s >/dev/null`, uri))
}

// charonPlugins are the parts of strongSwan that are needed, all of packages that strongswan-charon asks for.
var charonPlugins = []string{"random", "nonce", "aes", "sha1", "sha2", "hmac", "kdf", "gcm", "openssl", "pem", "pkcs1",
	"x509", "pubkey", "socket-default"}

// settings are strongswan.conf(5). Its own routes would lead around the lab's.
func (c charon) settings(e *end) string {
	plugins := charonPlugins
	if c.user {
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
`, strings.Join(plugins, " "), e.dir)
}

// connection is swanctl.conf(5): both ends know each other by a secret of this start. Keys are renewed by request only:
// a window would hold the work of a renewal, or not.
func (c charon) connection(e *end, secret string) string {
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
`, e.outer, e.peer.outer, e.name, e.peer.name, e.near, e.peer.near, c.cipher.proposal, secret)
}
