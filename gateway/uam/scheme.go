package uam

import (
	"bytes"
	"crypto/md5"
	"encoding/hex"
	"errors"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/gateweigh/gateweigh/gateway/session"
)

// ntBytes is the length of an NT response (RFC 2759, 5); an MS-CHAPv2 response has the peer's challenge, eight zeros,
// the NT response and flags.
const ntBytes = 24

// Reasons why a login's query is no proof of a password.
var (
	errNoUser   = errors.New("no user name is in the request, or it is none")
	errNoProof  = errors.New("no password is in the request, in none of the ways that are on")
	errNotHex   = errors.New("the password or the response is no hexadecimal of the right length")
	errPassword = errors.New("the password is none: it was made with another secret or challenge")
)

// sharedChallenge is what the client's proof is made with: the challenge of the redirect, or MD5 of it and the secret,
// which only the portal knows.
func sharedChallenge(c [challengeBytes]byte, secret string) []byte {
	if secret == "" {
		return c[:]
	}
	sum := md5.Sum(append(c[:], secret...))
	return sum[:]
}

// credentials reads the proof of a login's query. A parameter of a scheme that is off is not looked at.
func (c *Config) credentials(q url.Values, ch challenge) (session.Credentials, error) {
	out := session.Credentials{User: q.Get("username"), SessionID: ch.SessionID}
	if !session.PlausibleUser(out.User) {
		return out, errNoUser
	}
	shared := sharedChallenge(ch.Value, c.Secret)
	switch {
	case q.Has("ntresponse") && c.has(MSCHAPv2):
		nt, err := hex.DecodeString(q.Get("ntresponse"))
		if err != nil || len(nt) != ntBytes {
			return out, errNotHex
		}
		// The peer's challenge is the same as the server's.
		response := append(append(bytes.Clone(shared), make([]byte, 8)...), nt...)
		out.CHAP = &session.CHAP{Microsoft: true, Challenge: shared, Response: append(response, 0)}
	case q.Has("response") && c.has(CHAP):
		response, err := hex.DecodeString(q.Get("response"))
		ident, bad := strconv.ParseUint("0"+q.Get("ident"), 10, 8)
		if err != nil || bad != nil || len(response) != md5.Size {
			return out, errNotHex
		}
		out.CHAP = &session.CHAP{ID: uint8(ident), Challenge: shared, Response: response}
	case q.Has("password") && c.has(PAP):
		hidden, err := hex.DecodeString(q.Get("password"))
		if err != nil || len(hidden) == 0 || len(hidden) > session.MaxPassword {
			return out, errNotHex
		}
		for i := range hidden {
			hidden[i] ^= shared[i%len(shared)]
		}
		// Some portals pad the password with zeros.
		out.Password = strings.TrimRight(string(hidden), "\x00")
		if !utf8.ValidString(out.Password) || strings.Contains(out.Password, "\x00") || out.Password == "" {
			return out, errPassword
		}
	case q.Has("password") && c.has(Plain):
		out.Password = q.Get("password")
		if !utf8.ValidString(out.Password) || out.Password == "" || len(out.Password) > session.MaxPassword {
			return out, errNoProof
		}
	default:
		return out, errNoProof
	}
	return out, nil
}
