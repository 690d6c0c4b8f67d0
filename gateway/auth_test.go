package gateway

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gateweigh/gateweigh/gateway/access"
	"github.com/gateweigh/gateweigh/gateway/config"
	"github.com/gateweigh/gateweigh/gateway/radius"
	"github.com/gateweigh/gateweigh/gateway/session"
)

// timedSource is a source that reports how much of the login's time is left.
type timedSource struct{ left time.Duration }

func (p *timedSource) Authenticate(ctx context.Context, _ session.Credentials) (session.Login, error) {
	end, _ := ctx.Deadline()
	p.left = time.Until(end)
	return session.Login{}, radius.ErrNoServer
}

// TestLoginTimeoutFollowsRADIUS: a login waits 8 s for all RADIUS servers, so that a guest has an answer within 10 s.
// It waits longer if radius.timeout says that a server needs longer: want is that time. check-config warns (warns) if
// not all transmissions of a request to a server fit into it. Long: most lines are the table of cases.
func TestLoginTimeoutFollowsRADIUS(t *testing.T) {
	for _, tt := range []struct {
		keys, servers string
		want          time.Duration
		warns         string
	}{
		{"", "one", 8 * time.Second, ""},
		{"", "two", 8 * time.Second, ""},
		{"retries = 10", "two", 8 * time.Second,
			`x.toml:11: radius.retries: a login sends 2 of 11 packets to a server: it waits 8s for all RADIUS servers, 4s for each of 2, and the last would be sent after 2s + 4s + 8s + 7 × 16s = 2m6s ± 10 % (radius.timeout = "2s", then twice the last wait, at most 16s; radius.retries = 10); set radius.retries = 1, or a shorter`},
		{"retries = 2", "one", 8 * time.Second, ""},
		{"retries = 3", "one", 8 * time.Second,
			"a login sends 3 of 4 packets to a server: it waits 8s for all RADIUS servers, and the last would be sent after " +
				"2s + 4s + 8s = 14s ± 10 %"},
		{"retries = 2", "two", 8 * time.Second, "a login sends 2 of 3 packets"},
		{`timeout = "500ms"`, "two", 8 * time.Second, ""},
		{`timeout = "4s"`, "one", 8 * time.Second,
			`x.toml:11: radius.timeout: a login sends 2 of 4 packets to a server: it waits 8s`},
		{`timeout = "5s"`, "two", 11 * time.Second,
			"5.5s for each of 2, and the last would be sent after 5s + 10s + 16s = 31s"},
		{"timeout = \"30s\"\nretries = 1", "one", 33 * time.Second,
			`the last would be sent after 30s ± 10 % (radius.timeout = "30s", then twice the last wait, at most 30s; radius.retries = 1); set radius.retries = 0`},
		{"timeout = \"30s\"\nretries = 0", "two", 66 * time.Second, ""},
		{`timeout = "1m"`, "two", 132 * time.Second,
			"it waits 2m12s for all RADIUS servers, 1m6s for each of 2, and the last would be sent after 3 × 1m0s = 3m0s"},
	} {
		text := "[lan]\ninterface = \"lan0\"\naddress = \"10.1.0.1/24\"\n[wan]\ninterface = \"wan0\"\n[dns]\nupstreams = " +
			"[\"192.0.2.2\"]\n" +
			"[auth]\nmethods = [\"radius\"]\n[radius]\n" + tt.keys +
			"\n[radius.primary]\naddress = \"192.0.2.3\"\nsecret = \"0123456789abcdef\"\n"
		if tt.servers == "two" {
			text += "[radius.secondary]\naddress = \"192.0.2.4\"\nsecret = \"0123456789abcdef\"\n"
		}
		cfg, err := config.Parse("x.toml", []byte(text))
		must(t, err)
		synctest.Test(t, func(t *testing.T) {
			sources, _, err := (&gateway{cfg: cfg}).authenticator()
			must(t, err)
			server, remote := &timedSource{}, sources[0].(access.Remote)
			remote.Servers = server
			if _, err := remote.Authenticate(t.Context(), session.Credentials{User: "ann"}); !errors.Is(
				err, radius.ErrNoServer) || server.left != tt.want {
				t.Errorf("%s, %s: %v after %s, want %s", tt.keys, tt.servers, err, server.left, tt.want)
			}
		})
		warned := ""
		for _, f := range CheckFiles(cfg) {
			if strings.Contains(f.Text, "RADIUS") && f.Weight == Warning {
				warned += f.Text
			}
		}
		if tt.warns == "" && warned != "" || !strings.Contains(warned, tt.warns) {
			t.Errorf("%s, %s: warned %q, want %q", tt.keys, tt.servers, warned, tt.warns)
		}
	}
}
