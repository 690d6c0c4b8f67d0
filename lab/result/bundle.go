package result

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
)

// A bundle is a run folder in one file: a gzip-compressed tar archive with
// everything a report is made from. `tar xzf` unpacks it too. Below the folder
// bundleRoot it holds the manifest, and then exactly the files the manifest
// lists, in its order:
//
//	run/manifest.json
//	run/environment.json
//	run/experiment.toml
//	run/guest.json          of a run in a virtual machine
//	run/trials.jsonl
//	run/trials.jsonl.torn
//	run/profiles/...
//	run/logs/...            when asked for
//
// Names, modes, times and order depend on nothing but the files' contents, so
// the same run gives the same bytes.

// BundleVersion is the format version of bundles written by this package.
const BundleVersion = 1

// BundleSuffix ends the name of a bundle that was given no other.
const BundleSuffix = ".tar.gz"

const (
	bundleRoot   = "run/"
	bundleFormat = "gateweigh bundle"
	manifestFile = "manifest.json"
)

// Bounds of a bundle, for reading what a stranger sent as much as for writing.
const (
	maxBundleBytes   = 2 << 30 // of all files, unpacked
	maxBundleFiles   = 20_000
	maxManifestBytes = 8 << 20
)

// bundledFiles and bundledFolders are what a bundle may hold, in its order.
var (
	bundledFiles   = []string{EnvironmentFile, ExperimentFile, GuestFile, TrialsFile, TornFile}
	bundledFolders = []string{FramesFolder, ProfilesFolder, LogsFolder}
)

// profileFiles are what is packed of a profile's folder. A kill leaves perf's own
// files beside them, large and with more of the machine than a profile tells.
var profileFiles = []string{ProfileFile, DUTFoldedFile, CleanFoldedFile, DUTPprofFile, CleanPprofFile}

// ErrNotBundle is wrapped when a file is something else than a bundle.
var ErrNotBundle = errors.New("not a bundle: want what gateweigh bundle RUN has made, or a run folder")

// Manifest is the first file of a bundle.
type Manifest struct {
	Format  string        `json:"format"` // always "gateweigh bundle"
	Version int           `json:"version"`
	Files   []BundledFile `json:"files"`
}

// BundledFile is one file of a bundle.
type BundledFile struct {
	Path   string `json:"path"` // from the run folder, slash-separated
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"` // hexadecimal
}

// WriteBundle packs the run in folder dir into the file at name; logs says
// whether its logs come along. An earlier bundle of that name is replaced,
// whole or not at all; anything else there is left alone and an error. The run
// may still be going on: the bundle then holds what there was when it was begun.
// When ctx ends there is no bundle, or the earlier one.
func WriteBundle(ctx context.Context, dir, name string, logs bool) (Manifest, error) {
	if _, err := ReadRun(dir); err != nil {
		return Manifest{}, err
	}
	if err := replaceable(name); err != nil {
		return Manifest{}, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return Manifest{}, fmt.Errorf("bundle %s: %w", dir, err)
	}
	defer root.Close()
	manifest, err := takeStock(ctx, root, logs)
	if err != nil {
		return Manifest{}, fmt.Errorf("bundle %s: %w", dir, err)
	}
	return manifest, ReplaceBy(name, func(w io.Writer) error { return pack(ctx, w, root, manifest) })
}

// replaceable reports why a bundle may not be written to name.
func replaceable(name string) error {
	info, err := os.Stat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("write bundle: %w", err)
	case !info.Mode().IsRegular():
		return fmt.Errorf("write bundle: %s is not a file: choose another name", name)
	}
	file, err := os.Open(name)
	if err != nil {
		return fmt.Errorf("write bundle: %w", err)
	}
	defer file.Close()
	if _, _, err := openBundle(file); err != nil {
		return fmt.Errorf("write bundle: %s exists and is not a bundle: choose another name", name)
	}
	return nil
}

// takeStock lists and hashes the files of a run folder that belong in a bundle.
func takeStock(ctx context.Context, root *os.Root, logs bool) (Manifest, error) {
	m := Manifest{Format: bundleFormat, Version: BundleVersion, Files: []BundledFile{}}
	tops := slices.Concat(bundledFiles, bundledFolders)
	place := func(name string) int {
		top, _, _ := strings.Cut(name, "/")
		return slices.Index(tops, top)
	}
	err := fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		index := place(name)
		switch {
		case err != nil || name == ".":
			return err
		case d.IsDir() && (index < 0 || tops[index] == LogsFolder && !logs):
			return fs.SkipDir
		case d.IsDir() || index < 0 || tops[index] == ProfilesFolder && !ofProfile(name):
			return nil
		case !d.Type().IsRegular():
			return fmt.Errorf("%s is not a plain file: take it out of the run folder", name)
		}
		file, err := stockOf(ctx, root, name)
		m.Files = append(m.Files, file)
		return err
	})
	if err != nil {
		return m, err
	}
	slices.SortStableFunc(m.Files, func(a, b BundledFile) int { return place(a.Path) - place(b.Path) })
	if err := m.check(); err != nil {
		return m, fmt.Errorf("%w (logs are left out without --logs)", err)
	}
	return m, nil
}

// ofProfile reports whether a path is profiles/<cell>/ and one of profileFiles.
func ofProfile(name string) bool {
	return strings.Count(name, "/") == 2 && slices.Contains(profileFiles, path.Base(name))
}

// stockOf hashes a file as it is now.
func stockOf(ctx context.Context, root *os.Root, name string) (BundledFile, error) {
	file, err := root.Open(name)
	if err != nil {
		return BundledFile{}, err
	}
	defer file.Close()
	hash := sha256.New()
	n, err := io.Copy(hash, readUntilDone{ctx, file})
	if err != nil {
		return BundledFile{}, fmt.Errorf("read %s: %w", name, err)
	}
	return BundledFile{Path: name, Bytes: n, SHA256: hex.EncodeToString(hash.Sum(nil))}, nil
}

// pack writes the archive. Files that only grow may do so meanwhile; what was
// changed otherwise since stock was taken is an error.
func pack(ctx context.Context, w io.Writer, root *os.Root, m Manifest) error {
	zipped, err := gzip.NewWriterLevel(w, gzip.BestCompression)
	if err != nil {
		return err
	}
	archive := tar.NewWriter(zipped)
	add := func(name string, size int64, content io.Reader) error {
		err := archive.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: bundleRoot + name, Size: size, Mode: 0o644})
		if err == nil {
			_, err = io.CopyN(archive, content, size)
		}
		return err
	}
	head, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	head = append(head, '\n')
	if err := add(manifestFile, int64(len(head)), bytes.NewReader(head)); err != nil {
		return err
	}
	for _, file := range m.Files {
		content, err := root.Open(file.Path)
		if err == nil {
			hash := sha256.New()
			err = add(file.Path, file.Bytes, io.TeeReader(readUntilDone{ctx, content}, hash))
			if errors.Is(err, io.EOF) || err == nil && !file.matches(hash) {
				err = errors.New("it was changed meanwhile: bundle again")
			}
			content.Close()
		}
		if err != nil {
			return fmt.Errorf("bundle %s: %w", file.Path, err)
		}
	}
	return errors.Join(archive.Close(), zipped.Close())
}

// matches reports whether all that went into a hash is the file's content.
func (f BundledFile) matches(sum hash.Hash) bool { return hex.EncodeToString(sum.Sum(nil)) == f.SHA256 }

// readUntilDone reads until its context ends.
type readUntilDone struct {
	ctx context.Context
	io.Reader
}

func (s readUntilDone) Read(p []byte) (int, error) {
	if s.ctx.Err() != nil {
		return 0, context.Cause(s.ctx)
	}
	return s.Reader.Read(p)
}

// check checks that a manifest describes a valid bundle.
func (m Manifest) check() error {
	if m.Format != bundleFormat {
		return ErrNotBundle
	}
	if m.Version > BundleVersion {
		return fmt.Errorf(
			"bundle version %d, known up to %d: %w; use a newer gateweigh", m.Version, BundleVersion, ErrNewerVersion)
	}
	if m.Version < 1 {
		return fmt.Errorf("%d is not a bundle version", m.Version)
	}
	if len(m.Files) > maxBundleFiles {
		return fmt.Errorf("%d files, more than the %d a bundle may have", len(m.Files), maxBundleFiles)
	}
	seen := map[string]bool{}
	total := int64(0)
	for _, f := range m.Files {
		switch {
		case !bundled(f.Path):
			return fmt.Errorf("%s lists %q, which is no file of a run", manifestFile, f.Path)
		case seen[f.Path]:
			return fmt.Errorf("%s lists %q twice", manifestFile, f.Path)
		case f.Bytes < 0 || f.Bytes > maxBundleBytes-total:
			return fmt.Errorf("more than the %d MiB a bundle may hold", maxBundleBytes>>20)
		}
		seen[f.Path] = true
		total += f.Bytes
	}
	return nil
}

// bundled reports whether a path is one of those a bundle may have: a file of
// the run, or one below its folders. Nothing that leaves the run folder is.
func bundled(name string) bool {
	if slices.Contains(bundledFiles, name) {
		return true
	}
	folder, _, below := strings.Cut(name, "/")
	return below && slices.Contains(bundledFolders, folder) && fs.ValidPath(name) && path.Clean(name) == name &&
		!strings.ContainsAny(name, "\\\x00")
}
