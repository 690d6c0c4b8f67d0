package textfile

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTrim(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "a": "a", "\ufeff": "", "\ufeffa\ufeff": "a\ufeff", "\ufeff\ufeff#": "#", " \ufeffa": " \ufeffa", "\xef\xbb": "\xef\xbb",
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
