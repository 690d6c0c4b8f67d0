package portal

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"time"

	"github.com/gateweigh/gateweigh/gateway/session"
)

// tokens creates the forms' hidden field, which proves that a page of the portal, shown to the same client, sent the
// form. Another site can make a browser send a form but cannot read the token; another client's token does not match.
// The usual defences do not apply here: before login there are no cookies, and over plain HTTP browsers omit
// Sec-Fetch-Site and some omit Origin. It also creates the cookie of a session.
type tokens struct{ key []byte }

// tokenAge is the shortest validity of a token and half of the longest: a page may stay open overnight.
const tokenAge = 12 * time.Hour

// tokenBytes is how many bytes of its HMAC a token has: enough against guessing over a network.
const tokenBytes = 16

func (t tokens) formToken(key session.Key, now time.Time) string {
	return base64.RawURLEncoding.EncodeToString(t.sum(key, period(now)))
}

// valid reports whether a token was made for this client recently enough.
func (t tokens) valid(token string, key session.Key, now time.Time) bool {
	got, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil {
		return false
	}
	current := period(now)
	return hmac.Equal(got, t.sum(key, current)) || hmac.Equal(got, t.sum(key, current-1))
}

func period(now time.Time) int64 { return now.Unix() / int64(tokenAge/time.Second) }

func (t tokens) sum(key session.Key, period int64) []byte {
	return t.sign("gatewayd portal form", key, binary.BigEndian.AppendUint64(nil, uint64(period)))
}

// sessionCookie is a session's cookie. The session's ID makes that of each login another one, so none can be known
// before the login.
func (t tokens) sessionCookie(s session.Session) []byte {
	return t.sign("gatewayd portal session", s.Key, []byte(s.ID))
}

func (t tokens) isCookieOf(cookie string, s session.Session) bool {
	got, err := base64.RawURLEncoding.DecodeString(cookie)
	return err == nil && hmac.Equal(got, t.sessionCookie(s))
}

// sign returns the first tokenBytes of an HMAC of a purpose, a client and further data. It includes the purpose, so
// that a token for one purpose is not valid for another.
func (t tokens) sign(purpose string, key session.Key, what []byte) []byte {
	h := hmac.New(sha256.New, t.key)
	h.Write([]byte(purpose + "\x00"))
	h.Write(key.MAC[:])
	addr := key.Addr.As16()
	h.Write(addr[:])
	h.Write(what)
	return h.Sum(nil)[:tokenBytes]
}
