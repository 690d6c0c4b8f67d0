// What a provider says of itself, and the way to it.

package oidc

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	gooidc "github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/gateweigh/gateweigh/textfile"

	"github.com/gateweigh/gateweigh/gateway/session"
)

const (
	// askTime bounds what a client waits for of a provider.
	askTime = 15 * time.Second
	// maxAnswer bounds a provider's answer, bytes.
	maxAnswer = 1 << 20
	// metadataAge is how long metadata is used before it is asked for again.
	metadataAge = 24 * time.Hour
	// A provider that did not answer is asked again after retryFirst, then after twice as long and so on.
	retryFirst, retryMost = 5 * time.Second, 5 * time.Minute
)

// provider is one provider, with what it says of itself.
type provider struct {
	cfg      Provider
	visitors Visitors
	client   *http.Client
	log      *slog.Logger
	asking   chan struct{} // with space for one: who asks for the metadata

	mu    sync.Mutex
	known *metadata // guarded by mu: nil: not asked yet
	state State     // guarded by mu
}

// State is how a provider answers.
type State struct {
	Name, Issuer string
	Asked        bool
	Trouble      string // why its last answer was none, or none that can be used; "": it was good, or it was not asked yet
}

// note notes whether the provider has answered as it should.
func (p *provider) note(err error) {
	if errors.Is(err, context.Canceled) { // the client went away, or the gateway ends
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state.Asked, p.state.Trouble = true, ""
	if err != nil {
		p.state.Trouble = session.ForUser(err.Error())
	}
}

// States are how the providers answer, in the configuration's order.
func (d *Desk) States() (all []State) {
	for _, p := range d.providers {
		p.mu.Lock()
		s := p.state
		p.mu.Unlock()
		s.Name, s.Issuer = p.cfg.Name, p.cfg.Issuer
		all = append(all, s)
	}
	return all
}

// metadata is what a provider says of itself (OpenID Connect Discovery 1.0, 3).
type metadata struct {
	provider *gooidc.Provider
	oauth    oauth2.Config
	login    Host // of the authorization endpoint
	verifier *gooidc.IDTokenVerifier
	said
}

// said are the metadata that go-oidc does not read.
type said struct {
	Issuer      string   `json:"issuer"`
	AuthMethods []string `json:"token_endpoint_auth_methods_supported"`
	SendsIssuer bool     `json:"authorization_response_iss_parameter_supported"` // RFC 9207, 3
	Challenges  []string `json:"code_challenge_methods_supported"`               // RFC 8414, 2
	Keys        string   `json:"jwks_uri"`
	Algorithms  []string `json:"id_token_signing_alg_values_supported"`
}

func newProvider(c Provider, visitors Visitors, log *slog.Logger) (*provider, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	transport.MaxConnsPerHost = 16
	if c.CAFile != "" {
		pem, err := textfile.Read(c.CAFile, maxAnswer)
		if err != nil {
			return nil, fmt.Errorf("reading the certificate authority: %w", err)
		}
		transport.TLSClientConfig.RootCAs = x509.NewCertPool()
		if !transport.TLSClientConfig.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s has no certificate in PEM", c.CAFile)
		}
	}
	client := &http.Client{Transport: bounded{transport}, Timeout: askTime,
		CheckRedirect: func(r *http.Request, _ []*http.Request) error {
			return fmt.Errorf("a redirection to %s is not followed: give the issuer as the provider writes it", r.URL.Host)
		}}
	return &provider{cfg: c, visitors: visitors, client: client, log: log.With("provider", c.Name),
		asking: make(chan struct{}, 1)}, nil
}

// bounded reads no more than maxAnswer of an answer. An error of the server (RFC 9110, 15.6) is as no answer.
type bounded struct{ http.RoundTripper }

func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := b.RoundTripper.RoundTrip(r)
	if err == nil && answer.StatusCode >= http.StatusInternalServerError {
		answer.Body.Close()
		return nil, fmt.Errorf("the server answers %d", answer.StatusCode)
	}
	if err == nil {
		answer.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(answer.Body, maxAnswer), answer.Body}
	}
	return answer, err
}

// ctx is a context by which go-oidc and oauth2 use this provider's client.
func (p *provider) ctx(ctx context.Context) context.Context {
	return gooidc.ClientContext(ctx, p.client)
}

// metadata returns what the provider says of itself, which is asked for if it is not known.
func (p *provider) metadata(ctx context.Context) (*metadata, error) {
	p.mu.Lock()
	known := p.known
	p.mu.Unlock()
	if known != nil {
		return known, nil
	}
	select {
	case p.asking <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("asking %s: %w", p.cfg.Issuer, ctx.Err())
	}
	defer func() { <-p.asking }()
	p.mu.Lock()
	known = p.known
	p.mu.Unlock()
	if known != nil {
		return known, nil
	}
	return p.ask(ctx)
}

// ask asks for the metadata, and notes how the provider answered.
func (p *provider) ask(ctx context.Context) (*metadata, error) {
	m, err := p.read(ctx)
	p.note(err)
	return m, err
}

// read reads the metadata.
func (p *provider) read(ctx context.Context) (*metadata, error) {
	found, err := gooidc.NewProvider(p.ctx(ctx), p.cfg.Issuer)
	if err != nil {
		return nil, fmt.Errorf("asking %s: %w", p.cfg.Issuer, foreign{err})
	}
	m := &metadata{provider: found}
	if err := found.Claims(&m.said); err != nil {
		return nil, fmt.Errorf("reading what %s says of itself: %w", p.cfg.Issuer, foreign{err})
	}
	endpoint := found.Endpoint()
	for _, at := range []struct{ key, url string }{{"authorization_endpoint", endpoint.AuthURL},
		{"token_endpoint", endpoint.TokenURL}, {"jwks_uri", m.Keys}, {"userinfo_endpoint", found.UserInfoEndpoint()}} {
		u, err := url.Parse(at.url)
		if at.key == "userinfo_endpoint" && at.url == "" { // it may be missing (OpenID Connect Discovery 1.0, 3)
			continue
		}
		if err != nil || u.Scheme != "https" || u.Hostname() == "" {
			return nil, fmt.Errorf("%s has the %s %q, which is no https URL", p.cfg.Issuer, at.key, session.ForUser(at.url))
		}
		if at.key == "authorization_endpoint" {
			m.login = hostOf(u)
		}
	}
	if len(m.Challenges) > 0 && !slices.Contains(m.Challenges, "S256") {
		return nil, fmt.Errorf("%s does not know PKCE's S256", p.cfg.Issuer)
	}
	endpoint.AuthStyle = p.authStyle(m.AuthMethods)
	m.oauth = oauth2.Config{ClientID: p.cfg.ClientID, ClientSecret: p.cfg.ClientSecret, Endpoint: endpoint,
		RedirectURL: p.cfg.RedirectURL, Scopes: append([]string{gooidc.ScopeOpenID}, p.cfg.Scopes...)}
	// The times are judged by checkTimes, so that the error can say which clock is wrong.
	m.verifier = gooidc.NewVerifier(p.cfg.Issuer, keys{gooidc.NewRemoteKeySet(p.ctx(ctx), m.Keys)},
		&gooidc.Config{ClientID: p.cfg.ClientID, SkipExpiryCheck: true, SupportedSigningAlgs: signing(m.Algorithms)})
	p.visitors.Watch(p.hosts(m))
	p.mu.Lock()
	p.known = m
	p.mu.Unlock()
	return m, nil
}

// hostOf is the host of a URL of https as questions to the DNS have it.
func hostOf(u *url.URL) Host {
	port := uint16(httpsPort)
	if n, err := strconv.ParseUint(u.Port(), 10, 16); err == nil {
		port = uint16(n)
	}
	return Host{strings.TrimSuffix(strings.ToLower(u.Hostname()), "."), port}
}

// authStyle is how the gateway proves who it is: by HTTP Basic, which is the default (OpenID Connect Discovery 1.0, 3),
// unless the provider knows client_secret_post alone. A public client only says its name, in the body.
func (p *provider) authStyle(methods []string) oauth2.AuthStyle {
	if p.cfg.ClientSecret == "" || len(methods) > 0 && !slices.Contains(methods, "client_secret_basic") &&
		slices.Contains(methods, "client_secret_post") {
		return oauth2.AuthStyleInParams
	}
	return oauth2.AuthStyleInHeader
}

// follow asks for the metadata at the start and again when they are old, until ctx ends.
func (p *provider) follow(ctx context.Context) {
	wait := time.Duration(0)
	pause := retryFirst
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		select {
		case <-ctx.Done():
			return
		case p.asking <- struct{}{}:
		}
		limited, cancel := context.WithTimeout(ctx, askTime)
		_, err := p.ask(limited)
		cancel()
		<-p.asking
		switch {
		case err == nil:
			wait, pause = metadataAge, retryFirst
			p.log.Info("the provider's metadata are known", "issuer", p.cfg.Issuer, "redirect_uri", p.cfg.RedirectURL)
		case errors.Is(err, context.Canceled) && ctx.Err() != nil:
			return
		default:
			p.mu.Lock()
			known := p.known != nil
			p.mu.Unlock()
			if text := "the provider does not answer: nobody can log in by it for now"; pause == retryFirst {
				if known {
					text = "the provider does not say anew what its addresses are: those that it said before are used"
				}
				p.log.Warn(text, "err", err)
			}
			wait, pause = pause, min(2*pause, retryMost)
		}
	}
}

// httpsPort is that of https URLs without one.
const httpsPort = 443

// hosts are what a browser needs of the provider: the login page, which comes first, and what the operator lists.
func (p *provider) hosts(m *metadata) []Host {
	return append([]Host{m.login}, p.garden(m.login.Port)...)
}

// garden are the hosts that the operator lists, at the login page's port and at that of https.
func (p *provider) garden(port uint16) (all []Host) {
	for _, name := range p.cfg.Garden {
		all = append(all, Host{name, port})
		if port != httpsPort {
			all = append(all, Host{name, httpsPort})
		}
	}
	return all
}

// loginURL is the provider's page for a login.
func (p *provider) loginURL(m *metadata, l *login) string {
	return m.oauth.AuthCodeURL(l.state, gooidc.Nonce(l.nonce), oauth2.S256ChallengeOption(l.verifier))
}
