package cluster

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"hash"
	"sync"

	"github.com/gateweigh/gateweigh/gateway/budget"
)

// place is what a content is about: it is at home nowhere else.
type place string

// recordPlace is the place of a record: its set, its key, and whose it is.
func recordPlace(kind, gateway, key, owner string) place {
	return place("record " + kind + ":" + gateway + " " + key + " " + owner)
}

// messagePlace is the place of a question or an answer: who sends it to whom, of which topic, with which token.
func messagePlace(from, to, topic, token string) place {
	return place("message " + from + " " + to + " " + topic + " " + token)
}

// memberPlace is the place of what a gateway says of itself.
func memberPlace(gateway string) place { return place("member " + gateway) }

// Why a content of the store is not used.
var (
	errUnsigned = errors.New("it is not signed: has that gateway no store.key_file?")
	errOtherKey = errors.New("it is signed with another key: all gateways need the same store.key_file")
	errAltered  = errors.New("its signature is wrong: somebody changed it, or copied it from elsewhere")
	errNoKey    = errors.New("it is signed, and this gateway has no store.key_file")
)

// A signed content begins with signedMark, which no content that is not signed begins with: those have the number of a
// format or text. The key's number follows, keyNumberSize, and a signature of the place and the content.
const (
	signedMark    = 0xf5
	keyNumberSize = 4
	signatureSize = 16 // of HMAC-SHA256's 32
	sealSize      = 1 + keyNumberSize + signatureSize
)

// sealer signs with a key that all gateways of a store have. The zero value does not sign.
type sealer struct {
	number []byte    // tells keys from each other
	macs   sync.Pool // of hash.Hash with the key

	mu      sync.Mutex // guards what follows
	refused int
	logs    budget.OncePerMinute
}

// use has a key used.
func (a *sealer) use(key []byte) {
	if len(key) == 0 {
		return
	}
	a.macs.New = func() any { return hmac.New(sha256.New, key) }
	a.number = a.mac("key", nil)[:keyNumberSize]
}

// mac returns the HMAC of a place and a content.
func (a *sealer) mac(at place, content []byte) []byte {
	h := a.macs.Get().(hash.Hash)
	defer a.macs.Put(h)
	h.Reset()
	h.Write(binary.BigEndian.AppendUint32(nil, uint32(len(at))))
	h.Write([]byte(at))
	h.Write(content)
	return h.Sum(nil)
}

// seal returns a content as the store has it. The same content of a place is always sealed the same. All that a gateway
// writes to the store goes through it: records, questions and answers, and Member.
func (s *Store) seal(at place, content []byte) []byte {
	a := &s.signs
	if a.number == nil {
		return content
	}
	out := append(make([]byte, 0, sealSize+len(content)), signedMark)
	out = append(append(out, a.number...), a.mac(at, content)[:signatureSize]...)
	return append(out, content...)
}

// open returns the content that seal sealed.
func (s *Store) open(at place, sealed []byte) ([]byte, error) {
	a := &s.signs
	signed := len(sealed) >= sealSize && sealed[0] == signedMark
	switch {
	case !signed && a.number == nil:
		return sealed, nil
	case !signed:
		return nil, errUnsigned
	case a.number == nil:
		return nil, errNoKey
	case string(sealed[1:1+keyNumberSize]) != string(a.number):
		return nil, errOtherKey
	}
	content := sealed[sealSize:]
	if !hmac.Equal(sealed[1+keyNumberSize:sealSize], a.mac(at, content)[:signatureSize]) {
		return nil, errAltered
	}
	return content, nil
}

// refuse counts a content that is not used, and logs one a minute.
func (s *Store) refuse(what, gateway, key string, why error) {
	a := &s.signs
	a.mu.Lock()
	a.refused++
	a.mu.Unlock()
	a.logs.Do(func() {
		s.Log.Warn("something in the store is not used", "what", what, "gateway", gateway, "key", key, "why", why)
	})
}

// unsealed returns what a sealed content has in it, whoever sealed it.
func unsealed(text []byte) []byte {
	if len(text) >= sealSize && text[0] == signedMark {
		return text[sealSize:]
	}
	return text
}
