package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/gateway"
	"github.com/gateweigh/gateweigh/gateway/config"
)

// TestFilesThatRootMayNotRead: check-config warns of files that root reads by its rights alone, which the daemon gives
// up: it could not read them again. It names each, with what to do.
func TestFilesThatRootMayNotRead(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root has rights to give up")
	}
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	write := func(name, text string) {
		t.Helper()
		must(t, os.WriteFile(path(name), []byte(text), 0o600))
	}
	write("users", "ann:"+gateway.HashPassword("secret")+"\n")
	write("password", "secret\n")
	write("gatewayd.toml", `
lan = { interface = "lan0", address = "10.1.0.1/24" }
wan.interface = "wan0"
dns.upstreams = ["192.0.2.2"]
auth.methods = ["users"]
users.file = "users"
store = { kind = "redis", addresses = ["127.0.0.1"], name = "gw1", password_file = "password" }
`)
	cfg, err := config.Load(path("gatewayd.toml"))
	must(t, err)
	if found := checkRights(cfg); len(found) > 0 {
		t.Fatalf("files of root: %v", found)
	}
	for _, name := range []string{"users", "password"} {
		must(t, os.Chmod(path(name), 0))
		found := checkRights(cfg)
		if len(found) != 1 || found[0].Weight != gateway.Warning || !strings.Contains(found[0].Text, path(name)) ||
			!strings.Contains(found[0].Text, "chmod u+r") {
			t.Errorf("%s: %v", name, found)
		}
		must(t, os.Chmod(path(name), 0o600))
	}
	must(t, os.Chown(dir, 65534, 65534))
	must(t, os.Chmod(dir, 0o700))
	if found := checkRights(cfg); len(found) == 0 {
		t.Error("in a folder of another user: nothing")
	}
	if _, err := os.ReadFile(path("users")); err != nil {
		t.Errorf("this process lost its rights: %v", err)
	}
}
