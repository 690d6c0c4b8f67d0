package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
)

// Role is what a gateway of a pair does.
type Role string

const (
	Standby    Role = "standby"     // it has the clients of the other one, and serves nobody
	TakingOver Role = "taking over" // clients' packets pass, and the rest is being opened
	Active     Role = "active"      // it serves
)

// Pair is the state of a gateway of two, of which one serves at a time.
type Pair struct {
	Site   string `json:"site"`          // what both are called together
	Role   Role   `json:"role"`          // of this gateway
	Ready  bool   `json:"ready"`         // it may serve
	Why    string `json:"why,omitempty"` // it may not
	Active string `json:"active"`        // which gateway serves, as the store says; "": it has not said
	Term   uint64 `json:"term"`          // each gateway that begins to serve has a higher one; 0: as active
}

// ErrAlone means that the gateway is none of two.
var ErrAlone = errors.New("this gateway is alone: pair.site is not set")

// ErrStandby refuses to change something at a standby.
var ErrStandby = errors.New("this gateway is the standby: ask the one that serves (gatewayd cluster status names it)")

// becomeRequest is what a gateway of two is to do.
type becomeRequest struct {
	Role Role `json:"role"` // Standby or Active
}

// become has the daemon serve, or be the standby.
func (s *server) become(w http.ResponseWriter, r *http.Request) {
	var asked becomeRequest
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBodyBytes)).Decode(&asked); err != nil ||
		!slices.Contains([]Role{Standby, Active}, asked.Role) {
		fail(w, http.StatusBadRequest, fmt.Errorf("role must be %q or %q", Active, Standby))
		return
	}
	if s.Become == nil {
		fail(w, http.StatusNotFound, ErrAlone)
		return
	}
	if err := s.Become(asked.Role == Active); err != nil {
		fail(w, http.StatusConflict, err)
		return
	}
	reply(w, http.StatusOK, struct{}{})
}

// unlessStandby answers with ErrStandby while the gateway is one.
func (s *server) unlessStandby(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if s.IsStandby != nil && s.IsStandby() {
			fail(w, http.StatusConflict, ErrStandby)
			return
		}
		h(w, r)
	}
}

// Become tells the daemon that it is to serve, or to be the standby. It does not wait until it is.
func (c *Client) Become(ctx context.Context, role Role) error {
	var none struct{}
	return c.call(ctx, answerTimeout, http.MethodPost, "/v1/cluster/role", becomeRequest{role}, &none)
}
