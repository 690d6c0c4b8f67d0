package dut

import (
	"os"
	"runtime"
	"slices"
	"strings"

	"github.com/gateweigh/gateweigh/lab/kernel"
	"github.com/gateweigh/gateweigh/lab/machine"
)

// kernelWithMissing is the kernel under which this machine has what a device needs, where all that is missing is the
// kernel's.
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

// OtherKernel is the name of a kernel that has features which this machine's lacks: "debian", or "" where none is
// known. The files of Debian's kernel say so where it is fetched, and what is declared of the features elsewhere.
func OtherKernel(features ...machine.Feature) string {
	places, err := kernel.UsualPlaces()
	if err != nil || len(features) == 0 || runtime.GOARCH != "amd64" { // guests are for x86-64
		return ""
	}
	has := machine.Feature.InDebian
	if k, err := places.Find(kernel.Debian); err == nil {
		if own, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil && strings.TrimSpace(string(own)) == k.Release {
			return "" // this is it
		}
		has = func(f machine.Feature) bool { return FilesHave(k, f) }
	}
	if slices.ContainsFunc(features, func(f machine.Feature) bool { return !has(f) }) {
		return ""
	}
	return kernel.Debian
}

// FilesHave reports whether a kernel's files say that it has a feature.
func FilesHave(k kernel.Kernel, f machine.Feature) bool {
	return slices.ContainsFunc(f.Either(), func(f machine.Feature) bool {
		parts := f.Parts()
		return len(parts) > 0 && !slices.ContainsFunc(parts, func(p machine.Part) bool { return !k.Has(p.Option, p.Module) })
	})
}
