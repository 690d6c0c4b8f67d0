package machine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Need is a program that the lab or a device starts on one of its hosts, and the
// feature of the kernel that the program is of no use without; or such a feature alone.
type Need struct {
	Program string `json:"program"`      // looked up on PATH; empty: the feature alone
	At      string `json:"at,omitempty"` // the program's file, where it was found
	// Package is Debian's package of it; for a device described in TOML, what
	// its author calls it. Empty when there is none: then Advice says what to do.
	Package string `json:"package,omitempty"`
	Advice  string `json:"advice,omitempty"`
	Why     string `json:"why,omitempty"` // completes "needed for …"
	// Feature of the kernel; empty is the one that programs of this name always need, if any.
	Feature Feature `json:"feature,omitempty"`
	// Beside: the program is also looked for in the folder of the lab's own program, and
	// its build is identified by its SHA-256.
	Beside bool `json:"beside,omitempty"`
	// Starts is an argument with which the program ends at once and does no harm: it
	// shows whether the program starts. Empty: that it is there is enough.
	Starts string `json:"starts,omitempty"`
}

// Remedy is what to do where the program is missing.
func (n Need) Remedy() string {
	if n.Package != "" {
		return "package " + n.Package
	}
	return n.Advice
}

// KernelFeature is the feature of the kernel that the program is of no use without, or "".
func (n Need) KernelFeature() Feature { return cmp.Or(n.Feature, alwaysNeeds[n.Program]) }

// Query is what Find looks for.
type Query struct {
	Needs    []Need `json:"needs"`
	Versions bool   `json:"versions"` // versions too: most programs are started for it
	Features bool   `json:"features"` // try the kernel's features, as far as that needs no more rights
}

// Found is what is here of one Need.
type Found struct {
	Path    string `json:"path,omitempty"`    // the program's file; empty: not on PATH
	Version string `json:"version,omitempty"` // empty: it says none
	Broken  string `json:"broken,omitempty"`  // how the program fails to start
	Lacks   string `json:"lacks,omitempty"`   // how the kernel's feature fails to work
	Refused string `json:"refused,omitempty"` // what keeps this process from using the feature, whatever the kernel has
}

// Absent reports whether the need is a program, and not here.
func (n Need) Absent(f Found) bool { return n.Program != "" && f.Path == "" }

// Find looks for programs and features on this machine, in the order of the query, and
// asks for each version and feature once.
func Find(ctx context.Context, q Query) []Found {
	answers := map[string]string{}
	once := func(question string, ask func() string) string {
		if _, asked := answers[question]; !asked {
			answers[question] = ask()
		}
		return answers[question]
	}
	list := make([]Found, len(q.Needs))
	for i, n := range q.Needs {
		f := &list[i]
		if f.Path = n.Locate(); n.Absent(*f) {
			continue
		}
		if n.Starts != "" {
			f.Broken = failure(ctx, f.Path, n.Starts)
		}
		if q.Versions && n.Program != "" {
			f.Version = once(f.Path, func() string { return n.version(ctx, f.Path) })
		}
		feature := n.KernelFeature()
		if feature == "" || !q.Features {
			continue
		}
		if f.Refused = once("rights for "+string(feature), feature.refused); f.Refused == "" {
			f.Lacks = once(string(feature), func() string { return feature.missing(ctx) })
		}
	}
	return list
}

// Locate is the program's file on this machine, or "".
func (n Need) Locate() string {
	if n.Program == "" {
		return ""
	}
	if found, err := exec.LookPath(n.Program); err == nil {
		return found
	}
	if self, err := os.Executable(); err == nil && n.Beside {
		if beside, err := exec.LookPath(filepath.Join(filepath.Dir(self), n.Program)); err == nil {
			return beside
		}
	}
	return ""
}

// versionFlags make programs print their version. Others are not run for it: nobody knows
// what an argument does to them.
var versionFlags = map[string]string{
	"bash": "--version", "chilli": "--version", "dnsmasq": "--version", "ethtool": "--version", "freeradius": "-v",
	"gatewayd": "version", "ip": "-V", "iperf3": "--version", "iptables": "--version", "logger": "--version",
	"nft": "--version", "opennds": "-v", "perf": "--version", "pgrep": "--version", "ss": "-V", "tc": "-V",
	"wget": "--version",
}

// alwaysNeeds is the feature of the kernel that a program is of no use without.
var alwaysNeeds = map[string]Feature{"chilli": TUN, "iptables": IptablesNFT, "nft": Nftables}

// startTimeout bounds starting a program to see what it says.
const startTimeout = 5 * time.Second

// version is the first line of what the program prints, or else the version of its Debian
// package, or "". Of a program that may lie beside the lab's own one the beginning of its
// SHA-256 follows: two builds may print the same.
func (n Need) version(ctx context.Context, path string) string {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if flag := versionFlags[n.Program]; flag != "" {
		if n.Program == "chilli" {
			path = "chilli_opt" // chilli itself would write a file into /var/run first
		}
		out, _ := exec.CommandContext(ctx, path, flag).CombinedOutput() // some print it and exit with an error
		line := firstLine(string(out))
		if n.Beside {
			if sum, err := sha256Of(path); err == nil {
				line += fmt.Sprintf(", sha256 %.8x", sum)
			}
		}
		return line
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

// failure is how a program fails to start, "" when it starts: with an exit status of its
// own too, because some programs print their version and end with one.
func failure(ctx context.Context, path, argument string) string {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	out, err := privately(ctx, `exec "$0" "$@"`, path, argument).CombinedOutput()
	var exit *exec.ExitError
	if err == nil || errors.As(err, &exit) && exit.Exited() && exit.ExitCode() < notExecutable {
		return ""
	}
	return strings.TrimSuffix(err.Error()+": "+firstLine(string(out)), ": ")
}

// notExecutable is the lowest exit status with which a shell or a loader says that a
// program could not be started (126, 127).
const notExecutable = 126

// privately prepares a shell script. As root it runs in network and mount namespaces of
// its own, with an empty /run, so that nothing it does reaches the machine.
func privately(ctx context.Context, script string, args ...string) *exec.Cmd {
	var attr syscall.SysProcAttr
	if os.Geteuid() == 0 {
		script, attr.Unshareflags = privateRun+script, syscall.CLONE_NEWNET|syscall.CLONE_NEWNS
	}
	cmd := exec.CommandContext(ctx, "/bin/sh", append([]string{"-ec", script}, args...)...)
	cmd.SysProcAttr = &attr
	return cmd
}

// privateRun mounts an empty /run, by the mount of the usual places: PATH may lack it.
const privateRun = "PATH=/usr/sbin:/usr/bin:/sbin:/bin:$PATH mount -t tmpfs none /run\n"

// firstLine is the first line of a text that has letters in it, printable only.
func firstLine(text string) string {
	printable := func(r rune) rune {
		if r < ' ' || r > '~' {
			return ' '
		}
		return r
	}
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(strings.Map(printable, line)); line != "" {
			return line
		}
	}
	return ""
}
