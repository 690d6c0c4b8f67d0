package kernel

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// Offer is a kernel that Fetch can fetch.
type Offer struct {
	Name    string // the name that Fetch takes: "debian", "debian:bookworm"
	Version string // of the package
}

// Offers lists the kernels in this machine's apt sources, the newest first: "debian", the newest of all suites, and
// "debian:SUITE" for each suite.
func Offers(ctx context.Context) ([]Offer, error) {
	program := programPath("apt-cache")
	if program == "" {
		return nil, fmt.Errorf(
			"apt-cache is not here: kernels are fetched with Debian's apt only; give a kernel's path: %w", ErrProgram)
	}
	cmd := exec.CommandContext(ctx, program, "madison", metapackage)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("asking apt for kernels (apt-cache madison %s): %w", metapackage, err)
	}
	return parseOffers(string(out)), nil
}

// parseOffers reads the output of apt-cache madison: lines "PACKAGE | VERSION | URL SUITE/COMPONENT ARCHITECTURE
// Packages", the newest version first.
func parseOffers(text string) (list []Offer) {
	seen := map[string]bool{}
	add := func(o Offer) {
		if !seen[o.Name] {
			seen[o.Name] = true
			list = append(list, o)
		}
	}
	for line := range strings.Lines(text) {
		fields := strings.Split(line, "|")
		if len(fields) != 3 {
			continue
		}
		source, version := strings.Fields(fields[2]), strings.TrimSpace(fields[1])
		if len(source) < 2 || source[len(source)-1] != "Packages" {
			continue
		}
		add(Offer{Debian, version}) // only the first line, with the newest version, adds one
		if suite, _, ok := strings.Cut(source[1], "/"); ok && suite != "." && suite != "" {
			add(Offer{Debian + ":" + suite, version})
		}
	}
	return list
}
