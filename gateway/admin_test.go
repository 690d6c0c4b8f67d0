package gateway

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/gateway/config"
	"github.com/gateweigh/gateweigh/gateway/control"
	"github.com/gateweigh/gateweigh/gateway/session"
	"github.com/gateweigh/gateweigh/gateway/users"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// TestCheckAdmin: CheckFiles warns of an admin page whose certificate has expired, that clients reach, and that has no
// account. Run starts in spite of that: clients do not wait for the admin page. Long: the files.
func TestCheckAdmin(t *testing.T) {
	network(t)
	dir := t.TempDir()
	cfg := *configured(t, dir, onEBPF)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-48 * time.Hour),
		NotAfter: time.Now().Add(-time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	must(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	must(t, err)
	file := func(name string, text []byte) string {
		path := filepath.Join(dir, name)
		must(t, os.WriteFile(path, text, 0o600))
		return path
	}
	cfg.Admin = config.Admin{Listen: "10.1.0.1:8444", Accounts: file("admins", nil), Idle: time.Hour, Longest: time.Hour,
		TLSCert: file("cert.pem", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		TLSKey:  file("key.pem", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}))}
	warnings := []string{"has no account, so nobody can log in", "has expired at", "10.1.0.1:8444 is in the LAN"}
	check := func(when string) {
		t.Helper()
		all := CheckFiles(&cfg)
		for _, text := range warnings {
			if !slices.ContainsFunc(all, func(f Finding) bool { return f.Weight == Warning && strings.Contains(f.Text, text) }) {
				t.Errorf("%s: nothing warns that %q: %v", when, text, all)
			}
		}
	}
	check("before")
	d := serve(t, &cfg)
	check("while it runs")
	must(t, d.stop())
	must(t, Detach(&cfg, false))
}

// TestAdminOfFaultyFiles: clients are served while the accounts' file of the admin page is missing, the status says so,
// and the page is served once it is there.
func TestAdminOfFaultyFiles(t *testing.T) {
	network(t)
	dir := t.TempDir()
	cfg := *configured(t, dir, onEBPF)
	cfg.Admin = config.Admin{Listen: "127.0.0.1:8444", Accounts: filepath.Join(dir, "admins"), Idle: time.Hour,
		Longest: time.Hour}
	d := serve(t, &cfg)
	c, err := control.Dial(cfg.ControlSocket())
	must(t, err)
	await := func(what string, fits func(control.AdminPage) bool) {
		t.Helper()
		netnstest.Await(t, what, func() error {
			s, err := c.Status(t.Context())
			if err != nil {
				return err
			}
			if s.AdminPage == nil || !fits(*s.AdminPage) {
				return fmt.Errorf("the status says %+v", s.AdminPage)
			}
			return nil
		})
	}
	await("the status to say why", func(a control.AdminPage) bool { return strings.Contains(a.Closed, "admin.accounts") })
	must(t, os.WriteFile(cfg.Admin.Accounts, nil, 0o600))
	await("the page", func(a control.AdminPage) bool { return a.Closed == "" })
	must(t, d.stop())
	must(t, Detach(&cfg, false))
}

// TestAdminOfSeveral: the admin page lists the clients of all networks and of one, and ends a session in whichever
// network it is. Long: the steps of one run.
func TestAdminOfSeveral(t *testing.T) {
	trunk(t, 10, 20)
	dir := t.TempDir()
	cfg := severalConfig(t, dir, networkText(10, ""), networkText(20, ""))
	accounts := filepath.Join(dir, "admins")
	token, hashed := users.NewToken()
	line, err := users.Operator{Role: users.Admin}.Line("program", hashed)
	must(t, err)
	must(t, users.SetOperator(accounts, "program", line))
	cfg.Admin = config.Admin{Listen: "127.0.0.1:8444", Accounts: accounts, Idle: time.Hour, Longest: time.Hour}
	t.Cleanup(func() { detachAll(t, cfg) })
	d := serveSeveral(t, cfg)
	ask := func(method, path string) (answer struct{ Items []control.Session }) {
		t.Helper()
		r, err := http.NewRequest(method, "http://127.0.0.1:8444/api/v1/"+path, nil)
		must(t, err)
		r.Header.Set("Authorization", "Bearer "+token)
		resp, err := http.DefaultClient.Do(r)
		must(t, err)
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		must(t, err)
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("%s %s: %s %s", method, path, resp.Status, text)
		}
		must(t, json.Unmarshal(text, &answer))
		return answer
	}
	addrs := map[int]netip.Addr{}
	for _, v := range []int{10, 20} {
		g := guest{t, v}
		addrs[v] = g.lease(dir)
		g.logIn()
	}
	for path, want := range map[string]int{"sessions": 2, "sessions?network=n20": 1, "sessions?q=" + addrs[20].String(): 1,
		"sessions?network=n10&q=" + addrs[20].String(): 0, "sessions?q=ann": 2} {
		found := ask("GET", path).Items
		if len(found) != want || want == 1 && (found[0].Network != "n20" || found[0].Addr != addrs[20]) {
			t.Errorf("%s lists %+v", path, found)
		}
	}
	ask("DELETE", "sessions/"+addrs[20].String())
	guest{t, 20}.mustReach("192.0.2.2", false, "after the end of its session")
	guest{t, 10}.mustReach("192.0.2.2", true, "after the end of another network's session")
	for v, want := range map[int]control.State{10: session.Authenticated, 20: session.PreAuth} {
		if s, err := d.Session(t.Context(), addrs[v]); err != nil || s.State != want {
			t.Errorf("the client of VLAN %d is %s, %v", v, s.State, err)
		}
	}
	status, err := d.Status(t.Context())
	must(t, err)
	for _, n := range status.Networks {
		if len(n.Pools) != len(cfg.Networks[0].DHCP.Pools) {
			t.Errorf("network %s has the pools %+v", n.Network, n.Pools)
		}
	}
	must(t, d.stop())
	netnstest.Await(t, "the page to be gone", func() error {
		if resp, err := http.Get("http://127.0.0.1:8444/login"); err == nil {
			return fmt.Errorf("answered %s", resp.Status)
		}
		return nil
	})
}
