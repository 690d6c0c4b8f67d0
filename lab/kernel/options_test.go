package kernel_test

import (
	"path/filepath"
	"testing"

	"github.com/gateweigh/gateweigh/lab/kernel"
)

// TestKernelHasOption: a kernel has an option that is built as a module only if the module's file is there. Without a
// configuration the lists of modules decide.
func TestKernelHasOption(t *testing.T) {
	folder := t.TempDir()
	k := kernel.Kernel{Name: "here", Release: "6.0", Image: filepath.Join(folder, "boot", "vmlinuz-6.0"),
		Modules: filepath.Join(folder, "lib/modules/6.0")}
	write(t, filepath.Join(k.Modules, "modules.dep"),
		"kernel/net/nft_queue.ko.xz: kernel/net/nf_tables.ko.xz\nkernel/net/nf_tables.ko.xz:\n")
	write(t, filepath.Join(k.Modules, "modules.builtin"), "kernel/net/veth.ko\n")
	asked := []struct{ option, module string }{
		{"CONFIG_NFT_QUEUE", "nft_queue"}, {"CONFIG_NFT", ""}, {"CONFIG_VETH", "veth"},
		{"CONFIG_NF_FLOW_TABLE", "nf_flow_table"}, {"CONFIG_BRIDGE", "bridge"}, {"CONFIG_NET_NS", ""},
	}
	check := func(when string, want ...bool) {
		t.Helper()
		for i, a := range asked {
			if has := k.Has(a.option, a.module); has != want[i] {
				t.Errorf("%s: %s with module %q: %v", when, a.option, a.module, has)
			}
		}
	}
	check("without configuration", true, false, true, false, false, false)
	write(t, filepath.Join(folder, "boot", "config-6.0"),
		"CONFIG_NFT_QUEUE=m\nCONFIG_VETH=y\nCONFIG_NF_FLOW_TABLE=m\n# CONFIG_BRIDGE is not set\nCONFIG_NET_NS=y\n")
	check("with it", true, false, true, false, false, true)
}
