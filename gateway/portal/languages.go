package portal

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"

	"github.com/gateweigh/gateweigh/internal/near"
	"github.com/gateweigh/gateweigh/textfile"
)

// languageFile is the name of a file with the texts of a language, by its primary subtag (BCP 47).
var languageFile = regexp.MustCompile(`^texts\.([a-z]{2,8})\.toml$`)

// languageOf returns the language of a file of texts; "": the file is not one.
func languageOf(file string) string {
	if m := languageFile.FindStringSubmatch(file); m != nil {
		return m[1]
	}
	return ""
}

// readLanguages returns the built-in languages, with those of the files in dir in their place and behind them.
// dir may be empty: none.
func readLanguages(dir string) ([]*Texts, error) {
	all := slices.Clone(builtInTexts())
	if dir == "" {
		return all, nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("reading the portal's templates: %w", err)
	}
	for _, e := range entries { // by name
		lang := languageOf(e.Name())
		if lang == "" {
			continue
		}
		index := slices.IndexFunc(all, func(t *Texts) bool { return t.Lang == lang })
		base := *all[0]
		if index >= 0 {
			base = *all[index]
		}
		base.Lang = lang
		t, err := readTexts(filepath.Join(dir, e.Name()), base)
		if err != nil {
			return nil, err
		}
		if index >= 0 {
			all[index] = t
		} else {
			all = append(all, t)
		}
	}
	return all, nil
}

// readTexts reads a file of texts. Texts that the file lacks are taken from base, so that a file written for a former
// version stays usable.
func readTexts(path string, base Texts) (*Texts, error) {
	data, err := textfile.Read(path, maxTemplate)
	if err != nil {
		return nil, fmt.Errorf("reading the portal's texts: %w", err)
	}
	return parseTexts(path, data, base)
}

// parseTexts parses the content of a file of texts. path is only for errors.
func parseTexts(path string, data []byte, base Texts) (*Texts, error) {
	t := base
	md, err := toml.NewDecoder(bytes.NewReader(data)).Decode(&t)
	var bad toml.ParseError
	switch unknown := md.Undecoded(); {
	case errors.As(err, &bad):
		return nil, fmt.Errorf("%s:%d: %s: a line is NAME = \"text\"", path, bad.Position.Line, bad.Message)
	case err != nil:
		return nil, fmt.Errorf("%s: %w", path, err)
	case len(unknown) > 0:
		return nil, fmt.Errorf("%s: no text is called %s%s: gatewayd templates writes all", path, unknown[0], near.Suggestion(
			unknown[0].String(), textNames()))
	case t.Lang != base.Lang:
		return nil, fmt.Errorf("%s: Lang is %q, and the file's name says %q", path, t.Lang, base.Lang)
	}
	for _, c := range []struct{ name, text, unit string }{{"Wait", t.Wait, "seconds"}, {"Remember", t.Remember, "days"}} {
		if text := fmt.Sprintf(c.text, 7); strings.Contains(text, "%!") || !strings.Contains(text, "7") {
			return nil, fmt.Errorf("%s: %s must have one %%d, for the %s, not %q", path, c.name, c.unit, c.text)
		}
	}
	return &t, nil
}

// textNames are the names of the texts, in the order of Texts.
func textNames() (names []string) {
	for i, all := 0, reflect.TypeFor[Texts](); i < all.NumField(); i++ {
		names = append(names, all.Field(i).Name)
	}
	return names
}

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
