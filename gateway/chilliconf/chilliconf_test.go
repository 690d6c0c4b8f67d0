package chilliconf

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/gateway/config"
)

// FuzzConvert holds that whatever a file has, gatewayd.toml is TOML with keys that gatewayd knows, and that no secret
// is in it. That some value is refused is possible: the notes, or gatewayd check-config, say so.
func FuzzConvert(f *testing.F) {
	for _, s := range []string{
		"net 10.1.0.0/24\nuamserver \"https://p.example/\"\nuamsecret s3cr3t-of-ours\n",
		"uamallowed a.b:1,icmp:1.2.3.4,::1\n",
		"HS_UAMSECRET=s3cr3t-of-ours\nHS_UAMFORMAT=https://${HS_X:-p.example}/\n",
		"domain a\"\\b\n", "include x\n", "=\n\"\n'",
		"HS_A=\"$HS_A$HS_A\"\n", "nasmac \x01\n", "lease -1\nmtu 99999999999999999999\n", "uamlisten ::1\nnet 300.1.1.1/99\n",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		path := filepath.Join(t.TempDir(), "chilli.conf")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := Convert(path, "")
		if err != nil {
			return
		}
		if _, err := config.Parse("gatewayd.toml", []byte(got.TOML)); err != nil &&
			(strings.Contains(err.Error(), "unknown key") || strings.Contains(err.Error(), "TOML")) {
			t.Errorf("%v\n%s", err, got.TOML)
		}
		if strings.Contains(got.TOML, "s3cr3t-of-ours") && strings.Count(text, "s3cr3t-of-ours") == 1 &&
			strings.Contains(text, "uamsecret s3cr3t-of-ours") {
			t.Error("a secret is in gatewayd.toml")
		}
	})
}

// TestNets reads networks in both forms.
func TestNets(t *testing.T) {
	for text, want := range map[string]string{"10.1.0.0/24": "10.1.0.0/24", "10.1.0.0/255.255.0.0": "10.1.0.0/16",
		"10.1.2.3/255.255.255.255": "10.1.2.3/32", "10.1.0.0/255.0.255.0": "", "10.1.0.0": "", "::/8": "", "a/24": ""} {
		got, ok := parseNet(text)
		if ok != (want != "") || ok && got != netip.MustParsePrefix(want) {
			t.Errorf("%s is %s, %v", text, got, ok)
		}
	}
}

// TestEachOptionIsKnownOnce: no option is both needless and replaced, and each variable leads to an option.
func TestEachOptionIsKnownOnce(t *testing.T) {
	for name := range needless {
		if _, both := instead[name]; both {
			t.Errorf("%s is needless, and to be replaced", name)
		}
	}
	for name, text := range instead {
		if name != "routeif" && text == "" {
			t.Errorf("%s has no advice", name)
		}
	}
}
