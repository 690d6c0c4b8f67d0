package control

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gateweigh/gateweigh/gateway/session"
)

// Changer lists a network's clients by pages and changes their sessions. Its methods may be called at any time from
// several goroutines.
type Changer interface {
	// PageOf is that of session.Table: its work does not grow with the number of clients beyond looks.
	PageOf(from session.Position, most, looks int, match func(*session.Brief) bool) session.Page
	// Alter edits the limits of the session with an ID.
	Alter(addr netip.Addr, id string, edit func(*session.Limits)) error
	// States counts the clients by state. Its work does not grow with their number.
	States() map[State]int
}

// Counts returns the number of clients by state in the networks that are served, and the names of several networks.
func (a Answers) Counts() (counts map[State]int, names []string) {
	counts = map[State]int{}
	for _, n := range a.Networks() {
		if n.Name != "" {
			names = append(names, n.Name)
		}
		if n.Changes != nil {
			for state, count := range n.Changes.States() {
				counts[state] += count
			}
		}
	}
	return counts, names
}

// PageRequest asks for a page of clients, in the order of networks and addresses.
type PageRequest struct {
	Filter
	Search string // in user, address, MAC address and name of the host; empty: any
	Most   int    // clients of the page
	Cursor string // Next of the page before; empty: the first page
}

// SessionPage is a page of clients.
type SessionPage struct {
	Sessions []Session
	Next     string // the cursor of the next page; empty: there is none
	Visited  int    // clients that were looked at
}

// maxLooks bounds the clients that are looked at for one page: beyond it the page ends, however few were found.
const maxLooks = 150_000

// Page returns a page of clients. With an address as search it looks at no other client.
func (a Answers) Page(req PageRequest) (page SessionPage, err error) {
	if err := req.Check(); err != nil {
		return page, refuse(http.StatusBadRequest, err)
	}
	networks, err := a.chosen(req.Network)
	if err != nil {
		return page, refuse(http.StatusNotFound, err)
	}
	if addr, err := netip.ParseAddr(req.Search); err == nil {
		return pageOfAddress(networks, req.Filter, addr), nil
	}
	networks, from, err := startAt(networks, req.Cursor)
	if err != nil {
		return page, refuse(http.StatusBadRequest, err)
	}
	match := matcher(req)
	for _, n := range networks {
		if n.Changes == nil {
			continue
		}
		part := n.Changes.PageOf(from, req.Most-len(page.Sessions), maxLooks-page.Visited, match)
		from, page.Visited = 0, page.Visited+part.Visited
		for _, s := range part.Sessions {
			page.Sessions = append(page.Sessions, asShown(s.At(time.Now()), n.Name))
		}
		if part.Next != 0 {
			page.Next = fmt.Sprintf("%d.%s", part.Next, n.Name)
			return page, nil
		}
	}
	return page, nil
}

// startAt returns the networks from a cursor on, and where to begin in the first one.
func startAt(networks []Network, cursor string) (rest []Network, from session.Position, err error) {
	if cursor == "" {
		return networks, 0, nil
	}
	number, name, _ := strings.Cut(cursor, ".")
	n, err := strconv.ParseUint(number, 10, 64)
	i := slices.IndexFunc(networks, func(n Network) bool { return n.Name == name })
	if err != nil || i < 0 {
		return nil, 0, errors.New("the cursor is none of this list, or of a network that is not served any more: begin at " +
			"the first page")
	}
	return networks[i:], session.Position(n), nil
}

// pageOfAddress is the page of the client that has an address, if it matches.
func pageOfAddress(networks []Network, f Filter, addr netip.Addr) (page SessionPage) {
	for _, n := range networks {
		if n.Has != nil && !n.Has(addr) {
			continue
		}
		page.Visited++
		if s, known := n.Table.Get(addr); known && f.match(s.At(time.Now())) {
			page.Sessions = append(page.Sessions, asShown(s.At(time.Now()), n.Name))
		}
	}
	return page
}

// matcher returns what a page is chosen by; nil: all match.
func matcher(req PageRequest) func(*session.Brief) bool {
	if req.Search == "" && req.User == "" && req.State == "" {
		return nil
	}
	word := []byte(strings.ToLower(req.Search))
	hyphens := bytes.ReplaceAll(word, []byte("-"), []byte(":")) // in MAC addresses
	var text []byte
	has := func(b []byte, word []byte) bool { text = b[:0]; return bytes.Contains(b, word) }
	return func(b *session.Brief) bool {
		switch {
		case req.State != "" && b.State != req.State, req.User != "" && !session.SameUser(req.User, b.User):
			return false
		case len(word) == 0, has(b.Addr.AppendTo(text), word), has(appendMAC(text, b.MAC), hyphens),
			strings.Contains(strings.ToLower(b.User), string(word)),
			strings.Contains(strings.ToLower(b.Hostname), string(word)):
			return true
		}
		return slices.ContainsFunc(b.FurtherAddrs, func(a netip.Addr) bool { return has(a.AppendTo(text), word) })
	}
}

// appendMAC appends an Ethernet address as "02:00:5e:10:00:01".
func appendMAC(text []byte, mac [6]byte) []byte {
	for i, b := range mac {
		if i > 0 {
			text = append(text, ':')
		}
		text = hex.AppendEncode(text, []byte{b})
	}
	return text
}
