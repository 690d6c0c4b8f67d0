package textfile

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestTrim(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "a": "a", "\ufeff": "", "\ufeffa\ufeff": "a\ufeff",
		"\ufeff\ufeff#": "#", " \ufeffa": " \ufeffa", "\xef\xbb": "\xef\xbb",
	} {
		if got := Trim(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
		if got := Trim([]byte(text)); string(got) != want {
			t.Errorf("%q as bytes: %q, want %q", text, got, want)
		}
	}
}

func TestRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, []byte("\ufeffname"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := Read(path, 7); string(got) != "name" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := Read(path, 6); err == nil || !strings.Contains(err.Error(), path+" is larger than 6 bytes") {
		t.Errorf("%v", err)
	}
	if _, err := Read(path+"x", 6); err == nil || !strings.Contains(err.Error(), path+"x") {
		t.Errorf("%v", err)
	}
}

// TestDecode: texts in the encodings that editors of several systems write are read, or refused by name.
func TestDecode(t *testing.T) {
	for text, want := range map[string]string{
		"a = 1": "a = 1", "\ufeffa": "a", "\xff\xfea\x00\n\x00": "a\n", "\xfe\xff\x00a\x00\n": "a\n", "\xff\xfe": "",
		"\xff\xfe\x2d\x4e":         "中",
		"\xff\xfe\x3d\xd8\x00\xde": "😀", "": "", "\x00\x00\x00\x00": "\x00\x00\x00\x00",
	} {
		if got, err := Decode([]byte(text)); err != nil || string(got) != want {
			t.Errorf("%q: %q, %v, want %q", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"a\x00b\x00": "UTF-16", "\x00a\x00b": "UTF-16", "\xff\xfea\x00b": "within a character",
		"\xff\xfe\x00\x00a\x00\x00\x00": "UTF-32", "\x00\x00\x00a": "UTF-32",
	} {
		if got, err := Decode([]byte(text)); err == nil || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), "save it as UTF-8") {
			t.Errorf("%q: %q, %v, want an error of %s", text, got, err, want)
		}
	}
}

// TestReadOfNoFile: what is no regular file is named, and reading it never waits for anybody.
func TestReadOfNoFile(t *testing.T) {
	dir := t.TempDir()
	pipe, link := filepath.Join(dir, "pipe"), filepath.Join(dir, "link")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	socket, err := net.Listen("unix", filepath.Join(dir, "socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	for path, want := range map[string]string{
		pipe: "is no regular file, but a pipe", filepath.Join(dir, "socket"): "is no regular file, but a socket",
		"/dev/zero": "is no regular file, but a device", dir: "is a folder, no file",
	} {
		for name, read := range map[string]func(string, int) ([]byte, error){"Read": Read, "ReadOnce": ReadOnce} {
			want := want
			if path == pipe && name == "ReadOnce" {
				want = "is a pipe to which nobody writes"
			}
			if _, err := read(path, 10); err == nil || !strings.Contains(err.Error(), path+" "+want) {
				t.Errorf("%s of %s: %v, want %s", name, path, err, want)
			}
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "file"), []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("file", link); err != nil {
		t.Fatal(err)
	}
	if got, err := Read(link, 10); string(got) != "text" || err != nil {
		t.Errorf("behind a symbolic link: %q, %v", got, err)
	}
}

// TestReadOnceOfPipe: a pipe is read to its end, also of a writer that is slow, but not of one that never ends.
func TestReadOnceOfPipe(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	path := fmt.Sprintf("/proc/self/fd/%d", r.Fd())
	go func() {
		for _, part := range []string{"\ufeffa", "b"} {
			w.WriteString(part)
		}
		w.Close()
	}()
	if got, err := ReadOnce(path, 10); string(got) != "ab" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	was := pipeWait
	pipeWait = 50 * time.Millisecond
	defer func() { pipeWait = was }()
	path = filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	writer, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	if _, err := ReadOnce(path, 10); err == nil || !strings.Contains(err.Error(), "still writes") {
		t.Errorf("a writer that does not end: %v", err)
	}
}
