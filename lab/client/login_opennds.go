package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// openNDSPortal logs in as a person with a phone does: the phone's probe is
// redirected to a splash page, whose form is submitted, page after page, until
// the portal shows no further form or sends the client back where it came from.
// It follows whatever click-through sequence the portal serves.
type openNDSPortal struct{ portalClient }

func (o *openNDSPortal) login(ctx context.Context) error {
	next := o.adm.Probe
	for range maxSplashPages {
		page, err := o.open(ctx, http.MethodGet, next, "", "text/html")
		if err != nil {
			return err
		}
		inside := page.url.Host == o.adm.Portal
		if page.status == http.StatusNetworkAuthenticationRequired && !inside {
			return errors.Join(errHalfOpen, o.logout(ctx))
		}
		if page.redirects() { // back to what the client first asked for: the portal lets it go
			_, err := page.location()
			return err
		}
		if page.status != http.StatusOK {
			return fmt.Errorf("after %s: the portal answered %s", withoutQuery(page.url), page.text())
		}
		if next, err = firstForm(page.url, page.body); errors.Is(err, errNoForm) && inside {
			return nil
		} else if err != nil {
			return fmt.Errorf("after %s: %w", withoutQuery(page.url), err)
		}
	}
	return fmt.Errorf("still asked to click after %d pages", maxSplashPages)
}

// errHalfOpen says that openNDS has a session for the client while its rules
// still catch the client's traffic, as after a lost firewall command. Only a
// new session repairs that.
var errHalfOpen = errors.New("the portal has a session but catches the client's traffic; ending the session")

// status asks the captive portal API (RFC 8908), which openNDS answers at its
// own address without running a page script, and then makes sure that the
// probe is not caught any more: openNDS counts a client as admitted also when
// one of its firewall commands failed.
func (o *openNDSPortal) status(ctx context.Context) (bool, error) {
	state, err := o.get(ctx, "http://"+o.adm.Portal+"/", "application/captive+json")
	if err != nil {
		return false, err
	}
	if state.status != http.StatusOK {
		return false, fmt.Errorf("the captive portal API answered %s", state.text())
	}
	captive, err := parseCaptive(state.body)
	if captive || err != nil {
		return false, err
	}
	probe, err := o.get(ctx, o.adm.Probe, "text/html")
	if err != nil {
		// Nothing need listen there: a refusal comes from outside, the portal
		// would have answered.
		return ctx.Err() == nil, ctx.Err()
	}
	to, err := probe.location()
	caught := err == nil && to.Host == o.adm.Portal
	return probe.status != http.StatusNetworkAuthenticationRequired && !caught, nil
}

// parseCaptive reads the "captive" key of an RFC 8908 answer, section 5.
func parseCaptive(body string) (bool, error) {
	var state struct {
		Captive *bool `json:"captive"`
	}
	if err := json.Unmarshal([]byte(body), &state); err != nil || state.Captive == nil {
		return false, fmt.Errorf("the captive portal API answered %.80q, want RFC 8908 JSON", body)
	}
	return *state.Captive, nil
}

// logout follows the link of the portal's status page.
func (o *openNDSPortal) logout(ctx context.Context) error {
	page, err := o.get(ctx, "http://"+o.adm.Portal+"/opennds_deny/", "text/html")
	if err != nil {
		return err
	}
	// A client without a session gets status 511 (RFC 6585).
	if page.status >= 400 && page.status != http.StatusNetworkAuthenticationRequired {
		return fmt.Errorf("the portal answered %s", page.text())
	}
	return nil
}

// firstForm returns the URL that submitting the page's first form with an
// action asks for, by method GET as openNDS's forms are. A form without an
// action is a button with a script behind it and asks nothing. The error wraps
// errNoForm when there is none.
func firstForm(page *url.URL, body string) (string, error) {
	form, err := findForm(page, body, func(f form) bool { return f.action != nil })
	if err != nil {
		return "", err
	}
	// In the page's order, as browsers send it: openNDS's scripts want fas first.
	query := make([]string, len(form.inputs))
	for i, in := range form.inputs {
		query[i] = url.QueryEscape(in.name) + "=" + url.QueryEscape(in.value)
	}
	form.action.RawQuery = strings.Join(query, "&")
	return form.action.String(), nil
}
