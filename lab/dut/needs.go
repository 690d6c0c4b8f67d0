package dut

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// Need is a program that the lab or a device starts on one of its hosts.
type Need struct {
	Program string `json:"program"`      // looked up on PATH, where At is empty
	At      string `json:"at,omitempty"` // the program's file
	// Package is Debian's package of it; for a device described in TOML, what
	// its author calls it. Empty when there is none: then Advice says what to do.
	Package string `json:"package,omitempty"`
	Advice  string `json:"advice,omitempty"`
	Why     string `json:"why,omitempty"` // completes "needed for …"
}

// Remedy is what to do where the program is missing.
func (n Need) Remedy() string {
	if n.Package != "" {
		return "package " + n.Package
	}
	return n.Advice
}

// Path is where the program is; an error when it is not there.
func (n Need) Path() (string, error) { return exec.LookPath(cmp.Or(n.At, n.Program)) }

// versionCommands print the version of a program. Only programs listed here are
// run for it: of others nobody knows what an argument does.
var versionCommands = map[string][]string{
	"bash": {"bash", "--version"},
	// chilli itself would write a file into /var/run first.
	"chilli":     {"chilli_opt", "--version"},
	"dnsmasq":    {"dnsmasq", "--version"},
	"ethtool":    {"ethtool", "--version"},
	"freeradius": {"freeradius", "-v"},
	"gatewayd":   {"gatewayd", "version"},
	"ip":         {"ip", "-V"},
	"iperf3":     {"iperf3", "--version"},
	"iptables":   {"iptables", "--version"},
	"logger":     {"logger", "--version"},
	"nft":        {"nft", "--version"},
	"opennds":    {"opennds", "-v"},
	"perf":       {"perf", "--version"},
	"pgrep":      {"pgrep", "--version"},
	"ss":         {"ss", "-V"},
	"tc":         {"tc", "-V"},
	"wget":       {"wget", "--version"},
}

// versionTimeout bounds asking a program for its version.
const versionTimeout = 5 * time.Second

// Version is what the program itself says, its first line, or else the version
// of its Debian package. Empty when the program is missing or nobody knows. Of a program
// that has a file of its own the file's SHA-256 follows: two builds may say the same.
func (n Need) Version(ctx context.Context) string {
	path, err := n.Path()
	if err != nil {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	if argv, known := versionCommands[n.Program]; known {
		// Some print it and exit with an error all the same.
		program := argv[0]
		if program == n.Program {
			program = path
		}
		out, _ := exec.CommandContext(ctx, program, argv[1:]...).CombinedOutput()
		return firstLine(string(out)) + n.digest()
	}
	if n.Package == "" {
		return ""
	}
	out, err := exec.CommandContext(ctx, "dpkg-query", "-W", "-f", "${Version}", n.Package).Output()
	if err != nil || len(out) == 0 {
		return "" // another distribution, or built from source
	}
	return n.Package + " " + firstLine(string(out))
}

// digest is the beginning of the SHA-256 of the file that At names, or nothing.
func (n Need) digest() string {
	file, err := os.Open(n.At)
	if err != nil {
		return ""
	}
	defer file.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, file); err != nil {
		return ""
	}
	return fmt.Sprintf(", sha256 %.8x", sum.Sum(nil))
}

// firstLine is the first line of a text that has letters in it, printable only.
func firstLine(text string) string {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(strings.Map(func(r rune) rune {
			if r < ' ' || r > '~' {
				return ' '
			}
			return r
		}, line))
		if line != "" {
			return line
		}
	}
	return ""
}

// missing returns a wrapped ErrNotSupported that names the programs a device
// needs and PATH lacks, with what to do, or nil.
func missing(device string, needs []Need) error {
	byRemedy := map[string][]string{}
	for _, n := range needs {
		if _, err := n.Path(); err != nil {
			byRemedy[n.Remedy()] = append(byRemedy[n.Remedy()], n.Program)
		}
	}
	if len(byRemedy) == 0 {
		return nil
	}
	var list []string
	for remedy, names := range byRemedy {
		slices.Sort(names)
		list = append(list, fmt.Sprintf("%s (%s)", strings.Join(names, ", "), remedy))
	}
	// Sorted, because the text goes into reports that are compared.
	slices.Sort(list)
	return fmt.Errorf("%s: not on PATH: %s: %w", device, strings.Join(list, ", "), ErrNotSupported)
}
