package softirq

import (
	"maps"
	"os"
	"path/filepath"
	"testing"
)

// interrupts is /proc/interrupts of a machine with two CPUs.
const interrupts = `           CPU0       CPU1
 24:          1          0  IO-APIC   5-edge      ACPI:Ged
 37:          0          0 PCI-MSIX-0000:00:03.0   0-edge      virtio2-config
 38:          0      26420 PCI-MSIX-0000:00:03.0   1-edge      virtio2-input.0
 39:      19422          0 PCI-MSIX-0000:00:03.0   2-edge      virtio2-output.0
 41:      38294          0 PCI-MSIX-0000:00:04.0   1-edge      enp4s0-rx-0
 50:         12          0     GIC-0  43 Level     eth1
 51:         12          0     GIC-0  44 Level     eth1-mac
NMI:          0          0   Non-maskable interrupts
ERR:          0
`

// TestInterruptsOf: a device's interrupts are found wherever the kernel lists them for its bus. The test makes such
// files below a temporary folder.
func TestInterruptsOf(t *testing.T) {
	root := t.TempDir()
	put := func(path, text string) {
		t.Helper()
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("proc/interrupts", interrupts)
	put("sys/devices/pci/3/msi_irqs/39", "")
	put("sys/devices/pci/3/msi_irqs/38", "")
	put("sys/devices/pci/3/virtio2/uevent", "")
	put("sys/devices/pci/4/msi_irqs/41", "")
	put("sys/devices/pci/4/irq", "11\n")
	put("sys/devices/pci/5/irq", "24\n")
	put("sys/devices/soc/mac/uevent", "")
	put("sys/class/net/veth0/type", "1\n")
	for ifname, device := range map[string]string{
		"eth0": "pci/3/virtio2", "enp4s0": "pci/4", "old": "pci/5", "eth1": "soc/mac",
	} {
		put("sys/class/net/"+ifname+"/type", "1\n")
		if err := os.Symlink("../../../devices/"+device, filepath.Join(root, "sys/class/net", ifname, "device")); err != nil {
			t.Fatal(err)
		}
	}
	for ifname, want := range map[string]map[int]string{
		"eth0":   {38: "virtio2-input.0", 39: "virtio2-output.0"},
		"enp4s0": {41: "enp4s0-rx-0"}, "old": {24: "ACPI:Ged"}, "eth1": {50: "eth1", 51: "eth1-mac"},
		"veth0": nil, "absent": nil,
	} {
		numbers, names := interruptsOf(root, ifname)
		if !maps.Equal(names, want) || len(numbers) != len(want) {
			t.Errorf("%s has %v (%v), want %v", ifname, names, numbers, want)
		}
	}
}
