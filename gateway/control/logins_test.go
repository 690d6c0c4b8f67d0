// Tests of LoginAll, the request that logs many clients in. control_test.go has the helpers: authenticated(n) is a
// table of n sessions; start serves it and returns the path of the socket; dial connects; numbered(n) is the n-th
// address of 10.0.0.0/8.

package control

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/gateway/session"
)

// crowd returns requests for n clients that need no lease, from numbered(first) on.
func crowd(first, n int) []LoginRequest {
	list := make([]LoginRequest, n)
	for i := range list {
		list[i] = LoginRequest{
			Addr: numbered(first + i), MAC: fmt.Sprintf("02:00:00:%02x:%02x:%02x", i>>16, i>>8&255, i&255), User: "crowd"}
	}
	return list
}

func TestLoginAll(t *testing.T) {
	table := authenticated(0)
	c := dial(t, start(t, table, stallTimeout))
	const many = 20_000
	if n, err := c.LoginAll(t.Context(), crowd(0, many)); n != many || err != nil {
		t.Fatalf("%d of %d logged in: %v", n, many, err)
	}
	for i, client := range table.all {
		if client.State != session.Authenticated || client.User != "crowd" || client.Addr != numbered(i) ||
			client.MAC[5] != byte(i) {
			t.Fatalf("client %d is %+v", i, client)
		}
	}
	// Again: the same clients get new sessions, without duplicates.
	if n, err := c.LoginAll(t.Context(), crowd(0, many)); n != many || err != nil || len(table.all) != many {
		t.Errorf("%d logged in again, %d clients: %v", n, len(table.all), err)
	}
}

func TestLoginAllRefuses(t *testing.T) {
	for name, tt := range map[string]struct {
		change func([]LoginRequest)
		want   string
	}{
		"another client's address": {func(l []LoginRequest) { l[700].Addr, l[700].MAC = l[3].Addr, "02:ff:00:00:00:01" },
			"10.0.0.13: it must leave first"},
		"no lease": {
			func(l []LoginRequest) { l[700].MAC = "" }, "no client has 10.0.2.198: it needs a lease first"},
		"no MAC": {func(l []LoginRequest) { l[700].MAC = "02:00" },
			`mac must be a client's Ethernet address such as 02:00:5e:10:00:01, not "02:00"`},
		"a group's MAC": {
			func(l []LoginRequest) { l[700].MAC = "01:00:5e:00:00:01" }, "mac must be a client's Ethernet address"},
		"no user": {func(l []LoginRequest) { l[700].User = "" }, "line 701: user must be a name"},
		"a line without end": {
			func(l []LoginRequest) { l[700].User = strings.Repeat("x", 2*maxBodyBytes) }, "token too long"},
	} {
		t.Run(name, func(t *testing.T) {
			table := authenticated(0)
			c := dial(t, start(t, table, stallTimeout))
			if _, err := c.LoginAll(t.Context(), crowd(10, 10)); err != nil {
				t.Fatal(err)
			}
			list := crowd(10, 5000)
			tt.change(list)
			if n, err := c.LoginAll(t.Context(), list); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%d logged in: %v, want %q", n, err, tt.want)
			}
			for _, client := range table.all[10:] {
				if client.User != "crowd" {
					t.Errorf("%+v", client)
				}
			}
		})
	}
}
