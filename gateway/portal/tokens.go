package portal

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"time"

	"github.com/gateweigh/gateweigh/gateway/session"
)

// tokens make the forms' hidden proof that a page of the portal, shown to the same
// client, sent them. Another site can make a browser send a form, but cannot read
// the token that goes into it; one of another client does not fit. The usual means
// do not serve here: there are no cookies, and browsers leave Sec-Fetch-Site away
// over plain HTTP and some of them Origin.
type tokens struct{ key []byte }

// tokenAge is how long a token is good for at least, and half of what it is at
// most: a page may stay open over night.
const tokenAge = 12 * time.Hour

// tokenBytes of the HMAC are plenty against guessing over a network.
const tokenBytes = 16

func (t tokens) make(key session.Key, now time.Time) string {
	return base64.RawURLEncoding.EncodeToString(t.sum(key, period(now)))
}

// valid reports whether a token was made for this client not long ago.
func (t tokens) valid(token string, key session.Key, now time.Time) bool {
	got, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil {
		return false
	}
	current := period(now)
	return hmac.Equal(got, t.sum(key, current)) || hmac.Equal(got, t.sum(key, current-1))
}

func period(now time.Time) int64 { return now.Unix() / int64(tokenAge/time.Second) }

// sum names its purpose, so that the key may have others.
func (t tokens) sum(key session.Key, period int64) []byte {
	h := hmac.New(sha256.New, t.key)
	h.Write([]byte("gatewayd portal form\x00"))
	h.Write(key.MAC[:])
	addr := key.Addr.As16()
	h.Write(addr[:])
	h.Write(binary.BigEndian.AppendUint64(nil, uint64(period)))
	return h.Sum(nil)[:tokenBytes]
}
