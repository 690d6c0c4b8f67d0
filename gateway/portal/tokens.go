package portal

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"slices"
	"sync/atomic"
	"time"

	"github.com/gateweigh/gateweigh/gateway/session"
)

// tokens creates the forms' hidden field, which proves that a page of the portal, shown to the same client, sent the
// form. Another site can make a browser send a form but cannot read the token; another client's token does not match.
// The usual defences do not apply here: before login there are no cookies, and over plain HTTP browsers omit
// Sec-Fetch-Site and some omit Origin. It also creates the cookie of a session.
type tokens struct{ keys atomic.Pointer[[]key] }

// key is a secret of which tokens are made.
type key []byte

// set has tokens made with a key. Those of former ones stay valid until the portal ends.
func (t *tokens) set(k key) {
	all := []key{k}
	if former := t.keys.Load(); former != nil {
		all = append(all, slices.DeleteFunc(slices.Clone(*former), func(f key) bool { return bytes.Equal(f, k) })...)
	}
	t.keys.Store(&all)
}

// present is the key with which tokens are made.
func (t *tokens) present() key { return (*t.keys.Load())[0] }

// made reports whether a token was made with one of the keys; sum makes it with a key.
func (t *tokens) made(token string, sum func(key) []byte) bool {
	got, err := base64.RawURLEncoding.DecodeString(token)
	return err == nil && slices.ContainsFunc(*t.keys.Load(), func(k key) bool { return hmac.Equal(got, sum(k)) })
}

// tokenAge is the shortest validity of a token and half of the longest: a page may stay open overnight.
const tokenAge = 12 * time.Hour

// tokenBytes is how many bytes of its HMAC a token has: enough against guessing over a network.
const tokenBytes = 16

func (t *tokens) formToken(client session.Key, now time.Time) string {
	return base64.RawURLEncoding.EncodeToString(t.present().form(client, period(now)))
}

// valid reports whether a token was made for this client recently enough.
func (t *tokens) valid(token string, client session.Key, now time.Time) bool {
	current := period(now)
	return t.made(token, func(k key) []byte { return k.form(client, current) }) ||
		t.made(token, func(k key) []byte { return k.form(client, current-1) })
}

func period(now time.Time) int64 { return now.Unix() / int64(tokenAge/time.Second) }

func (k key) form(client session.Key, period int64) []byte {
	return k.sign("gatewayd portal form", client, binary.BigEndian.AppendUint64(nil, uint64(period)))
}

// sessionCookie is a session's cookie. The session's ID makes that of each login another one, so none can be known
// before the login.
func (t *tokens) sessionCookie(s session.Session) []byte { return t.present().session(s) }

func (t *tokens) isCookieOf(cookie string, s session.Session) bool {
	return t.made(cookie, func(k key) []byte { return k.session(s) })
}

func (k key) session(s session.Session) []byte {
	return k.sign("gatewayd portal session", s.Key, []byte(s.ID))
}

// sign returns the first tokenBytes of an HMAC of a purpose, a client and further data. It includes the purpose, so
// that a token for one purpose is not valid for another.
func (k key) sign(purpose string, client session.Key, what []byte) []byte {
	h := hmac.New(sha256.New, k)
	h.Write([]byte(purpose + "\x00"))
	h.Write(client.MAC[:])
	addr := client.Addr.As16()
	h.Write(addr[:])
	h.Write(what)
	return h.Sum(nil)[:tokenBytes]
}
