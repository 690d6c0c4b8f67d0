package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/gateweigh/gateweigh/gateway/control"
	"github.com/gateweigh/gateweigh/gateway/session"
)

// namespaced is set in the process that runs the tests, in a network of its own.
const namespaced = "GATEWAYD_TEST_NAMESPACED"

// TestMain lets the test binary act as gatewayd and as other programs by its name, and runs the tests in namespaces
// apart from the machine's network. serve-table is a daemon with a known table of clients, notified a service manager,
// and half-confined a gatewayd that cannot give up all of root's rights.
func TestMain(m *testing.M) {
	commands := map[string]func(){
		"gatewayd": main, "serve-table": serveTable, "notified": notified, "half-confined": halfConfined}
	if _, isCommand := commands[filepath.Base(os.Args[0])]; !isCommand && os.Getenv(namespaced) == "" {
		os.Exit(runNamespaced())
	}
	flag.Set("test.parallel", "3") // they mostly wait
	testscript.Main(m, commands)
}

// runNamespaced runs the test binary again in a namespace with the interfaces that the scripts' configurations name.
func runNamespaced() int {
	self, err := os.Executable()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	const links = "mount --make-rprivate / && mount -t tmpfs none /run && mount -t bpf bpf /sys/fs/bpf && echo 1 " +
		">/proc/sys/net/ipv4/ip_forward && ip link set lo up && ip link add lan0 type veth peer name client0 && ip link " +
		"add wan0 type veth peer name server0 && " +
		"ip addr add 10.1.0.1/16 dev lan0 && ip link set lan0 up && ip link set wan0 up && exec \"$@\""
	cmd := exec.Command("sh", append([]string{"-c", links, "sh", self}, os.Args[1:]...)...)
	cmd.Env = append(os.Environ(), namespaced+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	err = cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		fmt.Fprintln(os.Stderr, err)
	}
	return cmd.ProcessState.ExitCode()
}

// TestScripts runs the scripts in testdata/script: commands of gatewayd, and what they print.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": exits, "await": await, "signal": sendSignal,
		},
		UpdateScripts:       os.Getenv("UPDATE_SCRIPTS") != "",
		RequireExplicitExec: true,
	})
}

// exits runs a program that must end with an exit code: exits 2 gatewayd …
func exits(ts *testscript.TestScript, neg bool, args []string) {
	want, err := strconv.Atoi(args[0])
	if neg || err != nil {
		ts.Fatalf("usage: exits CODE program [argument...]")
	}
	code := 0
	var exit *exec.ExitError
	if err := ts.Exec(args[1], args[2:]...); errors.As(err, &exit) {
		code = exit.ExitCode()
	} else if err != nil {
		ts.Fatalf("%v", err)
	}
	if code != want {
		ts.Fatalf("exit code %d, not %d", code, want)
	}
}

// await waits until a file holds a text: await FILE TEXT.
func await(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: await file text")
	}
	deadline := time.Now().Add(2 * time.Minute)
	for {
		text, _ := os.ReadFile(ts.MkAbs(args[0]))
		if strings.Contains(string(text), args[1]) {
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("%s never held %q, but:\n%s", args[0], args[1], text)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// sendSignal signals the process whose id a file holds: signal HUP FILE.
func sendSignal(ts *testscript.TestScript, neg bool, args []string) {
	signals := map[string]syscall.Signal{"HUP": syscall.SIGHUP, "TERM": syscall.SIGTERM}
	if neg || len(args) != 2 || signals[args[0]] == 0 {
		ts.Fatalf("usage: signal HUP|TERM file")
	}
	pid, err := strconv.Atoi(strings.TrimSpace(ts.ReadFile(args[1])))
	ts.Check(err)
	ts.Check(syscall.Kill(pid, signals[args[0]]))
}

// serveTable serves a table of three clients, one of them hostile, at the socket its argument names, until SIGTERM.
func serveTable() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	socket, err := control.Listen(os.Args[1])
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	if err := socket.Serve(ctx, control.Single(control.Network{Table: newTable()}, tableStatus)); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

func tableStatus() control.Status {
	return control.Status{
		Version: "1.2.3", PID: 42, Since: time.Now().Add(-26*time.Hour - time.Minute), Datapath: "ebpf, redirect",
		LAN: "lan0", WAN: "wan0",
		Addresses: 65533, Leases: 3, Outbox: 5,
		Unkept:   "no space left on device; free space at state_dir (/var/lib/gatewayd)",
		Users:    &control.Users{Accounts: 3, Problem: "users:2: no hash\nusers:5: no hash"},
		Sessions: map[control.State]int{session.Authenticated: 1, session.PreAuth: 1, session.Leased: 1},
		Traffic:  control.Traffic{UpBytes: 123_456_789, UpPackets: 100_000, DownBytes: 9_876_543_210, DownPackets: 7_000_000},
		Packets:  map[string]uint64{"forwarded": 7_100_000, "wrong-mac": 12, "ipv6": 400, "quota": 0},
		RADIUS:   map[string]uint64{"accept": 3},
	}
}

// table is a table of three clients in memory, in place of the daemon's.
type table struct {
	clients []session.Session
	lists   atomic.Uint64 // number of calls of Each
	ends    atomic.Uint64 // number of calls of End
}

func newTable() *table {
	now := time.Now()
	client := func(n byte, state session.State, hostname string) session.Session {
		s := session.Session{State: state, Hostname: hostname, LeasedAt: now, LeaseEnd: now.Add(time.Hour)}
		s.Addr, s.MAC = netip.AddrFrom4([4]byte{10, 1, 0, n}), [6]byte{2, 0, 0, 0, 0, n}
		return s
	}
	in := client(6, session.Authenticated, "anns-phone")
	in.Login = session.Login{User: "ann@example.org", Limits: session.Limits{SessionTimeout: 24 * time.Hour,
		TotalBytes: 100e9, DownBytes: 99e9, UpBps: 5e6, DownBps: 20_500_000}}
	in.ID, in.Began, in.Seen = "00000000000000aa", now.Add(-3*time.Hour-7*time.Minute-30*time.Second),
		now.Add(-2*time.Hour-5*time.Minute-30*time.Second)
	in.Counts = session.Counts{UpBytes: 1_234_567, DownBytes: 98_765_432_100, UpPackets: 10_000, DownPackets: 70_000_000}
	out := client(7, session.PreAuth, "")
	out.LastEnding = session.Ending{Cause: session.Quota, Quota: session.DownQuota}
	return &table{clients: []session.Session{
		client(5, session.PreAuth, "\x1b]0;owned\x07\nroot"), in, out, client(200, session.Leased, ""),
	}}
}

func (t *table) Get(a netip.Addr) (session.Session, bool) {
	for _, s := range t.clients {
		if s.Addr == a {
			return s, true
		}
	}
	return session.Session{}, false
}

// Each lists the clients. In each further list the session has sent 125,000 bytes more.
func (t *table) Each(yield func(session.Session) bool) {
	sent := t.lists.Add(1) - 1
	for _, s := range t.clients {
		if s.State == session.Authenticated {
			s.UpBytes += 125_000 * sent
		}
		if !yield(s) {
			return
		}
	}
}

func (t *table) Lease(key session.Key, _ string, _ time.Time) error {
	t.clients = append(t.clients, session.Session{Key: key, State: session.Leased})
	return nil
}

func (t *table) ForgetStranger(session.Key) (bool, error) { return true, nil }

func (t *table) Admit(a netip.Addr, l session.Login) (session.Session, error) {
	s, _ := t.Get(a)
	s.State, s.Login, s.ID = session.Authenticated, l, "00000000000000bb"
	return s, nil
}

// End ends the first session. For later ones it returns ErrLater, as if the disk were full.
func (t *table) End(a netip.Addr, _ session.Cause) (session.Session, error) {
	s, _ := t.Get(a)
	if t.ends.Add(1) > 1 {
		return s, session.ErrLater
	}
	return s, nil
}
