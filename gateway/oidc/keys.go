// A provider's keys, and what packages of others say of its answers.

package oidc

import (
	"context"
	"errors"
	"fmt"
	"slices"

	gooidc "github.com/coreos/go-oidc/v3/oidc"

	"github.com/gateweigh/gateweigh/gateway/session"
)

// keys are a provider's keys, which are asked for when a token has one that is not known. They say why they do not know
// one by a context's fault: the verifier turns errors into text.
type keys struct{ gooidc.KeySet }

// fault is where keys put their error, as the value of a context with the key faultKey.
type (
	fault    struct{ err error }
	faultKey struct{}
)

// VerifySignature implements gooidc.KeySet.
func (k keys) VerifySignature(ctx context.Context, token string) ([]byte, error) {
	payload, err := k.KeySet.VerifySignature(ctx, token)
	if f, _ := ctx.Value(faultKey{}).(*fault); f != nil {
		f.err = err
	}
	return payload, err
}

// idToken checks an ID token, all but its times (OpenID Connect Core 1.0, 3.1.3.7).
func (m *metadata) idToken(ctx context.Context, raw string) (*gooidc.IDToken, error) {
	var f fault
	token, err := m.verifier.Verify(context.WithValue(ctx, faultKey{}, &f), raw)
	if err == nil {
		return token, nil
	}
	if f.err != nil {
		if err := asking("for its keys", f.err); errors.Is(err, ErrAway) {
			return nil, err
		}
	}
	return nil, fmt.Errorf("checking the ID token: %w", foreign{err})
}

// signing are those of a provider's algorithms by which it alone can sign. None: only RS256 is taken.
func signing(all []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(a string) bool {
		return !slices.Contains([]string{gooidc.RS256, gooidc.RS384, gooidc.RS512, gooidc.ES256, gooidc.ES384, gooidc.ES512,
			gooidc.PS256, gooidc.PS384, gooidc.PS512, gooidc.EdDSA}, a)
	})
}

// foreign is an error of another package, whose text may have a provider's whole answer: as one short printable line.
type foreign struct{ error }

func (f foreign) Error() string { return session.ForUser(f.error.Error()) }
func (f foreign) Unwrap() error { return f.error }
