// Open logins, by their state.

package oidc

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/oauth2"
)

// login is a login that has begun: somebody pressed a provider's button, and has not come back yet.
type login struct {
	provider               *provider
	wish                   Wish
	state, nonce, verifier string
	cookie                 string // of the browser that pressed the button
	hosts                  []Host
	ends                   time.Time
}

// logins are the open ones.
type logins struct {
	visitors           Visitors
	perDevice, devices int
	log                *slog.Logger
	changed            chan struct{} // with space for one: an end is nearer than before

	mu       sync.Mutex
	byState  map[string]*login    // guarded by mu
	byDevice map[[6]byte][]*login // guarded by mu: in the order in which they began
}

func newLogins(c Config) logins {
	return logins{visitors: c.Visitors, perDevice: c.PerDevice, devices: c.Devices, log: c.Log,
		changed: make(chan struct{}, 1), byState: map[string]*login{}, byDevice: map[[6]byte][]*login{}}
}

// secretBytes are those of states, nonces and cookies: none can be guessed.
const secretBytes = 32

func secret() string {
	b := make([]byte, secretBytes)
	rand.Read(b) // never fails
	return base64.RawURLEncoding.EncodeToString(b)
}

// isSecret reports whether a text may be one of secret's.
func isSecret(s string) bool {
	b, err := base64.RawURLEncoding.DecodeString(s)
	return err == nil && len(b) == secretBytes
}

// begin enters a login, and opens its hosts. A device that has most logins open loses the oldest.
func (t *logins) begin(p *provider, w Wish, hosts []Host) (*login, string, error) {
	l := &login{provider: p, wish: w, state: secret(), nonce: secret(), verifier: oauth2.GenerateVerifier(),
		cookie: w.Cookie, hosts: hosts}
	if !isSecret(l.cookie) {
		l.cookie = secret()
	}
	mac := [6]byte(w.Key.MAC)
	t.mu.Lock()
	defer t.mu.Unlock()
	l.ends = time.Now().Add(p.cfg.LoginTime)
	own := t.byDevice[mac]
	if len(own) == 0 && len(t.byDevice) >= t.devices {
		return nil, "", fmt.Errorf("%w: %d devices have some", ErrBusy, len(t.byDevice))
	}
	if len(own) >= t.perDevice {
		t.remove(own[0])
	}
	t.byState[l.state] = l
	t.byDevice[mac] = append(t.byDevice[mac], l)
	if err := t.allow(mac); err != nil {
		t.remove(l)
		return nil, "", fmt.Errorf("opening the provider's hosts: %w", err)
	}
	select {
	case t.changed <- struct{}{}:
	default:
	}
	return l, l.cookie, nil
}

// take finds the login of an answer, so that no second answer finds it. The hosts stay open until end.
func (t *logins) take(state string, p *provider, a Answer) (*login, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.byState[state]
	switch {
	case l == nil:
		return nil, ErrStale
	case l.wish.Key.MAC != a.Key.MAC || l.wish.Key.Addr != a.Key.Addr:
		return nil, fmt.Errorf("%w: it is that of another device", ErrStale)
	case subtle.ConstantTimeCompare([]byte(l.cookie), []byte(a.Cookie)) != 1:
		return nil, fmt.Errorf("%w: it began in another browser", ErrStale)
	}
	delete(t.byState, state)
	if !time.Now().Before(l.ends) {
		t.remove(l)
		return nil, fmt.Errorf("%w: it took longer than %s", ErrStale, p.cfg.LoginTime)
	}
	if l.provider != p {
		t.remove(l)
		return nil, fmt.Errorf("%w: it began at the provider %q", ErrStale, l.provider.cfg.Name)
	}
	return l, nil
}

// end ends a login, and closes its hosts unless another open login of the device needs them.
func (t *logins) end(l *login) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.remove(l)
}

// endAll ends all logins of a device.
func (t *logins) endAll(mac [6]byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, l := range append([]*login(nil), t.byDevice[mac]...) {
		t.remove(l)
	}
}

// remove takes a login out. mu is held.
func (t *logins) remove(l *login) {
	if t.byState[l.state] == l {
		delete(t.byState, l.state)
	}
	mac := [6]byte(l.wish.Key.MAC)
	var others []*login
	for _, other := range t.byDevice[mac] {
		if other != l {
			others = append(others, other)
		}
	}
	if len(others) == len(t.byDevice[mac]) {
		return
	}
	if t.byDevice[mac] = others; len(others) == 0 {
		delete(t.byDevice, mac)
	}
	if err := t.allow(mac); err != nil {
		t.log.Error("closing a provider's hosts; they close by themselves", "client", l.wish.Key.String(),
			"at", l.ends, "err", err)
	}
}

// allow opens what a device's open logins need, their login pages first. mu is held.
func (t *logins) allow(mac [6]byte) error {
	var pages, others []Visit
	for _, l := range t.byDevice[mac] {
		for i, h := range l.hosts {
			if i == 0 {
				pages = append(pages, Visit{h, l.ends})
			} else {
				others = append(others, Visit{h, l.ends})
			}
		}
	}
	return t.visitors.Allow(mac, append(pages, others...))
}

// expire ends logins that take too long, until ctx ends, and then all.
func (t *logins) expire(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			t.removeUntil(time.Now().Add(day))
			return
		case <-t.changed:
		case <-timer.C:
		}
		if next := t.removeUntil(time.Now()); !next.IsZero() {
			timer.Reset(time.Until(next))
		}
	}
}

// day is longer than any login.
const day = 24 * time.Hour

// removeUntil removes the logins that end by a time, and returns the next end; zero: none is left.
func (t *logins) removeUntil(end time.Time) (next time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, own := range t.byDevice {
		for _, l := range own {
			switch {
			case !l.ends.After(end):
				t.remove(l)
			case next.IsZero() || l.ends.Before(next):
				next = l.ends
			}
		}
	}
	return next
}
