package manual

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/spf13/cobra"
)

// Shells are those for which cobra writes scripts.
var Shells = []string{"bash", "zsh", "fish", "powershell"}

// places are where packages have scripts of shells, below a folder such as /usr/share.
var places = map[string]string{
	"bash": "bash-completion/completions/%s",
	"zsh":  "zsh/site-functions/_%s",
	"fish": "fish/vendor_completions.d/%s.fish",
}

// Script writes the script with which a shell completes a program's commands.
func Script(root *cobra.Command, shell string, w io.Writer, descriptions bool) error {
	switch shell {
	case "bash":
		return root.GenBashCompletionV2(w, descriptions)
	case "zsh":
		if !descriptions {
			return root.GenZshCompletionNoDesc(w)
		}
		return root.GenZshCompletion(w)
	case "fish":
		return root.GenFishCompletion(w, descriptions)
	case "powershell":
		if !descriptions {
			return root.GenPowerShellCompletion(w)
		}
		return root.GenPowerShellCompletionWithDesc(w)
	}
	return fmt.Errorf("no script for the shell %q: there are %v", shell, Shells)
}

// Write writes the man pages and the scripts of the shells below a folder that is laid out as /usr/share is, in the
// place of former ones, and returns the files.
func (b Book) Write(folder string) (files []string, err error) {
	put := func(name string, text []byte) {
		name = filepath.Join(folder, name)
		if err == nil {
			err = os.MkdirAll(filepath.Dir(name), 0o755)
		}
		if err == nil {
			err = os.WriteFile(name, text, 0o644)
		}
		if err == nil {
			files = append(files, name)
		}
	}
	for _, p := range b.Pages() {
		put(fmt.Sprintf("man/man%d/%s", b.Section, p.Name), p.Text)
	}
	for _, shell := range Shells {
		place, packaged := places[shell]
		if !packaged {
			continue
		}
		var script bytes.Buffer
		if err := Script(b.Root, shell, &script, true); err != nil {
			return files, err
		}
		put(fmt.Sprintf(place, b.Root.Name()), script.Bytes())
	}
	return files, err
}

// SourceDate is the date of a build's sources: SOURCE_DATE_EPOCH, seconds since 1970, which builds that can be repeated
// set. Without it the date is unknown.
func SourceDate() (time.Time, error) {
	text := os.Getenv("SOURCE_DATE_EPOCH")
	if text == "" {
		return time.Time{}, nil
	}
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH=%s: want seconds since 1970, as git log -1 --format=%%ct has them",
			text)
	}
	return time.Unix(seconds, 0).UTC(), nil
}
