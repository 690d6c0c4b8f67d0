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

// A bundle is a run folder in one file: a gzip-compressed tar archive with all files that a report needs. `tar xzf`
// unpacks it too. Its folder is called bundleRoot. The manifest comes first, then exactly the files that the manifest
// lists, in the same order:
//
//	run/manifest.json
//	run/environment.json
//	run/experiment.toml
//	run/guest.json          of a run in a virtual machine
//	run/trials.jsonl
//	run/trials.jsonl.torn
//	run/course.jsonl.gz
//	run/profiles/...
//	run/logs/...            when asked for
//
// Names, modes, times and order depend only on the contents of the files, so the same run gives
// the same bytes.

// BundleVersion is the format version of bundles written by this package.
const BundleVersion = 1

// BundleSuffix is the suffix of a bundle's name when the user gives none.
const BundleSuffix = ".tar.gz"

const (
	bundleRoot   = "run/"
	bundleFormat = "gateweigh bundle"
	manifestFile = "manifest.json"
)

// Limits of a bundle. They apply to writing and to reading, because a bundle may come from a stranger.
const (
	maxBundleBytes   = 2 << 30 // of all files together, unpacked
	maxBundleFiles   = 20_000
	maxManifestBytes = 8 << 20
)

// bundledFiles and bundledFolders list what a bundle may contain, in its order.
var (
	bundledFiles   = []string{EnvironmentFile, ExperimentFile, GuestFile, TrialsFile, TornFile, CourseFile}
	bundledFolders = []string{FramesFolder, ProfilesFolder, LogsFolder}
)

// profileFiles lists the files of a profile's folder that are packed. When a run is killed, perf's own files may stay
// beside them. They are large and tell more about the machine than a profile.
var profileFiles = []string{ProfileFile, DUTFoldedFile, CleanFoldedFile, DUTPprofFile, CleanPprofFile}

// ErrNotBundle is wrapped when a file is not a bundle.
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

// WriteBundle packs the run in folder dir into the file name, with its logs if logs is true. It replaces an earlier
// bundle of that name, whole or not at all. Any other file of that name stays, and is an error. The run may still be
// going on: the bundle then has the records of the moment when WriteBundle began. If ctx ends, there is no new bundle.
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

// replaceable returns an error if a bundle may not be written to name.
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

// takeStock lists and hashes the files of a run folder that a bundle contains.
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

// ofProfile reports whether a path is profiles/<cell>/ followed by one of profileFiles.
func ofProfile(name string) bool {
	return strings.Count(name, "/") == 2 && slices.Contains(profileFiles, path.Base(name))
}

// stockOf hashes the file in its present state.
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

// pack writes the archive. A file may have grown since takeStock, and only its earlier part is packed. Any other change
// since then is an error.
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

// matches reports whether the hash is that of the file in the manifest.
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

// check returns an error if a manifest does not describe a valid bundle.
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

// bundled reports whether a bundle may contain a path: a file of the run, or a file below its folders. No path leads
// out of the run folder.
func bundled(name string) bool {
	if slices.Contains(bundledFiles, name) {
		return true
	}
	folder, _, below := strings.Cut(name, "/")
	return below && slices.Contains(bundledFolders, folder) && fs.ValidPath(name) && path.Clean(name) == name &&
		!strings.ContainsAny(name, "\\\x00")
}
