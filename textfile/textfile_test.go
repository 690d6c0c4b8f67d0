package textfile

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
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
