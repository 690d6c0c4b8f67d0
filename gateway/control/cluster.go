package control

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"time"

	"github.com/gateweigh/gateweigh/gateway/session"
)

// Cluster is what is in a store that several gateways share. Its functions ask the store.
type Cluster struct {
	// Members lists the gateways that use it, by name.
	Members func(context.Context) ([]Member, error)
	// Sessions calls visit with the clients of all gateways, in no order, until visit fails. One whose record cannot be
	// read has an address alone.
	Sessions func(ctx context.Context, visit func(ClusterClient) error) error
	// Forget deletes a gateway that is away, and what the store has of it.
	Forget func(ctx context.Context, gateway string) error
}

// ClusterClient is a client as the store has it.
type ClusterClient struct {
	Gateway, Network string // that has it
	Client           session.Session
	Away             bool      // its gateway is
	AsOf             time.Time // now, or when that gateway said last that it is there
}

// ClusterSession is a client of one of several gateways.
type ClusterSession struct {
	Gateway string    `json:"gateway"` // that has it
	Away    bool      `json:"away"`    // the gateway is: the client was so when that was there
	AsOf    time.Time `json:"as_of"`   // when the client was so
	Session
}

// Unreadable is the state of a client whose record cannot be read.
const Unreadable State = "unreadable"

// ErrNoStore means that the daemon shares no store.
var ErrNoStore = errors.New(`this gateway shares no store with others: store.kind is "file"`)

// members answers with the gateways that use the store.
func (s *server) members(w http.ResponseWriter, r *http.Request) {
	if s.Cluster == nil {
		fail(w, http.StatusNotFound, ErrNoStore)
		return
	}
	all, err := s.Cluster.Members(r.Context())
	if err != nil {
		fail(w, http.StatusServiceUnavailable, err)
		return
	}
	reply(w, http.StatusOK, all)
}

// clusterSessions sends the clients of all gateways, one a line. If it cannot send all, it closes the connection
// without the end of the chunked body.
func (s *server) clusterSessions(w http.ResponseWriter, r *http.Request) {
	if s.Cluster == nil {
		fail(w, http.StatusNotFound, ErrNoStore)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), listTimeout)
	defer cancel()
	user, sent := r.URL.Query().Get("user"), false
	encoder, deadline := json.NewEncoder(w), http.NewResponseController(w)
	err := s.Cluster.Sessions(ctx, func(c ClusterClient) error {
		if user != "" && !session.SameUser(user, c.Client.User) {
			return nil
		}
		if !sent {
			w.Header().Set("Content-Type", "application/x-ndjson")
			sent = true
		}
		shown := ClusterSession{c.Gateway, c.Away, c.AsOf, asShownAt(c.Client.At(c.AsOf), c.Network, c.AsOf)}
		if c.Client.State == "" {
			shown.State = Unreadable
		}
		deadline.SetWriteDeadline(time.Now().Add(s.stallAfter))
		return encoder.Encode(shown)
	})
	switch {
	case err != nil && sent:
		panic(http.ErrAbortHandler)
	case err != nil:
		fail(w, http.StatusServiceUnavailable, err)
	}
}

// ForgetGatewayRequest names a gateway to forget.
type ForgetGatewayRequest struct {
	Gateway string `json:"gateway"`
}

// forgetGateway forgets a gateway that is away.
func (s *server) forgetGateway(w http.ResponseWriter, r *http.Request) {
	if s.Cluster == nil {
		fail(w, http.StatusNotFound, ErrNoStore)
		return
	}
	var req ForgetGatewayRequest
	if err := readRequest(http.MaxBytesReader(w, r.Body, maxBodyBytes), &req); err != nil {
		fail(w, http.StatusBadRequest, err)
		return
	}
	if err := s.Cluster.Forget(r.Context(), req.Gateway); err != nil {
		fail(w, http.StatusConflict, err)
		return
	}
	reply(w, http.StatusOK, struct{}{})
}

// ForgetGateway has a gateway that is away forgotten, with what the store has of it.
func (c *Client) ForgetGateway(ctx context.Context, gateway string) error {
	return c.call(ctx, answerTimeout, http.MethodPost, "/v1/cluster/forget", ForgetGatewayRequest{gateway}, &struct{}{})
}

// Members lists the gateways that use the store, by name.
func (c *Client) Members(ctx context.Context) (all []Member, err error) {
	return all, c.call(ctx, answerTimeout, http.MethodGet, "/v1/cluster", nil, &all)
}

// ClusterSessions calls yield with the clients of all gateways, or a user's, in no order. It returns an error if the
// list is incomplete, or yield's first error.
func (c *Client) ClusterSessions(ctx context.Context, user string, yield func(ClusterSession) error) error {
	return listed(ctx, c, "/v1/cluster/sessions?"+url.Values{"user": {user}}.Encode(), yield)
}
