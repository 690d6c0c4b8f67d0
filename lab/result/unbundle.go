package result

import (
	"archive/tar"
	"bytes"
	"compress/flate"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"syscall"
)

// ReadBundle checks a bundle and passes its files to visit, in the manifest's order. Their contents are verified only
// when ReadBundle returns without an error. name is used in errors only.
func ReadBundle(r io.Reader, name string, visit func(file BundledFile, content io.Reader) error) (Manifest, error) {
	manifest, err := readBundle(r, visit)
	if err != nil {
		return manifest, fmt.Errorf("read bundle %s: %w", name, explain(err))
	}
	return manifest, nil
}

// explain adds to an error of gzip, tar or JSON what the user can do.
func explain(err error) error {
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return fmt.Errorf("it is cut short: copy it again (%w)", err)
	case errors.Is(err, gzip.ErrChecksum), errors.Is(err, tar.ErrHeader), errors.As(err, new(flate.CorruptInputError)):
		return fmt.Errorf("it is damaged: copy it again (%w)", err)
	}
	return err
}

func readBundle(r io.Reader, visit func(BundledFile, io.Reader) error) (Manifest, error) {
	manifest, archive, err := openBundle(r)
	if err != nil {
		return manifest, err
	}
	for _, file := range manifest.Files {
		head, err := archive.Next()
		if err != nil {
			return manifest, fmt.Errorf("%s: %w", file.Path, err)
		}
		if err := isEntry(head, file.Path, file.Bytes); err != nil {
			return manifest, err
		}
		sum := sha256.New()
		content := io.TeeReader(archive, sum)
		if err := visit(file, content); err != nil {
			return manifest, err
		}
		if _, err := io.Copy(io.Discard, content); err != nil {
			return manifest, err
		}
		if !file.matches(sum) {
			return manifest, fmt.Errorf("%s has the wrong SHA-256 checksum: the bundle was changed or damaged", file.Path)
		}
	}
	if head, err := archive.Next(); err == nil {
		return manifest, fmt.Errorf("%q is not in its %s", head.Name, manifestFile)
	} else if !errors.Is(err, io.EOF) {
		return manifest, err
	}
	return manifest, archive.end()
}

// unpacker has the tar archive of a bundle and the compressed stream that contains it.
type unpacker struct {
	*tar.Reader
	zipped *gzip.Reader
}

// maxPadding is the largest number of zero bytes after a tar archive.
const maxPadding = 1 << 20

// end reads to the checksum at the end of the compressed stream.
func (u unpacker) end() error {
	n, err := io.Copy(io.Discard, io.LimitReader(u.zipped, maxPadding+1))
	if err == nil && n > maxPadding {
		err = errors.New("more follows its last file")
	}
	return err
}

// openBundle reads and checks the manifest of a bundle.
func openBundle(r io.Reader) (Manifest, unpacker, error) {
	var m Manifest
	zipped, err := gzip.NewReader(r)
	if err != nil {
		return m, unpacker{}, ErrNotBundle
	}
	zipped.Multistream(false)
	u := unpacker{tar.NewReader(zipped), zipped}
	head, err := u.Next()
	switch {
	case err != nil || head.Name != bundleRoot+manifestFile || head.Typeflag != tar.TypeReg:
		return m, u, ErrNotBundle
	case head.Size > maxManifestBytes:
		return m, u, fmt.Errorf(
			"%s of %d bytes, more than the %d MiB it may have", manifestFile, head.Size, maxManifestBytes>>20)
	}
	data, err := io.ReadAll(io.LimitReader(u, maxManifestBytes))
	if err != nil {
		return m, u, fmt.Errorf("%s: %w", manifestFile, err)
	}
	// The version comes first, because the other keys of a newer manifest may differ.
	var first struct {
		Format  string `json:"format"`
		Version int    `json:"version"`
	}
	if err := json.Unmarshal(data, &first); err != nil {
		return m, u, fmt.Errorf("%s: %w", manifestFile, err)
	}
	if err := (Manifest{Format: first.Format, Version: first.Version}).check(); err != nil {
		return m, u, err
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&m); err != nil {
		return m, u, fmt.Errorf("%s: %w", manifestFile, err)
	}
	return m, u, m.check()
}

// isEntry compares a tar header with an entry of the manifest. The order is fixed, so no file can be there twice, be
// missing, or have another name.
func isEntry(head *tar.Header, name string, size int64) error {
	switch {
	case head.Name != bundleRoot+name:
		return fmt.Errorf("%q stands where its %s has %q", head.Name, manifestFile, name)
	case head.Typeflag != tar.TypeReg:
		return fmt.Errorf("%s is not a plain file", name)
	case head.Size != size:
		return fmt.Errorf("%s has %d bytes, its %s says %d", name, head.Size, manifestFile, size)
	}
	return nil
}

// UnpackBundle makes a run folder at dir from the bundle at name. The folder must be absent, empty, or contain the same
// run already. It appears whole and verified or not at all, also when ctx ends. Nothing is written outside it.
func UnpackBundle(ctx context.Context, name, dir string) error {
	file, err := os.Open(name)
	if err != nil {
		return fmt.Errorf("open bundle: %w", err)
	}
	defer file.Close()
	parent := filepath.Dir(filepath.Clean(dir))
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return fmt.Errorf("unpack %s: %w", name, err)
	}
	staging, err := os.MkdirTemp(parent, "."+filepath.Base(filepath.Clean(dir))+".*")
	if err != nil {
		return fmt.Errorf("unpack %s: %w; choose another folder with -o", name, err)
	}
	defer os.RemoveAll(staging) // after the rename there is nothing to remove
	manifest, err := unpackInto(staging, readUntilDone{ctx, file}, name)
	switch {
	case ctx.Err() != nil: // the end of ctx may have cut the manifest short
		return fmt.Errorf("unpack %s: %w", name, context.Cause(ctx))
	case err != nil:
		return err
	}
	// Unlike os.Rename, this call replaces an empty folder, and its error says why it fails.
	err = syscall.Rename(staging, dir)
	switch {
	case err == nil:
		return syncDir(parent)
	case holds(ctx, dir, manifest):
		return nil
	case errors.Is(err, fs.ErrExist), errors.Is(err, syscall.ENOTDIR): // ENOTEMPTY is an ErrExist too
		return fmt.Errorf("unpack %s: %s exists and is not the run in this bundle: choose another folder with -o", name, dir)
	}
	return fmt.Errorf("unpack %s: put it at %s: %w; choose another folder with -o", name, dir, err)
}

func unpackInto(dir string, r io.Reader, name string) (Manifest, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return Manifest{}, fmt.Errorf("unpack %s: %w", name, err)
	}
	defer root.Close()
	if err := os.Chmod(dir, 0o755); err != nil {
		return Manifest{}, fmt.Errorf("unpack %s: %w", name, err)
	}
	return ReadBundle(r, name, func(f BundledFile, content io.Reader) error {
		if err := root.MkdirAll(path.Dir(f.Path), 0o755); err != nil {
			return err
		}
		out, err := root.OpenFile(f.Path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if err != nil {
			return err
		}
		_, err = io.Copy(out, content)
		return errors.Join(err, out.Sync(), out.Close())
	})
}

// holds reports whether the run folder dir has all files of a manifest, unchanged.
func holds(ctx context.Context, dir string, m Manifest) bool {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return false
	}
	defer root.Close()
	for _, f := range m.Files {
		if present, err := stockOf(ctx, root, f.Path); err != nil || present != f {
			return false
		}
	}
	return true
}
