// Tests that a Disconnect or CoA request is not carried out twice, also after a restart: the requests are kept in a
// file. newDynamic makes the server of such requests with a table of one session (oneSession), which counts what is
// done to it (dynamic_test.go).

package radius

import (
	"crypto/rand"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"layeh.com/radius"
	"layeh.com/radius/rfc2865"
	"layeh.com/radius/rfc2869"

	"github.com/gateweigh/gateweigh/internal/logtest"
)

// restarts is a Dynamic with a file, in several processes one after the other.
type restarts struct {
	*Dynamic
	o    *oneSession
	path string
	log  logtest.Log
	id   byte
}

// start begins the next life.
func (l *restarts) start(t *testing.T) {
	t.Helper()
	if l.Dynamic != nil {
		l.Close()
	}
	cfg := Config{NASIdentifier: "here", Servers: []Server{{Address: netip.MustParseAddrPort("127.0.0.1:1812"),
		Secret: testSecret}}}
	var err error
	l.Dynamic, err = ListenDynamic(cfg, netip.MustParseAddrPort("127.0.0.1:0"), l.o, l.path, l.log.Logger())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
}

// kick encodes a Disconnect-Request, whose Event-Timestamp differs from now by stamp; 0: it has none.
func (l *restarts) kick(t *testing.T, user string, stamp time.Duration) []byte {
	l.id++
	return l.request(t, radius.CodeDisconnectRequest, l.id, testSecret, func(p builder) {
		p.text(rfc2865.UserName_Type, user)
		if stamp != 0 {
			p.number(rfc2869.EventTimestamp_Type, uint32(time.Now().Add(stamp).Unix()))
		}
	})
}

// answers fails the test unless a request is answered by want and carried out or not; 0: it gets no answer.
func (l *restarts) answers(t *testing.T, label string, request []byte, now time.Time, want radius.Code, kicked int) {
	t.Helper()
	before := l.o.kicked
	var code radius.Code
	if b := l.receive(dynamicServer, request, now); b != nil {
		code = radius.Code(b[0])
	}
	if code != want || l.o.kicked-before != kicked {
		t.Errorf("%s: answered by %s and carried out %d times, want %s and %d", label, code, l.o.kicked-before, want, kicked)
	}
}

// TestDynamicOnAFullDisk: requests are answered, also by a daemon that starts there, and none is carried out twice,
// also by the next daemon, which refuses those that it may not know.
func TestDynamicOnAFullDisk(t *testing.T) {
	t.Parallel()
	dir := smallDisk(t)
	if dir == "" {
		return
	}
	const ack, nak = radius.CodeDisconnectACK, radius.CodeDisconnectNAK
	_, o := newDynamic(t)
	l := &restarts{o: o, path: filepath.Join(dir, "requests")}
	warned := func(label, text string, want bool) {
		t.Helper()
		if strings.Contains(l.log.String(), text) != want {
			t.Errorf("%s: %q said is %v:\n%s", label, text, !want, l.log.String())
		}
	}
	l.start(t)
	fill(t, dir)
	for i := range 200 { // more than fit into the file's last page
		l.answers(t, "a stranger's", l.kick(t, fmt.Sprint("nobody", i), -5*time.Second), time.Now(), nak, 0)
	}
	warned("while it runs", "free space at state_dir", true)
	recorded, other := l.kick(t, "ann", -5*time.Second), l.kick(t, "ann", -5*time.Second)
	l.answers(t, "another", other, time.Now(), ack, 1)
	l.answers(t, "on the full disk", recorded, time.Now(), ack, 1)
	l.answers(t, "once more", recorded, time.Now(), ack, 0)

	l.log.Reset()
	l.start(t)
	warned("at the start", "free space at state_dir", true)
	l.answers(t, "recorded before the restart", recorded, time.Now(), nak, 0)
	l.answers(t, "without a time", l.kick(t, "ann", 0), time.Now(), nak, 0)
	later := l.kick(t, "ann", 2*time.Second)
	l.answers(t, "after the restart", later, time.Now(), ack, 1)

	if err := os.Remove(filepath.Join(dir, "filler")); err != nil {
		t.Fatal(err)
	}
	warned("on the full disk", "in their file again", false)
	l.repeats.retry(time.Now().Add(tryAgain))
	warned("with space", "in their file again", true)
	l.start(t)
	l.answers(t, "recorded by the first", other, time.Now(), nak, 0)
	l.answers(t, "recorded by the last", later, time.Now(), 0, 0)
	l.answers(t, "a new one", l.kick(t, "ann", 3*time.Second), time.Now(), ack, 1)
}

// TestDamagedRequests: a file that no gateway wrote is set aside, and said; requests older than the start are
// refused, later ones are carried out.
func TestDamagedRequests(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func([]byte) []byte{
		"random": func(b []byte) []byte { rand.Read(b); return b },
		"zeros":  func(b []byte) []byte { clear(b); return b },
		"a sector of zeros": func(b []byte) []byte {
			clear(b[512:1024])
			return b
		},
		"a part missing": func(b []byte) []byte { return slices.Delete(b, 100, 117) },
	} {
		_, o := newDynamic(t)
		l := &restarts{o: o, path: filepath.Join(t.TempDir(), "requests")}
		l.start(t)
		for i := range 50 {
			l.answers(t, name, l.kick(t, fmt.Sprint("nobody", i), -5*time.Second), time.Now(), radius.CodeDisconnectNAK, 0)
		}
		recorded := l.kick(t, "ann", -5*time.Second)
		l.answers(t, name, recorded, time.Now(), radius.CodeDisconnectACK, 1)
		data, err := os.ReadFile(l.path)
		if err == nil {
			err = os.WriteFile(l.path, damage(data), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		l.start(t)
		l.answers(t, name+", recorded", recorded, time.Now(), radius.CodeDisconnectNAK, 0)
		l.start(t) // with a file that the last one wrote
		l.answers(t, name+", recorded by another", l.kick(t, "ann", -5*time.Second), time.Now(), radius.CodeDisconnectNAK, 0)
		l.answers(t, name+", new", l.kick(t, "ann", 5*time.Second), time.Now(), radius.CodeDisconnectACK, 1)
		if _, err := os.Stat(l.path + ".damaged-1"); err != nil || strings.Count(l.log.String(),
			"a state file is damaged and was set aside") != 1 {
			t.Errorf("%s: %v\n%s", name, err, l.log.String())
		}
	}
}

// fill writes a file until the disk is full.
func fill(t *testing.T, dir string) {
	t.Helper()
	f, err := os.Create(filepath.Join(dir, "filler"))
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	f.Close()
}

// smallDisk runs the calling test again in its own mount namespace, with a small tmpfs at the returned folder. In the
// parent the folder is empty and the test ends with the child's result.
func smallDisk(t *testing.T) string {
	t.Helper()
	const variable = "GATEWEIGH_TEST_SMALL_DISK"
	if dir := os.Getenv(variable); dir != "" {
		if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=128k"); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run", "^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), variable+"="+t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("on a small disk: %v\n%s", err, out)
	}
	return ""
}
