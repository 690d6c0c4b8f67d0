// From a code to a user's claims, and from these to a login.

package oidc

import (
	"bytes"
	"cmp"
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	gooidc "github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/gateweigh/gateweigh/gateway/session"
)

// mostSkew is how far this machine's clock may be from the provider's.
const mostSkew = 5 * time.Minute

// leeway is how long after its end a token is still good.
const leeway = time.Minute

// claims are what a provider says of a user.
type claims map[string]any

// claims asks the provider for the claims of the user whose browser brought an answer.
func (d *Desk) claims(ctx context.Context, p *provider, l *login, c callback) (claims, error) {
	m, err := p.metadata(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrAway, err)
	}
	// RFC 9207, 2.4: an answer of another provider must not reach this one.
	if c.issuer != "" && c.issuer != m.Issuer || c.issuer == "" && m.SendsIssuer {
		return nil, fmt.Errorf("%w: the answer is of the issuer %q, and not of %q", ErrStale, c.issuer, m.Issuer)
	}
	if c.err != "" {
		return nil, refusal(c)
	}
	ctx = p.ctx(ctx)
	tokens, err := m.oauth.Exchange(ctx, c.code, oauth2.VerifierOption(l.verifier))
	if err != nil {
		return nil, asking("for the tokens", err)
	}
	all, err := d.verify(ctx, p, m, l, tokens)
	if err != nil {
		return nil, err
	}
	return all, p.complete(ctx, m, all, oauth2.StaticTokenSource(tokens))
}

// verify checks the ID token (OpenID Connect Core 1.0, 3.1.3.7) and returns its claims.
func (d *Desk) verify(ctx context.Context, p *provider, m *metadata, l *login, tokens *oauth2.Token) (claims, error) {
	raw, ok := tokens.Extra("id_token").(string)
	if !ok {
		return nil, errors.New("the provider gave no ID token: it may not know the scope openid")
	}
	token, err := m.idToken(ctx, raw)
	if err != nil {
		return nil, err
	}
	if err := d.checkTimes(token); err != nil {
		return nil, err
	}
	if subtle.ConstantTimeCompare([]byte(token.Nonce), []byte(l.nonce)) != 1 {
		return nil, errors.New("the ID token has another login's nonce")
	}
	if token.AccessTokenHash != "" {
		if err := token.VerifyAccessToken(tokens.AccessToken); err != nil {
			return nil, fmt.Errorf("checking the access token: %w", foreign{err})
		}
	}
	all := claims{}
	if err := token.Claims(&all); err != nil {
		return nil, fmt.Errorf("reading the ID token: %w", foreign{err})
	}
	if azp, has := all["azp"]; has && azp != p.cfg.ClientID {
		return nil, fmt.Errorf("the ID token was given to %q", azp)
	}
	return all, nil
}

// complete adds the claims that the provider gives at its UserInfo endpoint alone (OpenID Connect Core 1.0, 5.4), where
// the configuration asks for one that the ID token does not have.
func (p *provider) complete(ctx context.Context, m *metadata, all claims, tokens oauth2.TokenSource) error {
	lacks := func(name string) bool { _, has := all[name]; return name != "" && !has }
	c := p.cfg
	byMail := c.UserClaim == "" || c.UserClaim == "email" || len(c.Domains) > 0
	if m.provider.UserInfoEndpoint() == "" || !(byMail && (lacks("email") || lacks("email_verified")) ||
		lacks(c.UserClaim) || lacks(c.RequiredClaim) || lacks(c.ProfileClaim)) {
		return nil
	}
	info, err := m.provider.UserInfo(ctx, tokens)
	if err != nil {
		return asking("for the user's claims", err)
	}
	// 5.3.2: otherwise they may be another user's.
	if info.Subject == "" || info.Subject != all["sub"] {
		return fmt.Errorf("the provider gave the claims of %q for the user %q", info.Subject, all["sub"])
	}
	further := claims{}
	if err := info.Claims(&further); err != nil {
		return fmt.Errorf("reading the user's claims: %w", foreign{err})
	}
	all.add(further)
	return nil
}

// add adds those of further claims that are missing. The e-mail address and whether it is verified are of one source:
// together they are those of the further claims, if they are not both there and the further claims have an address.
func (c claims) add(further claims) {
	_, address := c["email"]
	_, verified := c["email_verified"]
	mail := c
	if _, has := further["email"]; has && !(address && verified) {
		mail = further
	}
	for _, name := range []string{"email", "email_verified"} {
		if v, has := mail[name]; has {
			c[name] = v
		} else {
			delete(c, name)
		}
	}
	for name, v := range further {
		if _, has := c[name]; !has && name != "email" && name != "email_verified" {
			c[name] = v
		}
	}
}

// UnmarshalJSON keeps numbers as they are written: a student's number is no floating-point number.
func (c *claims) UnmarshalJSON(text []byte) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	return d.Decode((*map[string]any)(c))
}

// refusal is the error of an answer that has one.
func refusal(c callback) error {
	err := fmt.Errorf("error %s, %q", c.err, c.description)
	switch c.err {
	case "server_error", "temporarily_unavailable":
		return fmt.Errorf("%w: %w", ErrAway, err)
	case "access_denied", "login_required", "consent_required", "interaction_required", "account_selection_required":
		return fmt.Errorf("%w: %w", ErrDenied, err)
	}
	return fmt.Errorf("the provider refuses the gateway's request: %w", err) // invalid_scope, unauthorized_client …
}

// asking tells errors of the way to a provider, and of its server, from its answers.
func asking(what string, err error) error {
	var answer *oauth2.RetrieveError
	var network *url.Error
	if errors.As(err, &network) || errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%w: asking %s: %w", ErrAway, what, foreign{err})
	}
	// RFC 6749, 5.2; also for another login's code (RFC 7636, 4.6).
	if errors.As(err, &answer) && answer.ErrorCode == "invalid_grant" {
		return fmt.Errorf("%w: the provider does not accept the code: %w", ErrStale, foreign{err})
	}
	return fmt.Errorf("asking the provider %s: %w", what, foreign{err})
}

// checkTimes judges a token's times. The provider has just made it, so that they show a clock that is wrong.
func (d *Desk) checkTimes(t *gooidc.IDToken) error {
	now := d.cfg.Now()
	switch off := now.Sub(t.IssuedAt).Round(time.Second); {
	case off > mostSkew:
		return fmt.Errorf("%w: by this machine's clock the provider made the ID token %s ago, and it has just made it: set "+
			"this machine's clock (%s) by NTP, or the provider's is late", ErrClock, off, now.UTC().Format(time.RFC3339))
	case off < -mostSkew:
		return fmt.Errorf("%w: by this machine's clock the provider will make the ID token in %s, and it has just made it: "+
			"set this machine's clock (%s) by NTP, or the provider's is early", ErrClock, -off, now.UTC().Format(time.RFC3339))
	case !now.Add(-leeway).Before(t.Expiry):
		return fmt.Errorf("the ID token has expired: it was good until %s", t.Expiry.UTC().Format(time.RFC3339))
	}
	return nil
}

// judge makes a login of a user's claims. An error of session.ErrUnfit says why the user may not log in.
func (d *Desk) judge(p Provider, c claims) (session.Login, error) {
	unfit := func(format string, args ...any) (session.Login, error) {
		return session.Login{}, fmt.Errorf("%w: %s", session.ErrUnfit, fmt.Sprintf(format, args...))
	}
	mail, user := c.mail(), c.text(p.UserClaim)
	switch p.UserClaim {
	case "":
		user = cmp.Or(mail, c.text("sub"))
	case "email":
		if user = mail; user == "" {
			return unfit("the e-mail address %q is not verified", c.text("email"))
		}
	}
	if !session.PlausibleUser(user) {
		return unfit("the claim %q names no user: %q", p.UserClaim, user)
	}
	if session.Reserved(user) {
		return unfit("the user %q would count as one of a voucher or a room", user)
	}
	if len(p.Domains) > 0 {
		at := strings.LastIndexByte(mail, '@')
		if at < 0 || !slices.ContainsFunc(p.Domains, func(d string) bool { return strings.EqualFold(d, mail[at+1:]) }) {
			return unfit("the e-mail address %q is not verified, or of none of the domains", c.text("email"))
		}
	}
	if p.RequiredClaim != "" && !slices.ContainsFunc(c.texts(p.RequiredClaim), func(v string) bool {
		return slices.Contains(p.RequiredValues, v)
	}) {
		return unfit("the claim %q is %q", p.RequiredClaim, c.texts(p.RequiredClaim))
	}
	login := session.Login{User: user}
	if name := d.profileOf(p, c); name != "" {
		profile := d.cfg.Profiles[name]
		login.Limits, login.Sessions = profile.Limits, profile.Sessions
	} else if p.ProfileClaim != "" && p.Profile == "" {
		return unfit("the claim %q names no profile: %q", p.ProfileClaim, c.texts(p.ProfileClaim))
	}
	if p.SessionTimeout > 0 {
		login.Limits.SessionTimeout = p.SessionTimeout
	}
	return login, nil
}

// profileOf names the profile of a user: the first that the claim names, or the provider's.
func (d *Desk) profileOf(p Provider, c claims) string {
	if p.ProfileClaim != "" {
		for _, name := range c.texts(p.ProfileClaim) {
			if _, known := d.cfg.Profiles[name]; known {
				return name
			}
		}
	}
	return p.Profile
}

// mail is the e-mail address, if the provider has verified it. Some providers write the boolean as a text.
func (c claims) mail() string {
	if v := c["email_verified"]; v == true || v == "true" {
		return c.text("email")
	}
	return ""
}

// text is a claim of one text or number; "": there is none.
func (c claims) text(name string) string {
	switch v := c[name].(type) {
	case string:
		return v
	case json.Number:
		return v.String()
	}
	return ""
}

// texts are the texts of a claim that is a text or a list.
func (c claims) texts(name string) (all []string) {
	list, ok := c[name].([]any)
	if !ok {
		list = []any{c[name]}
	}
	for _, v := range list {
		if s, ok := v.(string); ok {
			all = append(all, s)
		}
	}
	return all
}
