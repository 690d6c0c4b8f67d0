package config

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// namingFiles are keys that name a file, each with what else it needs; %F is the file.
var namingFiles = map[string]string{
	"users.file":                   `users.file = "%F"`,
	"devices.file":                 `devices.file = "%F"`,
	"radius.primary.secret_file":   "radius.primary.address = \"192.0.2.10\"\nradius.primary.secret_file = \"%F\"",
	"portal.tls_cert":              "portal.tls_cert = \"%F\"\nportal.tls_key = \"good\"\nportal.name = \"l.example\"",
	"admin.accounts":               "admin.listen = \"127.0.0.1:8444\"\nadmin.accounts = \"%F\"",
	"store.password_file":          inRedis + `store.password_file = "%F"`,
	"store.sentinel_password_file": inRedis + "store.sentinel_master = \"m\"\nstore.sentinel_password_file = \"%F\"",
	"store.ca_file":                inRedis + `store.ca_file = "%F"`,
}

const inRedis = "store.kind = \"redis\"\nstore.addresses = [\"192.0.2.20\"]\nstore.name = \"gw1\"\n"

// loadNaming loads a configuration in which a key names a file of a folder.
func loadNaming(t *testing.T, dir, key, file string) error {
	t.Helper()
	text := strings.ReplaceAll(namingFiles[key], "%F", file)
	methods := `["users"]`
	if strings.Contains(key, "radius") {
		methods = `["users", "radius"]`
	}
	text = strings.Replace(minimal, `["click-through"]`, methods, 1) + text + "\n"
	if key != "users.file" {
		text += "users.file = \"good\"\n"
	}
	_, err := Load(write(t, dir, "gatewayd.toml", text, 0o600))
	return err
}

// TestFilesThatArePipes: a pipe to which nobody writes is refused in the place of each file, and nothing waits for it.
func TestFilesThatArePipes(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "good", "secret\n", 0o600)
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	for key := range namingFiles {
		if err := loadNaming(t, dir, key, "pipe"); err == nil || !strings.Contains(err.Error(), key+": ") ||
			!strings.Contains(err.Error(), "no regular file") {
			t.Errorf("%s: %v", key, err)
		}
	}
	for name, load := range map[string]func(string) (*Config, error){"Load": Load, "LoadOnce": LoadOnce} {
		if _, err := load(filepath.Join(dir, "pipe")); err == nil || !strings.Contains(err.Error(), "a pipe") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestSecretsOfStrangers: a file with a secret must belong to root, as the users' file must.
func TestSecretsOfStrangers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root gives files away")
	}
	dir := t.TempDir()
	write(t, dir, "good", "secret\n", 0o600)
	if err := os.Chown(write(t, dir, "strange", "secret\n", 0o640), 65534, 0); err != nil {
		t.Fatal(err)
	}
	for key := range namingFiles {
		if !strings.HasSuffix(key, "secret_file") && !strings.HasSuffix(key, "password_file") {
			continue
		}
		if err := loadNaming(t, dir, key, "strange"); err == nil || !strings.Contains(err.Error(), key+": ") ||
			!strings.Contains(err.Error(), "chown root "+filepath.Join(dir, "strange")) {
			t.Errorf("%s: %v", key, err)
		}
	}
}
