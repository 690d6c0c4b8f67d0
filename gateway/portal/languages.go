// The languages of the pages, and which of them a client gets.

package portal

import (
	"cmp"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"golang.org/x/text/language"

	"github.com/gateweigh/gateweigh/textfile"
)

// defaultLanguage is that of clients who prefer none that there is.
const defaultLanguage = "en"

// languages are those that a portal has. The first is the default.
type languages struct {
	all     []*Texts
	matcher language.Matcher
}

func newLanguages(all []*Texts) languages {
	var tags []language.Tag
	for _, t := range all {
		tags = append(tags, t.tag)
	}
	return languages{all, language.NewMatcher(tags)}
}

// Bounds of what is considered of a client's preferences: bytes of the header field, and languages in it.
const (
	maxAccept    = 1 << 10
	maxLanguages = 16
)

// preferred chooses the language that fits an Accept-Language field best (RFC 9110, 12.5.4), by the likeness of
// languages that CLDR lists: of "zh-TW" and "gsw" those who lack them get "zh-Hans" and "de". An entry that is
// malformed, its weight included, says nothing.
func (l languages) preferred(accept string) *Texts {
	type weighted struct {
		tag     language.Tag
		quality float32
	}
	var wanted []weighted
	accept = accept[:min(len(accept), maxAccept)]
	for range maxLanguages {
		var item string
		item, accept, _ = strings.Cut(accept, ",")
		if tags, qualities, err := language.ParseAcceptLanguage(item); err == nil {
			for i, tag := range tags {
				if q := qualities[i]; q > 0 && q <= 1 {
					wanted = append(wanted, weighted{tag, q})
				}
			}
		}
		if accept == "" {
			break
		}
	}
	slices.SortStableFunc(wanted, func(a, b weighted) int { return cmp.Compare(b.quality, a.quality) })
	var tags []language.Tag
	for _, w := range wanted {
		tags = append(tags, w.tag)
	}
	_, index, _ := l.matcher.Match(tags...)
	return l.all[index]
}

// named returns the language with a tag, as the menu of languages has it in its links; nil: there is none.
func (l languages) named(tag string) *Texts {
	for _, t := range l.all {
		if strings.EqualFold(t.Lang, tag) {
			return t
		}
	}
	return nil
}

// langKey is the key of a request's query that has the tag of a language, chosen in the menu of languages.
const langKey = "lang"

// chosen returns the language that a person has chosen in the menu; nil: none, so that the browser's preference counts.
func (p *Portal) chosen(r *http.Request) *Texts {
	if r.URL.RawQuery == "" {
		return nil
	}
	return p.pages.languages.named(r.URL.Query().Get(langKey))
}

// textsOf returns the texts in the language of a request.
func (p *Portal) textsOf(r *http.Request) *Texts {
	return cmp.Or(p.chosen(r), p.pages.languages.preferred(r.Header.Get("Accept-Language")))
}

// redirect sends a client to another page of the portal, in the language that the person has chosen.
func (p *Portal) redirect(w http.ResponseWriter, r *http.Request, target string) {
	if t := p.chosen(r); t != nil {
		target = withQuery(target, langKey, t.Lang)
	}
	http.Redirect(w, r, target, http.StatusSeeOther)
}

// withQuery adds a key and its value to one of the portal's URLs.
func withQuery(page, key, value string) string {
	sign := "?"
	if strings.Contains(page, "?") {
		sign = "&"
	}
	return page + sign + key + "=" + url.QueryEscape(value)
}

// Choice is a language in the menu of languages.
type Choice struct {
	T       *Texts // its texts
	Href    string // the same page in this language
	Current bool   // the page is in it
}

// menu returns the languages to choose from, on a page in the language t for a client that requested link.
func (l languages) menu(t *Texts, link string) []Choice {
	var all []Choice
	for _, other := range l.all {
		href := withLink("?"+langKey+"="+other.Lang, link)
		all = append(all, Choice{other, href, other == t})
	}
	slices.SortStableFunc(all, func(a, b Choice) int { return cmp.Compare(a.T.Lang, b.T.Lang) })
	return all
}

// rightToLeft are the scripts that are written from right to left (ISO 15924), of languages in use.
var rightToLeft = []string{"Adlm", "Arab", "Hebr", "Mand", "Nkoo", "Rohg", "Samr", "Syrc", "Thaa", "Yezi"}

// Dir is the direction of the language's script, as the attribute dir has it.
func (t *Texts) Dir() string {
	if script, _ := t.tag.Script(); slices.Contains(rightToLeft, script.String()) {
		return "rtl"
	}
	return "ltr"
}

// builtInTexts returns the languages that need no file in an operator's folder, the default first. Their texts are in
// web/texts.LANGUAGE.toml.
var builtInTexts = sync.OnceValue(func() []*Texts {
	all := []*Texts{mustParse("texts."+defaultLanguage+".toml", Texts{})}
	names, err := fs.Glob(builtIn, "web/texts.*.toml") // in the order of their names
	if err != nil {
		panic(err) // the pattern is right
	}
	for _, name := range names {
		if name = path.Base(name); languageOf(name) != defaultLanguage {
			all = append(all, mustParse(name, *all[0]))
		}
	}
	return all
})

// mustParse reads a built-in file of texts. Texts that it lacks are taken from base.
func mustParse(name string, base Texts) *Texts {
	data, err := builtIn.ReadFile("web/" + name)
	if err == nil {
		base.Lang = languageOf(name)
		var t *Texts
		if t, err = parseTexts(name, data, base); err == nil {
			return t
		}
	}
	panic(err) // tests read all files
}

// languageFile is the name of a file with the texts of a language, by its tag (BCP 47).
var languageFile = regexp.MustCompile(`^texts\.([A-Za-z]{2,8}(?:-[A-Za-z0-9]{1,8}){0,4})\.toml$`)

// languageOf returns the language of a file of texts; "": the file is not one.
func languageOf(file string) string {
	if m := languageFile.FindStringSubmatch(file); m != nil {
		return m[1]
	}
	return ""
}

// readLanguages returns the built-in languages, with those of the files in dir in their place and behind them.
// dir may be empty: none.
func readLanguages(dir string) (languages, error) {
	all := slices.Clone(builtInTexts())
	if dir == "" {
		return newLanguages(all), nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return languages{}, fmt.Errorf("reading the portal's templates: %w", textfile.Plain(err))
	}
	for _, e := range entries { // by name
		lang := languageOf(e.Name())
		if lang == "" {
			continue
		}
		index := slices.IndexFunc(all, func(t *Texts) bool { return strings.EqualFold(t.Lang, lang) })
		base := *baseOf(lang)
		base.Lang = lang
		if index < 0 {
			base.LangName = lang // until the file has it
		}
		t, err := readTexts(filepath.Join(dir, e.Name()), base)
		if err != nil {
			return languages{}, err
		}
		if index >= 0 {
			all[index] = t
		} else {
			all = append(all, t)
		}
	}
	return newLanguages(all), nil
}

// baseOf returns the built-in texts for those that a file of a language lacks: of the language itself, of a variant of
// it, else the English ones.
func baseOf(lang string) *Texts {
	wanted, _ := language.Parse(lang)
	base, _ := wanted.Base()
	for _, t := range builtInTexts() {
		if own, _ := t.tag.Base(); own == base {
			return t
		}
	}
	return builtInTexts()[0]
}
