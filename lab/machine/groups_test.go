// A test of limits that control groups set for memory, CPU time and processes.

package machine

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// inGroup makes a control group with limits, of whichever version this kernel's controllers are, runs this test's other
// half there and removes the group.
const inGroup = `
root=/sys/fs/cgroup
[ -n "$(ls $root)" ] || mount -t cgroup2 none $root
groups=
enter() { # CONTROLLER FILE TEXT
	g=$root/$1/$NAME; [ ! -e $root/cgroup.controllers ] || g=$root/$NAME
	[ -e $g ] || mkdir $g
	groups="$groups $g"; echo "$3" > $g/$2
}
leave() { for g in $groups; do until rmdir $g 2>/dev/null || [ ! -e $g ]; do sleep 0.01; done; done; }
trap leave EXIT
if [ -e $root/cgroup.controllers ]; then
	echo "+cpu +memory +pids" > $root/cgroup.subtree_control
	enter - cpu.max "150000 100000"; enter - memory.max 1073741824; enter - pids.max 5000
else
	enter cpu cpu.cfs_quota_us 150000; enter memory memory.limit_in_bytes 1073741824; enter pids pids.max 5000
fi
( for g in $groups; do sh -c 'echo $PPID' > $g/cgroup.procs; done; exec "$@" )`

// TestControlGroupsOfThisMachine reads limits in a real group: how much they are, what is in use, and which file says
// so.
func TestControlGroupsOfThisMachine(t *testing.T) {
	const half = "GATEWEIGH_TEST_GROUP"
	if os.Getenv(half) != "" {
		m, err := Read()
		if err != nil {
			t.Fatal(err)
		}
		text, _ := json.Marshal([]any{m.Quota, m.Limits.GroupTasks, m.Limits.GroupKiB})
		fmt.Printf("\nfound %s\n", text)
		return
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root for control groups")
	}
	cmd := exec.Command(
		"unshare", "-m", "sh", "-ec", inGroup, "sh", os.Args[0], "-test.run=^TestControlGroupsOfThisMachine$")
	name := fmt.Sprintf("gateweigh-test-%d", os.Getpid())
	cmd.Env = append(os.Environ(), half+"=1", "NAME="+name)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var quota Quota
	var tasks, memory Headroom
	_, found, _ := strings.Cut(string(out), "\nfound ")
	found, _, _ = strings.Cut(found, "\n")
	if err := json.Unmarshal([]byte(found), &[]any{&quota, &tasks, &memory}); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if quota.CPUs != 1.5 || tasks.Limit != 5000 || memory.Limit != 1<<20 || tasks.Used == 0 {
		t.Errorf("quota %+v, tasks %+v, KiB %+v", quota, tasks, memory)
	}
	of := map[string][]string{"/sys/fs/cgroup/" + name: {"cpu.max", "pids.max", "memory.max"}}
	if _, err := os.Stat("/sys/fs/cgroup/cpu"); err == nil {
		of = map[string][]string{"": {"cpu.cfs_quota_us", "pids.max", "memory.limit_in_bytes"}}
	}
	for dir, names := range of {
		for i, file := range []string{quota.File, tasks.File, memory.File} {
			if !strings.HasPrefix(file, dir) || !strings.HasSuffix(file, "/"+name+"/"+names[i]) {
				t.Errorf("%s says the limit of %s", file, names[i])
			}
		}
	}
}
