package agent

import (
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/gateweigh/gateweigh/lab/client/persona"
	"github.com/gateweigh/gateweigh/lab/floor"
	"github.com/gateweigh/gateweigh/lab/machine"
	"github.com/gateweigh/gateweigh/lab/sink"
	"github.com/gateweigh/gateweigh/lab/traffic/frames/receive"
	"github.com/gateweigh/gateweigh/lab/traffic/frames/send"
	"github.com/gateweigh/gateweigh/lab/traffic/transition"
	"github.com/gateweigh/gateweigh/lab/watch"
)

// tryProgram tests that this program's file needs no dynamic linker.
func tryProgram(context.Context, *selfTest) (string, error) {
	f, err := elf.Open("/proc/self/exe")
	if err != nil {
		return "", fmt.Errorf("opening this program's file: %w", err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return "", errors.New("this program needs a dynamic linker: build it with CGO_ENABLED=0")
		}
	}
	file, err := os.Executable()
	if err != nil {
		return "", err
	}
	info, err := os.Stat(file)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s, static, %.1f MB", f.Machine, float64(info.Size())/1e6), nil
}

// unknownVerb is a request that agents must refuse.
const unknownVerb = "NoSuchVerb"

// tryProtocol starts an agent, compares its build with this program's, and sends it a known and an unknown request.
func tryProtocol(ctx context.Context, s *selfTest) (string, error) {
	conn, end, err := s.startTest(false)
	if err != nil {
		return "", err
	}
	defer end()
	hello, err := conn.Hello(ctx)
	if err == nil {
		err = hello.Matches()
	}
	if err != nil {
		return "", err
	}
	if err := conn.do(ctx, unknownVerb); err == nil || !strings.Contains(err.Error(), unknownVerb) {
		return "", fmt.Errorf("the answer to an unknown verb is %v", err)
	}
	load, err := conn.Load(ctx)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("started itself (process %d), which is the same build; load %+v", hello.PID, load), nil
}

// tryMachine has an agent describe the machine, and run a loop on one of its CPUs.
func tryMachine(ctx context.Context, s *selfTest) (string, error) {
	conn, end, err := s.startTest(false)
	if err != nil {
		return "", err
	}
	defer end()
	m, err := conn.Machine(ctx)
	if err != nil {
		return "", err
	}
	const hash = 64 // hexadecimal digits of a SHA-256
	if m.Online < 1 || len(m.Usable) < 1 || m.Release == "" || m.Memory.Total <= 0 || len(m.Program) != hash {
		return "", fmt.Errorf("it lacks something: %+v", m)
	}
	// Other programs may take the CPU for the whole time of a loop. Then a longer one is tried.
	for length, pieces := loopTime, 0; pieces == 0; length *= 2 {
		loops, err := conn.RunLoops(ctx, m.Usable[:1], length)
		if err != nil || len(loops) != 1 {
			return "", fmt.Errorf("a loop on CPU %d: %+v, %v", m.Usable[0], loops, err)
		}
		pieces = len(loops[0].Pieces)
	}
	return fmt.Sprintf(
		"kernel %s, %d CPUs, %d of them usable, %d MiB", m.Release, m.Online, len(m.Usable), m.Memory.Total>>10), nil
}

// tryFind has an agent look for programs, one of which does not exist.
func tryFind(ctx context.Context, s *selfTest) (string, error) {
	conn, end, err := s.startTest(false)
	if err != nil {
		return "", err
	}
	defer end()
	list, err := conn.Find(
		ctx, machine.Query{Needs: []machine.Need{{Program: "sh"}, {Program: "gateweigh-no-such-program"}, {Program: "ip"}}})
	if err != nil {
		return "", err
	}
	if list[0].Path == "" || list[1].Path != "" {
		return "", fmt.Errorf("sh is at %q, a program that does not exist at %q", list[0].Path, list[1].Path)
	}
	return fmt.Sprintf("sh at %s, ip at %q", list[0].Path, list[2].Path), nil
}

// tryObjects decodes the eBPF programs in this program's file. It compares the layout of their C types with that of the
// Go types.
func tryObjects(context.Context, *selfTest) (string, error) {
	objects := map[string]func() error{
		"of the generator": send.CheckObject, "of the receiver": receive.CheckObject, "of personas": persona.CheckObject,
		"of sinks": sink.CheckObject, "of the floor": floor.CheckObject, "of the watch": watch.CheckObject,
		"of taps": transition.CheckObject,
	}
	for name, check := range objects {
		if err := check(); err != nil {
			return "", fmt.Errorf("programs %s: %w", name, err)
		}
	}
	return fmt.Sprintf("%d decoded, in this machine's byte order; maps and Go types have the same layout", len(objects)),
		nil
}
