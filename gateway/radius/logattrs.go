package radius

import (
	"strings"

	"layeh.com/radius"
	"layeh.com/radius/rfc2865"
	"layeh.com/radius/rfc2866"
	"layeh.com/radius/rfc3576"

	"github.com/gateweigh/gateweigh/gateway/session"
)

// namedMost bounds how many of a request's sessions the log names. It always tells the number of all.
const namedMost = 4

// logUsers returns log attributes that name the users of a server's request: those of the sessions found, or else those
// that the request names.
func logUsers(p *radius.Packet, found []session.Session) []any {
	if len(found) == 0 {
		client := string(p.Get(rfc2865.CallingStationID_Type))
		if addr := framedAddress(p); addr.IsValid() {
			client = strings.TrimSpace(client + " " + addr.String())
		}
		if addr := framedAddress6(p); addr.IsValid() {
			client = strings.TrimSpace(client + " " + addr.String())
		}
		return []any{"user", string(p.Get(rfc2865.UserName_Type)), "client", client, "session",
			string(p.Get(rfc2866.AcctSessionID_Type))}
	}
	var users, clients, ids []string
	for _, s := range found[:min(len(found), namedMost)] {
		users, clients, ids = append(users, s.User), append(clients, s.Key.String()), append(ids, s.ID)
	}
	list := func(all []string) string { return strings.Join(all, ", ") }
	attrs := []any{"user", users[0], "client", list(clients), "session", list(ids)}
	if len(found) > 1 {
		attrs[1] = list(users)
		attrs = append(attrs, "sessions", len(found))
	}
	return attrs
}

// inWords explains an Error-Cause in plain words, for the log.
func inWords(c rfc3576.ErrorCause) string {
	switch c {
	case rfc3576.ErrorCause_Value_UnsupportedAttribute:
		return "an attribute is not understood or cannot be changed"
	case rfc3576.ErrorCause_Value_MissingAttribute:
		return "it names no session, or nothing to change"
	case rfc3576.ErrorCause_Value_NASIdentificationMismatch:
		return "it is for another gateway: NAS-Identifier or NAS-IP-Address"
	case rfc3576.ErrorCause_Value_InvalidRequest:
		return "it may be one that was carried out before"
	case rfc3576.ErrorCause_Value_UnsupportedService:
		return "Service-Type is not supported"
	case rfc3576.ErrorCause_Value_SessionContextNotFound:
		return "no session is as it says"
	case rfc3576.ErrorCause_Value_ResourcesUnavailable:
		return "it could not be carried out, or too many are remembered"
	}
	return c.String()
}
