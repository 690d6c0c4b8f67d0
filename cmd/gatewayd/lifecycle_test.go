// A test that starts, ends, kills and replaces the daemon while clients send. newWorld makes the host of a gateway with
// clients and a server, in namespaces, and starts RADIUS servers (world_test.go). A flow sends numbered UDP datagrams,
// and a stream TCP, through the gateway (flow_test.go).

package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/gateweigh/gateweigh/gateway/control"
	"github.com/gateweigh/gateweigh/gateway/session"
)

// TestDaemonLifecycle: while clients send and receive, the daemon is killed, restarted and replaced, a second daemon
// wants its interfaces, an Interim-Update is sent, and in the end the daemon is detached. The bytes that FreeRADIUS was
// told are those that the clients' kernels have counted.
func TestDaemonLifecycle(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	clean := w.kernel()
	w.startOf(cmp.Or(*predecessor, w.program))
	ann, bob := w.client(), w.client()
	began := ann.logIn("ann")
	if began.State != session.Authenticated || began.User != "ann" {
		t.Fatalf("after login: %+v", began)
	}
	asked := w.auth.accessRequests(began.ID)
	if len(asked) != 1 || asked[0].value("User-Name") != "ann" {
		t.Errorf("FreeRADIUS was asked about the session %s: %v", began.ID, asked)
	}

	used := sum(w.killedUnderLoad(t, ann, bob), w.anotherOne(t, ann))
	// Updates are due every minute from the login on, which is as often as RFC 2869, 5.16 allows. On a busy machine the
	// first may have been sent already.
	due := time.Since(began.Began).Truncate(time.Minute) + time.Minute
	time.Sleep(time.Until(began.Began.Add(due)))
	eventually(t, "the update after all was sent", func() error {
		interim := w.acct.awaitAccounting("Interim-Update", began.ID)
		if offset := time.Duration(interim.number("Acct-Session-Time")) * time.Second; offset < due-time.Second {
			return fmt.Errorf("the last one is of %v, not yet of %v", offset, due)
		}
		if interim.counts() != used {
			t.Errorf("Interim-Update has %+v, and the clients' kernels have %+v", interim.counts(), used)
		}
		return nil
	})
	more := w.flow(ann, false, 0)
	more.sendFew(100)
	more.expectAll(t, "datagrams after the update")
	ann.logOut()
	w.stopped(t, ann, began.ID, sum(used, more.traffic(false)))
	w.detach(t, clean)
}

// killedUnderLoad kills, restarts and upgrades the daemon while ann sends and receives, and returns her traffic.
// Packets of bob, who is not logged in, must not pass.
func (w *world) killedUnderLoad(t *testing.T, ann, bob *client) (used control.Traffic) {
	id := ann.session().ID
	perSecond := *udpMbps * 1_000_000 / 8 / (udpHeaders + datagramBytes)
	admitted := []*flow{w.flow(ann, true, perSecond), w.flow(ann, false, perSecond)}
	blocked := []*flow{w.flow(bob, true, 1000), w.flow(bob, false, 1000)}
	for _, f := range slices.Concat(admitted, blocked) {
		f.start()
	}
	var streams []*stream
	if *tcpMbps > 0 {
		streams = []*stream{w.stream(ann, true, *tcpMbps), w.stream(ann, false, *tcpMbps)}
	}
	began := time.Now()
	replaced := w.replaced(t, ann, began)
	for _, f := range slices.Concat(admitted, blocked) {
		f.halt()
	}
	for _, s := range streams {
		s.halt()
	}
	for i, f := range admitted {
		f.expectAll(t, "datagrams "+[]string{"up", "down"}[i])
		used = sum(used, f.traffic(i == 0))
	}
	for _, s := range streams {
		s.expectAll(t, "stream")
	}
	for i, f := range blocked {
		if got := f.received.Load(); got != 0 || f.sent.Load() == 0 && i == 1 {
			t.Errorf("%d of %d datagrams of a client that is not logged in arrived", got, f.sent.Load())
		}
	}
	w.accounted(t, ann, used, streams)
	for _, s := range streams {
		used = sum(used, s.traffic(t))
	}
	seconds := time.Since(began).Seconds()
	t.Logf("%d daemons, %.1f s, %.0f Mbit/s up and %.0f down, %d packets, session %s; queues: %s", replaced, seconds,
		float64(used.UpBytes)*8e-6/seconds,
		float64(used.DownBytes)*8e-6/seconds, used.UpPackets+used.DownPackets, id, w.dropped())
	return used
}

// replaced kills, restarts and upgrades the daemon in rounds, as many and for as long as the flags say, and returns how
// often it started one. ann's session must stay the same.
func (w *world) replaced(t *testing.T, ann *client, began time.Time) (n int) {
	t.Helper()
	before := ann.session()
	for round := 0; round < *rounds || time.Since(began) < *loadTime; round++ {
		for label, replace := range map[string]func(){
			"killed":    func() { w.kill(); time.Sleep(100 * time.Millisecond); w.start() },
			"at once":   func() { w.kill(); w.start() },
			"restarted": func() { w.daemon.signalAndWait(syscall.SIGTERM); w.start() },
			"upgraded":  func() { w.kill(); w.startOf(w.copied()) },
		} {
			replace()
			n++
			now := ann.session()
			if now.ID != before.ID || now.Began.Sub(before.Began).Abs() > time.Millisecond ||
				now.State != session.Authenticated || now.UpPackets < before.UpPackets {
				t.Fatalf("%s: the session %+v became %+v", label, before, now)
			}
			time.Sleep(100 * time.Millisecond)
		}
	}
	return n
}

// accounted waits until the session's counters are what was sent and received: the given counts of datagrams, and the
// kernel's counters of the streams.
func (w *world) accounted(t *testing.T, c *client, datagrams control.Traffic, streams []*stream) {
	t.Helper()
	eventually(t, "the session's counters", func() error {
		want := datagrams
		for _, s := range streams {
			want = sum(want, s.traffic(t))
		}
		if got := c.session().Traffic; got != want {
			return fmt.Errorf("%+v, and the clients' kernels say %+v (queues dropped %s)", got, want, w.dropped())
		}
		return nil
	})
}

// copied returns another file with the same program, for an upgrade. Another process writes it: children that are just
// starting would hold a copy of this process's descriptor, and the kernel executes no file that is open for writing.
func (w *world) copied() string {
	w.t.Helper()
	path := filepath.Join(w.Dir, "next", "gatewayd") // the test binary acts by its name
	must(w.t, errors.Join(os.RemoveAll(filepath.Dir(path)), os.Mkdir(filepath.Dir(path), 0o700)))
	must(w.t, exec.Command("cp", w.program, path).Run())
	return path
}

// anotherOne starts a second daemon on the same interfaces, which must leave them alone.
func (w *world) anotherOne(t *testing.T, ann *client) (used control.Traffic) {
	before, err := w.status()
	must(t, err)
	text, err := os.ReadFile(filepath.Join(w.Dir, "gatewayd.toml"))
	must(t, err)
	dir := filepath.Join(w.Dir, "another")
	must(t, os.MkdirAll(dir, 0o700))
	other := filepath.Join(dir, "gatewayd.toml")
	text = []byte(strings.NewReplacer(w.Dir, dir, w.Pins, w.Pins+"-another").Replace(string(text)))
	must(t, os.WriteFile(other, text, 0o600))
	refused := func(message string, argv ...string) {
		t.Helper()
		out, err := w.try(`nsenter --net=/run/netns/$ID-router ` + w.program + " " + strings.Join(argv, " "))
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != exitFailed || !strings.Contains(out, message) {
			t.Errorf("gatewayd %s: %v, want exit code %d and %q:\n%s", strings.Join(argv, " "), err, exitFailed, message, out)
		}
	}
	f := w.flow(ann, true, 2000)
	f.start()
	refused("another gateway has the interface lan0", "run", "-c", other)
	refused("another gateway has the interface lan0", "detach", "-c", other)
	refused(fmt.Sprintf("another gatewayd is running (process %d)", w.daemon.cmd.Process.Pid), "run", "-c",
		filepath.Join(w.Dir, "gatewayd.toml"))
	f.halt()
	f.expectAll(t, "datagrams meanwhile")
	if now, err := w.status(); err != nil || now.PID != before.PID || !now.Since.Equal(before.Since) {
		t.Errorf("the first one: %+v, %v", now, err)
	}
	return f.traffic(true)
}

// stopped checks that FreeRADIUS was told of the session's end with the right counts, and of each of its events once.
func (w *world) stopped(t *testing.T, c *client, id string, used control.Traffic) {
	t.Helper()
	stop := w.acct.awaitAccounting("Stop", id)
	if stop.counts() != used {
		t.Errorf("Stop has %+v, and the clients' kernels have %+v", stop.counts(), used)
	}
	eventually(t, "all is accounted", func() error {
		if s, err := w.status(); err != nil || s.Outbox > 0 {
			return fmt.Errorf("%d events are left: %v", s.Outbox, err)
		}
		return nil
	})
	// Events that the daemon has marked as confirmed before it ended are not sent again. Events that were on their way
	// when it was killed may be.
	before := len(w.acct.accounting(id))
	w.daemon.signalAndWait(syscall.SIGTERM)
	w.start()
	all := w.acct.accounting(id)
	if len(all) != before {
		t.Errorf("FreeRADIUS was told %d times before a restart, and %d times in all", before, len(all))
	}
	if got, want := kinds(distinct(t, all)), []string{"Start", "Interim-Update", "Stop"}; !slices.Equal(got, want) {
		t.Errorf("FreeRADIUS was told %v, want %v", got, want)
	}
	for _, r := range all {
		if r.value("User-Name") != "ann" || r.value("Class") != "0x00ff0a 0x7365636f6e64" ||
			r.value("Framed-IP-Address") != c.addr.String() {
			t.Errorf("of whom: %v", r)
		}
	}
	if cause := stop.value("Acct-Terminate-Cause"); cause != "User-Request" {
		t.Errorf("Acct-Terminate-Cause %s", cause)
	}
}

// detach removes everything that the daemon left in the kernel, and under a running daemon only when forced.
func (w *world) detach(t *testing.T, clean string) {
	for _, force := range []string{"", "--force"} {
		if force == "" {
			w.kill()
		} else {
			w.start()
		}
		if w.kernel() == clean {
			t.Error("there is nothing to detach")
		}
		w.sh(`nsenter --net=/run/netns/$ID-router ` + w.program + ` detach -c $DIR/gatewayd.toml ` + force)
		if diff := gocmp.Diff(strings.Split(clean, "\n"), strings.Split(w.kernel(), "\n")); diff != "" {
			t.Errorf("what is left after detach %s: %s", force, diff)
		}
		if _, err := os.Stat(w.Pins); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the pins are left after detach %s: %v", force, err)
		}
	}
}
