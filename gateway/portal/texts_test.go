// Tests of the texts in each language, and of the choice of a language. start (world_test.go) serves a portal, and
// request(t, client, url, form, change...) sends one request to it as a client.

package portal

import (
	"fmt"
	"math"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/gateway/session"
)

// builtInTags are the languages that the manual promises.
var builtInTags = []string{"en", "ar", "de", "es", "fr", "it", "nl", "pl", "pt-BR", "zh-Hans"}

func TestLanguage(t *testing.T) {
	start(t, Config{})
	for accept, want := range map[string]string{
		"": "Sign in", "de-AT,de;q=0.9,en;q=0.5": "Anmelden", "fr": "Se connecter", "ar-EG": "تسجيل الدخول",
	} {
		r := request(t, clientA, base+"/login", nil, func(r *http.Request) { r.Header.Set("Accept-Language", accept) })
		if !strings.Contains(r.body, "<h1>"+want+"</h1>") || r.Header.Get("Vary") != "Accept-Language" ||
			strings.Contains(r.body, `dir="rtl">
<head>`) != strings.HasPrefix(accept, "ar") {
			t.Errorf("Accept-Language %q: Vary %q\n%s", accept, r.Header.Get("Vary"), r.main())
		}
	}
}

// TestChosenLanguage: what a person chooses in the menu of languages stays through forms and redirects, and a choice
// that does not exist is none.
func TestChosenLanguage(t *testing.T) {
	start(t, Config{Methods: Methods{Login: true}})
	german := func(r *http.Request) { r.Header.Set("Accept-Language", "de") }
	follow := func(r reply, want string) reply {
		t.Helper()
		if got := r.Header.Get("Location"); r.StatusCode != http.StatusSeeOther || got != want {
			t.Fatalf("%s to %q, want to %q", r.Status, got, want)
		}
		return request(t, clientA, base+want, nil, german)
	}
	in := func(r reply, lang string) {
		t.Helper()
		if !strings.Contains(r.body, `<html lang="`+lang+`"`) || r.Header.Get("Content-Language") != lang {
			t.Errorf("want it in %s:\n%.300s", lang, r.body)
		}
	}
	for _, bad := range []string{"xx", "", "../../x", "fr-FR", "%00", "de&lang=fr", strings.Repeat("f", 5000)} {
		in(request(t, clientA, base+"/login?lang="+bad, nil, german), "de")
	}
	in(request(t, clientA, base+"/nothing?lang=pl", nil, german), "pl")
	page := request(t, clientA, base+"/login?url="+url.QueryEscape("http://example.org/?a=1&b=2"), nil, german)
	link := `href="?lang=fr&amp;url=http%3A%2F%2Fexample.org%2F%3Fa%3D1%26b%3D2" lang="fr"`
	if !strings.Contains(page.body, link) {
		t.Fatalf("no link to French:\n%s", page.main())
	}
	page = request(t, clientA, base+"/login?lang=FR&url=http%3A%2F%2Fexample.org%2F", nil, german)
	in(page, "fr")
	if !strings.Contains(page.body, `action="/login?lang=fr"`) {
		t.Fatalf("the form forgets the language:\n%s", page.main())
	}
	form := loginForm(t, clientA, goodUser, "wrong")
	page = request(t, clientA, base+"/login?lang=fr", form, german)
	in(page, "fr")
	form.Set("password", goodPassword)
	form.Set("url", "http://example.org/")
	page = follow(request(t, clientA, base+"/login?lang=fr", form, german),
		"/status?url=http%3A%2F%2Fexample.org%2F&lang=fr")
	in(page, "fr")
	for _, want := range []string{`action="/logout?lang=fr"`, `href="/status?lang=fr&amp;url=http`} {
		if !strings.Contains(page.body, want) {
			t.Errorf("no %s:\n%s", want, page.main())
		}
	}
	in(follow(request(t, clientA, base+"/?lang=fr", nil, german), "/status?lang=fr"), "fr")
	out := url.Values{"token": form["token"], "username": {goodUser}}
	in(follow(request(t, clientA, base+"/logout?lang=fr", out, german), "/login?note=out&lang=fr"), "fr")
}

func TestPreferred(t *testing.T) {
	all := newLanguages(builtInTexts())
	for accept, want := range map[string]string{
		"": "en", "de": "de", "DE-ch": "de", "en": "en", "sv": "en", "*": "en",
		"sv, de;q=0.3": "de", "de;q=0.3, en;q=0.7": "en", "en;q=0.2,de; q=0.7": "de", "de,en": "de", "en,de": "en",
		"fr-CH, fr;q=0.9, en;q=0.8, de;q=0.7, *;q=0.5": "fr",
		"zh-TW,zh;q=0.9,en-US;q=0.8":                   "zh-Hans", "zh": "zh-Hans",
		"zh-CN": "zh-Hans", "zh-Hans-SG": "zh-Hans",
		"pt": "pt-BR", "pt-PT": "pt-BR", "pt-BR": "pt-BR", "ar-MA": "ar", "nl-BE": "nl", "es-419": "es", "gsw": "de",
		"ja, ko": "en", "he, fr;q=0.1": "fr", "iw": "en", "i-klingon, es": "es", "xx-yy-zz": "en",
		// malformed entries say nothing, and the others count
		"de;q=0": "en", "de;q=nan": "en", "de;q=9": "en", "de;q=-1": "en", "de;q=": "en", ",,;,de": "de",
		"de;q=0, fr;q=0.1": "fr", "\x00\xff, it": "it", "fr;q=x, pl": "pl", "-----, nl": "nl",
		strings.Repeat("sv,", maxLanguages) + "de": "en", strings.Repeat("x", maxAccept) + ",de": "en",
		strings.Repeat("-", 16<<10): "en", strings.Repeat("de-", 5<<10): "en",
	} {
		if got := all.preferred(accept).Lang; got != want {
			t.Errorf("preferred(%.40q) = %s, want %s", accept, got, want)
		}
	}
	// Who prefers another script gets it where an operator has added it.
	hant := *all.all[0]
	hant.Lang = "zh-Hant"
	if _, problem := hant.finish(); problem != "" {
		t.Fatal(problem)
	}
	all = newLanguages(append(slices.Clone(all.all), &hant))
	for accept, want := range map[string]string{"zh-TW": "zh-Hant", "zh-HK, en": "zh-Hant", "zh-CN": "zh-Hans"} {
		if got := all.preferred(accept).Lang; got != want {
			t.Errorf("preferred(%q) = %s, want %s", accept, got, want)
		}
	}
}

func FuzzPreferred(f *testing.F) {
	f.Add("de-AT,de;q=0.9,en;q=0.5")
	all := newLanguages(builtInTexts())
	f.Fuzz(func(t *testing.T, accept string) {
		if got := all.preferred(accept); all.named(got.Lang) != got {
			t.Errorf("preferred(%q) = %s, which there is not", accept, got.Lang)
		}
	})
}

// sameAsEnglish are texts that are the same words in another language.
var sameAsEnglish = []string{"it Password", "it Online"}

// TestTextsAreComplete: every language has all texts, its own, with the numbers that English has, and says how a
// session ended.
func TestTextsAreComplete(t *testing.T) {
	var tags []string
	for _, texts := range builtInTexts() {
		tags = append(tags, texts.Lang)
		file := mustParse("texts."+texts.Lang+".toml", Texts{Units: texts.Units}) // no English texts in place of others
		v, first := reflect.ValueOf(*file), reflect.ValueOf(*english)
		for i, name := range textNames(v) {
			forms, want := formsOf(v.Field(i)), formsOf(first.Field(i))
			if forms[0] == "" {
				t.Errorf("%s lacks %s", texts.Lang, name)
			}
			for i, text := range forms {
				if text == "" { // it is not needed
					continue
				}
				a, b := strings.Count(text, "%"), strings.Count(want[0], "%")
				if a != b && (a != 0 || !slices.Contains([]int{2, 3}, i)) { // one and two may do without
					t.Errorf("%s: %s has %d numbers, in English %d: %q", texts.Lang, name, a, b, text)
				}
				if text == want[0] && len(text) > 4 && texts != english && name != "Units" && name != "Minutes" &&
					!slices.Contains(sameAsEnglish, texts.Lang+" "+name) {
					t.Errorf("%s: %s is English: %q", texts.Lang, name, text)
				}
				if strings.TrimSpace(text) != text || strings.Contains(text, "  ") || strings.Contains(text, "<") {
					t.Errorf("%s: %s has spaces or tags too many: %q", texts.Lang, name, text)
				}
				if end := []rune(want[0]); len(end) > 15 && end[len(end)-1] == '.' && !strings.ContainsAny(
					text[len(text)-3:], ".。") {
					t.Errorf("%s: %s does not end its sentence: %q", texts.Lang, name, text)
				}
			}
		}
		for _, e := range []session.Ending{{Cause: session.SessionTimeout}, {Cause: session.Quota, Quota: session.UpQuota}} {
			if texts.ending(e) == "" {
				t.Errorf("%s does not say of %+v", texts.Lang, e)
			}
		}
	}
	if !slices.Equal(tags, builtInTags) {
		t.Errorf("languages %q, want %q", tags, builtInTags)
	}
}

// formsOf returns a text, or the forms of a plural, the form of other numbers first.
func formsOf(v reflect.Value) (forms []string) {
	if p, ok := v.Interface().(Plural); ok {
		return []string{p.Other, p.Zero, p.One, p.Two, p.Few, p.Many}
	}
	return []string{v.String()}
}

// TestPlurals: numbers of every kind are worded as each language does.
func TestPlurals(t *testing.T) {
	all := newLanguages(builtInTexts())
	for lang, want := range map[string]map[int]string{
		"en": {1: "1 day", 2: "2 days", 0: "0 days"}, "de": {2: "2 Tage"}, "fr": {2: "2 jours", 30: "30 jours"},
		"pl": {2: "2 dni", 5: "5 dni", 22: "22 dni"}, "zh-Hans": {1: "1 天", 30: "30 天"},
		"ar": {2: "يومان", 3: "3 أيام", 10: "10 أيام", 11: "11 يومًا", 99: "99 يومًا", 100: "100 يوم", 103: "103 أيام",
			20_000_003: "20000003 أيام"},
	} {
		for n, text := range want {
			if got := all.named(lang).Days.For(n); got != text {
				t.Errorf("%s: %d is %q, want %q", lang, n, got, text)
			}
		}
	}
	for n, want := range map[int]string{1: "1 sekundę", 2: "2 sekundy", 4: "4 sekundy", 5: "5 sekund", 12: "12 sekund",
		22: "22 sekundy"} {
		if got := all.named("pl").Wait.For(n); !strings.Contains(got, " "+want+" ") {
			t.Errorf("Polish: %q, want %q in it", got, want)
		}
	}
	for _, texts := range all.all {
		for n := range 130 {
			for _, text := range []string{texts.Wait.For(n), texts.Remember.For(n), texts.Days.For(n)} {
				if strings.Contains(text, "%") || n > 2 && !strings.Contains(text, fmt.Sprint(n)) {
					t.Errorf("%s: %d becomes %q", texts.Lang, n, text)
				}
			}
		}
	}
}

// TestFormerTexts: a file of a former version, whose Days has no number, is worded as before.
func TestFormerTexts(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "texts.sv.toml", "Lang = \"sv\"\nDays = \"dagar\"\nWait = \"Vänta %d s.\"\n")
	all, err := readLanguages(dir)
	if err != nil {
		t.Fatal(err)
	}
	if sv := all.named("sv"); sv.Days.For(3) != "3 dagar" || sv.Wait.For(1) != "Vänta 1 s." {
		t.Errorf("%+v", sv)
	}
}

func TestUnits(t *testing.T) {
	for n, want := range map[uint64]string{
		0: "0 B", 999: "999 B", 1000: "1.0 kB", 12_345_678: "12.3 MB", 999_949: "999.9 kB", 999_950: "1.0 MB",
		5_000_000_000: "5.0 GB", math.MaxUint64: "18.4 EB",
	} {
		if got := english.bytes(n); got != want {
			t.Errorf("bytes(%d) = %q, want %q", n, got, want)
		}
	}
	for d, want := range map[time.Duration]string{
		-time.Hour: "0 s", 0: "0 s", 59*time.Second + 999*time.Millisecond: "59 s", time.Minute: "1 min",
		59 * time.Minute: "59 min",
		time.Hour:        "1 h 0 min", 47*time.Hour + 59*time.Minute: "47 h 59 min", 48 * time.Hour: "2 days",
		720 * time.Hour: "30 days",
	} {
		if got := english.duration(d); got != want {
			t.Errorf("duration(%s) = %q, want %q", d, got, want)
		}
	}
	of := newLanguages(builtInTexts()).named
	for lang, want := range map[string][2]string{
		"de": {"1,5 GB", "3 h 5 min"}, "fr": {"1,5 Go", "3 h 5 min"}, "ar": {"1.5 غ.ب", "3 س 5 د"},
		"zh-Hans": {"1.5 GB", "3 小时 5 分钟"}, "pl": {"1,5 GB", "3 godz. 5 min"},
	} {
		if got := [2]string{of(lang).bytes(1.5e9), of(lang).duration(3*time.Hour + 5*time.Minute)}; got != want {
			t.Errorf("%s: %q, want %q", lang, got, want)
		}
	}
}
