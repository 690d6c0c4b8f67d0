package gateway

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	layeh "layeh.com/radius"
	"layeh.com/radius/rfc2866"

	"github.com/gateweigh/gateweigh/gateway/config"
	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/datapath/compared/admission"
	"github.com/gateweigh/gateweigh/gateway/radius"
	"github.com/gateweigh/gateweigh/gateway/session"
	"github.com/gateweigh/gateweigh/internal/logtest"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// accounted is a gateway with one session, without a network, and with more keys in its configuration.
func accounted(t *testing.T, keys string) (g *gateway, logs *logtest.Log) {
	t.Helper()
	cfg, err := config.Parse("gatewayd.toml", []byte(
		"lan.interface = \"lan0\"\nlan.address = \"10.1.0.1/24\"\nwan.interface = \"wan0\"\ndns.upstreams = "+
			"[\"192.0.2.2\"]\nauth.methods = [\"radius\"]\n"+
			"state_dir = \""+t.TempDir()+
			"\"\nradius.timeout = \"1s\"\nradius.retries = 0\nradius.primary.secret = \"0123456789abcdef\"\n"+keys))
	must(t, err)
	logs = &logtest.Log{}
	g = &gateway{cfg: cfg, log: logs.Logger()}
	openTable(t, g)
	g.radius, err = radius.New(g.radiusConfig())
	must(t, err)
	t.Cleanup(func() { g.radius.Close() })
	k := session.Key{MAC: datapath.MAC{2, 0, 0, 0, 0, 1}, Addr: cfg.LAN.Address.Addr().Next()}
	must(t, g.table.Lease(k, "phone", time.Now().Add(time.Hour)))
	_, err = g.table.Admit(k.Addr, session.Login{User: "ann", For: k})
	must(t, err)
	return g, logs
}

// openTable opens the table of a gateway without a network.
func openTable(t *testing.T, g *gateway) {
	t.Helper()
	dp, err := admission.New(admission.Config{Network: networksOf(g.cfg)[0]})
	must(t, err)
	table, err := session.Open(sessionsFile(g.cfg), dp, slog.New(slog.DiscardHandler))
	must(t, err)
	t.Cleanup(func() { table.Close() })
	g.table = table
}

// TestEventAtEndOfWaitIsSent: an event that comes just as the time to wait for one is over is sent.
func TestEventAtEndOfWaitIsSent(t *testing.T) {
	g, _ := accounted(t, "radius.primary.address = \"127.0.0.1:1812\"\n")
	netnstest.Await(t, "the event", func() error {
		if g.table.Pending() == 0 {
			return errors.New("there is none")
		}
		return nil
	})
	over, stop := context.WithDeadline(t.Context(), time.Now())
	defer stop()
	if e, err := g.probe(over, false); err != nil || e == nil || e.User != "ann" {
		t.Errorf("%+v, %v", e, err)
	}
}

// TestAccountingOnRepeatedUntilConfirmed: an accounting server that is silent to Accounting-On, once or several times,
// and confirms the event by which it is tried, is told Accounting-On once, and then the event. One that never confirms
// it hears the event.
func TestAccountingOnRepeatedUntilConfirmed(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		answers string   // to each request: y or n; the last one for all that follow
		want    []string // what was answered
		message string
	}{
		"at once":                 {"y", []string{"On", "Start"}, "were told that the gateway begins"},
		"before the first event":  {"ny", []string{"Start", "On", "Start"}, "were told that the gateway begins"},
		"after one that was lost": {"nyny", []string{"Start", "Start", "On", "Start"}, "were told that the gateway begins"},
		"away again":              {"nynnny", []string{"Start", "On", "Start"}, "were told that the gateway begins"},
		"never":                   {"nynynyny", []string{"Start", "Start", "Start"}, "and not Accounting-On"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
			must(t, err)
			defer server.Close()
			reports := make(chan []string, 1)
			go answerAccounting(server, tt.answers, reports)
			g, logs := accounted(t, "radius.primary.address = \"127.0.0.1:1812\"\nradius.primary.acct_address = \""+
				server.LocalAddr().String()+"\"\n")
			must(t, g.beginAnew())
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- g.account(ctx) }()
			netnstest.Await(t, "that all is told", func() error {
				if _, err := os.Stat(onFile(g.cfg)); !errors.Is(err, fs.ErrNotExist) || g.table.Pending() > 0 {
					return errors.New("something is left")
				}
				return nil
			})
			stop()
			must(t, <-ended)
			must(t, server.Close())
			if diff := cmp.Diff(tt.want, <-reports); diff != "" || !strings.Contains(logs.String(), tt.message) {
				t.Errorf("the server confirmed (-want +got)\n%s, the log is\n%s", diff, logs)
			}
		})
	}
}

// answerAccounting answers requests as the letters say, and tells which it answered when the socket is closed.
func answerAccounting(at *net.UDPConn, letters string, reports chan<- []string) {
	var answered []string
	defer func() { reports <- answered }()
	for b := make([]byte, layeh.MaxPacketLength); ; {
		n, from, err := at.ReadFromUDPAddrPort(b)
		if err != nil {
			return
		}
		p, err := layeh.Parse(b[:n], []byte("0123456789abcdef"))
		if err != nil {
			continue
		}
		yes := letters[0] == 'y'
		letters = letters[min(1, len(letters)-1):]
		if answer, err := p.Response(layeh.CodeAccountingResponse).Encode(); yes && err == nil {
			name := strings.TrimPrefix(rfc2866.AcctStatusType_Get(p).String(), "Accounting-")
			answered = append(answered, name)
			at.WriteToUDPAddrPort(answer, from)
		}
	}
}

// TestUnconfirmedAccountingOff: servers that did not confirm Accounting-Off, at detach, may have heard it: where
// sessions go on, they are told the start all the same.
func TestUnconfirmedAccountingOff(t *testing.T) {
	t.Parallel()
	server, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	must(t, err)
	defer server.Close()
	g, _ := accounted(
		t, "radius.primary.address = \"127.0.0.1:1812\"\nradius.primary.acct_address = \""+server.LocalAddr().String()+"\"\n")
	must(t, g.table.Close())
	must(t, signOff(g.cfg)) // nobody answers
	b := make([]byte, layeh.MaxPacketLength)
	n, err := server.Read(b)
	must(t, err)
	heard, err := layeh.Parse(b[:n], []byte("0123456789abcdef"))
	must(t, err)
	if got := rfc2866.AcctStatusType_Get(heard); got != rfc2866.AcctStatusType_Value_AccountingOff {
		t.Errorf("heard %s", got)
	}
	openTable(t, g)
	must(t, g.takeBack())
	if _, err := os.Stat(onFile(g.cfg)); err != nil {
		t.Errorf("servers are not to be told of the start: %v", err)
	}
}
