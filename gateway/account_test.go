package gateway

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// TestUnconfirmedAccountingIsLogged: the log says that an event is not confirmed, and when it is.
func TestUnconfirmedAccountingIsLogged(t *testing.T) {
	t.Parallel()
	server, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	must(t, err)
	defer server.Close()
	reports := make(chan []string, 1)
	go answerAccounting(server, "ny", reports)
	g, logs := accounted(t,
		"radius.primary.address = \"127.0.0.1:1812\"\nradius.primary.acct_address = \""+server.LocalAddr().String()+"\"\n")
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	netnstest.Await(t, "an event", func() error {
		if g.table.Pending() == 0 {
			return errors.New("there is none")
		}
		return nil
	})
	go func() { ended <- g.account(ctx) }()
	netnstest.Await(t, "its confirmation", func() error {
		if g.table.Pending() > 0 {
			return errors.New("it waits")
		}
		return nil
	})
	stop()
	must(t, <-ended)
	for _, want := range []string{"accounting; it will be sent again",
		"accounting: events that were not confirmed are confirmed again"} {
		if n := strings.Count(logs.String(), want); n != 1 {
			t.Errorf("said %d times: %s\n%s", n, want, logs)
		}
	}
}
