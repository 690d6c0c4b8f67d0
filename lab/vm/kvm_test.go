package vm

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/gateweigh/gateweigh/lab/result"
)

// TestKVMNote: KVM is left out once it has failed to start a kernel that an emulated CPU has started, and only then.
func TestKVMNote(t *testing.T) {
	kvm, tcg := accelerator{name: result.KVM, mayFail: true}, accelerator{name: result.TCG}
	for _, tt := range []struct {
		name            string
		failed, started accelerator
		left            int // ways in the list afterwards
	}{
		{"nothing failed, KVM started it", accelerator{}, kvm, 2},
		{"there is no KVM", accelerator{}, tcg, 2},
		{"KVM failed", kvm, tcg, 1},
	} {
		note := filepath.Join(t.TempDir(), "note")
		noteKVM(note, tt.failed, tt.started)
		list, without := withoutKVM([]accelerator{kvm, tcg}, note)
		if len(list) != tt.left || without != (tt.left == 1) || list[len(list)-1].name != result.TCG {
			t.Errorf("%s: %d ways are left, want %d", tt.name, len(list), tt.left)
		}
		if err := os.Remove(note); (err == nil) != without {
			t.Errorf("%s: the note: %v", tt.name, err)
		}
	}
	note := filepath.Join(t.TempDir(), "note")
	noteKVM(note, kvm, tcg)
	if list, without := withoutKVM([]accelerator{tcg}, note); without || len(list) != 1 {
		t.Error("an emulated CPU was left out")
	}
}
