package dut

import (
	"context"
	"fmt"

	"github.com/gateweigh/gateweigh/lab/machine"
)

// ESP's headers (RFC 4303).
var (
	espHeader  = Header{Name: "SPI and sequence number", Bytes: 8}
	espTrailer = Header{Name: "trailer", Bytes: 2, Padded: true} // length of the padding and next header
)

// espCipher is a cipher of ESP.
type espCipher struct {
	about    string
	proposal string // its name in strongSwan
	feature  machine.Feature
	kernel   string // its name in the kernel
	iv, icv  int    // lengths in bytes
	block    int    // ESP pads to a multiple of this many bytes
}

var (
	espCBC    = espCipher{"AES-256-CBC with HMAC-SHA1-96", "aes256-sha1", machine.ESPCBC, "cbc(aes)", 16, 12, 16}
	espGCM    = espCipher{"AES-256-GCM", "aes256gcm128", machine.ESPGCM, "rfc4106(gcm(aes))", 8, 16, 4}
	espChaCha = espCipher{
		"ChaCha20-Poly1305", "chacha20poly1305", machine.ESPChaCha, "rfc7539esp(chacha20,poly1305)", 8, 16, 4}
	espBlowfish = espCipher{
		"Blowfish-128-CBC with HMAC-SHA1-96", "blowfish128-sha1", machine.ESPBlowfish, "cbc(blowfish)", 8, 12, 8}
)

// encapsulation describes ESP in tunnel mode. headers stand before ESP's.
func (c espCipher) encapsulation(headers ...Header) Encapsulation {
	headers = append(headers, espHeader)
	if c.iv > 0 {
		headers = append(headers, Header{Name: "IV", Bytes: c.iv})
	}
	headers = append(headers, espTrailer)
	if c.icv > 0 {
		headers = append(headers, Header{Name: "ICV", Bytes: c.icv})
	}
	return Encapsulation{Headers: headers, Pad: Pad{To: c.block}}
}

// ipsecTunnels are ESP tunnels of the kernel.
var ipsecTunnels = map[string]func() tunnelKind{
	"ipsec-null":         ipsecNull,
	"ipsec-aes-cbc-sha1": func() tunnelKind { return ipsec(espCBC) },
	"ipsec-aes-gcm":      func() tunnelKind { return ipsec(espGCM) },
	"ipsec-chacha20":     func() tunnelKind { return ipsec(espChaCha) },
	"ipsec-blowfish":     func() tunnelKind { return ipsec(espBlowfish) },
}

// ipsec is a tunnel of the kernel whose keys strongSwan negotiates.
func ipsec(cipher espCipher) tunnelKind {
	return tunnelKind{
		about: "IPsec (ESP) in the kernel, " + cipher.about + ", strongSwan 5 (IKEv2)",
		needs: append(
			[]Need{{Program: "ip", Package: "iproute2", Why: "looking at the tunnel", Feature: cipher.feature}}, charonNeeds...),
		kernelThreads: softirqThreads,
		encapsulation: cipher.encapsulation(ipv4),
		up:            func(ctx context.Context, t *Tunnel) error { return (charon{cipher: cipher}).up(ctx, t) },
		undo:          charonUndo + flushIPsec,
		intact:        espIntact(cipher.kernel),
	}
}

// flushIPsec removes the kernel's associations and policies, which remain after strongSwan has ended.
const flushIPsec = `
ip xfrm policy flush; ip xfrm state flush`

// espIntact is a script (see tunnelKind.intact) that fails unless the kernel has two associations of the cipher, one
// for each direction.
func espIntact(cipher string) string {
	return fmt.Sprintf(
		`[ "$(ip xfrm state | grep -cF '%s')" -ge 2 ] || { echo 'it has not two associations of %[1]s'; exit 1; }`, cipher)
}

// ipsecNull is a tunnel of two fixed associations that neither encrypt nor authenticate (RFC 2410): it adds ESP's
// headers only. strongSwan refuses to negotiate it.
func ipsecNull() tunnelKind {
	cipher := espCipher{kernel: "cipher_null", block: 4}
	const associations = `
sa() { ip xfrm state add src "$1" dst "$2" proto esp spi "$3" reqid 1 mode tunnel auth digest_null '' enc cipher_null ''; }
policy() { ip xfrm policy add src "$2" dst "$3" dir "$1" tmpl src "$4" dst "$5" proto esp reqid 1 mode tunnel; }
sa "$OUTER" "$PEER" "$OUT"; sa "$PEER" "$OUTER" "$IN"
policy out "$NEAR" "$NET" "$OUTER" "$PEER"; policy in "$NET" "$NEAR" "$PEER" "$OUTER"; policy fwd "$NET" "$NEAR" "$PEER" "$OUTER"`
	return tunnelKind{
		about:         "IPsec (ESP) in the kernel, no encryption, no authentication, fixed associations",
		needs:         []Need{{Program: "ip", Package: "iproute2", Why: "making the tunnel", Feature: machine.ESPNull}},
		kernelThreads: softirqThreads,
		encapsulation: cipher.encapsulation(ipv4),
		up: func(ctx context.Context, t *Tunnel) error {
			return t.onBothGateways(ctx, func(ctx context.Context, gateway *end) error {
				return gateway.run(ctx, associations, fmt.Sprintf("OUT=0x100%d", gateway.number),
					fmt.Sprintf("IN=0x100%d", gateway.peer.number))
			})
		},
		undo:   flushIPsec,
		intact: espIntact(cipher.kernel),
	}
}
