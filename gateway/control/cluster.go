package control

import (
	"context"
	"errors"
	"net/http"
	"time"
)

// Store is how the daemon gets on with the store that several gateways share.
type Store struct {
	Name    string    `json:"name"`           // of this gateway there
	Up      bool      `json:"up"`             // the store answers
	Why     string    `json:"why,omitempty"`  // why it does not
	Since   time.Time `json:"since,omitzero"` // when that changed last; left out: it was not tried yet
	Waiting int       `json:"waiting"`        // changes that are not in the store, at least
	// how long the oldest of them waits
	BehindMS int64 `json:"behind_ms"`
	// records of this gateway that another one has taken in the store
	Foreign int `json:"foreign,omitempty"`
}

// Member is a gateway that uses the store, as it has said itself there.
type Member struct {
	Name     string    `json:"name"`      // in the store
	Version  string    `json:"version"`   // of gatewayd
	Since    time.Time `json:"since"`     // when its daemon started
	Said     time.Time `json:"said"`      // when it said all this, by its clock
	Sessions int       `json:"sessions"`  // clients that are logged in there
	Waiting  int       `json:"waiting"`   // changes that it had not written to the store
	BehindMS int64     `json:"behind_ms"` // how long the oldest of them had waited
	There    bool      `json:"there"`     // it has said so within the last 10 s
}

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
