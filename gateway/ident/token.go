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
	Client netip.Addr // IPv4
	At     time.Time  // time of the query, in whole seconds
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

const sealedHead = 8 + 4 // bytes before the user's name: Unix time in seconds, IPv4 address

// Seal returns an answer's token. A token does not begin with "-", so that commands do not take it for an option.
func (s *Sealer) Seal(answer Answer) string {
	plain := binary.BigEndian.AppendUint64(nil, uint64(answer.At.Unix()))
	addr := answer.Client.As4()
	plain = append(append(plain, addr[:]...), answer.User...)
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
	if err != nil || len(plain) < sealedHead {
		return Answer{}, errors.New("no token of this gateway, or cut short: its key is another one")
	}
	return Answer{
		At:     time.Unix(int64(binary.BigEndian.Uint64(plain)), 0),
		Client: netip.AddrFrom4([4]byte(plain[8:sealedHead])),
		User:   string(plain[sealedHead:]),
	}, nil
}
