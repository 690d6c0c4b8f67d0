// RADIUS servers of the tests: FreeRADIUS on the router of a world (world_test.go), and the records that it writes of
// accounting.

package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gateweigh/gateweigh/gateway/control"
)

// radiusServer is a FreeRADIUS on the router, for logins or for accounting.
type radiusServer struct {
	w            *world
	Dir          string
	Kind, Secret string // Kind is "auth" or "acct"
	Port         int
	At           string // an address that other hosts reach; "": only the router does
	process      *process
}

// radius starts a server on a port of the router.
func (w *world) radius(kind string, port int) *radiusServer {
	w.t.Helper()
	return w.radiusAt("", kind, port)
}

// radiusAt is radius for a server that other hosts reach at an address; "": none does.
func (w *world) radiusAt(addr, kind string, port int) *radiusServer {
	w.t.Helper()
	r := &radiusServer{w: w, Dir: filepath.Join(w.Dir, kind), Kind: kind, Secret: w.Secret, Port: port, At: addr}
	for _, name := range []string{"radiusd.conf", "users"} {
		w.write("radius/"+name, filepath.Join(kind, name), r)
	}
	r.start()
	return r
}

func (r *radiusServer) start() {
	r.w.t.Helper()
	must(r.w.t, os.RemoveAll(filepath.Join(r.Dir, "log")))
	r.process = r.w.spawn(r.Kind+"/log", "freeradius", "-f", "-l", "stdout", "-d", r.Dir)
	eventually(r.w.t, "freeradius starts", func() error {
		select {
		case <-r.process.ended:
			r.w.t.Fatalf("freeradius ended:\n%s", r.process.output())
		default:
		}
		if !strings.Contains(r.process.output(), "Ready to process") {
			return errors.New(r.process.output())
		}
		return nil
	})
}

// stop kills the server, so that its port refuses.
func (r *radiusServer) stop() { r.process.signalAndWait(syscall.SIGKILL) }

// record is the attributes of one packet, as FreeRADIUS writes them.
type record map[string][]string

func (r record) value(name string) string { return strings.Join(r[name], " ") }

func (r record) number(name string) uint64 {
	n, err := strconv.ParseUint(r.value(name), 10, 64)
	if err != nil {
		panic(fmt.Sprintf("%s in %v: %v", name, r, err))
	}
	return n
}

// counts returns the traffic in a record.
func (r record) counts() control.Traffic {
	return control.Traffic{
		UpBytes:     r.number("Acct-Input-Gigawords")<<32 | r.number("Acct-Input-Octets"),
		UpPackets:   r.number("Acct-Input-Packets"),
		DownBytes:   r.number("Acct-Output-Gigawords")<<32 | r.number("Acct-Output-Octets"),
		DownPackets: r.number("Acct-Output-Packets"),
	}
}

// accessRequests returns the Access-Requests of a session that the server has received, in order. "" is all sessions.
func (r *radiusServer) accessRequests(session string) []record { return r.records("asked", session) }

// accounting returns the Accounting-Requests of a session that the server has received, in order. "" is all sessions.
func (r *radiusServer) accounting(session string) []record { return r.records("told", session) }

// records returns the packets of a session in one of the server's files, in order.
func (r *radiusServer) records(file, session string) (all []record) {
	r.w.t.Helper()
	text, err := os.ReadFile(filepath.Join(r.Dir, file))
	if err != nil && !os.IsNotExist(err) {
		r.w.t.Fatal(err)
	}
	for part := range strings.SplitSeq(strings.TrimSpace(string(text)), "\n\n") {
		one := record{}
		for line := range strings.Lines(part) {
			if name, value, ok := strings.Cut(strings.TrimSpace(line), " = "); ok {
				one[name] = append(one[name], strings.Trim(value, `"`))
			}
		}
		if session == "" || one.value("Acct-Session-Id") == session {
			all = append(all, one)
		}
	}
	return all
}

// awaitAccounting waits until accounting has a record of a kind for a session, and returns the last one.
func (r *radiusServer) awaitAccounting(kind, session string) (last record) {
	r.w.t.Helper()
	eventually(r.w.t, kind+" of session "+session, func() error {
		for _, one := range r.accounting(session) {
			if one.value("Acct-Status-Type") == kind {
				last = one
			}
		}
		if last == nil {
			return fmt.Errorf("%d records of it", len(r.accounting(session)))
		}
		return nil
	})
	return last
}

// kinds returns the records' Acct-Status-Types, in order.
func kinds(records []record) (all []string) {
	for _, r := range records {
		all = append(all, r.value("Acct-Status-Type"))
	}
	return all
}

// order is kinds without repetitions: a message is sent again if the server does not confirm it soon.
func order(records []record) []string { return slices.Compact(kinds(records)) }

// distinct removes records that were sent twice: a daemon killed before it had marked an event as confirmed sends it
// again. So that the server can recognise them, only the time of arrival may differ.
func distinct(t *testing.T, records []record) (all []record) {
	t.Helper()
	for _, r := range records {
		same := slices.IndexFunc(
			all, func(before record) bool { return before.value("Acct-Status-Type") == r.value("Acct-Status-Type") })
		if r.value("Acct-Status-Type") == "Interim-Update" { // a session has several
			same = slices.IndexFunc(
				all, func(before record) bool { return cmp.Equal(before.withoutTimes(), r.withoutTimes()) })
		}
		if same < 0 {
			all = append(all, r)
			continue
		}
		if diff := cmp.Diff(all[same].withoutTimes(), r.withoutTimes()); diff != "" {
			t.Errorf("a record was sent twice, with differences: %s", diff)
		}
	}
	return all
}

// withoutTimes returns a record without its time of arrival.
func (r record) withoutTimes() record {
	out := maps.Clone(r)
	for _, name := range []string{"Timestamp", "Acct-Delay-Time"} {
		delete(out, name)
	}
	return out
}
