package dut

import (
	"os"
	"runtime"
	"slices"
	"strings"

	"github.com/gateweigh/gateweigh/lab/kernel"
	"github.com/gateweigh/gateweigh/lab/machine"
)

// kernelWithMissing returns the name of a kernel under which this machine would meet all needs; empty if none is known,
// or if something other than kernel features is missing.
func kernelWithMissing(needs []Need, found []machine.Found) string {
	var features []machine.Feature
	for i, n := range needs {
		switch f := found[i]; {
		case n.Absent(f), f.Broken != "", f.NotPermitted != "":
			return ""
		case f.FeatureError != "":
			features = append(features, n.KernelFeature())
		}
	}
	return OtherKernel(features...)
}

// OtherKernel returns the name of a kernel that has these features and is not the running one: "debian", or "" if none
// is known. It reads the files of Debian's kernel if that is fetched, and otherwise believes machine.Feature.InDebian.
func OtherKernel(features ...machine.Feature) string {
	places, err := kernel.UsualPlaces()
	if err != nil || len(features) == 0 || runtime.GOARCH != "amd64" { // virtual machines work on x86-64 only
		return ""
	}
	hasFeature := machine.Feature.InDebian
	if k, err := places.Find(kernel.Debian); err == nil {
		running, err := os.ReadFile("/proc/sys/kernel/osrelease")
		if err == nil && strings.TrimSpace(string(running)) == k.Release {
			return "" // it is the running kernel, which lacks them
		}
		hasFeature = func(f machine.Feature) bool { return FilesHave(k, f) }
	}
	if slices.ContainsFunc(features, func(f machine.Feature) bool { return !hasFeature(f) }) {
		return ""
	}
	return kernel.Debian
}

// FilesHave reports whether a kernel's files say that it has a feature.
func FilesHave(k kernel.Kernel, f machine.Feature) bool {
	return slices.ContainsFunc(f.Alternatives(), func(f machine.Feature) bool {
		parts := f.Parts()
		return len(parts) > 0 && !slices.ContainsFunc(parts, func(p machine.Part) bool { return !k.Has(p.Option, p.Module) })
	})
}
