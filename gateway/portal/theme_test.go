// Tests of the style and of the images in an operator's folder. start (world_test.go) serves a portal, and request(t,
// client, url, form, change...) sends one request to it as a client. write(t, folder, name, text) writes a file.

package portal

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// svg is a logo that would do something, were it allowed to.
const svg = `<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"><script>alert(1)</script></svg>`

// TestTheme: a folder with a logo and colours changes each page, and nothing else of the folder is served.
func TestTheme(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "logo.svg", svg)
	write(t, dir, "logo-dark.PNG", "\x89PNG\r\n\x1a\n")
	write(t, dir, "theme.css", ":root { --accent: teal; }\n")
	write(t, dir, "secret.txt", "secret")
	write(t, filepath.Dir(dir), "above.svg", svg)
	if err := os.Mkdir(filepath.Join(dir, "below.d"), 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "below.d"), "x.svg", svg)
	w := start(t, Config{Templates: dir, Title: "Café"})
	dark := w.pages.images["logo-dark.PNG"].tag
	page := request(t, clientA, base+"/login", nil)
	logo := themePath + "logo.svg?v=" + w.pages.images["logo.svg"].tag
	for _, want := range []string{`src="` + logo + `" alt="Café"`, `srcset="/theme/logo-dark.PNG?v=` + dark,
		"--accent: teal", ".terms {"} {
		if !strings.Contains(page.body, want) {
			t.Errorf("the page lacks %s:\n%s", want, page.body)
		}
	}
	r := request(t, clientA, base+logo, nil)
	for name, want := range map[string]string{"Content-Type": "image/svg+xml", "X-Content-Type-Options": "nosniff",
		"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; sandbox",
		"Cache-Control":           "max-age=3600"} {
		if got := r.Header.Get(name); got != want || r.body != svg {
			t.Errorf("the logo's %s is %q, want %q", name, got, want)
		}
	}
	if r := request(t, clientA, base+logo, nil, func(q *http.Request) {
		q.Header.Set("If-None-Match", r.Header.Get("ETag"))
	}); r.StatusCode != http.StatusNotModified {
		t.Errorf("the logo again: %s", r.Status)
	}
	for _, bad := range []string{"", "secret.txt", "theme.css", "below.d/x.svg", "%2e%2e/above.svg",
		"..%2fabove.svg", "none.svg"} {
		if r := request(t, clientA, base+themePath+bad, nil); r.StatusCode != http.StatusNotFound ||
			strings.Contains(r.body, "secret") || strings.Contains(r.body, "alert(1)") {
			t.Errorf("%s is served: %s", bad, r.Status)
		}
	}
}
