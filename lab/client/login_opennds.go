package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
)

// openNDSPortal logs in as a person with a phone does: the phone's probe is
// redirected to a splash page, whose form is submitted, page after page, until
// the portal shows no further form or sends the client back where it came from.
// It follows whatever click-through sequence the portal serves.
type openNDSPortal struct {
	http   *http.Client
	portal string // "192.168.137.254:2050"
	probe  string // URL outside, port 80
}

// maxSplashPages bounds the click-through; openNDS's own sequence has three.
const maxSplashPages = 6

// maxPage bounds what is read of one answer of a portal, bytes.
const maxPage = 1 << 20

// userAgent resembles a captive-portal probe; openNDS's scripts log it.
const userAgent = "CaptiveNetworkSupport gateweigh"

func (o *openNDSPortal) login(ctx context.Context) error {
	next := o.probe
	for range maxSplashPages {
		resp, body, err := o.get(ctx, next, "")
		if err != nil {
			return err
		}
		if resp.StatusCode == http.StatusNetworkAuthenticationRequired && next == o.probe {
			return errors.Join(errHalfOpen, o.logout(ctx))
		}
		next, err = o.follow(resp, body)
		if err != nil {
			return fmt.Errorf("after %s: %w", shorten(resp.Request.URL), err)
		}
		if next == "" {
			return nil
		}
	}
	return fmt.Errorf("still asked to click after %d pages", maxSplashPages)
}

// errHalfOpen says that openNDS has a session for the client while its rules
// still catch the client's traffic, as after a lost firewall command. Only a
// new session repairs that.
var errHalfOpen = errors.New("the portal has a session but catches the client's traffic; ending the session")

// follow says which URL a person would go to next: a redirect into the portal
// or the first form. The empty string is the end of the sequence.
func (o *openNDSPortal) follow(resp *http.Response, body string) (string, error) {
	switch {
	case resp.StatusCode >= 300 && resp.StatusCode < 400:
		to, err := resp.Location()
		if err != nil {
			return "", fmt.Errorf("redirect without a destination: %w", err)
		}
		// A redirect to anywhere else is the way back to what the client first
		// asked for: the portal lets it go.
		if to.Host != o.portal {
			return "", nil
		}
		return to.String(), nil
	case resp.StatusCode != http.StatusOK:
		return "", fmt.Errorf("the portal answered %s", resp.Status)
	}
	form, err := firstForm(resp.Request.URL, body)
	if errors.Is(err, errNoForm) && resp.Request.URL.Host == o.portal {
		return "", nil
	}
	return form, err
}

// status asks the captive portal API (RFC 8908), which openNDS answers at its
// own address without running a page script, and then makes sure that the
// probe is not caught any more: openNDS counts a client as admitted also when
// one of its firewall commands failed.
func (o *openNDSPortal) status(ctx context.Context) (bool, error) {
	const captiveJSON = "application/captive+json"
	resp, body, err := o.get(ctx, "http://"+o.portal+"/", captiveJSON)
	if err != nil {
		return false, err
	}
	if resp.StatusCode != http.StatusOK {
		return false, fmt.Errorf("the captive portal API answered %s", resp.Status)
	}
	captive, err := parseCaptive(body)
	if captive || err != nil {
		return false, err
	}
	resp, _, err = o.get(ctx, o.probe, "")
	if err != nil {
		// Nothing need listen there: a refusal comes from outside, the portal
		// would have answered.
		return ctx.Err() == nil, ctx.Err()
	}
	return resp.StatusCode != http.StatusNetworkAuthenticationRequired && !o.redirectsHome(resp), nil
}

// redirectsHome reports whether an answer sends the client to the portal.
func (o *openNDSPortal) redirectsHome(resp *http.Response) bool {
	to, err := resp.Location()
	return err == nil && to.Host == o.portal
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
	resp, _, err := o.get(ctx, "http://"+o.portal+"/opennds_deny/", "")
	if err != nil {
		return err
	}
	// A client without a session is told to log in (511, RFC 6585).
	if resp.StatusCode >= 400 && resp.StatusCode != http.StatusNetworkAuthenticationRequired {
		return fmt.Errorf("the portal answered %s", resp.Status)
	}
	return nil
}

// get asks for a page and reads it. The Accept header is sent even when empty:
// openNDS drops requests without one.
func (o *openNDSPortal) get(ctx context.Context, address, accept string) (*http.Response, string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, "", fmt.Errorf("asking for %q: %w", address, err)
	}
	if accept == "" {
		accept = "text/html"
	}
	req.Header.Set("Accept", accept)
	req.Header.Set("User-Agent", userAgent)
	resp, err := o.http.Do(req)
	if err != nil {
		return nil, "", fmt.Errorf("asking for %s: %w", shorten(req.URL), errors.Unwrap(err))
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxPage))
	if err != nil {
		return nil, "", fmt.Errorf("reading %s: %w", shorten(req.URL), err)
	}
	return resp, string(body), nil
}

// shorten names a URL in an error without its query, which openNDS fills with
// a kilobyte of base64.
func shorten(u *url.URL) string { return u.Scheme + "://" + u.Host + u.Path }

// errNoForm says that a page asks nothing of its reader.
var errNoForm = errors.New("no form to submit")

var (
	formPattern      = regexp.MustCompile(`(?is)<form\b([^>]*)>(.*?)</form>`)
	inputPattern     = regexp.MustCompile(`(?is)<input\b([^>]*)>`)
	attributePattern = regexp.MustCompile(`(?is)([a-z-]+)\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'>]+))`)
)

// firstForm returns the URL that submitting the page's first form with an
// action asks for, by method GET as openNDS's forms are. A form without an
// action is a button with a script behind it and asks nothing. The error wraps
// errNoForm when there is none.
func firstForm(page *url.URL, body string) (string, error) {
	for _, form := range formPattern.FindAllStringSubmatch(body, -1) {
		action, ok := attributes(form[1])["action"]
		if !ok {
			continue
		}
		to, err := page.Parse(action)
		if err != nil {
			return "", fmt.Errorf("the form's action %q: %w", action, err)
		}
		// In the page's order, as browsers send it: openNDS's scripts want fas first.
		var query []string
		for _, input := range inputPattern.FindAllStringSubmatch(form[2], -1) {
			if a := attributes(input[1]); a["name"] != "" {
				query = append(query, url.QueryEscape(a["name"])+"="+url.QueryEscape(a["value"]))
			}
		}
		to.RawQuery = strings.Join(query, "&")
		return to.String(), nil
	}
	return "", fmt.Errorf("%.60q: %w", strings.Join(strings.Fields(body), " "), errNoForm)
}

// attributes reads the attributes of one HTML tag; names are lower case.
func attributes(tag string) map[string]string {
	found := map[string]string{}
	for _, m := range attributePattern.FindAllStringSubmatch(tag, -1) {
		found[strings.ToLower(m[1])] = html.UnescapeString(m[2] + m[3] + m[4])
	}
	return found
}

var _ portal = (*openNDSPortal)(nil)
