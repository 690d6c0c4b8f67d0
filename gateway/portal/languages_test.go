// Tests of the pages' files and languages. start (world_test.go) serves a portal, and request(t, client, url, form,
// change...) sends one request to it as a client: GET where form is nil. write(t, folder, name, text) writes a file.

package portal

import (
	"html"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/gateway/session"
)

// TestTemplatesAreWritten: a portal with the written files shows the same pages, and another language once it has a
// file.
func TestTemplatesAreWritten(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pages")
	paths, err := WriteTemplates(dir, false)
	if err != nil || len(paths) != len(pageFiles)+len(sharedFiles)+len(builtInTexts()) {
		t.Fatalf("%v, %v", paths, err)
	}
	if _, err := WriteTemplates(dir, false); err == nil || !strings.Contains(err.Error(), "exists already") {
		t.Errorf("written over: %v", err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "texts.de.toml"))
	if err != nil {
		t.Fatal(err)
	}
	in := func(language string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set("Accept-Language", language) }
	}
	w := start(t, Config{})
	builtIn := map[string]string{}
	for _, lang := range []string{"en", "de"} {
		builtIn[lang] = request(t, clientA, base+"/nothing", nil, in(lang)).body
	}
	w.stop()
	w = start(t, Config{Templates: dir})
	for lang, want := range builtIn {
		if got := request(t, clientA, base+"/nothing", nil, in(lang)).body; got != want {
			t.Errorf("in %s the written page differs:\n%s\n%s", lang, got, want)
		}
	}
	w.stop()
	write(t, dir, "texts.sv.toml", "\ufeffLang = \"sv\"\nSignIn = \"Logga in\"\n")
	write(t, dir, "texts.pt-PT.toml", "LangName = \"Português (Portugal)\"\nPassword = \"Palavra-passe\"\n")
	write(t, dir, "texts.de.toml", strings.Replace(string(text), "\"Passwort\"", "\"Kennwort\"", 1))
	start(t, Config{Templates: dir})
	for lang, want := range map[string][]string{
		"sv-FI, de;q=0.5": {"<h1>Logga in</h1>", ">Password<", `<html lang="sv" dir="ltr">`, ">sv</a>"},
		"pt-PT":           {">Palavra-passe<", "<h1>Entrar</h1>", `lang="pt-PT"`, ">Português (Portugal)</a>"},
		"pt":              {">Senha<", `lang="pt-BR"`}, "de": {">Kennwort<"}, "cs": {">Password<", `lang="en"`}} {
		r := request(t, clientA, base+"/login", nil, in(lang))
		for _, text := range want {
			if !strings.Contains(r.body, text) {
				t.Errorf("in %s no %s:\n%s", lang, text, r.main())
			}
		}
	}
}

// TestTemplatesAreWrittenAgain: force brings the built-in files back.
func TestTemplatesAreWrittenAgain(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "texts.de.toml", "Lang = \"de\"\n")
	if _, err := WriteTemplates(dir, true); err != nil {
		t.Error(err)
	}
	again, err := os.ReadFile(filepath.Join(dir, "texts.de.toml"))
	if builtIn, _ := readPart("", "texts.de.toml"); err != nil || string(again) != builtIn {
		t.Errorf("not replaced by force: %v", err)
	}
}

// TestFilesAreDocumented: the manual has each file.
func TestFilesAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/portal-pages.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range slices.Concat(pageFiles, sharedFiles) {
		if !strings.Contains(string(text), "`"+name+"`") {
			t.Errorf("the manual lacks %s", name)
		}
	}
}

// TestPageSaysHowASessionEnded: the login page says of a session that ended without its user why it did, also to a
// browser that was redirected.
func TestPageSaysHowASessionEnded(t *testing.T) {
	w := start(t, Config{})
	for ending, want := range map[session.Ending]string{
		{}:                              "",
		{Cause: session.UserRequest}:    "",
		{Cause: session.NASReboot}:      "",
		{Cause: session.SessionTimeout}: english.TimeUp,
		{Cause: session.IdleTimeout}:    english.Silent,
		{Cause: session.AdminReset}:     english.Ended,
		{Cause: session.Quota, Quota: session.UpQuota}:    english.SentUp,
		{Cause: session.Quota, Quota: session.DownQuota}:  english.ReceivedUp,
		{Cause: session.Quota, Quota: session.TotalQuota}: english.VolumeUp,
	} {
		s, _ := w.table.Get(clientA)
		s.State, s.LastEnding = session.PreAuth, ending
		w.table.set(s)
		for _, path := range []string{"/login", "/login?url=http%3A%2F%2Fexample.org%2F"} {
			r := request(t, clientA, base+path, nil)
			if said := strings.Contains(r.body, `role="status"`); said != (want != "") ||
				!strings.Contains(html.UnescapeString(r.body), want) {
				t.Errorf("%s of %+v lacks %q:\n%s", path, ending, want, r.main())
			}
		}
	}
}
