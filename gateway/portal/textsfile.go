// Files of texts, texts.LANGUAGE.toml.

package portal

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/text/feature/plural"
	"golang.org/x/text/language"

	"github.com/gateweigh/gateweigh/internal/near"
	"github.com/gateweigh/gateweigh/internal/strict"
	"github.com/gateweigh/gateweigh/textfile"
)

// Plural is a text with a number, %d, in the forms that a language has for numbers (CLDR's plural rules). Only Other
// is needed. The forms of one and two may do without the number, if the language has them for no other.
type Plural struct {
	Zero, One, Two, Few, Many, Other string

	tag language.Tag
}

// For returns the text for a number of 0 and more.
func (p Plural) For(n int) string {
	const enough = 10_000_000 // the rules look at the last digits of larger numbers
	rest := n
	if n >= enough {
		rest = enough + n%enough
	}
	text := map[plural.Form]string{plural.Zero: p.Zero, plural.One: p.One, plural.Two: p.Two, plural.Few: p.Few,
		plural.Many: p.Many}[formOf(p.tag, rest)]
	if text == "" {
		text = p.Other
	}
	return withNumber(text, n)
}

// formOf returns the form that a language has for a number.
func formOf(tag language.Tag, n int) plural.Form {
	return plural.Cardinal.MatchPlural(tag, n, 0, 0, 0, 0)
}

// unnumbered says what is wrong with forms that do without the number: those of one and two are also for other numbers
// in some languages, such as 21 in Russian and 102 in Slovenian.
func (p Plural) unnumbered() string {
	for _, f := range []struct {
		text string
		form plural.Form
		n    int
	}{{p.One, plural.One, 1}, {p.Two, plural.Two, 2}} {
		for n := 1; n <= 200 && f.text != "" && !oneNumber(f.text); n++ {
			if n != f.n && formOf(p.tag, n) == f.form {
				return fmt.Sprintf("must have %%d, for the number: the language has %q for %d too", f.text, n)
			}
		}
	}
	return ""
}

// withNumber puts a number in the place of %d.
func withNumber(text string, n int) string { return strings.Replace(text, "%d", strconv.Itoa(n), 1) }

// readTexts reads a file of texts. Texts that the file lacks are taken from base, so that a file written for a former
// version stays usable.
func readTexts(path string, base Texts) (*Texts, error) {
	data, err := textfile.Read(path, maxTemplate)
	if err != nil {
		return nil, fmt.Errorf("reading the portal's texts: %w", err)
	}
	return parseTexts(path, data, base)
}

// allTexts tells where all texts are listed.
const allTexts = "gatewayd templates writes all texts"

// parseTexts parses the content of a file of texts of the language base.Lang. path is only for errors.
func parseTexts(path string, data []byte, base Texts) (*Texts, error) {
	entries, bad := strict.Read(path, data, allTexts)
	if bad != nil {
		return nil, bad
	}
	t := base
	lines := map[string]int{}
	for _, e := range entries {
		lines[e.Path[0]] = e.Line
		if problem := t.set(e); problem != "" {
			return nil, fmt.Errorf("%s:%d: %s", path, e.Line, problem)
		}
	}
	if !strings.EqualFold(t.Lang, base.Lang) {
		return nil, fmt.Errorf("%s:%d: Lang is %q, and the file's name says %q", path, lines["Lang"], t.Lang, base.Lang)
	}
	if name, problem := t.finish(); problem != "" {
		return nil, fmt.Errorf("%s:%d: %s %s", path, max(1, lines[name]), name, problem)
	}
	return &t, nil
}

// set takes an entry of a file, and says what is wrong with it.
func (t *Texts) set(e strict.Entry) (problem string) {
	field := reflect.ValueOf(t).Elem()
	for _, name := range e.Path {
		known := textNames(field)
		index := slices.Index(known, name)
		if index < 0 {
			return fmt.Sprintf("no text is called %s%s: %s", e.Key(), near.Suggestion(name, known), allTexts)
		}
		field = field.Field(index)
	}
	text, isText := e.Value.(string)
	_, isTable := e.Value.(map[string]any)
	switch {
	case isText && field.Kind() == reflect.String:
		field.SetString(text)
	case isText:
		field.Set(reflect.ValueOf(Plural{Other: text}))
	case isTable && field.Kind() == reflect.Struct:
		field.SetZero() // its forms follow
	default:
		return e.Key() + " must be a text in quotation marks"
	}
	return ""
}

// textNames are the names in a file of the texts in a Texts, or of the forms in a Plural, in the order of its fields.
func textNames(of reflect.Value) (names []string) {
	if of.Kind() != reflect.Struct {
		return nil
	}
	for i := range of.NumField() {
		switch f := of.Type().Field(i); {
		case !f.IsExported(): // they are the last
		case of.Type() == reflect.TypeFor[Plural]():
			names = append(names, strings.ToLower(f.Name))
		default:
			names = append(names, f.Name)
		}
	}
	return names
}

// finish sets what follows from the texts, and checks those that have numbers and units. It returns the name of a text
// and what is wrong with it; "": nothing.
func (t *Texts) finish() (name, problem string) {
	var err error
	if t.tag, err = language.Parse(t.Lang); err != nil {
		return "Lang", "is no language's tag: give one such as fr or pt-BR"
	}
	if n := len(strings.Fields(t.Units)); n != dataUnits {
		return "Units", fmt.Sprintf("has %d units, not %d, from bytes in steps of 1000: B kB MB GB TB PB EB", n, dataUnits)
	}
	if !strings.Contains(t.Days.Other, "%d") { // as former versions had it
		t.Days.Other = "%d " + t.Days.Other
	}
	all := reflect.ValueOf(t).Elem()
	for _, name := range []string{"Seconds", "Minutes", "Hours"} {
		if text := all.FieldByName(name).String(); !oneNumber(text) {
			return name, fmt.Sprintf("must have one %%d, for the number, not %q", text)
		}
	}
	for _, c := range []struct{ name, unit string }{{"Days", "days"}, {"Wait", "seconds"}, {"Remember", "days"}} {
		p := all.FieldByName(c.name).Addr().Interface().(*Plural)
		p.tag = t.tag
		for i, text := range []string{p.Other, p.Few, p.Many, p.Zero, p.One, p.Two} {
			// The words for no, one and two may do without the number.
			if !oneNumber(text) && (i == 0 || text != "") && (i < 3 || strings.Contains(text, "%")) {
				return c.name, fmt.Sprintf("must have one %%d, for the %s, not %q", c.unit, text)
			}
		}
		if problem := p.unnumbered(); problem != "" {
			return c.name, problem
		}
	}
	return "", ""
}

// oneNumber reports whether a text has a place for one number, and no other verb.
func oneNumber(text string) bool {
	return strings.Count(text, "%") == 1 && strings.Contains(text, "%d")
}

// dataUnits is how many units of data there are.
const dataUnits = 7
