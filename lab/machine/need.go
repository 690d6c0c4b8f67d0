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

// Need is a program that the lab or a device starts on one of its hosts, with the kernel feature that the program
// depends on. Without a program it is a kernel feature alone.
type Need struct {
	Program string `json:"program"`      // looked up on PATH; empty: the feature alone
	Path    string `json:"at,omitempty"` // of the program's file, where it was found
	// Package is the Debian package that has the program. For a device described in TOML it is the name that the
	// author gave. It is empty when there is none: then Advice tells how to get the program.
	Package string `json:"package,omitempty"`
	Advice  string `json:"advice,omitempty"`
	Why     string `json:"why,omitempty"` // completes "needed for …"
	// On lists the kinds of hosts on which the program runs, with commas: "client,server". Empty: all hosts; for a
	// program of a device, the device's.
	On string `json:"on,omitempty"`
	// Feature of the kernel. Empty stands for the one in featureOfProgram, if any.
	Feature Feature `json:"feature,omitempty"`
	// NextToLab has Locate look in the folder of the lab's program as well as on PATH. The program's version then
	// includes its SHA-256.
	NextToLab bool `json:"beside,omitempty"`
	// ProbeArg is an argument with which the program ends at once and does no harm. Find runs the program with it to
	// see whether it starts. When it is empty, Find only looks for the file.
	ProbeArg string `json:"starts,omitempty"`
}

// Remedy tells how to get the program where it is missing.
func (n Need) Remedy() string {
	if n.Package != "" {
		return "package " + n.Package
	}
	return n.Advice
}

// KernelFeature is the kernel feature that the program depends on, or "".
func (n Need) KernelFeature() Feature { return cmp.Or(n.Feature, featureOfProgram[n.Program]) }

// Query lists the programs and features that Find looks for.
type Query struct {
	Needs    []Need `json:"needs"`
	Versions bool   `json:"versions"` // also find versions: this starts most programs
	Features bool   `json:"features"` // also try the kernel features that this process may use
}

// Found is the result of looking for one Need on this machine.
type Found struct {
	Path    string `json:"path,omitempty"`    // of the program's file; empty: not found
	Version string `json:"version,omitempty"` // empty: unknown
	Broken  string `json:"broken,omitempty"`  // the error of starting the program
	// FeatureError tells why the kernel feature does not work.
	FeatureError string `json:"lacks,omitempty"`
	// NotPermitted tells why this process may not use the feature, whether or not the kernel has it.
	NotPermitted string `json:"refused,omitempty"`
}

// Absent reports whether the need is a program that is not on this machine.
func (n Need) Absent(f Found) bool { return n.Program != "" && f.Path == "" }

// Find looks for programs and features on this machine. Its results are in the order of the query. It looks up each
// version and feature once.
func Find(ctx context.Context, q Query) []Found {
	answers := map[string]string{}
	once := func(key string, find func() string) string {
		if _, known := answers[key]; !known {
			answers[key] = find()
		}
		return answers[key]
	}
	list := make([]Found, len(q.Needs))
	for i, n := range q.Needs {
		f := &list[i]
		if f.Path = n.Locate(); n.Absent(*f) {
			continue
		}
		if n.ProbeArg != "" {
			f.Broken = failure(ctx, f.Path, n.ProbeArg)
		}
		if q.Versions && n.Program != "" {
			f.Version = once(f.Path, func() string { return n.version(ctx, f.Path) })
		}
		feature := n.KernelFeature()
		if feature == "" || !q.Features {
			continue
		}
		if f.NotPermitted = once("rights for "+string(feature), feature.refused); f.NotPermitted == "" {
			f.FeatureError = once(string(feature), func() string { return feature.missing(ctx) })
		}
	}
	return list
}

// Locate returns the path of the program's file on this machine, or "".
func (n Need) Locate() string {
	if n.Program == "" {
		return ""
	}
	if found, err := exec.LookPath(n.Program); err == nil {
		return found
	}
	if self, err := os.Executable(); err == nil && n.NextToLab {
		if found, err := exec.LookPath(filepath.Join(filepath.Dir(self), n.Program)); err == nil {
			return found
		}
	}
	return ""
}

// versionFlags make programs print their version. Other programs are not run for it, because an argument might make
// them do something else.
var versionFlags = map[string]string{
	"bash": "--version", "chilli": "--version", "dnsmasq": "--version", "ethtool": "--version", "freeradius": "-v",
	"gatewayd": "version", "ip": "-V", "iperf3": "--version", "iptables": "--version", "logger": "--version",
	"nft": "--version", "opennds": "-v", "perf": "--version", "pgrep": "--version", "ss": "-V", "tc": "-V",
	"wget": "--version",
}

// featureOfProgram is the kernel feature that each of these programs depends on.
var featureOfProgram = map[string]Feature{"chilli": TUN, "iptables": IptablesNFT, "nft": Nftables}

// startTimeout bounds one start of a program for its version or as a probe.
const startTimeout = 5 * time.Second

// version returns the first line that the program prints for its version flag. A program without such a flag has the
// version of its Debian package, or "". With NextToLab, the first digits of the program's SHA-256 follow, because two
// builds may print the same line.
func (n Need) version(ctx context.Context, path string) string {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if flag := versionFlags[n.Program]; flag != "" {
		if n.Program == "chilli" {
			path = "chilli_opt" // chilli itself would write a file into /var/run first
		}
		out, _ := exec.CommandContext(ctx, path, flag).CombinedOutput() // some print it and exit with an error
		line := firstLine(string(out))
		if n.NextToLab {
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

// failure returns the error of starting a program, or "" when it starts. An exit status of the program itself is no
// failure, because some programs print their version and exit with an error.
func failure(ctx context.Context, path, argument string) string {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	out, err := isolatedShell(ctx, `exec "$0" "$@"`, path, argument).CombinedOutput()
	var exit *exec.ExitError
	if err == nil || errors.As(err, &exit) && exit.Exited() && exit.ExitCode() < notExecutable {
		return ""
	}
	return strings.TrimSuffix(err.Error()+": "+firstLine(string(out)), ": ")
}

// notExecutable is the lowest exit status by which a shell or a loader reports that it could not start a program (126,
// 127).
const notExecutable = 126

// isolatedShell prepares a shell script. For root, the script runs in network and mount namespaces of its own with an
// empty /run, so that it changes nothing on the machine.
func isolatedShell(ctx context.Context, script string, args ...string) *exec.Cmd {
	var attr syscall.SysProcAttr
	if os.Geteuid() == 0 {
		script, attr.Unshareflags = emptyRun+script, syscall.CLONE_NEWNET|syscall.CLONE_NEWNS
	}
	cmd := exec.CommandContext(ctx, "/bin/sh", append([]string{"-ec", script}, args...)...)
	cmd.SysProcAttr = &attr
	return cmd
}

// emptyRun mounts an empty /run. It adds the usual folders to PATH, which may lack the one of mount.
const emptyRun = "PATH=/usr/sbin:/usr/bin:/sbin:/bin:$PATH mount -t tmpfs none /run\n"

// firstLine returns the first line of a text that is not blank, with spaces for unprintable characters.
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
