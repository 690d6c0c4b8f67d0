package labtest

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"
)

// FetchedKernel puts a kernel 6.0 named debian, without modules, where XDG_CACHE_HOME has fetched ones. It has a
// configuration, and an image of a header alone.
func FetchedKernel(t testing.TB, config string) {
	t.Helper()
	const header, version = 0x202, 0x300 // kernel, Documentation/arch/x86/boot.rst
	image := make([]byte, 0x400)
	copy(image[header:], "HdrS")
	binary.LittleEndian.PutUint16(image[0x206:], 0x20f) // of the protocol
	binary.LittleEndian.PutUint16(image[0x20e:], version-0x200)
	binary.LittleEndian.PutUint16(image[0x236:], 1) // 64 bits
	copy(image[version:], "6.0 (of a test)")
	folder := filepath.Join(os.Getenv("XDG_CACHE_HOME"), "gateweigh", "kernels", "debian-1")
	for name, text := range map[string]string{
		"name": "debian\n", "boot/vmlinuz-6.0": string(image), "boot/config-6.0": config, "lib/modules/6.0/modules.dep": "",
		"lib/modules/6.0/modules.builtin": "",
	} {
		file := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
