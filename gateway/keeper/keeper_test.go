package keeper

import (
	"encoding/json"
	"errors"
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

	"github.com/gateweigh/gateweigh/gateway/netnstest"
)

// aloneEnv makes the test's program a keeper that waits so long.
const aloneEnv = "KEEPER_TEST_ALONE"

func TestMain(m *testing.M) {
	if alone, err := time.ParseDuration(os.Getenv(aloneEnv)); err == nil {
		if err := Serve(os.NewFile(3, "listener"), alone); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	netnstest.Main(m, "ip link set lo up")
}

// owner is one of a keeper of the test's name.
type owner struct {
	*Keeper
	held    []Item
	refills atomic.Int32
}

func ownerOf(t *testing.T, alone time.Duration) *owner {
	t.Helper()
	o := &owner{}
	o.Keeper = New(Config{
		Name: t.Name(), Refill: func() { o.refills.Add(1) }, Log: slog.New(slog.DiscardHandler),
		Command: func() *exec.Cmd {
			cmd := exec.Command("/proc/self/exe")
			cmd.Env = append(os.Environ(), aloneEnv+"="+alone.String())
			return cmd
		},
	})
	var err error
	o.held, err = o.Open()
	must(t, err)
	t.Cleanup(func() { End(t.Name()) })
	return o
}

// die has an owner end as a killed process does.
func (o *owner) die() {
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

// TestSuccessor: what a killed owner put is its successor's, with the data last given; what it dropped is closed.
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
	o.die()
	netnstest.Await(t, "the end of what was dropped", droppedGone)
	next := ownerOf(t, time.Minute)
	if len(next.held) != 1 || next.held[0].Key != "kept" || string(next.held[0].Data) != "2" || len(next.held[0].Files) != 1 {
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

// TestTimes: files are closed at their time, also without an owner, and a keeper ends with the last of them, or when
// nobody comes for them.
func TestTimes(t *testing.T) {
	for name, c := range map[string]struct{ until, alone time.Duration }{
		"of files":  {50 * time.Millisecond, time.Minute},
		"of nobody": {time.Minute, 50 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			o := ownerOf(t, c.alone)
			file, gone := pipe(t)
			o.Put(Item{Key: "rules"})
			o.Put(Item{Key: "a", Until: time.Now().Add(c.until), Files: []int{file}})
			unix.Close(file)
			o.die()
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
	o.die()
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

// TestStrangers: a name that another user's process has is not trusted, and a keeper tells another user nothing.
func TestStrangers(t *testing.T) {
	var squat *net.UnixListener
	var err error
	asNobody(t, func() { squat, err = net.ListenUnix("unixpacket", address(t.Name())) })
	must(t, err)
	k := New(Config{Name: t.Name(), Command: func() *exec.Cmd { return exec.Command("false") }, Refill: func() {}, Log: slog.New(slog.DiscardHandler)})
	if _, err := k.Open(); !errors.Is(err, ErrForeign) {
		t.Errorf("where another user has the name: %v", err)
	}
	k.Put(Item{Key: "a"}) // goes nowhere
	must(t, errors.Join(k.Close(), End(t.Name()), squat.Close()))

	o := ownerOf(t, time.Minute)
	o.Put(Item{Key: "secret"})
	o.die()
	var conn *net.UnixConn
	asNobody(t, func() { conn, err = net.DialUnix("unixpacket", nil, address(t.Name())) })
	must(t, err)
	defer conn.Close()
	if held, err := take(conn); err == nil || len(held) > 0 {
		t.Errorf("another user took %+v", held)
	}
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
		receive(conn, patience)
		conn.Write([]byte(`{"Version":99,"Verb":"held"}`))
		receive(conn, patience)
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

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
