package packaging

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/gateweigh/gateweigh/internal/netnstest"
)

const groupPrefix = "gateweigh-packages-"

// group is the control group of the machine's processes. It has this process's ID in its name.
func (m *machine) group() string { return fmt.Sprint(groupPrefix, os.Getpid()) }

// groups mounts the machine's control groups where testdata/boot does, and removes those that killed runs left.
func (m *machine) groups() {
	m.t.Helper()
	folder := m.dir + "/cgroup"
	must(m.t, os.MkdirAll(folder, 0o755))
	must(m.t, syscall.Mount("cgroup2", folder, "cgroup2", 0, ""))
	m.t.Cleanup(func() { must(m.t, syscall.Unmount(folder, 0)) })
	left, err := filepath.Glob(folder + "/" + groupPrefix + "*")
	must(m.t, err)
	for _, group := range left {
		_, pid, _ := strings.Cut(filepath.Base(group), groupPrefix)
		if _, err := os.Stat("/proc/" + pid); errors.Is(err, fs.ErrNotExist) && emptied(group) == nil {
			removeGroup(m.t, group)
		}
	}
}

// awaitEmpty waits until no process of the machine is left.
func (m *machine) awaitEmpty() {
	m.t.Helper()
	netnstest.Await(m.t, "the end of the machine's processes", func() error {
		return emptied(m.dir + "/cgroup/" + m.group())
	})
}

// emptied is an error while a process is in the group or in one below it.
func emptied(group string) error {
	events, err := os.ReadFile(group + "/cgroup.events")
	if err == nil && !strings.Contains(string(events), "populated 0\n") {
		err = fmt.Errorf("%s has: %s", filepath.Base(group), events)
	}
	return err
}

// removeGroup removes a group and those below it, from the leaves.
func removeGroup(t *testing.T, group string) {
	t.Helper()
	var all []string
	must(t, filepath.WalkDir(group, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() {
			all = append(all, path)
		}
		return err
	}))
	for _, path := range slices.Backward(all) {
		must(t, syscall.Rmdir(path))
	}
}
