// Tests of the keeper: a process that holds files of a daemon, such as sockets of sessions, while the daemon restarts.
// Its owner is the daemon, in these tests the test itself; ownerOf starts a keeper, or takes one over, that ends itself
// when it has had no owner for the time alone.

package keeper

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/internal/logtest"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// aloneEnv makes the test's program a keeper that waits so long, filesEnv limits its open files, and saidEnv is the
// file of its messages.
const (
	aloneEnv = "KEEPER_TEST_ALONE"
	filesEnv = "KEEPER_TEST_FILES"
	saidEnv  = "KEEPER_TEST_SAID"
)

func TestMain(m *testing.M) {
	if alone, err := time.ParseDuration(os.Getenv(aloneEnv)); err == nil {
		if files, err := strconv.ParseUint(os.Getenv(filesEnv), 10, 64); err == nil {
			unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: files, Max: files})
		}
		log, flush := AsyncLog(slog.New(slog.NewTextHandler(os.Stderr, nil)))
		held := func(ctx context.Context, held []Item) {
			log.Info("without an owner", "items", len(held))
			<-ctx.Done()
			log.Info("with an owner")
		}
		if err := Serve(os.NewFile(3, "listener"), Serving{AloneFor: alone, Unowned: held, Log: log}); err != nil {
			os.Exit(1)
		}
		flush(time.Second)
		os.Exit(0)
	}
	netnstest.Main(m, "ip link set lo up")
}

// owner is a daemon in a test, connected to the keeper with the test's name.
type owner struct {
	*Keeper
	held    []Item
	refills atomic.Int32
}

// ownerOf connects to the keeper of this test, and starts one where there is none. A keeper that has had no owner for
// the time alone ends itself.
func ownerOf(t *testing.T, alone time.Duration) *owner {
	t.Helper()
	return ownerWith(t, alone, slog.New(slog.DiscardHandler))
}

func ownerWith(t *testing.T, alone time.Duration, log *slog.Logger) *owner {
	t.Helper()
	o := &owner{}
	o.Keeper = New(Config{
		Name: t.Name(), Refill: func() { o.refills.Add(1) }, Log: log,
		Command: func() *exec.Cmd {
			cmd := exec.Command("/proc/self/exe")
			cmd.Env = append(os.Environ(), aloneEnv+"="+alone.String())
			if text := os.Getenv(saidEnv); text != "" {
				// an error: the test misses what is said
				cmd.Stderr, _ = os.OpenFile(text, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
			}
			return cmd
		},
	})
	var err error
	o.held, err = o.Open()
	must(t, err)
	t.Cleanup(func() { End(t.Name()) })
	return o
}

// dropDead ends an owner as if its process had been killed.
func (o *owner) dropDead() {
	o.cancel()
	o.running.Wait()
	o.conn.Close()
}

// pipe returns a pipe; gone reports that nobody has its end for writing.
func pipe(t *testing.T) (write int, gone func() error) {
	t.Helper()
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(p[0]) })
	return p[1], func() error {
		if n, err := unix.Read(p[0], make([]byte, 1)); n != 0 || err != nil {
			return errors.New("it is still open")
		}
		return nil
	}
}

// TestSuccessor: the successor of a killed owner gets the items that the owner put, with the data that it gave last.
// Items that it dropped are closed.
func TestSuccessor(t *testing.T) {
	o := ownerOf(t, time.Minute)
	kept, keptGone := pipe(t)
	dropped, droppedGone := pipe(t)
	o.Put(Item{Key: "kept", Data: json.RawMessage(`1`), Files: []int{kept}})
	o.Put(Item{Key: "dropped", Files: []int{dropped}})
	o.Put(Item{Key: "kept", Data: json.RawMessage(`2`)})
	o.Drop("dropped")
	unix.Close(kept)
	unix.Close(dropped)
	o.dropDead()
	netnstest.Await(t, "the end of what was dropped", droppedGone)
	next := ownerOf(t, time.Minute)
	if len(next.held) != 1 || next.held[0].Key != "kept" || string(next.held[0].Data) != "2" ||
		len(next.held[0].Files) != 1 {
		t.Fatalf("the successor has %+v", next.held)
	}
	if keptGone() == nil {
		t.Error("what was kept is closed")
	}
	unix.Close(next.held[0].Files[0])
	if err := next.Close(); err != nil {
		t.Error(err)
	}
	netnstest.Await(t, "the end of what was kept", keptGone)
	if _, err := dial(t.Name()); !errors.Is(err, errAbsent) {
		t.Errorf("after the owner's end in order: %v", err)
	}
}

// TestKeeperExpiry: a keeper closes files at their time, also without an owner. It ends with the last of them, or when
// no owner comes for them in time.
func TestKeeperExpiry(t *testing.T) {
	for name, c := range map[string]struct{ until, alone time.Duration }{
		"of files":  {50 * time.Millisecond, time.Minute},
		"of nobody": {time.Minute, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			o := ownerOf(t, c.alone)
			file, gone := pipe(t)
			o.Put(Item{Key: "rules"})
			o.Put(Item{Key: "a", Until: time.Now().Add(c.until), Files: []int{file}})
			unix.Close(file)
			o.dropDead()
			netnstest.Await(t, "the end of the file", gone)
			netnstest.Await(t, "the end of the keeper", func() error {
				if conn, err := dial(t.Name()); !errors.Is(err, errAbsent) {
					if err == nil {
						conn.Close()
					}
					return errors.New("it is there")
				}
				return nil
			})
		})
	}
}

// TestKilledKeeper: a keeper that is killed is replaced, and the owner is asked to put everything again.
func TestKilledKeeper(t *testing.T) {
	o := ownerOf(t, time.Minute)
	for n := int32(1); n <= 2; n++ {
		for _, pid := range keepers(t) {
			syscall.Kill(pid, syscall.SIGKILL)
		}
		netnstest.Await(t, "another keeper", func() error {
			if o.refills.Load() < n {
				return errors.New("none was started")
			}
			return nil
		})
	}
	file, gone := pipe(t)
	o.Put(Item{Key: "again", Files: []int{file}})
	unix.Close(file)
	o.dropDead()
	if next := ownerOf(t, time.Minute); len(next.held) != 1 {
		t.Errorf("the second keeper has %+v", next.held)
	} else {
		unix.Close(next.held[0].Files[0])
		next.Close()
	}
	netnstest.Await(t, "the end of the file", gone)
}

// keepers finds this program's keepers.
func keepers(t *testing.T) (pids []int) {
	t.Helper()
	dirs, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range dirs {
		env, _ := os.ReadFile("/proc/" + d.Name() + "/environ")
		stat, _ := os.ReadFile("/proc/" + d.Name() + "/stat")
		f := strings.Fields(string(stat))
		if !strings.Contains(string(env), aloneEnv+"=") || len(f) < 4 || f[3] != strconv.Itoa(os.Getpid()) {
			continue
		}
		if pid, err := strconv.Atoi(d.Name()); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// asNobody calls f with the rights of another user, which a thread can have alone.
func asNobody(t *testing.T, f func()) {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends
		const nobody = 65534
		_, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, nobody, nobody, nobody)
		if errno == 0 {
			f()
			done <- nil
		} else {
			done <- errno
		}
	}()
	must(t, <-done)
}

// TestOtherUsersProcess: a name that another user's process has is not trusted, and a keeper tells another user
// nothing.
func TestOtherUsersProcess(t *testing.T) {
	var squat *net.UnixListener
	var err error
	asNobody(t, func() { squat, err = net.ListenUnix("unixpacket", address(t.Name())) })
	must(t, err)
	k := New(Config{Name: t.Name(), Command: func() *exec.Cmd { return exec.Command("false") }, Refill: func() {},
		Log: slog.New(slog.DiscardHandler)})
	if _, err := k.Open(); !errors.Is(err, ErrForeign) {
		t.Errorf("where another user has the name: %v", err)
	}
	k.Put(Item{Key: "a"}) // goes nowhere
	must(t, errors.Join(k.Close(), End(t.Name()), squat.Close()))

	o := ownerOf(t, time.Minute)
	o.Put(Item{Key: "secret"})
	var conn *net.UnixConn
	asNobody(t, func() { conn, err = net.DialUnix("unixpacket", nil, address(t.Name())) })
	must(t, err)
	defer conn.Close()
	if held, err := takeHeld(conn); err == nil || len(held) > 0 {
		t.Errorf("another user took %+v", held)
	}
	must(t, o.Close())
}

// TestVersions: a keeper of another version is ended, and one of this version is started.
func TestVersions(t *testing.T) {
	l, err := net.ListenUnix("unixpacket", address(t.Name()))
	must(t, err)
	over := make(chan struct{})
	go func() {
		defer close(over)
		conn, err := l.AcceptUnix()
		if err != nil {
			return
		}
		receive(conn, messageTimeout)
		conn.Write([]byte(`{"Version":99,"Verb":"held"}`))
		receive(conn, messageTimeout)
		l.Close()
		conn.Close()
	}()
	o := ownerOf(t, time.Minute)
	<-over
	if len(o.held) > 0 {
		t.Errorf("took %+v of another version", o.held)
	}
	must(t, o.Close())
}

// TestNoRoom: a keeper whose descriptors are all in use refuses more files, logs that, and holds the files that it has,
// whoever connects. Its owner's successor can still connect. Long: the steps of one run, each of which needs the state
// that the one before left.
func TestNoRoom(t *testing.T) {
	t.Setenv(filesEnv, "24")
	own := says(t)
	var logs logtest.Log
	o := ownerWith(t, time.Minute, logs.Logger())
	first, gone := pipe(t)
	o.Put(Item{Key: "first", Files: []int{first}})
	unix.Close(first)
	for i := range 30 {
		file, _ := pipe(t)
		o.Put(Item{Key: strconv.Itoa(i), Files: []int{file}})
		unix.Close(file)
	}
	netnstest.Await(t, "that the keeper refuses one", func() error {
		if !strings.Contains(logs.String(), "session=") {
			return errors.New("it has not")
		}
		return nil
	})
	own("ERROR", "LimitNOFILE", "session=")
	var strangers []*net.UnixConn
	asNobody(t, func() {
		for range 20 {
			if conn, err := net.DialUnix("unixpacket", nil, address(t.Name())); err == nil {
				strangers = append(strangers, conn)
			}
		}
	})
	for _, conn := range strangers {
		if _, _, err := receive(conn, messageTimeout); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error("a stranger's connection stays")
		}
		conn.Close()
	}
	successor, err := dial(t.Name()) // before the owner is gone
	must(t, err)
	must(t, send(successor, message{Verb: taking}))
	o.dropDead()
	m, files, err := receive(successor, messageTimeout)
	must(t, err)
	closeAll(files)
	if m.Verb != holding || len(files) != 1 {
		t.Errorf("the successor got %+v with %d files", m, len(files))
	}
	successor.Close()
	if gone() == nil {
		t.Error("what was held is closed")
	}
	must(t, End(t.Name()))
	netnstest.Await(t, "the end of what was held", gone)
}

// TestHungKeeper: a keeper that does not answer is not taken for ended, and an owner without a connection can end it
// too.
func TestHungKeeper(t *testing.T) {
	o := ownerOf(t, time.Minute)
	file, gone := pipe(t)
	o.Put(Item{Key: "a", Files: []int{file}})
	unix.Close(file)
	all := keepers(t)
	if len(all) != 1 {
		t.Fatalf("there are the keepers %v", all)
	}
	must(t, syscall.Kill(all[0], syscall.SIGSTOP))
	netnstest.Await(t, "its halt", func() error {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", all[0]))
		if err == nil && !strings.Contains(string(stat), ") T ") {
			err = errors.New("it runs")
		}
		return err
	})
	err := endWithin(t.Name(), time.Millisecond)
	must(t, syscall.Kill(all[0], syscall.SIGCONT))
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("ending a stopped keeper: %v", err)
	}
	netnstest.Await(t, "its end once it goes on", gone)
	must(t, o.Close())
}

// TestCloseWithoutConnection: an owner that has lost its connection ends the keeper nevertheless.
func TestCloseWithoutConnection(t *testing.T) {
	o := ownerOf(t, time.Minute)
	file, gone := pipe(t)
	o.Put(Item{Key: "a", Files: []int{file}})
	unix.Close(file)
	o.dropDead()
	o.conn = nil
	must(t, o.Close())
	netnstest.Await(t, "the end of the file", gone)
}

// must fails the test on an error.
var must = netnstest.Must
