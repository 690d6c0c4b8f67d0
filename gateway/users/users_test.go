// Tests of logins with passwords of the users' file. someHash is a valid hash of a password that no test knows
// (file_test.go).

package users

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/gateweigh/gateweigh/gateway/listfile"
	"github.com/gateweigh/gateweigh/gateway/session"
	"github.com/gateweigh/gateweigh/internal/logtest"
)

// The hashes are made only once, because each takes 0.16 s of a core.
var (
	hashOfTulip = sync.OnceValue(func() string { return Hash("tulip") })
	hashOfRose  = sync.OnceValue(func() string { return Hash("rose") })
)

// cffiHash is the hash of "correct horse" by an independent implementation: Python's argon2-cffi 25.1 with its profile
// RFC_9106_LOW_MEMORY.
const cffiHash = "$argon2id$v=19$m=65536,t=3,p=4$hRKbll0wvS7aKYLSGHCplA$DeNupaiehQZ0Z9hKnhRYJLQSytSUiHGOF0v+oT+Gelg"

// accountsFile writes a file of accounts.
func accountsFile(t testing.TB, lines ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "users")
	rewrite(t, path, lines...)
	return path
}

// rewrite changes a file in place.
func rewrite(t testing.TB, path string, lines ...string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
}

// open opens a file of accounts and collects what is logged.
func open(t testing.TB, path string) (*Accounts, *logtest.Log) {
	t.Helper()
	var logged logtest.Log
	a, err := Open(path, logged.Logger())
	if err != nil {
		t.Fatal(err)
	}
	return a, &logged
}

// login tries a name and password.
func login(t testing.TB, a *Accounts, user, password string) (session.Login, error) {
	return a.Authenticate(t.Context(), session.Credentials{User: user, Password: password})
}

func TestAuthenticate(t *testing.T) {
	a, _ := open(t, accountsFile(t,
		"# guests", "",
		"alice:"+hashOfTulip(),
		"  room 12:"+hashOfRose()+
			":session_timeout=8h,idle_timeout=90s,up_rate=5M,down_rate=20Mbit/s,up_quota=1B,down_quota=3kB,total_quota=1.5GiB,sessions_per_user=2\r",
		"zoë:"+cffiHash+":up_bps=5M,down_bps=20,up_bytes=1,down_bytes=3k,total_bytes=2T", // as lines had it formerly
	))
	everything := session.Limits{
		SessionTimeout: 8 * time.Hour, IdleTimeout: 90 * time.Second, UpBps: 5e6, DownBps: 20e6,
		UpBytes: 1, DownBytes: 3000, TotalBytes: 3 << 29,
	}
	former := session.Limits{UpBps: 5e6, DownBps: 20, UpBytes: 1, DownBytes: 3000, TotalBytes: 2e12}
	for _, tt := range []struct {
		name, user, password string
		want                 session.Login // zero: rejected
	}{
		{"right", "alice", "tulip", session.Login{User: "alice"}},
		{"limits", "room 12", "rose", session.Login{User: "room 12", Limits: everything, Sessions: 2}},
		{"hash of another implementation", "zoë", "correct horse", session.Login{User: "zoë", Limits: former}},
		{"wrong password", "alice", "rose", session.Login{}},
		{"no password", "alice", "", session.Login{}},
		{"longer password", "alice", "tulip\x00", session.Login{}},
		{"unknown name", "mallory", "tulip", session.Login{}},
		{"no name", "", "tulip", session.Login{}},
		{"name in other case", "Alice", "tulip", session.Login{}},
		{"comment as a name", "# guests", "", session.Login{}},
		{"password too long for anybody", "alice", strings.Repeat("x", 1<<20), session.Login{}},
		{"name too long for anybody", strings.Repeat("x", 1<<20), "tulip", session.Login{}},
		{"name that is no text", "alice\xff", "tulip", session.Login{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := login(t, a, tt.user, tt.password)
			if rejected := errors.Is(err, session.ErrRejected); rejected != (tt.want.User == "") || err != nil && !rejected {
				t.Errorf("error %v", err)
			}
			reasons := []string{"wrong password", "there is no such account", "no account can have such a name or password"}
			said := func(reason string) bool { return strings.HasSuffix(err.Error(), ": "+reason) }
			if err != nil && !slices.ContainsFunc(reasons, said) {
				t.Errorf("the error does not say why: %v", err)
			}
			if diff := cmp.Diff(tt.want, got, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestHashesOfOnePasswordDiffer(t *testing.T) {
	a, b := hashOfTulip(), Hash("tulip")
	if a == b || !strings.HasPrefix(a, "$argon2id$v=19$m=65536,t=3,p=4$") {
		t.Errorf("%s and %s: want two salts and the parameters of RFC 9106", a, b)
	}
}

// TestUnknownNamesCostTheSame compares allocated memory, which determines argon2id's work and, unlike time, can be
// measured exactly.
func TestUnknownNamesCostTheSame(t *testing.T) {
	a, _ := open(t, accountsFile(t, "alice:"+hashOfTulip()))
	for _, user := range []string{"alice", "mallory", "", "a:b"} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if _, err := login(t, a, user, "wrong"); !errors.Is(err, session.ErrRejected) {
			t.Errorf("%q: %v", user, err)
		}
		runtime.ReadMemStats(&after)
		if used := after.TotalAlloc - before.TotalAlloc; used < memoryKiB<<10 || used > memoryKiB<<10*5/4 {
			t.Errorf("%q: %d bytes of work, want about %d", user, used, memoryKiB<<10)
		}
	}
}

// TestChangesAreRead: changes of the file are read at the next login, and a file with mistakes keeps the former
// accounts. Long: the steps of one run, each of which needs the state that the one before left.
func TestChangesAreRead(t *testing.T) {
	path := accountsFile(t, "alice:"+hashOfTulip())
	a, logged := open(t, path)
	expect := func(user, password string, want bool) {
		t.Helper()
		if _, err := login(t, a, user, password); (err == nil) != want {
			t.Errorf("%s with %s: %v", user, password, err)
		}
	}
	expect("alice", "tulip", true)

	// Same size, and likely within the same tick of the file system's clock.
	rewrite(t, path, "alice:"+hashOfRose())
	expect("alice", "tulip", false)
	expect("alice", "rose", true)

	// An editor that writes a new file and renames it.
	next := accountsFile(t, "alice:"+hashOfRose(), "bob:"+hashOfTulip())
	if err := os.Rename(next, path); err != nil {
		t.Fatal(err)
	}
	expect("bob", "tulip", true)

	// A mistake in the file: all accounts stay, and the log names the line, once.
	rewrite(t, path, "alice:"+hashOfRose(), "bob;"+hashOfTulip())
	logged.Reset()
	expect("bob", "tulip", true)
	expect("alice", "rose", true)
	if n := logged.Count(path + ":2: must be name:hash"); n != 1 {
		t.Errorf("the log names the line %d times, want once:\n%s", n, logged)
	}

	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	expect("bob", "tulip", true)

	rewrite(t, path, "alice:"+hashOfRose())
	expect("bob", "tulip", false)
	expect("alice", "rose", true)

	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	logged.Reset()
	expect("alice", "rose", true)
	if !strings.Contains(logged.String(), "chmod 640 "+path) {
		t.Errorf("the log does not say what is wrong with the mode:\n%s", logged)
	}

	// Another owner's file: its accounts count for nothing.
	rewrite(t, path, "mallory:"+hashOfTulip())
	if err := errors.Join(os.Chmod(path, 0o600), os.Chown(path, 65534, 65534)); err != nil {
		t.Fatal(err)
	}
	logged.Reset()
	expect("mallory", "tulip", false)
	expect("alice", "rose", true)
	if !strings.Contains(logged.String(), "chown root "+path) {
		t.Errorf("the log does not say what is wrong with the owner:\n%s", logged)
	}
}

// TestMistakesLoggedOnChange: a file that becomes bad is logged, and its mistakes are in the state, although nobody
// logs in; and so is a good one.
func TestMistakesLoggedOnChange(t *testing.T) {
	path := accountsFile(t, "alice:"+someHash, "bob:"+someHash)
	logReader, log := io.Pipe()
	a, err := Open(path, slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(logReader)
	says := func(want string) {
		t.Helper()
		if !lines.Scan() || !strings.Contains(lines.Text(), want) {
			t.Fatalf("the log says %q, want %q", lines.Text(), want)
		}
	}
	var following sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	following.Go(func() { a.Follow(ctx) })
	t.Cleanup(func() { stop(); logReader.Close(); following.Wait() })

	rewrite(t, path, "alice:"+someHash, "bob")
	says(path + ":2: must be name:hash")
	if s := a.State(); s.Number != 2 || s.Problem == nil || !strings.HasPrefix(s.Problem.Error(), path+":2: ") {
		t.Errorf("the state of a bad file is %+v", s)
	}
	rewrite(t, path, "alice:"+someHash)
	says("accounts=1")
	if s := a.State(); s.Number != 1 || s.Problem != nil {
		t.Errorf("the state of a good file is %+v", s)
	}
}

func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	file := func(name string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	huge := file("huge", 0o600)
	if err := os.Truncate(huge, listfile.MaxFile+1); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		filepath.Join(dir, "none"):  "no such file",
		file("world-read", 0o604):   "others may read it or the group may write it; chmod 640",
		file("world-write", 0o602):  "others may read it",
		file("group-write", 0o660):  "the group may write it",
		file("everybody", 0o777):    "has mode 0777",
		dir:                         "is no regular file",
		pipe:                        "is no regular file",
		huge:                        "16777216 at most",
		accountsFile(t, "no colon"): ":1: must be name:hash",
	} {
		_, err := Open(path, slog.Default())
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: error %v, want %q and the path", path, err, want)
		}
	}
	for _, mode := range []os.FileMode{0o600, 0o640, 0o400} {
		if _, err := Open(file(fmt.Sprintf("mode-%o", mode), mode), slog.Default()); err != nil {
			t.Error(err)
		}
	}
}

// TestReturningUsersDoNotWait: while a flood of guesses fills the queue, an account that has logged in before logs in
// at once. A wrong password, another account and an account with a changed password wait like all others.
func TestReturningUsersDoNotWait(t *testing.T) {
	path := accountsFile(t, "alice:"+hashOfTulip(), "bob:"+hashOfRose())
	a, _ := open(t, path)
	if _, err := login(t, a, "alice", "tulip"); err != nil {
		t.Fatal(err)
	}
	a.line.maxLogins = 0
	if got, err := login(t, a, "alice", "tulip"); err != nil || got.User != "alice" {
		t.Errorf("a returning user: %v", err)
	}
	for user, password := range map[string]string{"alice": "rose", "bob": "rose", "mallory": "tulip"} {
		if _, err := login(t, a, user, password); !errors.Is(err, session.ErrBusy) {
			t.Errorf("%s with %q: %v, want ErrBusy", user, password, err)
		}
	}
	rewrite(t, path, "alice:"+hashOfRose(), "bob:"+hashOfRose())
	if _, err := login(t, a, "alice", "tulip"); !errors.Is(err, session.ErrBusy) {
		t.Errorf("the password of before the change: %v, want ErrBusy", err)
	}
	rewrite(t, path, "bob:"+hashOfRose())
	if _, err := login(t, a, "alice", "tulip"); !errors.Is(err, session.ErrBusy) {
		t.Errorf("an account that is gone: %v, want ErrBusy", err)
	}
	if len(a.verified) != 0 {
		t.Error("an account that is gone is remembered")
	}
}

// TestGuessesDoNotDelayOthers: 40 devices always guess made-up names, each for the first time, like new users, and 40
// devices guess passwords of one account, each after a wrong password. Right passwords are answered at once.
func TestGuessesDoNotDelayOthers(t *testing.T) {
	a, _ := open(t, accountsFile(t, "alice:"+hashOfTulip(), "bob:"+hashOfRose()))
	ctx, stop := context.WithCancel(t.Context())
	var guessers sync.WaitGroup
	defer guessers.Wait()
	defer stop()
	var decided, made atomic.Int64
	guess := func(credentials session.Credentials) {
		if _, err := a.Authenticate(ctx, credentials); errors.Is(err, session.ErrRejected) {
			decided.Add(1)
		}
	}
	for range 40 {
		guessers.Go(func() {
			for ctx.Err() == nil {
				guess(session.Credentials{User: fmt.Sprint("name", made.Add(1)), Password: "guess"})
			}
		})
		guessers.Go(func() {
			for ctx.Err() == nil {
				guess(session.Credentials{User: "alice", Password: "guess", Failures: 1})
			}
		})
	}
	for decided.Load() < 3 {
		time.Sleep(time.Millisecond)
	}
	for range 3 {
		before := decided.Load()
		if _, err := login(t, a, "bob", "rose"); err != nil {
			t.Errorf("a right login amid guesses: %v", err)
		}
		if n := decided.Load() - before; n > 10 { // the one that is hashed, and those that end as ours is queued and answered
			t.Errorf("%d guesses were decided before the right login", n)
		}
		a.mu.Lock()
		clear(a.verified)
		a.mu.Unlock()
	}
}

// BenchmarkAuthenticate runs more logins at once than are hashed at once.
func BenchmarkAuthenticate(b *testing.B) {
	a, _ := open(b, accountsFile(b, "alice:"+hashOfTulip()))
	b.SetParallelism(10)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := login(b, a, "alice", "tulip"); err != nil {
				b.Error(err)
			}
		}
	})
}
