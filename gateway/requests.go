// Requests of RADIUS servers (RFC 5176) about sessions that another gateway has.

package gateway

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/gateweigh/gateweigh/gateway/cluster"
	"github.com/gateweigh/gateweigh/gateway/radius"
)

// requestTopic is what gateways ask each other about servers' requests for a network.
func (g *gateway) requestTopic() string { return "requests " + sessionKind(g.cfg.Name) }

// answerRequests has requests carried out that other gateways pass on, until close is called, which closes the port of
// servers' requests too.
func (g *gateway) answerRequests() (close func() error) {
	if g.store.Store == nil {
		return g.dynamic.Close
	}
	g.store.Answer(g.requestTopic(), func(_ context.Context, _ string, request []byte) ([]byte, error) {
		return g.dynamic.CarryOut(request)
	})
	return func() error { g.store.Answer(g.requestTopic(), nil); return g.dynamic.Close() }
}

// otherGateways passes servers' requests on; nil: there are no other gateways.
func (g *gateway) otherGateways() radius.Others {
	if g.store.Store == nil {
		return nil
	}
	return g.passRequest
}

// passRequest asks all other gateways that have the network to carry a request out. One that has the session does, and
// passes it on to nobody. The error is radius.ErrNotThere where none has the session, and otherwise why the one that
// may have it could not be asked.
func (g *gateway) passRequest(ctx context.Context, request []byte) ([]byte, error) {
	all, err := g.store.Members(ctx)
	if err != nil {
		return nil, err
	}
	kind := sessionKind(g.cfg.Name)
	all = slices.DeleteFunc(all, func(m cluster.Member) bool {
		return m.Name == g.store.Gateway || !slices.Contains(m.Kinds, kind)
	})
	var mu sync.Mutex // guards answers and failed
	var answers [][]byte
	var failed error
	var asking sync.WaitGroup
	for _, m := range all {
		asking.Go(func() {
			answer, err := g.askToCarryOut(ctx, m, request)
			mu.Lock()
			defer mu.Unlock()
			if failed = errors.Join(failed, err); answer != nil {
				answers = append(answers, answer)
			}
		})
	}
	asking.Wait()
	for _, wanted := range []func(done, unknown bool) bool{
		func(done, _ bool) bool { return done }, func(_, unknown bool) bool { return !unknown },
	} {
		if i := slices.IndexFunc(answers, func(a []byte) bool { return wanted(radius.CarriedOut(a)) }); i >= 0 {
			return answers[i], nil
		}
	}
	if failed != nil {
		return nil, failed
	}
	return nil, radius.ErrNotThere
}

// askToCarryOut asks a gateway to carry a request out. Nil: it is away, and had no such session. The error says that it
// has or may have it, and cannot be asked.
func (g *gateway) askToCarryOut(ctx context.Context, m cluster.Member, request []byte) ([]byte, error) {
	if m.There {
		return g.store.Ask(ctx, m.Name, g.requestTopic(), request)
	}
	return nil, g.store.Each(ctx, sessionKind(g.cfg.Name), m.Name, func(key string, r cluster.Record) error {
		if r.Owner == m.Name && g.dynamic.Names(request, sessionOf(key, r.Content)) {
			return fmt.Errorf("%s has it: %w", m.Name, cluster.ErrAway)
		}
		return nil
	})
}
