package control

import (
	"context"
	"errors"
	"net/http"
)

// ErrNoStore means that the daemon shares no store.
var ErrNoStore = errors.New(`this gateway shares no store with others: store.kind is "file"`)

// members answers with the gateways that use the store.
func (s *server) members(w http.ResponseWriter, r *http.Request) {
	if s.Members == nil {
		fail(w, http.StatusNotFound, ErrNoStore)
		return
	}
	all, err := s.Members(r.Context())
	if err != nil {
		fail(w, http.StatusServiceUnavailable, err)
		return
	}
	reply(w, http.StatusOK, all)
}

// Members lists the gateways that use the store, by name.
func (c *Client) Members(ctx context.Context) (all []Member, err error) {
	return all, c.call(ctx, answerTimeout, http.MethodGet, "/v1/cluster", nil, &all)
}
