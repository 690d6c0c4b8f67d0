package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/net/html"
)

// formPortal logs in as a person with a browser does. The portal redirects the probe to a page with a form, which the
// client fills in and sends. The captive portal API (RFC 8908) tells the status. To log out the client sends the form
// of the status page, to which the portal redirects after the login.
type formPortal struct {
	portalClient
	loggedIn string // URL of the page after the login, which has the form to log out
}

const acceptForm = "text/html, application/captive+json"

// login follows the portal from the probe to the page after the login form.
func (f *formPortal) login(ctx context.Context) error {
	page, err := f.open(ctx, http.MethodGet, f.adm.Probe, "", acceptForm)
	if err != nil {
		return err
	}
	if page.status == http.StatusNetworkAuthenticationRequired {
		return fmt.Errorf("asking for %s: %s", withoutQuery(page.url), page.text())
	}
	if page.url.Host != f.adm.Portal {
		return nil // not redirected: Login asks for the status next
	}
	hasPassword := func(f form) bool { return f.hasInput("password") }
	form, err := findForm(page.url, page.body, hasPassword)
	if err != nil {
		return fmt.Errorf("the login page %s: %w", withoutQuery(page.url), err)
	}
	f.fillIn(form)
	if page, err = f.submit(ctx, page.url, form); err != nil {
		return err
	}
	// Parsing a page's forms takes a tenth of the CPU time of a login, so only a page that has the word is parsed.
	if strings.Contains(strings.ToLower(page.body), "password") {
		if _, err := findForm(page.url, page.body, hasPassword); err == nil {
			return fmt.Errorf("asked for the password again at %s: %w", withoutQuery(page.url), errRefused)
		}
	}
	f.loggedIn = page.url.String()
	return nil
}

// fillIn enters the client's name and password into the fields of a form.
func (f *formPortal) fillIn(form form) {
	for i, in := range form.inputs {
		switch in.kind {
		case "password":
			form.inputs[i].value = f.adm.Password
		case "text", "email", "":
			form.inputs[i].value = f.user()
		}
	}
}

// status asks the captive portal API.
func (f *formPortal) status(ctx context.Context) (bool, error) {
	page, err := f.open(ctx, http.MethodGet, f.adm.API, "", acceptForm)
	if err != nil {
		return false, err
	}
	captive, err := parseCaptive(page.body)
	return !captive && err == nil, err
}

// logout sends the form of the status page, with the client's name where the form has a field for it.
func (f *formPortal) logout(ctx context.Context) error {
	if in, err := f.status(ctx); err != nil || !in {
		return err
	}
	statusURL := cmp.Or(f.loggedIn, "http://"+f.adm.Portal+"/status")
	page, err := f.open(ctx, http.MethodGet, statusURL, "", acceptForm)
	if err != nil {
		return err
	}
	form, err := findForm(page.url, page.body, func(form) bool { return true })
	if err != nil {
		return fmt.Errorf("the status page %s: %w", withoutQuery(page.url), err)
	}
	f.fillIn(form)
	_, err = f.submit(ctx, page.url, form)
	return err
}

// submit sends a form of a page as browsers do, and returns the page that it leads to.
func (f *formPortal) submit(ctx context.Context, page *url.URL, form form) (*answer, error) {
	to, values := *page, url.Values{}
	if form.action != nil {
		to = *form.action
	}
	for _, in := range form.inputs {
		values.Set(in.name, in.value)
	}
	if form.method == http.MethodPost {
		return f.open(ctx, http.MethodPost, to.String(), values.Encode(), acceptForm)
	}
	to.RawQuery = values.Encode()
	return f.open(ctx, http.MethodGet, to.String(), "", acceptForm)
}

// form is a form of a portal's page.
type form struct {
	method string   // upper case, default GET
	action *url.URL // where it is sent; nil: to the page itself
	inputs []input  // those with a name, in the order of the page
}

// input is a field of a form. kind is its type, in lower case.
type input struct{ name, value, kind string }

// hasInput reports whether the form has an input of a kind.
func (f form) hasInput(kind string) bool {
	return slices.ContainsFunc(f.inputs, func(in input) bool { return in.kind == kind })
}

// errNoForm is the error for a page without the form that is looked for.
var errNoForm = errors.New("no form to submit")

// findForm returns the first form of a page for which wanted returns true. Its error wraps errNoForm when there is
// none.
func findForm(page *url.URL, body string, wanted func(form) bool) (form, error) {
	for f, err := range forms(page, body) {
		if wanted(f) {
			return f, err
		}
	}
	const shown = 400 // bytes of the page, most of them spaces, which the error leaves out
	return form{}, fmt.Errorf("%.60q: %w", strings.Join(strings.Fields(body[:min(len(body), shown)]), " "), errNoForm)
}

// forms iterates over the complete forms of a page, each with an error where its action is no URL.
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
			case tag == "form" && starts && !inside: // HTML ignores a form inside another
				attrs := attributes(z)
				inside, f, err = true, form{method: strings.ToUpper(cmp.Or(attrs["method"], http.MethodGet))}, nil
				if action, found := attrs["action"]; found {
					if f.action, err = page.Parse(action); err != nil {
						err = fmt.Errorf("the form's action %q: %w", action, err)
					}
				}
			case tag == "input" && starts && inside:
				if attrs := attributes(z); attrs["name"] != "" {
					f.inputs = append(f.inputs, input{attrs["name"], attrs["value"], strings.ToLower(attrs["type"])})
				}
			}
		}
	}
}

// attributes returns the attributes of the tag that the tokenizer is at.
func attributes(z *html.Tokenizer) map[string]string {
	attrs := map[string]string{}
	for more := true; more; {
		var key, value []byte
		if key, value, more = z.TagAttr(); key != nil {
			attrs[string(key)] = string(value)
		}
	}
	return attrs
}
