package ident

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"
)

// KeySize is the size of a Sealer's key in bytes.
const KeySize = 32

// Answer is the content of a token.
type Answer struct {
	User   string
	Client netip.Addr
	At     time.Time // time of the query, in whole seconds
}

// Sealer makes tokens from Answers: encrypted and authenticated (AES-256-GCM with random nonces), in base64url. A
// random nonce makes each token of a user look different.
type Sealer struct{ aead cipher.AEAD }

// NewSealer returns a Sealer with a key of KeySize bytes.
func NewSealer(key []byte) (*Sealer, error) {
	if len(key) != KeySize {
		return nil, fmt.Errorf("a key of %d bytes instead of %d", len(key), KeySize)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	return &Sealer{aead}, err
}

// A token has before the user's name a Unix time in seconds, 8 bytes, and the client's address. The time's first bit
// says that this is an IPv6 address, which tokens of earlier versions have not.
const (
	sealedTime = 8
	sealed6    = 1 << 63
)

// Seal returns an answer's token. A token does not begin with "-", so that commands do not take it for an option.
func (s *Sealer) Seal(answer Answer) string {
	at := uint64(answer.At.Unix())
	if answer.Client.Is6() {
		at |= sealed6
	}
	plain := append(binary.BigEndian.AppendUint64(nil, at), answer.Client.AsSlice()...)
	plain = append(plain, answer.User...)
	for { // until the random nonce, which comes first, does not begin with the bits of "-"
		if token := base64.RawURLEncoding.EncodeToString(s.aead.Seal(nil, nil, plain, nil)); token[0] != '-' {
			return token
		}
	}
}

// Open decrypts a token.
func (s *Sealer) Open(token string) (Answer, error) {
	sealed, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil {
		return Answer{}, errors.New("no token: a token has letters, digits, - and _ only")
	}
	plain, err := s.aead.Open(nil, nil, sealed, nil)
	if err != nil || len(plain) < sealedTime {
		return Answer{}, errForeign
	}
	at, bytes := binary.BigEndian.Uint64(plain), 4
	if at&sealed6 != 0 {
		bytes = 16
	}
	rest := plain[sealedTime:]
	if len(rest) < bytes {
		return Answer{}, errForeign
	}
	client, _ := netip.AddrFromSlice(rest[:bytes])
	return Answer{At: time.Unix(int64(at&^sealed6), 0), Client: client, User: string(rest[bytes:])}, nil
}

var errForeign = errors.New("no token of this gateway, or cut short: its key is another one")
