package vm

import (
	"errors"
	"io/fs"
	"os"

	"github.com/gateweigh/gateweigh/lab/result"
)

// kvmNote is the file that notes until the machine's next boot that KVM starts no guest here. Each guest would wait for
// bootTimeout in vain otherwise. A user who cannot write it waits.
const kvmNote = "/run/gateweigh-kvm-starts-no-guest"

// withoutKVM takes KVM off the list where the note exists. The list has another way behind it.
func withoutKVM(list []accelerator, note string) ([]accelerator, bool) {
	if _, err := os.Stat(note); errors.Is(err, fs.ErrNotExist) || list[0].name != result.KVM {
		return list, false
	}
	return list[1:], true
}

// noteKVM writes the note when KVM has failed to start a kernel that another accelerator has started.
func noteKVM(note string, failed, started accelerator) {
	if failed.name == result.KVM && started.name != result.KVM {
		// Where it cannot be written the next guest waits again.
		_ = os.WriteFile(note, []byte("KVM started no guest on this machine. Remove this file to try it again.\n"), 0o644)
	}
}
