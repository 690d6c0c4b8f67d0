package portal

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/gateweigh/gateweigh/gateway/session"
)

// apiPath is the path of the captive portal API. DHCP sends devices its URL (RFC 8910).
const apiPath = "/api/captive-portal"

// captivePortalJSON is the answer of the captive portal API (RFC 8908, 5).
type captivePortalJSON struct {
	Captive          bool    `json:"captive"`
	UserPortalURL    string  `json:"user-portal-url,omitempty"`
	VenueInfoURL     string  `json:"venue-info-url,omitempty"`
	CanExtendSession bool    `json:"can-extend-session"`
	SecondsRemaining *uint64 `json:"seconds-remaining,omitempty"`
	BytesRemaining   *uint64 `json:"bytes-remaining,omitempty"`
}

// maxSafe is the largest integer that every JSON reader keeps exact (RFC 7493, 2.2).
const maxSafe = 1<<53 - 1

// captivityOf returns a client's state. Remaining time and bytes are included only for sessions that end by themselves
// (RFC 8908, 5); sessions cannot be extended, only begun anew.
func captivityOf(s session.Session, now time.Time) captivePortalJSON {
	if s.State != session.Authenticated {
		return captivePortalJSON{Captive: true}
	}
	var c captivePortalJSON
	left := remainingOf(s, now)
	if left.timed {
		seconds := uint64(left.time / time.Second)
		c.SecondsRemaining = &seconds
	}
	if left.quota {
		bytes := min(left.bytes, maxSafe)
		c.BytesRemaining = &bytes
	}
	return c
}

// getAPI answers a device that asks for its state. A client without an entry in the table of sessions is captive.
func (p *Portal) getAPI(w http.ResponseWriter, r *http.Request) {
	s, _ := p.currentSession(peerOf(r).client)
	answer := captivityOf(s, time.Now())
	answer.VenueInfoURL = p.cfg.VenueURL
	if p.cert != nil { // "MUST be accessed over TLS"
		answer.UserPortalURL = p.siteOf(peerOf(r)).base + "/"
	}
	body, err := json.Marshal(answer)
	if err != nil {
		p.log.Error("encoding the captive portal API's answer", "error", err)
		http.Error(w, http.StatusText(http.StatusInternalServerError), http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "application/captive+json")
	h.Set("Cache-Control", "private, no-store") // RFC 8908, 4.2: the answer is for one client only
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.Write(body)
}
