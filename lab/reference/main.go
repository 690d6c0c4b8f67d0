// Command reference writes the pages of docs/reference from the lab's own tables and doc comments: keys of experiments,
// metrics, records, devices, and claims of studies. CI checks that the pages are up to date.
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

//go:generate go run . ../.. ../../docs/reference

// pages lists the pages with their file names. Each function gets the folder of the module's sources.
var pages = []struct {
	name string
	page func(root string) (string, error)
}{
	{"experiment-keys.md", keys},
	{"device-keys.md", deviceKeys},
	{"metrics.md", metrics},
	{"records.md", records},
	{"claims.md", claims},
	{"devices.md", devices},
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: reference SOURCES FOLDER: writes the generated pages of the manual into FOLDER")
		os.Exit(2)
	}
	for _, p := range pages {
		text, err := p.page(os.Args[1])
		if err == nil {
			err = os.WriteFile(filepath.Join(os.Args[2], p.name), []byte(text), 0o644)
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "reference: %s: %v\n", p.name, err)
			os.Exit(1)
		}
	}
}

// head returns the beginning of a page.
func head(title, text string) string {
	return "# " + title + "\n\nMade by `make generate` from the code. " + text + "\n\n"
}
