package gateway

import (
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPreviewPages: a preview has the ways to log in of a network's portal, and the choice of networks that have one.
func TestPreviewPages(t *testing.T) {
	file := filepath.Join(t.TempDir(), "gatewayd.toml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pages := PreviewPages(file, "")
	get := func(target string) string {
		w := httptest.NewRecorder()
		pages.ServeHTTP(w, httptest.NewRequest("GET", target, nil))
		return w.Body.String()
	}
	const head = "wan.interface = \"wan0\"\ndns.upstreams = [\"192.0.2.2\"]\n"
	network := func(name, address, more string) string {
		return "[[network]]\nname = \"" + name + "\"\ninterface = \"" + name + "\"\naddress = \"" + address + "\"\n" + more
	}
	write(head + network("wired", "10.1.0.1/24", "portal.enabled = false\n") +
		network("guests", "10.2.0.1/24", "auth.methods = [\"click-through\"]\nportal.title = \"Lobby\"\n") +
		network("rooms", "10.3.0.1/24", "auth.methods = [\"voucher\"]\n"))
	for target, want := range map[string][]string{
		"/":                                 {`network=guests" aria-current="true"`, "network=rooms"},
		"/?network=rooms":                   {"network=guests", `network=rooms" aria-current="true"`, "/page/wrong-code?"},
		"/page/login?lang=en":               {"Lobby", "Accept and connect"},
		"/page/login?lang=en&network=rooms": {`name="code"`},
	} {
		page := get(target)
		for _, text := range want {
			if !strings.Contains(page, text) {
				t.Errorf("%s lacks %s:\n%s", target, text, page)
			}
		}
		if strings.Contains(page, "wired") || strings.Contains(page, `name="password"`) {
			t.Errorf("%s has what no portal here has:\n%s", target, page)
		}
	}
	write(head + "lan.interface = \"lan0\"\nlan.address = \"10.1.0.1/24\"\nauth.methods = [\"click-through\"]\n")
	if list := get("/"); strings.Contains(list, "Networks") || !strings.Contains(list, "Languages") {
		t.Errorf("one network can be chosen:\n%s", list)
	}
	write("lan.interfaces = \"lan0\"\n")
	if text := get("/"); !strings.Contains(text, "gatewayd.toml:1: ") {
		t.Errorf("a mistake in the file is shown as\n%s", text)
	}
}
