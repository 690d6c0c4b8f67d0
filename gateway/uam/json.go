// Answers in JSON, also as a script that calls a function ("JSONP").

package uam

import (
	"encoding/json"
	"net/http"
	"regexp"
	"strconv"
	"time"

	"github.com/gateweigh/gateweigh/gateway/session"
	"github.com/gateweigh/gateweigh/gateway/wispr"
)

// Values of clientState.
const (
	stateOut = 0
	stateIn  = 1
)

// answerJSON is an answer. Its names and their order are CoovaChilli's (version "1.0").
type answerJSON struct {
	Version    string          `json:"version"`
	State      int             `json:"clientState"`
	NASID      string          `json:"nasid,omitempty"`
	Message    string          `json:"message,omitempty"`
	Challenge  string          `json:"challenge,omitempty"`
	Location   *locationJSON   `json:"location,omitempty"`
	Redir      *redirJSON      `json:"redir,omitempty"`
	Session    *sessionJSON    `json:"session,omitempty"`
	Accounting *accountingJSON `json:"accounting,omitempty"`
}

type locationJSON struct {
	Name string `json:"name"`
}

type redirJSON struct {
	OriginalURL    string `json:"originalURL"`
	RedirectionURL string `json:"redirectionURL"`
	LogoutURL      string `json:"logoutURL"`
	IPAddress      string `json:"ipAddress"`
	MACAddress     string `json:"macAddress"`
}

// sessionJSON has times in seconds; 0: no limit.
type sessionJSON struct {
	ID              string `json:"sessionId"`
	User            string `json:"userName"`
	StartTime       int64  `json:"startTime"`
	SessionTimeout  int64  `json:"sessionTimeout"`
	TerminateTime   int64  `json:"terminateTime"`
	IdleTimeout     int64  `json:"idleTimeout"`
	MaxInputOctets  uint64 `json:"maxInputOctets,omitempty"`
	MaxOutputOctets uint64 `json:"maxOutputOctets,omitempty"`
	MaxTotalOctets  uint64 `json:"maxTotalOctets,omitempty"`
}

// accountingJSON has what the client received as input, and numbers modulo 2³² with gigawords beside them.
type accountingJSON struct {
	SessionTime     int64  `json:"sessionTime"`
	IdleTime        int64  `json:"idleTime"`
	InputOctets     uint32 `json:"inputOctets"`
	OutputOctets    uint32 `json:"outputOctets"`
	InputGigawords  uint32 `json:"inputGigawords"`
	OutputGigawords uint32 `json:"outputGigawords"`
	ViewPoint       string `json:"viewPoint"`
}

// jsonOf returns the answer for an outcome. ch is the client's challenge, if it needs one.
func (s *Server) jsonOf(o outcome, ch challenge, needed bool) answerJSON {
	one, now := o.client, time.Now()
	a := answerJSON{Version: "1.0", NASID: s.cfg.NASID, Message: o.reply}
	online := one.State == session.Authenticated
	if online {
		a.State = stateIn
	}
	if o.kind == wispr.AbortLogin {
		return a
	}
	if needed && s.cfg.challenged() {
		a.Challenge = ch.Hex()
	}
	if !online && (o.res == resNotYet || o.status) {
		a.Location = &locationJSON{s.cfg.Location}
	}
	if o.res != resLogoff && (o.res != resAlready || o.status) {
		link := ch.link
		if link == "" {
			link = s.challenges.link(one.Key)
		}
		a.Redir = &redirJSON{link, "", s.base(one.Key) + "/logoff", hostOf(one.Addr), macOf(one.Key)}
	}
	if online || o.res == resLogoff {
		a.Session = newSessionJSON(one)
		a.Accounting = newAccountingJSON(one, now)
	}
	return a
}

func newSessionJSON(one session.Session) *sessionJSON {
	l := one.Limits
	return &sessionJSON{
		ID: one.ID, User: one.User, StartTime: max(0, one.Began.Unix()),
		SessionTimeout: int64(l.SessionTimeout / time.Second), IdleTimeout: int64(l.IdleTimeout / time.Second),
		MaxInputOctets: l.DownBytes, MaxOutputOctets: l.UpBytes, MaxTotalOctets: l.TotalBytes,
	}
}

func newAccountingJSON(one session.Session, now time.Time) *accountingJSON {
	a := &accountingJSON{
		InputOctets: uint32(one.DownBytes), OutputOctets: uint32(one.UpBytes),
		InputGigawords: uint32(one.DownBytes >> 32), OutputGigawords: uint32(one.UpBytes >> 32), ViewPoint: "client",
	}
	if !one.Began.IsZero() {
		a.SessionTime = max(0, int64(now.Sub(one.Began)/time.Second))
		a.IdleTime = max(0, int64(now.Sub(one.Seen)/time.Second))
	}
	return a
}

// callbacks are the functions that an answer may call: names, perhaps of members. Nothing else can be in a script's
// first bytes.
var callbacks = regexp.MustCompile(`^[A-Za-z_$][A-Za-z0-9_$]{0,63}(\.[A-Za-z_$][A-Za-z0-9_$]{0,63}){0,4}$`)

// callback returns the function that a request wants called, "" if none. ok is false if that is refused, and answered.
func (s *Server) callback(w http.ResponseWriter, r *http.Request) (name string, ok bool) {
	if !r.URL.Query().Has("callback") {
		return "", true
	}
	switch name = r.URL.Query().Get("callback"); {
	case !s.cfg.Script:
		http.Error(w, "JSON as a script is off: any page could read it (uam.jsonp)", http.StatusForbidden)
		return "", false
	case !callbacks.MatchString(name):
		http.Error(w, "callback: give a JavaScript name", http.StatusBadRequest)
		return "", false
	}
	return name, true
}

// sendJSON sends an answer, as a script where a function is to be called.
func (s *Server) sendJSON(w http.ResponseWriter, a answerJSON, callback string) {
	body, err := json.Marshal(a) // escapes what could end a script
	if err != nil {
		s.log.Error("encoding an answer for the portal elsewhere", "error", err)
		http.Error(w, http.StatusText(http.StatusInternalServerError), http.StatusInternalServerError)
		return
	}
	kind := "application/json"
	if callback != "" {
		kind = "text/javascript"
		body = append(append([]byte(callback+"("), body...), ')')
	}
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.Write(body)
}
