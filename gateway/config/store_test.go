package config

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// inStore is the example with lines of [store].
func inStore(lines string) string {
	return strings.Replace(Example, "[store]\n", "[store]\n"+lines+"\n", 1)
}

// TestStoreMistakes: what a store needs is asked for, and keys without effect are named.
func TestStoreMistakes(t *testing.T) {
	const redis, at, name = "kind = \"redis\"\n", "addresses = [\"192.0.2.20\"]\n", "name = \"gw1\"\n"
	for text, want := range map[string]string{
		"kind = \"etcd\"":                      "store.kind: must be",
		name:                                   `store.name: has no effect: store.kind is not "redis"`,
		redis + name:                           "store.addresses: missing",
		redis + at:                             "store.name: missing",
		redis + at + "name = \"a b\"":          "store.name: must be a name of letters",
		redis + at + name + "user = \"gw\"":    "store.password_file: missing",
		redis + at + name + "prefix = \"a b\"": "store.prefix: must be letters",
		redis + at + name + "sentinel_user = \"s\"": "store.sentinel_user: has no effect: store.sentinel_master",
		redis + at + name + "sentinel_master = \"m\"\nsentinel_user = \"s\"": "store.sentinel_password_file: " +
			"missing",
		redis + name + "addresses = [\"a\", \"b\"]":          "store.addresses: must be that of one server",
		redis + name + "addresses = [\"192.0.2.20:70000\"]":  "store.addresses: each value must",
		redis + name + "addresses = [\"2001:db8::20:6379\"]": "IPv6 in brackets",
		redis + name + "addresses = [\"2001:db8::1\"]":       "IPv6 in brackets",
		redis + name + "addresses = [\"a b\"]":               "store.addresses: each value must",
		"roaming = \"mac\"":                                  `store.roaming: has no effect: store.kind is not "redis"`,
		redis + at + name + "roaming = \"both\"":             `store.roaming: must be`,
	} {
		_, err := Parse("f", []byte(inStore(text)))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	for master, want := range map[string][]string{
		"":                           {"db.example.org:6379"},
		"sentinel_master = \"gw\"\n": {"db.example.org:26379", "[2001:db8::1]:26379", "192.0.2.1:1"},
	} {
		addresses := `addresses = ["db.example.org"]`
		if master != "" {
			addresses = `addresses = ["db.example.org", "[2001:db8::1]", "192.0.2.1:1"]`
		}
		c, err := Parse("f", []byte(inStore(redis+name+master+addresses)))
		if err != nil || !slices.Equal(c.Store.Addresses, want) {
			t.Errorf("%v, want %v (%v)", c, want, err)
		}
	}
}

// TestStoreFiles: files of the store that cannot be used are named with what to do.
func TestStoreFiles(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	write("users", "", 0o640)
	write("public", "secret", 0o644)
	write("private", "secret\n", 0o600)
	write("no.pem", "nothing", 0o644)
	for key, want := range map[string]string{
		"password_file = \"public\"":                                   "store.password_file: everyone can read",
		"password_file = \"none\"":                                     "store.password_file: ",
		"password_file = \"private\"\nca_file = \"none\"":              "store.ca_file: ",
		"sentinel_master = \"m\"\nsentinel_password_file = \"public\"": "store.sentinel_password_file: everyone can read",
		"key_file = \"public\"":                                        "store.key_file: everyone can read",
		"key_file = \"private\"":                                       "has 6 characters, and must have 32",
		"ca_file = \"no.pem\"":                                         "has no certificate in PEM",
	} {
		text := inStore("kind = \"redis\"\naddresses = [\"192.0.2.20\"]\nname = \"gw1\"\n" + key)
		_, err := Load(write("gatewayd.toml", text, 0o600))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", key, err, want)
		}
	}
}
