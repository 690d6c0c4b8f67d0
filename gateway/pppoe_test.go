package gateway

import (
	"errors"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/gateway/session"
)

// TestRejectionMessages: a client whose login was accepted is not told that nobody could decide on it.
func TestRejectionMessages(t *testing.T) {
	for _, tt := range []struct {
		got, want string
	}{
		{rejection(errors.New("no RADIUS server answers")), "could not be decided"},
		{unbegun(errors.New("write the session store: no space left on device")), "the gateway could not begin a session"},
		{unbegun(session.ErrSessions), "as many sessions as allowed"},
	} {
		if !strings.Contains(tt.got, tt.want) {
			t.Errorf("%q does not say %q", tt.got, tt.want)
		}
	}
}
