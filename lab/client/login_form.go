package client

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// formPortal logs in as a person with a browser does: the probe is redirected to
// a page with a form, which is filled in and sent by the method it names. Status
// is what the captive portal API (RFC 8908) says; logging out is the form of the
// status page that a redirect after login leads to.
type formPortal struct {
	browser
	adm      Admission
	user     string
	loggedIn string // page the login led to: it has the form to log out
}

func newForm(n Network, adm Admission, num int) *formPortal {
	return &formPortal{browser: browser{net: n, keep: true}, adm: adm, user: strings.ReplaceAll(adm.User, "%d", strconv.Itoa(num))}
}

// login follows the portal from the probe to the page after the login form.
func (f *formPortal) login(ctx context.Context) error {
	page, body, err := f.open(ctx, http.MethodGet, f.adm.Probe, nil)
	if err != nil {
		return err
	}
	if page.Host != f.adm.Portal {
		return nil // not caught: status will tell
	}
	form, err := parseForm(page, body, "password")
	if err != nil {
		return fmt.Errorf("the login page %s: %w", shorten(page), err)
	}
	for name, kind := range form.kinds {
		switch kind {
		case "password":
			form.values.Set(name, f.adm.Password)
		case "text", "email", "":
			form.values.Set(name, f.user)
		}
	}
	page, body, err = f.submit(ctx, form)
	if err != nil {
		return err
	}
	if _, err := parseForm(page, body, "password"); err == nil {
		return fmt.Errorf("asked for the password again at %s: %w", shorten(page), errRefused)
	}
	f.loggedIn = page.String()
	return nil
}

// status asks the captive portal API.
func (f *formPortal) status(ctx context.Context) (bool, error) {
	_, body, err := f.open(ctx, http.MethodGet, f.adm.API, nil)
	if err != nil {
		return false, err
	}
	captive, err := parseCaptive(body)
	return !captive && err == nil, err
}

// logout sends the form of the status page.
func (f *formPortal) logout(ctx context.Context) error {
	if in, err := f.status(ctx); err != nil || !in {
		return err
	}
	at := f.loggedIn
	if at == "" {
		at = "http://" + f.adm.Portal + "/status"
	}
	page, body, err := f.open(ctx, http.MethodGet, at, nil)
	if err != nil {
		return err
	}
	form, err := parseForm(page, body, "")
	if err != nil {
		return fmt.Errorf("the status page %s: %w", shorten(page), err)
	}
	_, _, err = f.submit(ctx, form)
	return err
}

// submit sends a form as browsers do, and returns the page it led to.
func (f *formPortal) submit(ctx context.Context, form form) (*url.URL, string, error) {
	if form.method == http.MethodPost {
		return f.open(ctx, http.MethodPost, form.action.String(), form.values)
	}
	to := *form.action
	to.RawQuery = form.values.Encode()
	return f.open(ctx, http.MethodGet, to.String(), nil)
}

// open asks for a page and follows redirects as long as they lead into the portal.
func (f *formPortal) open(ctx context.Context, method, address string, values url.Values) (*url.URL, string, error) {
	for range maxSplashPages {
		sent := ""
		fields := []field{{"Accept", "text/html, application/captive+json"}}
		if method == http.MethodPost {
			sent = values.Encode()
			fields = append(fields, field{"Content-Type", "application/x-www-form-urlencoded"}, field{"Origin", originOf(address)})
		}
		page, err := f.fetch(ctx, method, address, sent, fields...)
		if err != nil {
			return nil, "", err
		}
		if page.status >= http.StatusInternalServerError { // no page of the way in
			return nil, "", fmt.Errorf("asking for %s: %s", shorten(page.url), page.text())
		}
		to, nowhere := page.location()
		if page.status < 300 || page.status >= 400 || nowhere != nil || to.Host != f.adm.Portal {
			return page.url, page.body, nil
		}
		method, address, values = http.MethodGet, to.String(), nil
	}
	return nil, "", fmt.Errorf("still redirected after %d pages", maxSplashPages)
}

// originOf is what browsers say a form comes from: the portal's pages send theirs
// to the portal.
func originOf(address string) string {
	if u, err := url.Parse(address); err == nil {
		return u.Scheme + "://" + u.Host
	}
	return "null"
}

// form is a form of a page: what it sends, where, and what kinds of input it has.
type form struct {
	method string
	action *url.URL
	values url.Values
	kinds  map[string]string // type by name, lower case
}

// parseForm finds the first form of a page that has an input of the kind; an
// empty kind takes any form. The error wraps errNoForm when there is none.
func parseForm(page *url.URL, body, kind string) (form, error) {
	for head, content := range forms(body) {
		tag := attributes(head)
		f := form{method: strings.ToUpper(tag["method"]), values: url.Values{}, kinds: map[string]string{}}
		found := kind == ""
		for input := range inputs(content) {
			a := attributes(input)
			if a["name"] == "" {
				continue
			}
			f.values.Set(a["name"], a["value"])
			f.kinds[a["name"]] = strings.ToLower(a["type"])
			found = found || f.kinds[a["name"]] == kind
		}
		if !found {
			continue
		}
		to, err := page.Parse(tag["action"])
		if err != nil {
			return form{}, fmt.Errorf("the form's action %q: %w", tag["action"], err)
		}
		f.action = to
		return f, nil
	}
	return form{}, noForm(body)
}

var _ portal = (*formPortal)(nil)
