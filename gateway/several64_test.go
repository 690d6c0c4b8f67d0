package gateway

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/gateway/config"
	"github.com/gateweigh/gateweigh/gateway/session"
)

// emptyLANs adds LANs without clients.
func emptyLANs(t testing.TB, vlans []int) {
	t.Helper()
	batch := func(lines string) string {
		var all strings.Builder
		for _, v := range vlans {
			all.WriteString(strings.ReplaceAll(lines, "%", fmt.Sprint(v)))
		}
		return all.String() + "END\n"
	}
	sh(t, "ip -batch - <<END\n"+batch("link add lan0.% type veth peer name lan.% netns hub\n"+
		"addr add 10.%.0.1/24 dev lan0.%\nlink set lan0.% up\n")+"ip -n hub -batch - <<END\n"+batch("link set lan.% up\n"))
	t.Cleanup(func() { sh(t, "ip -batch - <<END\n"+batch("link del lan0.%\n")) })
}

// TestMostNetworks: a daemon serves as many networks as it can have. Two are added while clients of others are logged
// in, and one with a client is removed; the others' clients go on. Metrics and status have a line for each. Long: the
// steps of one run, each of which needs the state that the one before left.
func TestMostNetworks(t *testing.T) {
	withClients := []int{1, 30, 63, 64}
	trunk(t, withClients...)
	var all, empty []int
	for v := 1; v <= config.MostNetworks; v++ {
		if all = append(all, v); !slices.Contains(withClients, v) {
			empty = append(empty, v)
		}
	}
	emptyLANs(t, empty)
	dir := t.TempDir()
	configured := func(vlans []int) *config.Config {
		var texts []string
		for _, v := range vlans {
			texts = append(texts, networkText(v, ""))
		}
		return severalConfig(t, dir, texts...)
	}
	full := configured(all)
	t.Cleanup(func() { detachAll(t, full) })
	d := serveSeveral(t, configured(all[:62]))
	addrs, began := map[int]netip.Addr{}, map[int]string{}
	stays := func(v int, when string) {
		t.Helper()
		guest{t, v}.mustReach("192.0.2.2", true, when)
		s, err := d.Session(t.Context(), addrs[v])
		must(t, err)
		if began[v] == "" {
			began[v] = s.ID
		}
		if s.ID != began[v] || s.State != session.Authenticated || s.Network != fmt.Sprintf("n%d", v) {
			t.Errorf("%s: the client of VLAN %d is %+v", when, v, s)
		}
	}
	join := func(v int) {
		t.Helper()
		addrs[v] = guest{t, v}.lease(dir)
		guest{t, v}.mustReach("192.0.2.2", false, "before login")
		guest{t, v}.logIn()
		stays(v, "after login")
	}
	join(1)
	join(30)
	if done, _ := d.apply(full); !slices.Equal(done, []string{"n63: added", "n64: added"}) {
		t.Fatalf("networks are added: %q", done)
	}
	join(63)
	join(64)
	guest{t, 63}.mustReach(addrs[64].String(), false, "across networks")
	stays(1, "networks were added")
	if done, _ := d.apply(configured(all[1:])); len(done) != 1 || !strings.HasPrefix(done[0], "n1: removed") {
		t.Fatalf("a network is removed: %q", done)
	}
	guest{t, 1}.mustReach("192.0.2.2", false, "its network is removed")
	for _, v := range withClients[1:] {
		stays(v, "another network was removed")
	}
	status, err := d.Status(t.Context())
	must(t, err)
	if len(status.Networks) != 63 || status.Why != "" || status.Sessions[session.Authenticated] != 3 {
		t.Errorf("status %+v", status)
	}
	metrics := scrape(t)
	for line := range strings.Lines(metrics) {
		if strings.HasPrefix(line, "gatewayd_") && !strings.Contains(line, `network="n`) {
			t.Errorf("a metric is of no network: %s", line)
		}
	}
	for _, v := range all[1:] {
		authenticated := 0
		if slices.Contains(withClients, v) {
			authenticated = 1
		}
		if want := fmt.Sprintf("gatewayd_clients{network=\"n%d\",state=\"authenticated\"} %d\n", v, authenticated); !strings.
			Contains(metrics, want) {
			t.Errorf("metrics lack %s", want)
		}
	}
}
