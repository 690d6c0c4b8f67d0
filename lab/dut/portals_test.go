// Tests that every portal must pass, called by the tests of each device. newTestLab makes a lab of a client host, a
// router with the device, and a server (lab_test.go).

package dut

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/labtest"
)

// trafficPort is the address at which the lab's server accepts connections.
const trafficPort = "192.168.89.1:5201"

// serveTraffic makes the server accept connections on the traffic port and on port 80, so that requests succeed if the
// portal lets them through.
func (l *testLab) serveTraffic(t testing.TB) {
	t.Helper()
	for name, port := range map[string]string{"traffic": "5201", "web": "80"} {
		cmd := agent.Command{Name: name, Argv: []string{"busybox", "httpd", "-f", "-p", "192.168.89.1:" + port, "-h", "/tmp"}}
		if err := l.server.Spawn(t.Context(), cmd); err != nil {
			t.Fatal(err)
		}
	}
}

// loginAll logs every client in, at most adm.Parallel at a time.
func loginAll(t *testing.T, clients []*testClient, adm client.Admission) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	parallel := adm.Parallel
	if parallel == 0 {
		parallel = 16
	}
	slots := make(chan struct{}, parallel)
	var wg sync.WaitGroup
	start := time.Now()
	var mu sync.Mutex
	var slowest, total time.Duration
	for i, c := range clients {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			began := time.Now()
			if _, err := client.Login(ctx, c, adm, i+1, 0); err != nil {
				t.Error(err)
			}
			took := time.Since(began)
			mu.Lock()
			defer mu.Unlock()
			slowest, total = max(slowest, took), total+took
		})
	}
	wg.Wait()
	t.Logf("%d clients logged in after %.2f s; one took %.3f s on average, %.3f s at most", len(clients),
		time.Since(start).Seconds(), total.Seconds()/float64(len(clients)), slowest.Seconds())
	if t.Failed() {
		t.FailNow()
	}
}

// start starts the traffic server and a portal, which ends with the test.
func (l *testLab) start(t testing.TB, d DUT) {
	t.Helper()
	l.serveTraffic(t)
	began := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	t.Cleanup(func() {
		if err := d.Stop(context.Background(), l.env); err != nil {
			t.Error(err)
		}
	})
	if err := d.Start(ctx, l.env); err != nil {
		t.Fatal(err)
	}
	t.Logf("ready after %.2f s", time.Since(began).Seconds())
}

// checkPortal tests a portal with n clients: none reaches the server before its login, all do after it, and a client
// that logs out no longer does. Nothing is left when the portal stops.
func checkPortal(t *testing.T, d DUT, l *testLab, n int) {
	t.Helper()
	ctx := t.Context()
	l.start(t, d)
	began := time.Now()
	clients := l.addClients(t, n)
	t.Logf("%d clients leased after %.2f s", n, time.Since(began).Seconds())
	adm := d.Traits().Admission
	first, last := clients[0], clients[n-1]
	for _, c := range []*testClient{first, last} {
		if c.reaches(ctx, trafficPort) {
			t.Fatalf("%s reaches the server before it logged in", c.ip)
		}
		if in, err := client.Status(ctx, c, adm, 1); err != nil || in {
			t.Fatalf("status before login: %v, %v; want false, nil", in, err)
		}
	}
	loginAll(t, clients, adm)
	for i, c := range clients {
		if !c.reaches(ctx, trafficPort) {
			t.Errorf("client %d (%s) does not reach the server after login; its rules:\n%s", i+1, c.ip,
				l.router.must(t, `nft list ruleset | grep -wF "$1" || :`, c.ip.String()))
		}
	}
	if in, err := client.Status(ctx, last, adm, n); err != nil || !in {
		t.Errorf("status after login: %v, %v; want true, nil", in, err)
	}
	if err := client.Logout(ctx, first, adm, 1); err != nil {
		t.Error(err)
	}
	if in, err := client.Status(ctx, first, adm, 1); err != nil || in {
		t.Errorf("status after log-out: %v, %v; want false, nil", in, err)
	}
	if first.reaches(ctx, trafficPort) {
		t.Error("a client that logged out still reaches the server")
	}
	if n > 1 && !last.reaches(ctx, trafficPort) {
		t.Error("another client's log-out cut this one off")
	}
	checkStop(t, d, l)
}

// checkStop stops a portal twice and requires that no process and no rule is left on the router.
func checkStop(t *testing.T, d DUT, l *testLab) {
	t.Helper()
	for range 2 {
		if err := d.Stop(t.Context(), l.env); err != nil {
			t.Fatal(err)
		}
	}
	if left := l.router.processes(t); len(left) > 0 {
		t.Errorf("processes left on the router: %q", left)
	}
	if rules := l.router.must(t, "nft list ruleset"); strings.Contains(rules, "jump") ||
		strings.Contains(rules, l.env.Port("lan")) {
		t.Errorf("rules left on the router:\n%s", rules)
	}
}

// checkAsksRADIUS logs in with a wrong password, for which the error must say so and name the user, and then with the
// right one.
func checkAsksRADIUS(t *testing.T, d DUT, user string) {
	t.Helper()
	l := newTestLab(t, d, 1)
	l.start(t, d)
	c := l.addClients(t, 1)[0]
	adm := d.Traits().Admission
	adm.Password = "wrong"
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute) // only so that a failure does not hang
	defer cancel()
	_, err := client.Login(ctx, c, adm, 1, 0)
	if err == nil || !strings.Contains(err.Error(), "refused by the portal") || !strings.Contains(err.Error(), user) {
		t.Errorf("login with a wrong password: %v", err)
	}
	if c.reaches(t.Context(), trafficPort) {
		t.Error("a client that RADIUS rejected reaches the server")
	}
	// Portals make clients wait after wrong passwords.
	labtest.Await(t, "a login with the right password", func() bool {
		_, err = client.Login(ctx, c, d.Traits().Admission, 1, 0)
		return err == nil || ctx.Err() != nil
	})
	if err != nil || !c.reaches(t.Context(), trafficPort) {
		t.Errorf("the right password after a wrong one gives no access: %v", err)
	}
}
