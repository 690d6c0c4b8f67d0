package gateway

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/gateway/control"
	"github.com/gateweigh/gateweigh/gateway/session"
)

// TestTUN runs TestClient's sequence on the data path in user space, in both modes. Unlike with the kernel's, no
// packets pass without the daemon.
func TestTUN(t *testing.T) {
	for name, keys := range map[string]string{
		"studied": "kind = \"tun\"", "fast": "kind = \"tun\"\nfast = true\ndevice = \"clients\""} {
		t.Run(name, func(t *testing.T) {
			network(t)
			sh(t, "ip addr flush dev lan0")
			inUserSpace(t, keys)
		})
	}
}

// TestTUNForcedDetach: a forced detach removes everything under a running daemon, which ends because its device is
// missing, and restores nothing.
func TestTUNForcedDetach(t *testing.T) {
	network(t)
	sh(t, "ip addr flush dev lan0")
	for range 5 {
		d := startOn(t, t.TempDir(), "kind = \"tun\"\nfast = true")
		must(t, Detach(d.cfg, true))
		err := <-d.result
		d.result <- err
		if err == nil || !strings.Contains(err.Error(), "gone") {
			t.Errorf("without its device the gateway ends with %v", err)
		}
		if left := sh(t, "ip -o link show type tun; nft list tables"); left != "" {
			t.Errorf("left after detach by force:\n%s", left)
		}
	}
}

// TestNFQueue runs the same sequence where the kernel queues packets for verdicts.
func TestNFQueue(t *testing.T) {
	for name, keys := range map[string]string{"studied": "kind = \"nfqueue\"", "fast": "kind = \"nfqueue\"\nfast = true"} {
		t.Run(name, func(t *testing.T) {
			network(t)
			inUserSpace(t, keys)
		})
	}
}

func inUserSpace(t *testing.T, keys string) {
	dir := t.TempDir()
	d := startOn(t, dir, keys)
	detach := func() { must(t, Detach(d.cfg, false)) }
	t.Cleanup(detach)
	strangerLogsIn(t)
	must(t, d.stop())
	if clientReachesServer() {
		t.Error("without the daemon a client passes")
	}
	d = startOn(t, dir, keys)
	if got := d.client(t).State; got != session.Authenticated || !clientReachesServer() {
		t.Errorf("after a restart the client is %q", got)
	}
	c, err := control.Dial(d.cfg.ControlSocket())
	must(t, err)
	status, err := c.Status(t.Context())
	must(t, err)
	if status.Sessions[session.Authenticated] != 1 || status.Traffic.UpPackets == 0 || status.Traffic.DownBytes == 0 {
		t.Errorf("status %+v", status)
	}
	must(t, d.stop())
	detach()
	if left := sh(t, "ip -o link show type tun; nft list tables"); left != "" {
		t.Errorf("left after detach:\n%s", left)
	}
}

// strangerLogsIn checks that a client is blocked, redirected to the portal, and passes after login.
func strangerLogsIn(t *testing.T) {
	t.Helper()
	lease(t)
	logsIn(t)
}

// logsIn is strangerLogsIn for a client that has its address.
func logsIn(t *testing.T) {
	t.Helper()
	if clientReachesServer() {
		t.Fatal("a client that is not logged in reaches the server")
	}
	caught := sh(t, curl+`-o /dev/null -w '%{http_code} %{redirect_url}' http://192.0.2.2/generate_204`)
	if !strings.HasPrefix(caught, "302 http://10.1.0.1:8080/login") {
		t.Fatalf("the first look at the web is answered by %q", caught)
	}
	if _, err := try(curl + `--connect-timeout 20 http://192.0.2.2:81/`); err == nil ||
		strings.Contains(err.Error(), "28") {
		t.Errorf("a connection to elsewhere is not reset: %v", err)
	}
	if out, _ := try("ip netns exec client ping -c 1 -W 20 192.0.2.2"); !strings.Contains(out, "Packet filtered") {
		t.Errorf("a ping is not answered by an error: %s", out)
	}
	sh(t, "ip netns exec client ping -c 1 -W 20 10.1.0.1")
	page := sh(t, curl+`http://10.1.0.1:8080/login`)
	token := regexp.MustCompile(`name="token" value="([^"]+)"`).FindStringSubmatch(page)
	if token == nil {
		t.Fatalf("no form on the login page:\n%s", page)
	}
	code := sh(t, curl+fmt.Sprintf(
		`-o /dev/null -w '%%{http_code}' -d token=%s -d username=ann -d password=right http://10.1.0.1:8080/login`, token[1]))
	if code != "303" || !clientReachesServer() {
		t.Fatalf("the right password is answered by %s", code)
	}
}
