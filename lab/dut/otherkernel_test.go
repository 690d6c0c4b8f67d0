// Tests of devices that need another kernel. needyDevice is a device that has needs and does nothing (needs_test.go).

package dut

import (
	"errors"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/lab/kernel"
	"github.com/gateweigh/gateweigh/lab/labtest"
	"github.com/gateweigh/gateweigh/lab/machine"
)

// A device may need kernel features that this machine's kernel lacks. gateweigh can then run it under Debian's kernel
// in a virtual machine. The tests of this file check which features that kernel has, and when it is named to the user.

// TestDebianHasWhatIsDeclared: the table of features of Debian's kernel, which is used before that kernel is
// downloaded, agrees with the kernel's files.
func TestDebianHasWhatIsDeclared(t *testing.T) {
	k := labtest.Debian(t)
	for _, f := range machine.Features() {
		if has := FilesHave(k, f); has != f.InDebian() {
			t.Errorf("%s: kernel %s has %v: %v, declared is %v", f, k.Release, f.Parts(), has, f.InDebian())
		}
	}
	if FilesHave(k, "CONFIG_NO_SUCH_OPTION") || !FilesHave(k, "CONFIG_NFT_QUEUE") {
		t.Error("options of a table's device are not looked up")
	}
}

// TestOtherKernel: kernelWithMissing names Debian's kernel only if that has all features that this machine's kernel
// lacks, and if no program is missing.
func TestOtherKernel(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	needs := []Need{{Program: "nft", Package: "nftables", Feature: machine.NFTQueue}, {Program: "gwd", Package: "gadgets"},
		{Feature: "CONFIG_GWD"}}
	absent := []machine.Found{{Path: "/nft", FeatureError: "CONFIG_NFT_QUEUE is not set"}, {}, {}}
	if text := missingText(needs, absent); !strings.Contains(text,
		"not on PATH: gwd (package gadgets); sudo apt-get install gadgets; the kernel lacks nft queue: CONFIG_NFT_QUEUE is "+
			"not set") {
		t.Errorf("missing: %s", text)
	}
	here := []machine.Found{absent[0], {Path: "/gwd"}, {}}
	option := []machine.Found{{Path: "/nft"}, {Path: "/gwd"}, {FeatureError: "CONFIG_GWD is not set"}}
	if text := missingText(needs, option); text != "the kernel lacks CONFIG_GWD" {
		t.Errorf("missing: %s", text)
	}
	check := func(when string, found []machine.Found, want string) {
		t.Helper()
		if other := kernelWithMissing(needs, found); other != want {
			t.Errorf("%s: runs under %q, want %q", when, other, want)
		}
	}
	check("nothing missing", []machine.Found{{Path: "/nft"}, {Path: "/gwd"}, {}}, "")
	check("a program missing", absent, "")
	check("a feature in the table", here, kernel.Debian)
	check("an option that is not in the table", option, "")
	labtest.FetchedKernel(t, "CONFIG_NETFILTER_NETLINK_QUEUE=y\n")
	check("a fetched kernel without it", here, "")
	labtest.FetchedKernel(t, "CONFIG_NETFILTER_NETLINK_QUEUE=y\nCONFIG_NFT_QUEUE=m\n")
	check("a fetched kernel without the module", here, "")
	labtest.FetchedKernel(t, "CONFIG_NETFILTER_NETLINK_QUEUE=y\nCONFIG_NFT_QUEUE=y\nCONFIG_GWD=y\n")
	check("a fetched kernel with it", here, kernel.Debian)
	check("a fetched kernel with the option", option, kernel.Debian)
}

// TestCheckNamesTheKernel: the error for a feature that this machine's kernel lacks names a kernel that has it.
func TestCheckNamesTheKernel(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	labtest.FetchedKernel(t, "CONFIG_GWD=y\n")
	err := Check(t.Context(), thisMachine{}, "gadget",
		needyDevice{[]Need{{Program: "sh", Package: "dash"}, {Feature: "CONFIG_GWD"}}})
	if machine.Feature("CONFIG_GWD").Unset() == "" { // the kernel does not show its configuration
		if err != nil {
			t.Errorf("where the configuration is not shown: %v", err)
		}
		return
	}
	if !errors.Is(err, ErrNotSupported) || Kernel(err) != kernel.Debian ||
		Reason("gadget", err) != "the kernel lacks CONFIG_GWD" {
		t.Errorf("error %v, kernel %q", err, Kernel(err))
	}
	if command := Command(
		Kernel(err), "gateweigh run quick", "gadget"); command != "gateweigh run quick --kernel debian --set duts=gadget" {
		t.Error(command)
	}
	if Kernel(ErrNotSupported) != "" || Kernel(nil) != "" {
		t.Error("an error of something else names a kernel")
	}
}
