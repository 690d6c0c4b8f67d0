package result_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/gateweigh/gateweigh/lab/result"
)

// These tests read archives that nobody made with WriteBundle.

// forge makes an archive of a manifest and entries without checking them. The manifest is a result.Manifest, or a
// string that is its text.
func forge(t testing.TB, manifest any, entries ...entry) []byte {
	t.Helper()
	head, ok := manifest.(string)
	if !ok {
		data, err := json.Marshal(manifest)
		if err != nil {
			t.Fatal(err)
		}
		head = string(data)
	}
	var b bytes.Buffer
	zipped := gzip.NewWriter(&b)
	archive := tar.NewWriter(zipped)
	for _, e := range append([]entry{{name: "run/manifest.json", content: head}}, entries...) {
		h := &tar.Header{Typeflag: e.kind, Name: e.name, Linkname: e.link, Size: int64(len(e.content)), Mode: 0o644}
		if e.kind == 0 {
			h.Typeflag = tar.TypeReg
		}
		if err := archive.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := archive.Write([]byte(e.content)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(archive.Close(), zipped.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// listed returns the line of a manifest for a file.
func listed(name, content string) result.BundledFile {
	sum := sha256.Sum256([]byte(content))
	return result.BundledFile{Path: name, Bytes: int64(len(content)), SHA256: hex.EncodeToString(sum[:])}
}

// manifest returns a manifest of the present version.
func manifest(files ...result.BundledFile) result.Manifest {
	return result.Manifest{Format: "gateweigh bundle", Version: 1, Files: files}
}

// hostile returns archives that must be refused, each with a part of the error.
func hostile(t testing.TB) map[string]struct {
	data []byte
	want string
} {
	env := listed("environment.json", "{}")
	envEntry := entry{name: "run/environment.json", content: "{}"}
	big := env
	big.Bytes = 3 << 30
	wrong := env
	wrong.SHA256 = strings.Repeat("0", 64)
	whole := forge(t, manifest(env), envEntry)
	flipped := bytes.Clone(whole)
	flipped[len(flipped)-6] ^= 1 // in gzip's own checksum
	return map[string]struct {
		data []byte
		want string
	}{
		"empty":             {nil, "not a bundle"},
		"text":              {[]byte("dear reader"), "not a bundle"},
		"gzip of text":      {zip(t, "dear reader"), "not a bundle"},
		"another archive":   {forge(t, `{"name":"package"}`), "not a bundle"},
		"manifest not JSON": {forge(t, "["), "manifest.json: "},
		"unknown key":       {forge(t, `{"format":"gateweigh bundle","version":1,"files":[],"extra":1}`), "manifest.json: "},
		"newer": {
			forge(t, `{"format":"gateweigh bundle","version":2,"chunks":7}`), "bundle version 2, known up to 1"},
		"version 0": {forge(t, `{"format":"gateweigh bundle","version":0}`), "0 is not a bundle version"},
		"path traversal": {forge(t, manifest(listed("profiles/../../x", "a")), entry{name: "run/profiles/../../x",
			content: "a"}), "which is no file of a run"},
		"absolute path": {
			forge(t, manifest(listed("/etc/x", "a")), entry{name: "/etc/x", content: "a"}), "which is no file of a run"},
		"foreign file": {forge(t, manifest(listed("report.html", "a")), entry{name: "run/report.html", content: "a"}),
			"which is no file of a run"},
		"folder":       {forge(t, manifest(listed("profiles", ""))), "which is no file of a run"},
		"listed twice": {forge(t, manifest(env, env), envEntry, envEntry), `"environment.json" twice`},
		"there twice":  {forge(t, manifest(env), envEntry, envEntry), "is not in its manifest.json"},
		"not listed": {
			forge(t, manifest(env), envEntry, entry{name: "/etc/x", content: "a"}), "is not in its manifest.json"},
		"another name": {
			forge(t, manifest(env), entry{name: "../environment.json", content: "{}"}), "stands where its manifest.json has"},
		"symbolic link": {forge(t, manifest(listed("environment.json", "")), entry{name: "run/environment.json",
			kind: tar.TypeSymlink, link: "/etc/passwd"}), "is not a plain file"},
		"hard link": {forge(t, manifest(listed("environment.json", "")), entry{name: "run/environment.json",
			kind: tar.TypeLink, link: "/etc/passwd"}), "is not a plain file"},
		"missing":   {forge(t, manifest(env, listed("trials.jsonl", goodTrial)), envEntry), "cut short"},
		"too large": {forge(t, manifest(big), envEntry), "more than the 2048 MiB"},
		"negative size": {
			forge(t, manifest(result.BundledFile{Path: "environment.json", Bytes: -1})), "more than the 2048 MiB"},
		"another size": {forge(t, manifest(env), entry{name: "run/environment.json", content: "{} "}),
			"has 3 bytes, its manifest.json says 2"},
		"wrong checksum": {forge(t, manifest(wrong), envEntry), "wrong SHA-256 checksum"},
		"cut short":      {whole[:len(whole)-30], "cut short"},
		"cut at the end": {whole[:len(whole)-4], "cut short"},
		"flipped bit":    {flipped, "damaged"},
	}
}

// zip compresses a text with gzip.
func zip(t testing.TB, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := io.WriteString(w, text)
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestHostileBundles: a hostile archive is refused with its file's name, and leaves no file behind.
func TestHostileBundles(t *testing.T) {
	for name, c := range hostile(t) {
		t.Run(name, func(t *testing.T) {
			parent := t.TempDir()
			file := filepath.Join(parent, "b.tar.gz")
			if err := os.WriteFile(file, c.data, 0o644); err != nil {
				t.Fatal(err)
			}
			err := result.UnpackBundle(t.Context(), file, filepath.Join(parent, "r"))
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), file) {
				t.Errorf("%v, want %q", err, c.want)
			}
			if errors.Is(err, result.ErrNewerVersion) != (name == "newer") {
				t.Errorf("newer version: %v", err)
			}
			if entries, _ := os.ReadDir(parent); len(entries) != 1 {
				t.Errorf("left behind: %v", entries)
			}
		})
	}
}

// FuzzReadBundle: whatever the archive contains, ReadBundle passes only files of a run to its caller, each once, and
// with the content that the manifest describes.
func FuzzReadBundle(f *testing.F) {
	for _, c := range hostile(f) {
		f.Add(c.data)
	}
	f.Add(forge(f, manifest(listed("trials.jsonl", goodTrial), listed("profiles/x", "y")),
		entry{name: "run/trials.jsonl", content: goodTrial}, entry{name: "run/profiles/x", content: "y"}))
	f.Fuzz(func(t *testing.T, data []byte) {
		out := fstest.MapFS{}
		m, err := result.ReadBundle(bytes.NewReader(data), "fuzz", func(file result.BundledFile, content io.Reader) error {
			if !filepath.IsLocal(file.Path) || out[file.Path] != nil {
				t.Errorf("unsafe path %q", file.Path)
			}
			got, err := io.ReadAll(io.LimitReader(content, 1<<20))
			out[file.Path] = &fstest.MapFile{Data: got}
			return err
		})
		if err != nil {
			if !strings.HasPrefix(err.Error(), "read bundle fuzz: ") {
				t.Errorf("error without its file: %v", err)
			}
			return
		}
		for _, file := range m.Files {
			got := out[file.Path]
			if got == nil || file.Bytes <= 1<<20 && listed(file.Path, string(got.Data)) != file {
				t.Errorf("%s is not what the manifest says", file.Path)
			}
		}
	})
}
