// Writing the built-in pages to an operator's folder.

package portal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/gateweigh/gateweigh/textfile"
)

// WriteTemplates writes the built-in pages, their style and the texts of all built-in languages into a folder, which
// it makes if it is missing. Unless force, nothing is written where one of the files exists. It returns their paths.
func WriteTemplates(dir string, force bool) (paths []string, err error) {
	files := map[string][]byte{}
	names := slices.Concat(pageFiles, sharedFiles)
	for _, t := range builtInTexts() {
		names = append(names, "texts."+t.Lang+".toml")
	}
	for _, name := range names {
		text, err := readPart("", name)
		if err != nil {
			return nil, err
		}
		files[name] = []byte(text)
	}
	for name := range files {
		paths = append(paths, filepath.Join(dir, name))
	}
	slices.Sort(paths)
	if info, err := os.Stat(dir); dir == "" {
		return nil, errors.New("the folder's name is empty: name one, which is made if it is missing")
	} else if err == nil && !info.IsDir() {
		return nil, fmt.Errorf("%s is no folder: name another, which is made if it is missing", dir)
	}
	for _, path := range paths {
		if _, err := os.Lstat(path); err == nil && !force {
			return nil, fmt.Errorf("%s exists already: nothing was written; --force replaces it", path)
		} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("looking for former templates: %w", textfile.Plain(err))
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("making the templates' folder: %w", textfile.Plain(err))
	}
	for _, path := range paths {
		if err := os.WriteFile(path, files[filepath.Base(path)], 0o644); err != nil {
			return nil, fmt.Errorf("writing the templates: %w", textfile.Plain(err))
		}
	}
	return paths, nil
}
