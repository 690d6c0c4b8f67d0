// The style of the pages, and the images of an operator's folder.

package portal

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gateweigh/gateweigh/textfile"
)

// readStyle returns theme.css and style.css as one style sheet.
func readStyle(dir string) (string, error) {
	all := ""
	for _, name := range []string{"theme.css", "style.css"} {
		style, err := readPart(dir, name)
		if err != nil {
			return "", err
		}
		if i := strings.Index(strings.ToLower(style), "</style"); i >= 0 {
			return "", fmt.Errorf("%s:%d: a style sheet that ends the style element is none", filepath.Join(dir, name),
				1+strings.Count(style[:i], "\n"))
		}
		all += style
	}
	return all, nil
}

// themePath is the path below which the portal serves the images of an operator's folder.
const themePath = "/theme/"

// Bounds of the images: they are kept in memory, and phones load them.
const (
	maxImage  = 512 << 10 // bytes
	maxImages = 32
)

// image is an image of the folder.
type image struct {
	kind string // its media type
	data []byte
	tag  string // a hash of data
}

// images are the images of the folder by the names of their files. Only these are served, from memory.
type images map[string]image

// imageKinds are the media types of images by the ends of their names.
var imageKinds = map[string]string{
	".svg": "image/svg+xml", ".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".webp": "image/webp",
	".gif": "image/gif",
}

// readImages reads the images in dir, which may be empty.
func readImages(dir string) (images, error) {
	if dir == "" {
		return nil, nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("reading the portal's images: %w", textfile.Plain(err))
	}
	all := images{}
	for _, e := range entries {
		kind, known := imageKinds[strings.ToLower(filepath.Ext(e.Name()))]
		if !known {
			continue
		}
		path := filepath.Join(dir, e.Name())
		info, err := os.Stat(path)
		if err != nil {
			return nil, fmt.Errorf("reading the portal's images: %w", textfile.Plain(err))
		}
		if !info.Mode().IsRegular() {
			return nil, fmt.Errorf("%s is no file", path)
		}
		if info.Size() > maxImage {
			return nil, fmt.Errorf("%s has %d bytes, more than %d: make it smaller", path, info.Size(), maxImage)
		}
		if len(all) == maxImages {
			return nil, fmt.Errorf("%s has more than %d images", dir, maxImages)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("reading the portal's images: %w", textfile.Plain(err))
		}
		if !isOfKind(data, kind) {
			return nil, fmt.Errorf("%s is no %s: its name must end as its format says", path, kind)
		}
		sum := sha256.Sum256(data)
		all[e.Name()] = image{kind, data, hex.EncodeToString(sum[:8])}
	}
	return all, nil
}

// isOfKind reports whether an image begins as its media type does.
func isOfKind(data []byte, kind string) bool {
	if kind == "image/svg+xml" {
		return bytes.Contains(data, []byte("<svg"))
	}
	return http.DetectContentType(data) == kind
}

// url returns the URL of the image with a name without its end; "": there is none. It changes with the image, so that
// browsers may keep it.
func (all images) url(name string) string {
	for _, file := range slices.Sorted(maps.Keys(all)) {
		if strings.TrimSuffix(file, filepath.Ext(file)) == name {
			return themePath + url.PathEscape(file) + "?v=" + all[file].tag
		}
	}
	return ""
}

// serve sends an image. Opened as a page of its own an SVG must not do anything: the policy is that of a sandbox, and
// allows only the style in it.
func (all images) serve(w http.ResponseWriter, r *http.Request, notFound http.HandlerFunc) {
	img, ok := all[strings.TrimPrefix(r.URL.Path, themePath)]
	if !ok {
		notFound(w, r)
		return
	}
	h := w.Header()
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; sandbox")
	h.Set("Content-Type", img.kind)
	h.Set("ETag", `"`+img.tag+`"`)
	h.Set("Cache-Control", "max-age=3600")
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(img.data))
}
