package client

import (
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/net/html"
)

// form is a form of a portal's page.
type form struct {
	method string   // upper case, default GET
	action *url.URL // where it is sent; nil when the tag has no action
	inputs []input  // those with a name, in the order of the page
}

// input is a field of a form.
type input struct{ name, value, kind string } // kind is the type, lower case

// has reports whether the form has an input of a kind.
func (f form) has(kind string) bool {
	return slices.ContainsFunc(f.inputs, func(in input) bool { return in.kind == kind })
}

// errNoForm says that a page asks nothing of its reader.
var errNoForm = errors.New("no form to submit")

// findForm returns the first form of a page that is wanted. The error wraps errNoForm
// when there is none.
func findForm(page *url.URL, body string, wanted func(form) bool) (form, error) {
	for f, err := range forms(page, body) {
		if wanted(f) {
			return f, err
		}
	}
	const shown = 400 // bytes, most of which are space
	return form{}, fmt.Errorf("%.60q: %w", strings.Join(strings.Fields(body[:min(len(body), shown)]), " "), errNoForm)
}

// forms are the forms of a page that have an end. An action that is no URL is an error.
func forms(page *url.URL, body string) iter.Seq2[form, error] {
	return func(yield func(form, error) bool) {
		var f form
		var err error
		inside := false
		for z := html.NewTokenizer(strings.NewReader(body)); ; {
			kind := z.Next()
			if kind == html.ErrorToken {
				return
			}
			name, _ := z.TagName()
			switch tag := string(name); {
			case tag == "form" && kind == html.EndTagToken && inside:
				if inside = false; !yield(f, err) {
					return
				}
			case kind != html.StartTagToken && kind != html.SelfClosingTagToken:
			case tag == "form" && !inside: // a form inside another is none
				inside = true
				f, err = openForm(page, z)
			case tag == "input" && inside:
				if in := readInput(z); in.name != "" {
					f.inputs = append(f.inputs, in)
				}
			}
		}
	}
}

// openForm reads the tag that begins a form.
func openForm(page *url.URL, z *html.Tokenizer) (form, error) {
	f := form{method: http.MethodGet}
	var bad error
	for key, value := range attributes(z) {
		switch key {
		case "method":
			f.method = strings.ToUpper(value)
		case "action":
			f.action = page
			if to, err := page.Parse(value); err == nil {
				f.action = to
			} else {
				bad = fmt.Errorf("the form's action %q: %w", value, err)
			}
		}
	}
	return f, bad
}

func readInput(z *html.Tokenizer) (in input) {
	for key, value := range attributes(z) {
		switch key {
		case "name":
			in.name = value
		case "value":
			in.value = value
		case "type":
			in.kind = strings.ToLower(value)
		}
	}
	return in
}

// attributes are those of the tokenizer's tag.
func attributes(z *html.Tokenizer) iter.Seq2[string, string] {
	return func(yield func(key, value string) bool) {
		for more := true; more; {
			var key, value []byte
			if key, value, more = z.TagAttr(); key == nil || !yield(string(key), string(value)) {
				return
			}
		}
	}
}
