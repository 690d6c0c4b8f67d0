package ppp

import (
	"crypto/des"
	"crypto/hmac"
	"crypto/md5"
	"crypto/sha1"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"unicode/utf16"

	//lint:ignore SA1019 MS-CHAPv2 is defined with MD4
	"golang.org/x/crypto/md4"
)

// Method is how a peer proves who it is.
type Method string

// Methods. Only PAP sends the password.
const (
	MethodPAP      Method = "pap"      // RFC 1334
	MethodCHAP     Method = "chap"     // RFC 1994, with MD5
	MethodMSCHAPv2 Method = "mschapv2" // RFC 2759
)

// Methods lists all, the strongest first.
var Methods = []Method{MethodMSCHAPv2, MethodCHAP, MethodPAP}

// Algorithms of CHAP, as assigned by IANA.
const (
	algorithmMD5      = 5
	algorithmMSCHAPv2 = 0x81
)

// option is the value of LCP's option for the method.
func (m Method) option() []byte {
	switch m {
	case MethodCHAP:
		return append(binary.BigEndian.AppendUint16(nil, uint16(CHAP)), algorithmMD5)
	case MethodMSCHAPv2:
		return append(binary.BigEndian.AppendUint16(nil, uint16(CHAP)), algorithmMSCHAPv2)
	}
	return binary.BigEndian.AppendUint16(nil, uint16(PAP))
}

// methodOf is the method that an option's value names.
func methodOf(value []byte) (Method, bool) {
	i := slices.IndexFunc(Methods, func(m Method) bool { return string(m.option()) == string(value) })
	if i < 0 {
		return "", false
	}
	return Methods[i], true
}

const (
	challengeLen   = 16
	msResponseLen  = 49 // peer challenge 16, reserved 8, response 24, flags 1
	ntResponseLen  = 24
	ntResponseAt   = 24
	msSuccessBytes = 20
)

// Credentials are what a peer presented. They are unchecked: an attacker may have chosen every
// byte but Challenge.
type Credentials struct {
	Method Method
	User   string
	// Password is PAP's.
	Password string
	// ID, Challenge and Response are CHAP's: the digest's 16 bytes, or the 49 of MS-CHAPv2 (RFC
	// 2759, 4: the peer's challenge, 8 zeros, the response, flags).
	ID        uint8
	Challenge []byte
	Response  []byte
}

// Right reports whether credentials are of a password. Where the method lets the peer check the
// server too, proof is what convinces it: the message of MS-CHAPv2's Success.
func (c Credentials) Right(password string) (proof string, ok bool) {
	switch c.Method {
	case MethodPAP:
		return "", hmac.Equal([]byte(c.Password), []byte(password))
	case MethodCHAP:
		return "", hmac.Equal(c.Response, DigestResponse(c.ID, password, c.Challenge))
	}
	if len(c.Response) != msResponseLen {
		return "", false
	}
	peer, got := c.Response[:challengeLen], c.Response[ntResponseAt:ntResponseAt+ntResponseLen]
	if !hmac.Equal(got, NTResponse(c.Challenge, peer, c.User, password)) {
		return "", false
	}
	return AuthenticatorResponse(password, got, peer, c.Challenge, c.User), true
}

// DigestResponse is CHAP's response with MD5 (RFC 1994, 4.1).
func DigestResponse(id uint8, password string, challenge []byte) []byte {
	sum := md5.Sum(append(append([]byte{id}, password...), challenge...))
	return sum[:]
}

// NTResponse is MS-CHAPv2's response (RFC 2759, 8.1).
func NTResponse(server, peer []byte, user, password string) []byte {
	challenge, hash := challengeHash(peer, server, user), ntHash(password)
	var response []byte
	key := append(hash[:], make([]byte, 5)...) // three keys of 7 bytes: RFC 2759, 8.5
	for ; len(key) > 0; key = key[7:] {
		response = append(response, desEncrypt(key[:7], challenge)...)
	}
	return response
}

// AuthenticatorResponse is the server's proof that it knows the password (RFC 2759, 8.7): "S="
// and 40 hexadecimal digits.
func AuthenticatorResponse(password string, response, peer, server []byte, user string) string {
	hash := ntHash(password)
	again := md4.New()
	again.Write(hash[:])
	digest := sha1.New()
	digest.Write(again.Sum(nil))
	digest.Write(response)
	digest.Write([]byte("Magic server to client signing constant"))
	first := digest.Sum(nil)
	digest.Reset()
	digest.Write(first)
	digest.Write(challengeHash(peer, server, user))
	digest.Write([]byte("Pad to make it do more than one iteration"))
	return "S=" + strings.ToUpper(hex.EncodeToString(digest.Sum(nil)))
}

// challengeHash is RFC 2759, 8.2. A name's domain is not part of it.
func challengeHash(peer, server []byte, user string) []byte {
	if i := strings.LastIndexByte(user, '\\'); i >= 0 {
		user = user[i+1:]
	}
	h := sha1.New()
	h.Write(peer)
	h.Write(server)
	h.Write([]byte(user))
	return h.Sum(nil)[:8]
}

// ntHash is MD4 over the password in UTF-16 (RFC 2759, 8.3).
func ntHash(password string) (hash [md4.Size]byte) {
	h := md4.New()
	for _, unit := range utf16.Encode([]rune(password)) {
		h.Write(binary.LittleEndian.AppendUint16(nil, unit))
	}
	h.Sum(hash[:0])
	return hash
}

// desEncrypt encrypts with a key of 7 bytes, spread over 8 with a parity bit each (RFC 2759, 8.6).
func desEncrypt(key7, clear []byte) []byte {
	var key [8]byte
	all := binary.BigEndian.Uint64(append([]byte{0}, key7...))
	for i := range key {
		b := byte(all>>(49-7*i)) << 1
		key[i] = b | byte(1^bits.OnesCount8(b)&1)
	}
	block, err := des.NewCipher(key[:])
	if err != nil {
		panic(fmt.Sprintf("ppp: a DES key of %d bytes: %v", len(key), err)) // cannot be
	}
	out := make([]byte, 8)
	block.Encrypt(out, clear)
	return out
}
