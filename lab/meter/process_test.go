package meter

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// start runs a shell script that prints "done" when its work is done and then
// waits for its standard input to end.
func start(t *testing.T, script string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sh", "-c", script+"; echo done; read x")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); cmd.Wait() })
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "done\n" {
		t.Fatalf("script printed %q: %v", line, err)
	}
	return cmd
}

func TestProcessTimeMatchesWhatTheKernelBillsAtItsEnd(t *testing.T) {
	cmd := start(t, "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done")
	p, err := ReadProcess(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if p.Name != "sh" {
		t.Errorf("name = %q, want sh", p.Name)
	}
	cmd.Process.Kill()
	cmd.Wait()
	bill := cmd.ProcessState.SystemTime() + cmd.ProcessState.UserTime()
	// Between the reading and the kill it only waited for input.
	if off := float64(p.RunNs)/float64(bill.Nanoseconds()) - 1; off < -0.05 || off > 0.001 {
		t.Errorf("meter says %d ns, the kernel's final bill is %d ns", p.RunNs, bill.Nanoseconds())
	}
}

func TestProcessesInFindsANamespaceByItsLink(t *testing.T) {
	link, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		t.Fatal(err)
	}
	self := os.Getpid()
	name, err := os.ReadFile("/proc/self/comm") // whatever this binary is called
	if err != nil {
		t.Fatal(err)
	}
	list, err := processesIn(link, nil)
	if err != nil {
		t.Fatal(err)
	}
	if p := list[self]; p.RunNs == 0 || p.Name != strings.TrimSpace(string(name)) {
		t.Errorf("own process is %+v, of %d found", p, len(list))
	}
	list, err = processesIn(link, map[int]bool{self: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, listed := list[self]; listed {
		t.Error("skipped process is listed")
	}
	if list, _ := processesIn("pid:[1]", nil); len(list) != 0 {
		t.Errorf("%d processes in a namespace that does not exist", len(list))
	}
}

func TestSamplerNamesTheLinkWithoutAPollingThread(t *testing.T) {
	s := &Sampler{IfNames: []string{"lo"}}
	if err := s.Open(); err == nil || !strings.Contains(err.Error(), "lo has 0 NAPI threads") {
		t.Errorf("Open = %v, want an error that names lo", err)
	}
}

func TestSampledProcessesAreInTheOrderTheyStarted(t *testing.T) {
	link, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		t.Fatal(err)
	}
	skip := map[int]bool{}
	pids, err := PIDs()
	for _, pid := range pids {
		skip[pid] = true
	}
	var started []int
	for range 6 {
		started = append(started, start(t, ":").Process.Pid)
	}
	for _, follow := range []bool{false, true} {
		s := &Sampler{PIDLink: link, Skip: skip, Follow: follow}
		if err := errors.Join(err, s.Open()); err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		got, err := s.Sample()
		if err != nil {
			t.Fatal(err)
		}
		var pids []int
		for _, p := range got.Processes {
			if slices.Contains(started, p.PID) { // not another program of the machine
				pids = append(pids, p.PID)
			}
		}
		if !slices.Equal(pids, started) {
			t.Errorf("follow %v: processes %v, want %v", follow, pids, started)
		}
	}
}
