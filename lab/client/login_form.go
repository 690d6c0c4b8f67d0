package client

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// formPortal logs in as a person with a browser does: the probe is redirected to
// a page with a form, which is filled in and sent by the method it names. Status
// is what the captive portal API (RFC 8908) says; logging out is the form of the
// status page that a redirect after login leads to.
type formPortal struct {
	visit
	loggedIn string // page the login led to: it has the form to log out
}

const acceptForm = "text/html, application/captive+json"

// login follows the portal from the probe to the page after the login form.
func (f *formPortal) login(ctx context.Context) error {
	page, err := f.open(ctx, http.MethodGet, f.adm.Probe, "", acceptForm)
	if err != nil {
		return err
	}
	if page.url.Host != f.adm.Portal {
		return nil // not redirected: Login asks for the status next
	}
	asks := func(f form) bool { return f.has("password") }
	form, err := findForm(page.url, page.body, asks)
	if err != nil {
		return fmt.Errorf("the login page %s: %w", shorten(page.url), err)
	}
	for i, in := range form.inputs {
		switch in.kind {
		case "password":
			form.inputs[i].value = f.adm.Password
		case "text", "email", "":
			form.inputs[i].value = f.user()
		}
	}
	if page, err = f.submit(ctx, page.url, form); err != nil {
		return err
	}
	// Reading a page's forms is a tenth of what a log-in costs, and the usual page after it
	// does not name a password.
	if strings.Contains(strings.ToLower(page.body), "password") {
		if _, err := findForm(page.url, page.body, asks); err == nil {
			return fmt.Errorf("asked for the password again at %s: %w", shorten(page.url), errRefused)
		}
	}
	f.loggedIn = page.url.String()
	return nil
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

// logout sends the form of the status page.
func (f *formPortal) logout(ctx context.Context) error {
	if in, err := f.status(ctx); err != nil || !in {
		return err
	}
	at := cmp.Or(f.loggedIn, "http://"+f.adm.Portal+"/status")
	page, err := f.open(ctx, http.MethodGet, at, "", acceptForm)
	if err != nil {
		return err
	}
	form, err := findForm(page.url, page.body, func(form) bool { return true })
	if err != nil {
		return fmt.Errorf("the status page %s: %w", shorten(page.url), err)
	}
	_, err = f.submit(ctx, page.url, form)
	return err
}

// submit sends a form of a page as browsers do, and returns the page it led to.
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
