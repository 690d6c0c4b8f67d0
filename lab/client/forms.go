package client

import (
	"cmp"
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
		z := html.NewTokenizer(strings.NewReader(body))
		for kind := z.Next(); kind != html.ErrorToken; kind = z.Next() {
			name, _ := z.TagName()
			starts := kind == html.StartTagToken || kind == html.SelfClosingTagToken
			switch tag := string(name); {
			case tag == "form" && kind == html.EndTagToken && inside:
				if inside = false; !yield(f, err) {
					return
				}
			case tag == "form" && starts && !inside: // a form inside another is none
				inside = true
				f, err = openForm(page, attributes(z))
			case tag == "input" && starts && inside:
				if at := attributes(z); at["name"] != "" {
					f.inputs = append(f.inputs, input{at["name"], at["value"], strings.ToLower(at["type"])})
				}
			}
		}
	}
}

// openForm is the form that a tag with these attributes begins.
func openForm(page *url.URL, at map[string]string) (f form, err error) {
	f.method = strings.ToUpper(cmp.Or(at["method"], http.MethodGet))
	if action, has := at["action"]; has {
		if f.action, err = page.Parse(action); err != nil {
			return form{method: f.method, action: page}, fmt.Errorf("the form's action %q: %w", action, err)
		}
	}
	return f, nil
}

// attributes are those of the tokenizer's tag.
func attributes(z *html.Tokenizer) map[string]string {
	at := map[string]string{}
	for more := true; more; {
		var key, value []byte
		if key, value, more = z.TagAttr(); key != nil {
			at[string(key)] = string(value)
		}
	}
	return at
}
