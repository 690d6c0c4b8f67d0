package gateway

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/gateweigh/gateweigh/gateway/config"
	"github.com/gateweigh/gateweigh/gateway/control"
	"github.com/gateweigh/gateweigh/gateway/session"
	"github.com/gateweigh/gateweigh/gateway/voucher"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// logOf is a log that tests read while it is written.
type logOf struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logOf) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logOf) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// sendCode logs the client in by a voucher's code, as typed, and returns the answer's code and page.
func sendCode(t *testing.T, typed string) (code, page string) {
	t.Helper()
	page = sh(t, curl+`http://10.1.0.1:8080/login`)
	token := regexp.MustCompile(`name="token" value="([^"]+)"`).FindStringSubmatch(page)
	if token == nil {
		t.Fatalf("no form on the login page:\n%s", page)
	}
	answer := sh(t, curl+`-w '\n%{http_code}' -d token=`+token[1]+` -d method=voucher -d code=`+url.QueryEscape(typed)+
		` http://10.1.0.1:8080/login`)
	i := strings.LastIndexByte(strings.TrimSpace(answer), '\n')
	return strings.TrimSpace(answer)[i+1:], answer
}

// TestVouchers takes a client through logins by vouchers: a wrong code, the right one as people type it, a restart of
// the gateway, the end of the voucher's data, and another voucher that is revoked. No code is in the log. Long: the
// steps of one run, each of which needs the state that the one before left.
func TestVouchers(t *testing.T) {
	network(t)
	dir := t.TempDir()
	cfg := configured(t, dir, onEBPF)
	cfg.Auth.Methods = []string{config.MethodVoucher}
	log := &logOf{}
	serveVouchers := func() (daemon, *control.Client) {
		d := serveLogging(t, cfg, slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})))
		c, err := control.Dial(cfg.ControlSocket())
		must(t, err)
		return d, c
	}
	d, c := serveVouchers()
	t.Cleanup(func() { must(t, Detach(cfg, false)) })
	var made []voucher.Voucher
	must(t, c.CreateVouchers(t.Context(), control.VouchersRequest{Batch: "lobby", Count: 2,
		Terms: voucher.Terms{ForSeconds: 3600, Devices: 1, Bytes: 400_000, Note: "a note"}},
		func(v voucher.Voucher) error { made = append(made, v); return nil }))
	listed := func(name string) (found voucher.Voucher) {
		t.Helper()
		must(t, c.Vouchers(t.Context(), name, func(v voucher.Voucher) error { found = v; return nil }))
		return found
	}
	lease(t)
	wrong := "C" + string(made[0].Code)[1:]
	if wrong == string(made[0].Code) {
		wrong = "D" + string(made[0].Code)[1:]
	}
	if code, page := sendCode(t, wrong); code != "200" || !strings.Contains(page, "This voucher code is wrong.") ||
		clientReachesServer() {
		t.Errorf("a wrong code is answered by %s:\n%s", code, page)
	}
	typed := " " + strings.ToLower(strings.ReplaceAll(made[0].Code.String(), "-", " - "))
	if code, page := sendCode(t, typed); code != "303" || !clientReachesServer() {
		t.Fatalf("the code %q is answered by %s:\n%s", typed, code, page)
	}
	s := d.client(t)
	if s.User != "voucher:lobby-1" || s.Limits.SessionTimeoutSeconds < 3500 || s.Limits.SessionTimeoutSeconds > 3600 ||
		s.Limits.TotalBytes != 400_000 {
		t.Errorf("the session is %q's, with limits %+v", s.User, s.Limits)
	}

	must(t, d.stop())
	if !clientReachesServer() {
		t.Error("without the daemon the client is cut off")
	}
	d, c = serveVouchers()
	if v := listed("lobby-1"); v.State != voucher.InUse || v.Sessions != 1 || v.UsedBytes == 0 {
		t.Errorf("after a restart: %+v", v)
	}
	_, _ = try("ip netns exec client ping -q -f -c 400 -w 5 -s 1400 192.0.2.2") // more than is left
	netnstest.Await(t, "the end of the session", func() error {
		_, err := try("ip netns exec client ping -c 1 -W 1 192.0.2.2")
		if v := listed("lobby-1"); v.State != voucher.UsedUp || v.Sessions != 0 || err == nil {
			return fmt.Errorf("%+v, ping: %v", v, err)
		}
		return nil
	})
	if got := d.client(t); got.State != session.PreAuth || got.LastEnd.Cause != session.Quota {
		t.Errorf("the client is %s after %+v", got.State, got.LastEnd)
	}
	if code, page := sendCode(t, string(made[0].Code)); code != "200" ||
		!strings.Contains(page, "This voucher is used up.") {
		t.Errorf("a voucher without data is answered by %s:\n%s", code, page)
	}

	if code, page := sendCode(t, string(made[1].Code)); code != "303" || !clientReachesServer() {
		t.Fatalf("the second voucher is answered by %s:\n%s", code, page)
	}
	reply, err := c.RevokeVouchers(t.Context(), "lobby")
	if must(t, err); reply != (control.RevokeReply{Vouchers: 2, Sessions: 1}) || clientReachesServer() {
		t.Errorf("revoked %+v; the client is %s", reply, d.client(t).State)
	}
	if code, page := sendCode(t, string(made[1].Code)); code != "200" ||
		!strings.Contains(page, "This voucher was withdrawn") {
		t.Errorf("a revoked voucher is answered by %s:\n%s", code, page)
	}
	for _, v := range made {
		for _, code := range []string{string(v.Code), v.Code.String(), strings.ToLower(string(v.Code)), typed, wrong} {
			if strings.Contains(log.String(), code) {
				t.Errorf("the log has the code %s", code)
			}
		}
	}
}

// sendCode fills in the portal's form, and returns the answer's code.
func (g guest) sendCode(code voucher.Code) string {
	url := fmt.Sprintf("http://10.%d.0.1:8080/login", g.vlan)
	page, err := g.try("curl -s --max-time 30 " + url)
	token := regexp.MustCompile(`name="token" value="([^"]+)"`).FindStringSubmatch(page)
	if token == nil {
		g.t.Errorf("no form on the login page: %v\n%s", err, page)
		return ""
	}
	answer, err := g.try("curl -s --max-time 30 -o /dev/null -w '%{http_code}' -d method=voucher -d token=" + token[1] +
		" -d code=" + string(code) + " " + url)
	if err != nil {
		g.t.Error(err)
	}
	return answer
}

// TestVouchersOfNetworks: several networks share the vouchers. Of two devices in two networks that want a voucher's
// only place at the same moment one gets in. It keeps the place over a restart of the daemon, and while its network is
// removed. The session goes on when the network comes back, unless the voucher was revoked meanwhile. Long: the steps
// of one run, each of which needs the state that the one before left.
func TestVouchersOfNetworks(t *testing.T) {
	trunk(t, 10, 20)
	dir := t.TempDir()
	head := strings.Replace(severalHead, `methods = ["users"]`, `methods = ["voucher"]`, 1)
	head = strings.Replace(head, "[users]\nfile = \"%[1]s/users\"\n", "", 1)
	cfg := severalWith(t, dir, head, networkText(10, ""), networkText(20, ""))
	d := serveSeveral(t, cfg)
	t.Cleanup(func() { detachAll(t, cfg) })
	guests := []guest{{t, 10}, {t, 20}}
	for _, g := range guests {
		g.lease(dir)
	}
	var made []voucher.Voucher
	must(t, d.CreateVouchers(t.Context(), control.VouchersRequest{Count: 6,
		Terms: voucher.Terms{ForSeconds: 3600, Devices: 1}},
		func(v voucher.Voucher) error { made = append(made, v); return nil }))
	winner, loser := -1, -1
	for round, v := range made {
		answers := make([]string, len(guests))
		var both sync.WaitGroup
		for i, g := range guests {
			both.Go(func() { answers[i] = g.sendCode(v.Code) })
		}
		both.Wait()
		if winner, loser = 0, 1; answers[0] != "303" {
			winner, loser = 1, 0
		}
		if answers[winner] != "303" || answers[loser] != "200" {
			t.Fatalf("two devices at the same moment are answered by %v", answers)
		}
		guests[winner].mustReach("192.0.2.2", true, "with the voucher")
		guests[loser].mustReach("192.0.2.2", false, "without it")
		if round == len(made)-1 {
			break
		}
		if r, err := d.RevokeVouchers(t.Context(), v.Name); err != nil || r.Sessions != 1 {
			t.Errorf("revoked %+v, %v", r, err)
		}
		guests[winner].mustReach("192.0.2.2", false, "with a revoked voucher")
	}
	last := made[len(made)-1].Code
	must(t, d.stop())
	d = serveSeveral(t, cfg)
	if got := guests[loser].sendCode(last); got != "200" {
		t.Errorf("after a restart the other device is answered by %s", got)
	}
	guests[winner].mustReach("192.0.2.2", true, "after a restart")
	rest := severalWith(t, dir, head, networkText(guests[loser].vlan, ""))
	apply := func(to *config.Config, what string) {
		t.Helper()
		if done, failed := d.apply(to); failed {
			t.Fatalf("%s a network: %v", what, done)
		}
	}
	apply(rest, "removing")
	if got := guests[loser].sendCode(last); got != "200" {
		t.Errorf("while the other network is away the device is answered by %s", got)
	}
	must(t, d.stop())
	d = serveSeveral(t, rest)
	apply(cfg, "adding")
	guests[winner].mustReach("192.0.2.2", true, "its network is back")
	if got := guests[loser].sendCode(last); got != "200" {
		t.Errorf("once the other network is back the device is answered by %s", got)
	}
	apply(rest, "removing")
	if _, err := d.RevokeVouchers(t.Context(), made[len(made)-1].Name); err != nil {
		t.Error(err)
	}
	apply(cfg, "adding")
	guests[winner].mustReach("192.0.2.2", false, "revoked while its network was away")
	must(t, d.Vouchers(t.Context(), made[len(made)-1].Name, func(v voucher.Voucher) error {
		if v.Sessions != 0 || v.UsedBytes == 0 {
			t.Errorf("afterwards the voucher is %+v", v)
		}
		return nil
	}))
}
