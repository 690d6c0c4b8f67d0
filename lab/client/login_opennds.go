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

// openNDSPortal logs in as a person with a phone does. The portal redirects the phone's probe to a splash page. The
// client submits the form of that page and of each further page, until the portal shows no form any more or redirects
// the client to what it first asked for. So it can follow any sequence of pages.
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
		if page.redirects() { // out of the portal, back to what the client first asked for
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

// errHalfOpen is the error where openNDS has a session for the client while its firewall rules still redirect the
// client's traffic, as after one of its firewall commands failed. Only a new session repairs that.
var errHalfOpen = errors.New("the portal has a session but catches the client's traffic; ending the session")

// status asks the captive portal API (RFC 8908), which openNDS answers without running a script. openNDS counts a
// client as admitted even when one of its firewall commands failed. So status then sends the probe, to see whether the
// portal still redirects it.
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
		// The portal would have answered. So the probe has passed it, and it does not matter that nothing listens there.
		return ctx.Err() == nil, ctx.Err()
	}
	to, err := probe.location()
	redirected := err == nil && to.Host == o.adm.Portal
	return probe.status != http.StatusNetworkAuthenticationRequired && !redirected, nil
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

// logout requests the page to which the link "log out" of the portal's status page leads.
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

// firstForm returns the URL that a browser requests when it submits the page's first form with an action. openNDS's
// forms have the method GET. A form without an action is only a button that runs a script, so it is skipped. The error
// wraps errNoForm when there is no form.
func firstForm(page *url.URL, body string) (string, error) {
	form, err := findForm(page, body, func(f form) bool { return f.action != nil })
	if err != nil {
		return "", err
	}
	// Browsers send the fields in the page's order, and openNDS's scripts expect the field fas first.
	query := make([]string, len(form.inputs))
	for i, in := range form.inputs {
		query[i] = url.QueryEscape(in.name) + "=" + url.QueryEscape(in.value)
	}
	form.action.RawQuery = strings.Join(query, "&")
	return form.action.String(), nil
}
