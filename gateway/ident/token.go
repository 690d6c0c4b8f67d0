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

// KeySize is the size of a Sealer's key, bytes.
const KeySize = 32

// Answer is the contents of a token, for the owner of the key.
type Answer struct {
	User   string
	Client netip.Addr // IPv4
	At     time.Time  // of the query, in whole seconds
}

// Sealer makes tokens: encrypted and authenticated (AES-256-GCM, random nonces), base64url. Two tokens of one user have
// nothing in common.
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

const sealedHead = 8 + 4 // seconds, address

// Seal returns an answer's token. It does not begin with "-", so that it is no option of a command.
func (s *Sealer) Seal(a Answer) string {
	plain := binary.BigEndian.AppendUint64(nil, uint64(a.At.Unix()))
	addr := a.Client.As4()
	plain = append(append(plain, addr[:]...), a.User...)
	for { // the nonce is in front, and random
		if token := base64.RawURLEncoding.EncodeToString(s.aead.Seal(nil, nil, plain, nil)); token[0] != '-' {
			return token
		}
	}
}

// Open reads a token.
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
