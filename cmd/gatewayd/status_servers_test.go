package main

import (
	"strings"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/gateway/control"
)

// TestStatusNamesServers: a line says of each RADIUS server whether it answers, and why not.
func TestStatusNamesServers(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	writeStatus(&b, control.Status{Servers: []control.Server{
		{Server: "192.0.2.10:1812", Purpose: "logins", Asked: true, Why: "nothing listens there"},
		{Server: "192.0.2.11:1812", Purpose: "logins", Asked: true, Up: true},
		{Server: "192.0.2.11:1813", Purpose: "accounting", Up: true},
	}}, time.Now())
	for _, want := range []string{
		"server      192.0.2.10:1812 for logins does not answer: nothing listens there\n",
		"server      192.0.2.11:1812 for logins answers\n",
		"server      192.0.2.11:1813 for accounting was not asked yet\n",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no line %q in\n%s", want, b.String())
		}
	}
}
